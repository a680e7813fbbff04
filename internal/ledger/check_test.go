package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestTheFixturesAreSound(t *testing.T) {
	for _, s := range States() {
		if err := entry(s).Check(); err != nil {
			t.Error(err)
		}
		if pending := s == Sending || s == Waiting || s == Unknown; s.Pending() != pending || entry(s).Final() == pending {
			t.Errorf("%s: pending %t, final %t", s, s.Pending(), entry(s).Final())
		}
	}
}

func TestCheckFindsWhatMustNotStand(t *testing.T) {
	for name, e := range map[string]Entry{
		"nothing at all":                {},
		"sending without a holder":      entry(Sending, func(e *Entry) { e.Holder = "" }),
		"sending without a lease":       entry(Sending, func(e *Entry) { e.LeaseUntil = Moment{} }),
		"sending without its time":      entry(Sending, func(e *Entry) { e.ClaimedAt = Moment{} }),
		"sending with a due":            entry(Sending, func(e *Entry) { e.Due = In(0) }),
		"waiting with a holder":         entry(Waiting, func(e *Entry) { e.Holder = "h" }),
		"waiting with a lease":          entry(Waiting, func(e *Entry) { e.LeaseUntil = In(0) }),
		"waiting without a due":         entry(Waiting, func(e *Entry) { e.Due = Moment{} }),
		"waiting and never looked at":   entry(Waiting, func(e *Entry) { e.Wake = Moment{} }),
		"waiting and nobody's":          entry(Waiting, func(e *Entry) { e.Owner = "" }),
		"sent without a word why":       entry(Sent, func(e *Entry) { e.Receipt = "" }),
		"sent with both":                entry(Sent, func(e *Entry) { e.Missing = MissingUnread }),
		"a receipt, and not sent":       entry(Dead, func(e *Entry) { e.Receipt = "r" }),
		"a missing one, and not sent":   entry(Unknown, func(e *Entry) { e.Missing = MissingAssumed }),
		"dead in doubt":                 entry(Dead, doubted(time.Minute)),
		"dropped in doubt":              entry(Dropped, doubted(time.Minute)),
		"unknown without doubt":         entry(Unknown, func(e *Entry) { e.DoubtSince = time.Time{} }),
		"dead without a class":          entry(Dead, func(e *Entry) { e.Class = "" }),
		"dead of what does not kill":    entry(Dead, func(e *Entry) { e.Class = ClassThrottled }),
		"without a reason":              entry(Sent, func(e *Entry) { e.Reason = "" }),
		"with another's key":            entry(Sent, func(e *Entry) { e.SendKey = "00" }),
		"with a key, and moved by name": entry(Sent, func(e *Entry) { e.Channel = "sms" }),
	} {
		if e.Check() == nil {
			t.Errorf("%s: nothing found", name)
		}
	}
	abandoned := entry(Dropped, doubted(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	if err := abandoned.Check(); err != nil {
		t.Errorf("a person abandoned it in doubt: %v", err)
	}
}
