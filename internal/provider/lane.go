package provider

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Lane is a provider with what it may be burdened with, over this one replica.
type Lane struct {
	Provider    Provider
	Timeout     time.Duration // of one call
	Rate        float64       // calls a second; 0 for no limit
	Concurrency int           // calls in flight; at least 1
}

// lane is a Lane at work. Its slots are a semaphore; its mutex guards the gate.
type lane struct {
	Lane
	route   ledger.Route
	slots   chan struct{}
	limiter *rate.Limiter

	mu    sync.Mutex
	gate  ledger.Gate // with fixed moments, by the fleet's idea of the ledger's clock
	local bool        // the gate moved here and the store does not know yet
	inRow int         // unreachable calls in a row
}

func newLane(l Lane) *lane {
	l.Concurrency = max(l.Concurrency, 1)
	limit, burst := rate.Inf, 0
	if l.Rate > 0 {
		// A tenth of a second's worth: enough to be let through in small groups, and so little that no
		// second sees much more than the rate.
		limit, burst = rate.Limit(l.Rate), max(int(math.Ceil(l.Rate/10)), 1)
	}
	route := l.Provider.Route()
	return &lane{
		Lane: l, route: route,
		slots:   make(chan struct{}, l.Concurrency),
		limiter: rate.NewLimiter(limit, burst),
		gate:    ledger.Gate{Provider: route.Provider},
	}
}

// enter takes a slot and a token of the rate, and waits for both as long as ctx lives. Without them it
// tells when they may be expected.
func (l *lane) enter(ctx context.Context, now func() time.Time) (time.Duration, bool) {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return max(l.ahead(now()), time.Second), false
	}
	at := now()
	token := l.limiter.ReserveN(at, 1)
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
	<-l.slots
	return wait, false
}

// ahead is how long the rate's next token is away.
func (l *lane) ahead(now time.Time) time.Duration {
	if l.Rate <= 0 {
		return 0
	}
	missing := 1 - l.limiter.TokensAt(now)
	return time.Duration(max(missing, 0) / l.Rate * float64(time.Second))
}

// free is how many calls could begin within a second.
func (l *lane) free(now time.Time) int {
	free := cap(l.slots) - len(l.slots)
	if l.Rate > 0 {
		free = min(free, int(max(l.limiter.TokensAt(now)+l.Rate, 0)))
	}
	return free
}

// counted keeps the count of unreachable calls in a row: an answer ends it, silence does not.
func (l *lane) counted(result ledger.Result) int {
	switch result {
	case ledger.ResultUnreachable:
		l.inRow++
	case ledger.ResultUnknown, ledger.ResultNotCalled:
	default:
		l.inRow = 0
	}
	return l.inRow
}
