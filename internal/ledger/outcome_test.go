package ledger_test

import (
	"testing"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestResult_ZeroIsUnknown(t *testing.T) {
	var o Outcome
	if o.Result != ResultUnknown || o.Result.String() != "unknown" {
		t.Errorf("the zero outcome is %s", o.Result)
	}
	seen := map[string]bool{}
	for _, r := range Results() {
		if word := r.String(); word == "" || seen[word] || ParseResult(word) != r {
			t.Errorf("%d: %q comes back as %s", r, word, ParseResult(word))
		}
		seen[r.String()] = true
	}
	for _, word := range []string{"", "Accepted", "accepted ", "sent", "7"} {
		if got := ParseResult(word); got != ResultUnknown {
			t.Errorf("%q is parsed as %s", word, got)
		}
	}
	if got := Result(255).String(); got != "unknown" || len(Results()) != 9 {
		t.Errorf("an undefined result is %q; there are %d", got, len(Results()))
	}
}
