package policy

import (
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Bounds and jitter of every wait, whatever the configuration or the provider says.
const (
	minWait       = time.Second // shortest wait, before its jitter
	notCalledWait = time.Second // wait after an attempt that never began, before its jitter
	jitterDown    = 0.4         // a backoff is shortened at random by up to 40 %
	jitterUp      = 0.2         // a minimum, such as Retry-After, is lengthened at random by up to 20 %
)

// Backoff is an exponential backoff: min(Base * 2^(n-1), Cap), with jitter.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// Wait returns how long to wait after an outcome. budgetUsed is the number of attempts charged to the budget, this one
// included; random is a random number in [0, 1).
//
// A Retry-After counts as a minimum, clamped so that with its jitter it stays within the cap: a provider that asks
// for a hundred years does not delay a reminder for ever.
func Wait(o ledger.Outcome, budgetUsed int, b Backoff, random float64) time.Duration {
	if o.Result == ledger.ResultNotCalled {
		return SpreadReopening(notCalledWait, random)
	}
	wait := b.jittered(budgetUsed, random)
	if o.RetryAfter > 0 {
		retryAfter := min(o.RetryAfter, scale(b.Cap, 1/(1+jitterUp)))
		wait = max(wait, SpreadReopening(retryAfter, random))
	}
	return max(wait, SpreadReopening(minWait, random))
}

// UncalledWait returns how long to wait where no attempt was made, for example because a relevance check was not
// answered. It grows with the entry's age, so that a cause that lasts for a day does not cost a write every few
// seconds.
func UncalledWait(b Backoff, age time.Duration, random float64) time.Duration {
	byAge := scale(min(age/4, b.Cap), 1-jitterDown*(1-random))
	return max(b.jittered(1, random), byAge, SpreadReopening(minWait, random))
}

// SpreadReopening lengthens a minimum wait at random by up to a fifth, so that the waits of many entries do not all end
// at the same instant.
func SpreadReopening(d time.Duration, random float64) time.Duration {
	return scale(d, 1+jitterUp*random)
}

// jittered returns the n-th wait with its jitter.
func (b Backoff) jittered(n int, random float64) time.Duration {
	return scale(b.after(n), 1-jitterDown*(1-random))
}

// after returns the n-th wait without jitter. It doubles step by step and stops at the cap, so that no n overflows.
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

func scale(d time.Duration, factor float64) time.Duration {
	return time.Duration(float64(d) * factor)
}
