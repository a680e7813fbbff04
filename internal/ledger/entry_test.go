package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestEntry_CheckAcceptsTheFixtures(t *testing.T) {
	for _, s := range States() {
		if err := entry(s).Check(); err != nil {
			t.Error(err)
		}
		if pending := s == Sending || s == Waiting || s == Unknown; s.Pending() != pending || entry(s).Final() == pending {
			t.Errorf("%s: pending %t, final %t", s, s.Pending(), entry(s).Final())
		}
	}
}

func TestEntry_CheckFindsEveryViolation(t *testing.T) {
	for name, e := range map[string]Entry{
		"nothing at all":                      {},
		"sending without a holder":            entry(Sending, func(e *Entry) { e.Holder = "" }),
		"sending without a lease":             entry(Sending, func(e *Entry) { e.LeaseUntil = Moment{} }),
		"sending without its time":            entry(Sending, func(e *Entry) { e.ClaimedAt = Moment{} }),
		"sending with a due":                  entry(Sending, func(e *Entry) { e.Due = In(0) }),
		"waiting with a holder":               entry(Waiting, func(e *Entry) { e.Holder = "h" }),
		"waiting with a lease":                entry(Waiting, func(e *Entry) { e.LeaseUntil = In(0) }),
		"waiting without a due":               entry(Waiting, func(e *Entry) { e.Due = Moment{} }),
		"waiting without a wake":              entry(Waiting, func(e *Entry) { e.Wake = Moment{} }),
		"waiting without an owner":            entry(Waiting, func(e *Entry) { e.Owner = "" }),
		"sent without a receipt or reason":    entry(Sent, func(e *Entry) { e.Receipt = "" }),
		"sent with both":                      entry(Sent, func(e *Entry) { e.ReceiptMissing = MissingUnreadable }),
		"a receipt, but not sent":             entry(Dead, func(e *Entry) { e.Receipt = "r" }),
		"a receipt reason, but not sent":      entry(Unknown, func(e *Entry) { e.ReceiptMissing = MissingAssumed }),
		"dead in doubt":                       entry(Dead, markDoubt(time.Minute)),
		"dropped in doubt":                    entry(Dropped, markDoubt(time.Minute)),
		"unknown without doubt":               entry(Unknown, func(e *Entry) { e.DoubtSince = time.Time{} }),
		"dead without a class":                entry(Dead, func(e *Entry) { e.Class = "" }),
		"dead with a class that is not final": entry(Dead, func(e *Entry) { e.Class = ClassThrottled }),
		"without a reason":                    entry(Sent, func(e *Entry) { e.Reason = "" }),
		"with another entry's key":            entry(Sent, func(e *Entry) { e.SendKey = "00" }),
		"with the key of another channel":     entry(Sent, func(e *Entry) { e.Channel = "sms" }),
	} {
		if e.Check() == nil {
			t.Errorf("%s: nothing found", name)
		}
	}
	abandoned := entry(Dropped, markDoubt(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	if err := abandoned.Check(); err != nil {
		t.Errorf("abandoned in doubt by an operator: %v", err)
	}
}

func TestEntry_CheckRejectsAnUnknownState(t *testing.T) {
	e := entry(Dropped)
	e.State = "dorpped"
	if e.Check() == nil {
		t.Error("nothing found")
	}
}
