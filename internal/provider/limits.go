package provider

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sendonce/sendonce/internal/ledger"
)

// LimitedProvider is a provider with the limits that apply to it on this replica.
type LimitedProvider struct {
	Provider    Provider
	Timeout     time.Duration // per call
	Rate        float64       // calls per second; 0 for no limit
	Concurrency int           // calls in flight; at least 1
}

// member is a provider of a [Pool] with its runtime state: slots is a semaphore, mu guards the fields below it.
type member struct {
	LimitedProvider
	route   ledger.Route
	slots   chan struct{}
	limiter *rate.Limiter

	mu          sync.Mutex
	gate        ledger.Gate // with fixed times, by the pool's estimate of the ledger's clock
	unsaved     bool        // the gate changed here and the change is not in the store yet
	unreachable int         // consecutive unreachable calls
}

func newMember(l LimitedProvider) *member {
	l.Concurrency = max(l.Concurrency, 1)
	limit, burst := rate.Inf, 0
	if l.Rate > 0 {
		// A burst of a tenth of a second's calls: enough to admit small groups, and so few that no second
		// sees much more than the rate.
		limit, burst = rate.Limit(l.Rate), max(int(math.Ceil(l.Rate/10)), 1)
	}
	route := l.Provider.Route()
	return &member{
		LimitedProvider: l, route: route,
		slots:   make(chan struct{}, l.Concurrency),
		limiter: rate.NewLimiter(limit, burst),
		gate:    ledger.Gate{Provider: route.Provider},
	}
}

// acquire takes a slot and a token of the rate limiter, and waits for both until ctx ends. If it fails, it returns
// how long to wait before trying again.
func (m *member) acquire(ctx context.Context, now func() time.Time) (time.Duration, bool) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return max(m.nextToken(now()), time.Second), false
	}
	at := now()
	token := m.limiter.ReserveN(at, 1)
	wait := token.DelayFrom(at)
	if wait == 0 {
		return 0, true
	}
	if deadline, ok := ctx.Deadline(); !ok || wait < deadline.Sub(at) {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
			return 0, true
		case <-ctx.Done():
		}
	}
	token.CancelAt(now())
	<-m.slots
	return wait, false
}

// nextToken returns the time until the rate limiter's next token.
func (m *member) nextToken(now time.Time) time.Duration {
	if m.Rate <= 0 {
		return 0
	}
	missing := 1 - m.limiter.TokensAt(now)
	return time.Duration(max(missing, 0) / m.Rate * float64(time.Second))
}

// free returns how many calls could start within a second.
func (m *member) free(now time.Time) int {
	free := cap(m.slots) - len(m.slots)
	if m.Rate > 0 {
		free = min(free, int(max(m.limiter.TokensAt(now)+m.Rate, 0)))
	}
	return free
}

// countUnreachable updates and returns the count of consecutive unreachable calls. A response resets it; a call
// without a response does not.
func (m *member) countUnreachable(result ledger.Result) int {
	switch result {
	case ledger.ResultUnreachable:
		m.unreachable++
	case ledger.ResultUnknown, ledger.ResultNotCalled:
	default:
		m.unreachable = 0
	}
	return m.unreachable
}
