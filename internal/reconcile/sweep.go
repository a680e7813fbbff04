package reconcile

import (
	"context"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Limits of a sweep. Most sweeps look for expired leases among recent claims only, since the ledger has to scan
// everything that was claimed within the span. Older claims are scanned at the start, and then once an hour.
const (
	expiredBatch    = 256                        // entries with an expired lease
	orphanBatch     = 512                        // entries of one provider that no worker serves
	concurrentTasks = 16                         // tasks of a sweep in flight
	scanRecent      = time.Hour                  // age of the claims that most sweeps scan
	scanFar         = 48 * time.Hour             // age of the claims that some sweeps scan
	farEvery        = time.Hour                  // between two of those
	scheduleEvery   = time.Minute                // between two passes for unknown entries without a scheduled lookup
	scanAll         = 100 * 366 * 24 * time.Hour // age at the start: nobody may have swept for long
	scanTimeout     = time.Minute                // for one scan, since the first reads the whole ledger
)

// sweep is what one replica remembers from one sweep to the next.
type sweep struct {
	skip       skipList
	scannedAll bool
	scannedFar time.Time
	scheduled  time.Time
}

// Run sweeps until ctx ends. Expired leases, orphans, manual sweeps and the lookups of each provider have loops of
// their own, so that none delays another.
func (rc *Reconciler) Run(ctx context.Context) {
	var loops sync.WaitGroup
	every := func(do func(context.Context)) {
		loops.Go(func() {
			for ctx.Err() == nil {
				do(ctx)
				rc.idle(ctx)
			}
		})
	}
	every(rc.expireLeases)
	every(rc.processOrphans)
	loops.Go(func() { rc.runManualSweeps(ctx) })
	for _, name := range rc.Providers.Names() {
		if rc.Providers.Route(name).Contract.Kind == ledger.ContractLookup {
			loops.Go(func() { rc.runLookups(ctx, name) })
		}
	}
	loops.Wait()
}

// SweepOnce makes one sweep, without lookups. It must not be used while Run is running.
func (rc *Reconciler) SweepOnce(ctx context.Context) {
	rc.expireLeases(ctx)
	rc.processOrphans(ctx)
}

// expireLeases checks for a failover, expires leases, and once a minute schedules the lookups of unknown entries that
// have none: a replica with another configuration may have left them so.
func (rc *Reconciler) expireLeases(ctx context.Context) {
	rc.report(ctx, rc.Failovers.check(ctx))
	listed := rc.expireSilent(ctx)
	if rc.sweep.scheduled.IsZero() || rc.Clock().Sub(rc.sweep.scheduled) >= scheduleEvery {
		rc.sweep.scheduled = rc.Clock()
		rc.report(ctx, rc.scheduleLookups(ctx))
	}
	if listed {
		rc.OnSweep()
	}
}

// expireSilent expires the leases of holders that have fallen silent, and reports whether it could list them.
func (rc *Reconciler) expireSilent(ctx context.Context) (listed bool) {
	s := &rc.sweep
	within, far := scanRecent, false
	if !s.scannedAll {
		within, far = scanAll, true
	} else if rc.Clock().Sub(s.scannedFar) >= farEvery {
		within, far = scanFar, true
	}
	bounded, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	limit := expiredBatch + s.skip.count()
	expired, err := rc.Work.ExpiredLeases(bounded, within, limit)
	if err != nil {
		rc.report(ctx, err)
		return false
	}
	if far && len(expired) < limit {
		s.scannedAll, s.scannedFar = true, rc.Clock()
	}
	_, err = s.skip.each(ctx, expired, rc.expireLease)
	rc.report(ctx, err)
	return true
}

// expireLease ends a silent holder's claim, as the contract of the provider that it may have called requires.
func (rc *Reconciler) expireLease(ctx context.Context, id ledger.Identity) error {
	snap, err := rc.load(ctx, id)
	if err != nil || !snap.Entry.LeaseExpired(snap.Now) {
		return err
	}
	_, err = rc.write(ctx, ledger.ExpireLease(snap.Entry, sweepTrigger(), rc.Rules(snap.Entry), snap.Now))
	return unlessStale(err) // the holder has settled, or another replica was faster
}

// processOrphans processes what waits at a provider that no worker serves, because the provider is not configured or
// its gate is closed: such an entry still has to move to another provider, or to end in time.
func (rc *Reconciler) processOrphans(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	waiting, err := rc.Work.WaitingProviders(bounded)
	rc.report(ctx, err)
	served := make(map[string]bool)
	for _, name := range rc.Providers.Names() {
		served[name] = !rc.Providers.Closed(name)
	}
	for _, provider := range waiting {
		if served[provider] {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
		due, err := rc.Work.Due(bounded, provider, orphanBatch)
		cancel()
		rc.report(ctx, err)
		rc.processAll(ctx, due)
	}
}

func (rc *Reconciler) processAll(ctx context.Context, ids []ledger.Identity) {
	var tasks sync.WaitGroup
	running := make(chan struct{}, concurrentTasks)
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		running <- struct{}{}
		tasks.Go(func() {
			_, _ = rc.Processor.Process(ctx, id) // a decorator of the processor records the reply and the error
			<-running
		})
	}
	tasks.Wait()
}

func sweepTrigger() ledger.Trigger { return ledger.Trigger{Origin: ledger.OriginReconcile} }

// idle waits until the next sweep, with a jitter of a fifth, so that replicas do not sweep in step.
func (rc *Reconciler) idle(ctx context.Context) {
	timer := time.NewTimer(time.Duration(float64(rc.Interval) * (0.8 + 0.4*rc.Random())))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
