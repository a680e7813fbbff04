package ledger_test

import (
	"encoding/base64"
	"strings"
	"testing"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// hostile returns parts that a joined identity would confuse.
func hostile() []string {
	parts := []string{"a", "b", "a:b", "a/b", "a|b", "a,b", "ab", "aa", ":", "::", "a:", ":a", "1:a", "1:a1:b", "é", "é", "A", " a", "a ", "\x01", "\x7f", "%00", "\\0", strings.Repeat("a", 300)}
	return append(parts, "a\x1fb", "a\nb", "a\tb", "\u200b")
}

func TestIdentity_KeysAndEntryIDsAreUnique(t *testing.T) {
	keys, words := map[string]Identity{}, map[string]Identity{}
	for _, a := range hostile() {
		for _, b := range hostile() {
			for _, c := range hostile()[:8] {
				id := Identity{ReminderID: a, Type: b, Channel: c}
				if other, taken := keys[id.SendKey()]; taken && other != id {
					t.Fatalf("%q and %q share a send key", id, other)
				}
				if other, taken := words[id.EntryID()]; taken && other != id {
					t.Fatalf("%q and %q share an entry id", id, other)
				}
				keys[id.SendKey()], words[id.EntryID()] = id, id
				if back, ok := ParseEntryID(id.EntryID()); !ok || back != id {
					t.Fatalf("%q comes back as %q, %t", id, back, ok)
				}
			}
		}
	}
}

func TestSendKey_IsStable(t *testing.T) {
	// Fixed here, since a provider may remember it across releases: SHA-256 over three times
	// (8 bytes of length, big endian, and the part).
	const want = "c9adcbacd3de5d4a10a5db354e16a65fc5086bb4ca21f48ee3320726db6be1cd"
	if got := identity().SendKey(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMalformedIdentity_IsNoReminders(t *testing.T) {
	first := MalformedIdentity("source", "m-1", []byte("{"))
	if first.Type != MalformedType || first.Channel != "source" || first != MalformedIdentity("source", "m-1", []byte("{")) {
		t.Errorf("%+v", first)
	}
	for _, other := range []Identity{
		MalformedIdentity("source", "m-2", []byte("{")), MalformedIdentity("source", "m-1", []byte("}")),
		MalformedIdentity("sourcem", "-1", []byte("{")), MalformedIdentity("source", "m-1{", nil),
	} {
		if other.ReminderID == first.ReminderID {
			t.Errorf("%+v is taken for %+v", other, first)
		}
	}
}

func TestParseEntryID_RejectsEverythingElse(t *testing.T) {
	of := func(joined string) string { return base64.RawURLEncoding.EncodeToString([]byte(joined)) }
	for name, word := range map[string]string{
		"empty": "", "one part": of("a"), "two parts": of("a\x00b"), "four parts": of("a\x00b\x00c\x00d"),
		"no reminder": of("\x00b\x00c"), "no type": of("a\x00\x00c"), "no channel": of("a\x00b\x00"),
		"padded": base64.URLEncoding.EncodeToString([]byte("a\x00b\x00c")), "not base64": "a b", "a path": "../x",
		"standard alphabet": base64.RawStdEncoding.EncodeToString([]byte("\xff\xfe\x00\xff\xfe\x00\xff\xfe\xfb")),
		"trailing bits":     of("a\x00b\x00c")[:6] + "B", "only NUL": of("\x00\x00"), "a stray character": of("a\x00b\x00c") + "!",
	} {
		if id, ok := ParseEntryID(word); ok {
			t.Errorf("%s: %q is parsed as %q", name, word, id)
		}
	}
}

// Go's base64 ignores CR and LF even when strict. And bytes that are not UTF-8 would reach PostgreSQL, whose error
// would be returned as a 503 instead of a 404.
func TestParseEntryID_AcceptsOnlyTheCanonicalForm(t *testing.T) {
	word := identity().EntryID()
	for _, w := range []string{word + "\n", word[:4] + "\r\n" + word[4:], base64.RawURLEncoding.EncodeToString([]byte("a\xff\x00b\x00c"))} {
		if _, ok := ParseEntryID(w); ok {
			t.Errorf("%q is parsed", w)
		}
	}
}
