package reminder_test

import (
	"testing"

	"github.com/sendonce/sendonce/internal/reminder"
)

func hash(to, content string) string {
	return reminder.Reminder{To: to, Content: []byte(content)}.ContentHash()
}

func TestContentHash_IsStable(t *testing.T) {
	// printf '\0\0\0\0\0\0\0\1a\0\0\0\0\0\0\0\7{"b":1}' | sha256sum
	const want = "824315ee20817d4abb9ec87139b55093c94d8a57ae959030cb2fe2efa5b884ad"
	if got := hash("a", `{ "b" : 1 }`); got != want {
		t.Errorf("got %s, want %s: every stored entry would conflict", got, want)
	}
}

func TestContentHash_IgnoresOrderSpacingAndEscapes(t *testing.T) {
	const plain = `{"a":[1,{"b":"x/é","c":null}],"d":"A","n":1e400}`
	for _, other := range []string{
		`{"d":"A","n":1e400,"a":[1,{"c":null,"b":"x/é"}]}`,
		"{\n \"a\" : [ 1, {\"b\":\"x/é\", \"c\":null} ],\t\"d\":\"A\", \"n\": 1e400 }",
		`{"a":[1,{"b":"x\/\u00e9","c":null}],"d":"\u0041","n":1e400}`,
		`{"\u0061":[1,{"b":"x\/\u00E9","c":null}],"d":"A","n":1e400}`,
	} {
		if hash("p7", plain) != hash("p7", other) {
			t.Errorf("%s counts as other content", other)
		}
	}
}

func TestContentHash_DiffersForOtherContent(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"p7", `{"n":9007199254740992}`},
		{"p7", `{"n":9007199254740993}`},
		{"p7", `{"n":"9007199254740993"}`},
		{"p7", `{"n":1e400}`},
		{"p7", `{"n":1e401}`},
		{"p7", `{"n":1.7976931348623157e308}`},
		{"p7", `{"n":[1,2]}`},
		{"p7", `{"n":[2,1]}`},
		{"p7", `{"n":null}`},
		{"p7", `{"N":null}`},
		{"P7", `{"n":null}`},
		{"p7{", `"n":null}`},
		{"", `p7{"n":null}`},
		{"", ""},
	} {
		h := hash(c[0], c[1])
		if earlier, ok := seen[h]; ok {
			t.Errorf("%q and %s share a hash", c, earlier)
		}
		seen[h] = c[0] + " " + c[1]
	}
}

func TestContentHash_LeavesTheContentUnchanged(t *testing.T) {
	r := reminder.Reminder{To: "a", Content: []byte(`{ "b":1, "a":1e400 }`)}
	r.ContentHash()
	if string(r.Content) != `{ "b":1, "a":1e400 }` {
		t.Errorf("the content changed to %s", r.Content)
	}
}
