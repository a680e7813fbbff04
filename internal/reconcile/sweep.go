package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Bounds of a round. Silent holders with an old claim are looked for at the start and then seldom, since the
// ledger has to read through everything that was claimed since.
const (
	lapsedBatch   = 256                        // silent holders' entries
	strangerBatch = 512                        // entries of one provider that no lane looks after
	stuckLimit    = 1024                       // entries that a round passes over, since the last could not help them
	retryStuck    = 8                          // rounds after which it tries them again
	visitsAtOnce  = 16                         // a round's visits in flight
	lookBack      = time.Hour                  // how old a claim may be, in most rounds
	lookFar       = 48 * time.Hour             // and in some
	farEvery      = time.Hour                  // between two of those
	lookAll       = 100 * 366 * 24 * time.Hour // and at the start: nobody may have looked for long
	longLook      = time.Minute                // for one look, since the first reads the whole ledger
)

// sweep is what one replica remembers from round to round.
type sweep struct {
	round     int
	stuck     map[ledger.Identity]bool // what the last rounds could not help
	lookedAll bool
	lookedFar time.Time
}

// Run sweeps until ctx ends, and asks each lookup provider beside it, so that one that hangs holds up nobody
// else.
func (d *Desk) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() {
		for ctx.Err() == nil {
			d.Round(ctx)
			idle(ctx, d.Sweep)
		}
	})
	loops.Go(func() { d.takeUp(ctx) })
	for _, name := range d.Providers.Names() {
		if d.Providers.Route(name).Contract.Kind == ledger.Lookup {
			loops.Go(func() { d.ask(ctx, name) })
		}
	}
	loops.Wait()
}

// Round looks once after everything but the questions to providers. It is not for concurrent use; Run calls
// it, and a test may.
func (d *Desk) Round(ctx context.Context) {
	d.sweep.round++
	d.failed(ctx, d.Failovers.look(ctx))
	far := d.lapses(ctx)
	d.strangers(ctx)
	if far {
		d.failed(ctx, d.arm(ctx))
	}
}

// lapses takes the leases of holders that went silent. It reports whether this was one of the seldom rounds
// that look far.
func (d *Desk) lapses(ctx context.Context) (far bool) {
	s := &d.sweep
	within := lookBack
	if !s.lookedAll {
		within, far = lookAll, true
	} else if d.Clock().Sub(s.lookedFar) >= farEvery {
		within, far = lookFar, true
	}
	bounded, cancel := context.WithTimeout(ctx, longLook)
	defer cancel()
	silent, err := d.Agenda.Lapsed(bounded, within, lapsedBatch+len(s.stuck))
	if err != nil {
		d.failed(ctx, err)
		return false
	}
	if far && len(silent) < lapsedBatch {
		s.lookedAll, s.lookedFar = true, d.Clock()
	}
	again := s.round%retryStuck == 0
	stuck := make(map[ledger.Identity]bool)
	for _, id := range silent {
		if ctx.Err() != nil {
			return far
		}
		skip := s.stuck[id] && !again
		if !skip {
			err := d.lapse(ctx, id)
			d.failed(ctx, err)
			skip = err != nil
		}
		if skip && len(stuck) < stuckLimit {
			stuck[id] = true
		}
	}
	s.stuck = stuck
	return far
}

// lapse ends a silent holder's claim by the contract of the provider that it may have called.
func (d *Desk) lapse(ctx context.Context, id ledger.Identity) error {
	seen, err := d.load(ctx, id)
	if err != nil || !seen.Entry.Lapsed(seen.Now) {
		return err
	}
	_, err = d.put(ctx, ledger.Lapse(seen.Entry, bySweep(), d.Rules(seen.Entry), seen.Now))
	if errors.Is(err, ledger.ErrStale) {
		return nil // its holder came back, or another replica was faster
	}
	return err
}

// strangers visits what waits where no lane works, because the provider is not configured or its gate is
// closed: it still has to move elsewhere, or to end in time.
func (d *Desk) strangers(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	lanes, err := d.Agenda.Lanes(bounded)
	d.failed(ctx, err)
	works := make(map[string]bool)
	for _, name := range d.Providers.Names() {
		works[name] = !d.Providers.Shut(name)
	}
	for _, lane := range lanes {
		if works[lane] {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
		due, err := d.Agenda.Due(bounded, lane, strangerBatch)
		cancel()
		d.failed(ctx, err)
		d.visit(ctx, due)
	}
}

func (d *Desk) visit(ctx context.Context, ids []ledger.Identity) {
	var visits sync.WaitGroup
	places := make(chan struct{}, visitsAtOnce)
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		places <- struct{}{}
		visits.Go(func() {
			_, _ = d.Visitor.Visit(ctx, id) // what it met is told by whoever watches visits
			<-places
		})
	}
	visits.Wait()
}

func bySweep() ledger.Visit { return ledger.Visit{Origin: ledger.OriginReconcile} }

// idle waits for d, give or take a fifth, so that replicas do not march in step.
func idle(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(time.Duration(float64(d) * (0.8 + 0.4*rand.Float64())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
