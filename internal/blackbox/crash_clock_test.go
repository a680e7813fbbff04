package blackbox

import "testing"

// crashClocks are wrong clocks, as orders and environment of the gateway that lives by one.
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

// TestAWrongClockChangesNoOutcome : on PostgreSQL, by whose clock alone replicas judge. The gateway that kills
// itself has a wrong clock, the next one a right one.
func TestAWrongClockChangesNoOutcome(t *testing.T) {
	t.Parallel()
	var cases []crashCase
	for clock := range crashClocks {
		all := []crashCase{
			{"before_settle", "accepted", "postgres", false, "idempotent", clock},
			{"settle_unseen", "throttled", "postgres", true, "idempotent", clock},
			{"before_settle", "late", "postgres", true, "blind", clock},
			{"settle_unseen", "late", "postgres", false, "blind", clock},
		}
		if crashClocks[clock].env != nil { // else nothing is called, and no clock jumps
			all = append(all, crashCase{"wait_unseen", scheduled, "postgres", false, "idempotent", clock})
		}
		if !*wholeMatrix {
			all = all[:2]
		}
		cases = append(cases, all...)
	}
	w := newCrashWorld(t, cases)
	w.together(t, cases, func(t *testing.T, c crashCase) {
		g, p, d := w.kill(t, c)
		c.comesToRest(t, g, p, d)
	})
}
