package ledger_test

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// hostile are parts that a joined identity would confuse.
func hostile() []string {
	parts := []string{"a", "b", "a:b", "a/b", "a|b", "a,b", "ab", "aa", ":", "::", "a:", ":a", "1:a", "1:a1:b", "é", "é", "A", " a", "a ", "\x01", "\x7f", "%00", "\\0", strings.Repeat("a", 300)}
	return append(parts, "a\x1fb", "a\nb", "a\tb", "\u200b")
}

func TestEveryIdentityHasAKeyAndAWordOfItsOwn(t *testing.T) {
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

func TestTheSendKeyIsTheSameForEver(t *testing.T) {
	// Fixed here, since a provider may remember it over our releases: SHA-256 over three times
	// (8 bytes of length, big endian, and the part).
	const want = "c9adcbacd3de5d4a10a5db354e16a65fc5086bb4ca21f48ee3320726db6be1cd"
	if got := identity().SendKey(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAMalformedMessageHasAnIdentityThatNoReminderCanHave(t *testing.T) {
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

func TestParseEntryIDRefusesWhatItNeverWrote(t *testing.T) {
	of := func(joined string) string { return base64.RawURLEncoding.EncodeToString([]byte(joined)) }
	for name, word := range map[string]string{
		"empty": "", "one part": of("a"), "two parts": of("a\x00b"), "four parts": of("a\x00b\x00c\x00d"),
		"no reminder": of("\x00b\x00c"), "no type": of("a\x00\x00c"), "no channel": of("a\x00b\x00"),
		"padded": base64.URLEncoding.EncodeToString([]byte("a\x00b\x00c")), "not base64": "a b", "a path": "../x",
		"standard alphabet": base64.RawStdEncoding.EncodeToString([]byte("\xff\xfe\x00\xff\xfe\x00\xff\xfe\xfb")),
		"trailing bits":     of("a\x00b\x00c")[:6] + "B", "only NUL": of("\x00\x00"), "a stray character": of("a\x00b\x00c") + "!",
	} {
		if id, ok := ParseEntryID(word); ok {
			t.Errorf("%s: %q is read as %q", name, word, id)
		}
	}
}

func TestTheZeroResultIsUnknown(t *testing.T) {
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
			t.Errorf("%q is read as %s", word, got)
		}
	}
	if got := Result(255).String(); got != "unknown" || len(Results()) != 8 {
		t.Errorf("a result nobody knows is %q; there are %d", got, len(Results()))
	}
}

func TestAMomentIsKnownOrToBeFixedOrNever(t *testing.T) {
	now := noon().Add(1500 * time.Nanosecond).In(time.FixedZone("", 3600))
	if m := At(now); !m.On(noon()).Equal(noon().Add(time.Microsecond)) || m.On(noon()).Location() != time.UTC {
		t.Errorf("kept as %v", m.On(noon()))
	}
	if m := In(90 * time.Second); m.IsZero() || !m.On(now).Equal(noon().Add(90*time.Second+time.Microsecond)) {
		t.Errorf("a span of 90 s ends at %v", m.On(now))
	}
	if In(0).IsZero() || At(noon()).IsZero() {
		t.Error("now is not never")
	}
	var never Moment
	if !never.IsZero() || !never.On(noon()).IsZero() || At(time.Time{}) != never {
		t.Error("never is never")
	}
	_, fixed := In(time.Second).Fixed()
	_, span := At(noon()).Span()
	if fixed || span || In(-time.Second).On(noon()) != noon().Add(-time.Second) {
		t.Error("a moment is one of both")
	}
	if back, ok := At(noon()).Fixed(); !ok || !back.Equal(noon()) || In(999) != In(0) {
		t.Error("a store keeps whole microseconds")
	}
}

func TestTheBudgetOfACallIsTheEarliestOfItsEnds(t *testing.T) {
	held := func(changes ...func(*Entry)) Entry {
		return entry(Sending, append([]func(*Entry){func(e *Entry) { e.LeaseUntil = At(noon().Add(lease)) }}, changes...)...)
	}
	leaseLeft := func(d time.Duration) func(*Entry) {
		return func(e *Entry) { e.LeaseUntil = At(noon().Add(d)) }
	}
	for name, row := range map[string]struct {
		entry   Entry
		timeout time.Duration
		want    time.Duration
	}{
		"timeout":                 {held(), 10 * time.Second, 10 * time.Second},
		"lease less margin":       {held(), time.Hour, lease - margin},
		"a lease half over":       {held(leaseLeft(10 * time.Second)), time.Hour, 10*time.Second - margin},
		"a clock that leapt":      {held(leaseLeft(time.Hour)), time.Hour, lease - margin},
		"a lease that is over":    {held(leaseLeft(0)), time.Hour, -margin},
		"deadline":                {held(deadlineIn(7 * time.Second)), 10 * time.Second, 7 * time.Second},
		"deadline now":            {held(deadlineIn(0)), 10 * time.Second, 0},
		"deadline passed":         {held(deadlineIn(-time.Second)), 10 * time.Second, -time.Second},
		"no deadline":             {held(func(e *Entry) { e.Deadline = time.Time{} }), 10 * time.Second, 10 * time.Second},
		"the window's end":        {held(doubted(window - margin - 4*time.Second)), 10 * time.Second, 4 * time.Second},
		"the window ended":        {held(doubted(window)), 10 * time.Second, -margin},
		"no time at all":          {held(), 0, 0},
		"no doubt, so no window":  {held(), 10 * time.Second, 10 * time.Second},
		"a timeout without bound": {held(), math.MaxInt64, lease - margin},
	} {
		if got := CallBudget(row.entry, row.timeout, rules(Idempotent), noon()); got != row.want {
			t.Errorf("%s: %v, want %v", name, got, row.want)
		}
	}
	if got := CallBudget(held(doubted(time.Minute)), time.Second, rules(Idempotent, boundGone), noon()); got > 0 {
		t.Errorf("in doubt, and the provider is gone: %v to dial", got)
	}
}

func TestTheAnswerFollowsFromWhereTheEntryStands(t *testing.T) {
	for name, row := range map[string]struct {
		entry Entry
		ack   bool
		after time.Duration
	}{
		"absent":                  {Entry{}, false, time.Second},
		"sending":                 {entry(Sending), false, 20 * time.Second},
		"sending, lapsed":         {entry(Sending, lapsed), false, time.Second},
		"waiting, the broker's":   {entry(Waiting, dueIn(1500*time.Millisecond)), false, 2 * time.Second},
		"waiting, for days":       {entry(Waiting, dueIn(48*time.Hour)), false, 10 * time.Minute},
		"waiting, due":            {entry(Waiting), false, time.Second},
		"waiting, ours":           {entry(Waiting, ownedBy(OwnerLedger)), true, 0},
		"waiting, in doubt, ours": {entry(Waiting, ownedBy(OwnerLedger), doubted(time.Minute)), true, 0},
		"unknown":                 {entry(Unknown), true, 0},
		"sent":                    {entry(Sent), true, 0},
		"dead":                    {entry(Dead), true, 0},
		"dropped":                 {entry(Dropped), true, 0},
	} {
		if got := ReplyFor(row.entry, noon()); got.Ack != row.ack || got.RetryAfter != row.after || got.Entry != row.entry {
			t.Errorf("%s: ack %t, retry after %v", name, got.Ack, got.RetryAfter)
		}
	}
}

func TestWhatWeTellOthersToWaitIsWholeSecondsWithinBounds(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		math.MinInt64: time.Second, -1: time.Second, 0: time.Second, 1: time.Second, time.Second: time.Second,
		time.Second + 1: 2 * time.Second, 9*time.Minute + 59*time.Second + 1: 10 * time.Minute,
		10 * time.Minute: 10 * time.Minute, 10*time.Minute + 1: 10 * time.Minute, math.MaxInt64: 10 * time.Minute,
	} {
		if got := ClampRetryAfter(in); got != want {
			t.Errorf("%v: %v, want %v", in, got, want)
		}
	}
}
