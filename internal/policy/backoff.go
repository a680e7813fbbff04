package policy

import (
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Bounds of every wait, whatever is configured or demanded.
const (
	shortest   = time.Second // before its jitter
	notCalled  = time.Second // after an attempt that never began, before its jitter
	jitterDown = 0.4         // a backoff is drawn from the upper 40 % of its span
	jitterUp   = 0.2         // what a provider demands is a minimum: jitter only lengthens it
)

// Backoff is how waits grow: min(Base * 2^(n-1), Cap), jittered.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// Wait is how long to wait after an outcome. spent is the number of attempts charged to the budget,
// this one included; draw is a random number in [0, 1).
//
// A Retry-After counts as a minimum, clamped so that with its jitter it stays within the cap: a
// provider that says "in a hundred years" does not park a reminder for ever.
func Wait(o ledger.Outcome, spent int, b Backoff, draw float64) time.Duration {
	if o.Result == ledger.ResultNotCalled {
		return Lifted(notCalled, draw)
	}
	wait := b.jittered(spent, draw)
	if o.RetryAfter > 0 {
		demanded := min(o.RetryAfter, scale(b.Cap, 1/(1+jitterUp)))
		wait = max(wait, Lifted(demanded, draw))
	}
	return max(wait, Lifted(shortest, draw))
}

// Pause is how long to wait where no attempt was made: an unanswered question, say. It grows with the
// entry's age, so that what lasts for a day does not cost a write every few seconds.
func Pause(b Backoff, age time.Duration, draw float64) time.Duration {
	grown := scale(min(age/4, b.Cap), 1-jitterDown*(1-draw))
	return max(b.jittered(1, draw), grown, Lifted(shortest, draw))
}

// Lifted is a minimum that does not let everybody come back in the same instant: up to a fifth longer.
func Lifted(d time.Duration, draw float64) time.Duration { return scale(d, 1+jitterUp*draw) }

func (b Backoff) jittered(n int, draw float64) time.Duration {
	return scale(b.after(n), 1-jitterDown*(1-draw))
}

// after doubles step by step and stops at the cap, so that no n overflows.
func (b Backoff) after(n int) time.Duration {
	wait := b.Base
	for ; n > 1 && wait < b.Cap; n-- {
		if wait > b.Cap/2 {
			return b.Cap
		}
		wait *= 2
	}
	return min(wait, b.Cap)
}

func scale(d time.Duration, by float64) time.Duration {
	return time.Duration(float64(d) * by)
}
