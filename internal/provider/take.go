package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// swapTries bounds how often a gate is moved again after another replica moved it first.
const swapTries = 3

// Take asks for a slot at a provider: a free place in its lane and a token of its rate, waited for as long
// as ctx lives, and an open gate, which is not waited for. ctx should be short; it is the caller's patience,
// not the call's deadline.
//
// With a slot comes its release, to be called once, when the call is over: it frees the place, moves the
// gate by what the call proved, and returns how long the gate is closed from then on (0 while it is open).
// A second call of it changes nothing.
// wait is how long the policy will wait after this outcome, clamped. A release with
// [ledger.ResultNotCalled] frees the place and moves nothing. Without a slot the release is nil.
func (f *Fleet) Take(ctx context.Context, name string) (ledger.Slot, func(o ledger.Outcome, wait time.Duration) time.Duration) {
	l := f.lanes[name]
	if l == nil {
		return ledger.Slot{Provider: name, Reason: ledger.ReasonNoCapacity, Wait: time.Minute}, nil
	}
	if !f.looked.Load() {
		_ = f.Look(ctx)
	}
	if view := f.view(l); !view.Open {
		return shut(name, view), nil
	}
	wait, ok := l.enter(ctx, f.o.Now)
	if !ok {
		return ledger.Slot{Provider: name, Reason: ledger.ReasonNoCapacity, Wait: wait}, nil
	}
	passed := false
	defer func() {
		if !passed { // also after a panic in the store
			<-l.slots
		}
	}()
	view, probe := f.pass(ctx, l) // it may have closed while we waited in line
	if !view.Open {
		return shut(name, view), nil
	}
	passed = true
	var (
		once   sync.Once
		closed time.Duration
	)
	return ledger.Slot{Provider: name, Held: true}, func(o ledger.Outcome, wait time.Duration) time.Duration {
		once.Do(func() {
			defer func() { <-l.slots }()
			// Bounded as a whole: the outcome waits for it, and has a lease to be settled in.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*f.o.Write)
			defer cancel()
			closed = f.move(ctx, l, o.Result, wait, probe)
		})
		return closed
	}
}

func shut(name string, view ledger.GateView) ledger.Slot {
	return ledger.Slot{Provider: name, Reason: ledger.ReasonGateClosed, Wait: view.Wait}
}

// pass goes through the gate. Where it is open for one, that one is who writes Probing first, of all
// replicas; probe is the version of that write where it is us, else 0.
func (f *Fleet) pass(ctx context.Context, l *lane) (view ledger.GateView, probe int64) {
	l.mu.Lock()
	now := f.ledgerNow()
	was := l.gate
	view = was.View(now)
	if !view.Probe {
		l.mu.Unlock()
		return view, 0
	}
	trying := was.Probing(f.o.Rules)
	l.gate, l.local = fixed(trying, now), true // so that nobody else here tries
	l.mu.Unlock()

	written, err := f.write(ctx, trying)
	if err == nil {
		f.adopt(l, written)
		return view, written.Version
	}
	if errors.Is(err, ledger.ErrStale) {
		_ = f.reload(ctx, l) // where that fails too, we stay at a distance until the next look
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now = f.ledgerNow()
	if l.local {
		// We do not know whether the write stood: nobody here tries before the next look.
		was.ClosedUntil = ledger.In(f.o.Refresh)
		l.gate = fixed(was, now)
	}
	view = l.gate.View(now)
	// Open again means that somebody's probe went well in between; the visitor comes back for it.
	return ledger.GateView{Wait: max(view.Wait, f.o.Refresh), Class: view.Class}, 0
}

// move is the gate after a call. Here it moves at once, so that many calls that fail together close it
// once; then for everybody, if the store can be reached.
func (f *Fleet) move(ctx context.Context, l *lane, result ledger.Result, wait time.Duration, probe int64) time.Duration {
	l.mu.Lock()
	inRow := l.counted(result)
	for range swapTries {
		now := f.ledgerNow()
		next, news := l.gate.After(result, wait, inRow, probe > 0, f.o.Rules, now)
		if probe > 0 && l.gate.Version == probe && result == ledger.ResultNotCalled {
			next.ClosedUntil, news = ledger.Moment{}, true // it did not try: the next one may
		}
		if !news {
			break
		}
		if next.Strikes > l.gate.Strikes {
			l.inRow = 0
		}
		l.gate, l.local = fixed(next, now), true
		moved := l.gate
		l.mu.Unlock()

		written, err := f.write(ctx, next)
		if err == nil {
			f.adopt(l, written)
			f.o.Moved(moved)
			l.mu.Lock()
			break
		}
		if errors.Is(err, ledger.ErrStale) {
			err = f.reload(ctx, l)
		} else {
			f.o.Moved(moved)
		}
		l.mu.Lock()
		if err != nil {
			break // moved here, at least; the store's word follows with the next look
		}
	}
	defer l.mu.Unlock()
	return l.gate.View(f.ledgerNow()).Wait
}

// adopt takes over what was written, unless something newer is known.
func (f *Fleet) adopt(l *lane, written ledger.Gate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if written.Version >= l.gate.Version {
		l.gate, l.local = fixed(written, f.ledgerNow()), false
	}
}

func (f *Fleet) write(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Write)
	defer cancel()
	return f.gates.SwapGate(ctx, g)
}

// reload takes over what the store holds after it called ours stale, be its version lower than ours: a
// restored database must not leave us with a gate that can never be written again.
func (f *Fleet) reload(ctx context.Context, l *lane) error {
	ctx, cancel := context.WithTimeout(ctx, f.o.Write)
	defer cancel()
	kept, now, err := f.gates.Gates(ctx)
	if err != nil {
		return err
	}
	found := ledger.Gate{Provider: l.route.Provider}
	for _, gate := range kept {
		if gate.Provider == found.Provider {
			found = gate
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate, l.local = fixed(found, now), false
	return nil
}
