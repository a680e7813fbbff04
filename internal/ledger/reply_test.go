package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestReplyFor_EveryState(t *testing.T) {
	for name, row := range map[string]struct {
		entry Entry
		ack   bool
		after time.Duration
	}{
		"absent":                          {Entry{}, false, time.Second},
		"sending":                         {entry(Sending), false, 20 * time.Second},
		"sending, lease expired":          {entry(Sending, leaseExpired), false, time.Second},
		"waiting, the broker's":           {entry(Waiting, dueIn(1500*time.Millisecond)), false, 2 * time.Second},
		"waiting, for days":               {entry(Waiting, dueIn(48*time.Hour)), false, 10 * time.Minute},
		"waiting, due":                    {entry(Waiting), false, time.Second},
		"waiting, the ledger's":           {entry(Waiting, ownedBy(OwnerLedger)), true, 0},
		"waiting, in doubt, the ledger's": {entry(Waiting, ownedBy(OwnerLedger), markDoubt(time.Minute)), true, 0},
		"unknown":                         {entry(Unknown), true, 0},
		"sent":                            {entry(Sent), true, 0},
		"dead":                            {entry(Dead), true, 0},
		"dropped":                         {entry(Dropped), true, 0},
	} {
		if got := ReplyFor(row.entry, noon()); got.Ack != row.ack || got.RetryAfter != row.after || got.Entry != row.entry {
			t.Errorf("%s: ack %t, retry after %v", name, got.Ack, got.RetryAfter)
		}
	}
}

func TestClampRetryAfter_WholeSecondsWithinBounds(t *testing.T) {
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
