package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Bounds of a round. Silent holders with an old claim are looked for at the start and then seldom, since the
// ledger has to read through everything that was claimed since.
const (
	lapsedBatch   = 256                        // silent holders' entries
	strangerBatch = 512                        // entries of one provider that no lane looks after
	visitsAtOnce  = 16                         // a round's visits in flight
	lookBack      = time.Hour                  // how old a claim may be, in most rounds
	lookFar       = 48 * time.Hour             // and in some
	farEvery      = time.Hour                  // between two of those
	armEvery      = time.Minute                // between two looks for what nobody asks about
	lookAll       = 100 * 366 * 24 * time.Hour // and at the start: nobody may have looked for long
	longLook      = time.Minute                // for one look, since the first reads the whole ledger
)

// sweep is what one replica remembers of its looks for silent holders.
type sweep struct {
	stuck     stuck
	lookedAll bool
	lookedFar time.Time
	armed     time.Time
}

// Run sweeps until ctx ends: for silent holders, for what waits where no lane works, and for what each lookup
// provider is to be asked, side by side, so that none holds up another.
func (d *Desk) Run(ctx context.Context) {
	var loops sync.WaitGroup
	every := func(do func(context.Context)) {
		loops.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				d.idle(ctx)
			}
		})
	}
	every(d.holders)
	every(d.strangers)
	loops.Go(func() { d.takeUp(ctx) })
	for _, name := range d.Providers.Names() {
		if d.Providers.Route(name).Contract.Kind == ledger.Lookup {
			loops.Go(func() { d.ask(ctx, name) })
		}
	}
	loops.Wait()
}

// Round looks once after everything but the questions to providers. It is not for use beside Run.
func (d *Desk) Round(ctx context.Context) {
	d.holders(ctx)
	d.strangers(ctx)
}

// holders looks for those that went silent, and now and then for unknown entries that nobody asks about: a
// replica with another configuration may have left them so. And it notices a database that changed where nobody
// reads.
func (d *Desk) holders(ctx context.Context) {
	d.failed(ctx, d.Failovers.look(ctx))
	looked := d.lapses(ctx)
	if d.sweep.armed.IsZero() || d.Clock().Sub(d.sweep.armed) >= armEvery {
		d.sweep.armed = d.Clock()
		d.failed(ctx, d.arm(ctx))
	}
	if looked {
		d.Swept()
	}
}

// lapses takes the leases of holders that went silent, and reports whether it could look for them.
func (d *Desk) lapses(ctx context.Context) (looked bool) {
	s := &d.sweep
	within, far := lookBack, false
	if !s.lookedAll {
		within, far = lookAll, true
	} else if d.Clock().Sub(s.lookedFar) >= farEvery {
		within, far = lookFar, true
	}
	bounded, cancel := context.WithTimeout(ctx, longLook)
	defer cancel()
	limit := lapsedBatch + s.stuck.count()
	silent, err := d.Agenda.Lapsed(bounded, within, limit)
	if err != nil {
		d.failed(ctx, err)
		return false
	}
	if far && len(silent) < limit {
		s.lookedAll, s.lookedFar = true, d.Clock()
	}
	_, err = s.stuck.each(ctx, silent, d.lapse)
	d.failed(ctx, err)
	return true
}

// lapse ends a silent holder's claim by the contract of the provider that it may have called.
func (d *Desk) lapse(ctx context.Context, id ledger.Identity) error {
	seen, err := d.load(ctx, id)
	if err != nil || !seen.Entry.Lapsed(seen.Now) {
		return err
	}
	_, err = d.put(ctx, ledger.Lapse(seen.Entry, bySweep(), d.Rules(seen.Entry), seen.Now))
	return unlessStale(err) // its holder came back, or another replica was faster
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

// idle waits for the next round, give or take a fifth, so that replicas do not march in step.
func (d *Desk) idle(ctx context.Context) {
	timer := time.NewTimer(time.Duration(float64(d.Sweep) * (0.8 + 0.4*d.Draw())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
