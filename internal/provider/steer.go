package provider

import (
	"context"
	"errors"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Pause stops all calls to a provider, and Resume lets them go on; each is committed with its line in the audit,
// and seen by the other replicas within the refresh. Where it stands so already, nothing is written.
// [ledger.ErrNotFound] for a provider that is not configured.
func (f *Fleet) Pause(ctx context.Context, name string, act ledger.Act) (ledger.Gate, error) {
	return f.steer(ctx, name, func(g ledger.Gate) (ledger.Gate, ledger.Act, bool) {
		next, told := g.Pause(act)
		return next, told, !g.Paused
	})
}

// Resume : see [Fleet.Pause].
func (f *Fleet) Resume(ctx context.Context, name string, act ledger.Act) (ledger.Gate, error) {
	return f.steer(ctx, name, func(g ledger.Gate) (ledger.Gate, ledger.Act, bool) {
		next, told := g.Resume(act)
		return next, told, g.Paused || !g.ClosedUntil.IsZero() || g.Strikes > 0
	})
}

// steerPasses bounds how often calls that move the gate meanwhile are given way.
const steerPasses = 8

func (f *Fleet) steer(ctx context.Context, name string, by func(ledger.Gate) (_ ledger.Gate, _ ledger.Act, news bool)) (ledger.Gate, error) {
	l := f.lanes[name]
	if l == nil {
		return ledger.Gate{}, ledger.ErrNotFound
	}
	for range steerPasses {
		if err := f.reload(ctx, l); err != nil {
			return ledger.Gate{}, err
		}
		l.mu.Lock()
		gate := l.gate
		l.mu.Unlock()
		next, act, news := by(gate)
		if !news {
			return gate, nil
		}
		act.ID = f.o.Token()
		stands, err := f.gates.SteerGate(ctx, next, act)
		if err == nil {
			f.adopt(l, stands)
		}
		if !errors.Is(err, ledger.ErrStale) {
			return stands, err
		}
	}
	return ledger.Gate{}, ledger.ErrStale
}
