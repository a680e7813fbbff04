package blackbox

import "testing"

// crashClocks are wrong clocks: the crash point orders and the environment of the gateway that has one.
var crashClocks = map[string]struct {
	orders string
	env    []string
}{
	"ahead by 10 minutes":  {"", []string{"SENDONCE_CLOCK_OFFSET=10m"}},
	"behind by 10 minutes": {"", []string{"SENDONCE_CLOCK_OFFSET=-10m"}},
	"ahead by a day":       {"", []string{"SENDONCE_CLOCK_OFFSET=24h"}},
	"behind by a day":      {"", []string{"SENDONCE_CLOCK_OFFSET=-24h"}},
	"jumps back an hour":   {"connected:jump=-1h,", nil}, // in the middle of the call
	"jumps ahead an hour":  {"connected:jump=1h,", nil},
}

// TestCrash_WrongClockChangesNoOutcome runs on PostgreSQL, whose clock alone decides leases and due times.
// The gateway that kills itself has a wrong clock, the next one a right one.
func TestCrash_WrongClockChangesNoOutcome(t *testing.T) {
	t.Parallel()
	var cases []crashCase
	for clock := range crashClocks {
		all := []crashCase{
			{"before_settle", "accepted", "postgres", false, "idempotent", clock},
			{"settle_unseen", "throttled", "postgres", true, "idempotent", clock},
			{"before_settle", "late", "postgres", true, "blind", clock},
			{"settle_unseen", "late", "postgres", false, "blind", clock},
		}
		if crashClocks[clock].env != nil { // otherwise there is no call, and the clock does not jump
			all = append(all, crashCase{"wait_unseen", scheduled, "postgres", false, "idempotent", clock})
		}
		if !*wholeMatrix {
			all = all[:2]
		}
		cases = append(cases, all...)
	}
	w := newCrashSuite(t, cases)
	w.runAll(t, cases, func(t *testing.T, c crashCase) {
		g, p, d := w.killAndRestart(t, c)
		c.checkFinalState(t, g, p, d)
	})
}
