package reconcile

import (
	"context"
	"errors"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Limits of lookups.
const (
	lookupBatch   = 64  // lookups at one provider between two listings
	scheduleBatch = 256 // unknown entries on one page
)

// runLookups makes the lookups that are due at one provider, one at a time, until ctx ends.
func (rc *Reconciler) runLookups(ctx context.Context, provider string) {
	for ctx.Err() == nil {
		if done := rc.LookupDue(ctx, provider); done >= lookupBatch {
			continue // more may be due
		}
		rc.idle(ctx)
	}
}

// LookupDue makes the lookups that are due at one provider now, and returns how many of them succeeded. It must not
// be used while Run is running.
func (rc *Reconciler) LookupDue(ctx context.Context, provider string) int {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	unrecorded := rc.unrecorded[provider]
	due, err := rc.Work.DueLookups(bounded, provider, lookupBatch+unrecorded.count())
	rc.report(ctx, err)
	done, err := unrecorded.each(ctx, due, func(ctx context.Context, id ledger.Identity) error {
		_, err := rc.lookup(ctx, id, false)
		return err
	})
	rc.report(ctx, err)
	return done
}

// lookup asks an unknown entry's provider whether it accepted the entry, and records the result. With early it does so
// also before the lookup is due. called reports whether the provider was called.
func (rc *Reconciler) lookup(ctx context.Context, id ledger.Identity, early bool) (called bool, _ error) {
	snap, err := rc.load(ctx, id)
	if err != nil || snap.Entry.State != ledger.Unknown {
		return false, err
	}
	rules := rc.Rules(snap.Entry)
	switch scheduled := !snap.Entry.NextLookup.IsZero(); {
	case !rules.CanLookup(snap.Entry) && scheduled:
		_, err := rc.write(ctx, ledger.CancelLookup(snap.Entry, sweepTrigger()))
		return false, unlessStale(err)
	case !rules.CanLookup(snap.Entry), !early && (!scheduled || snap.Entry.NextLookup.On(snap.Now).After(snap.Now)):
		return false, nil // another replica has made the lookup meanwhile
	}
	lookup := ledger.Lookup{Trigger: sweepTrigger(), Provider: snap.Entry.Provider}
	lookup.Early = snap.Entry.NextLookup.On(snap.Now).After(snap.Now)
	started := rc.Clock()
	lookup.Started = snap.Now
	lookup.Result, lookup.Outcome = rc.Providers.Lookup(ctx, snap.Entry.Provider, snap.Entry.SendKey)
	lookup.Finished = snap.Now.Add(rc.Clock().Sub(started))
	return true, rc.recordLookup(ctx, snap, lookup)
}

// recordLookup writes a lookup's result over the entry that was looked up. If the entry has changed meanwhile, only
// proof is written over the new version; another "not found" would count one result twice.
func (rc *Reconciler) recordLookup(ctx context.Context, snap ledger.Snapshot, lookup ledger.Lookup) error {
	var failure error
	for range maxIterations {
		change, changed := ledger.RecordLookup(snap.Entry, lookup, rc.Rules(snap.Entry), snap.Now)
		if !changed {
			return nil
		}
		_, err := rc.write(ctx, change)
		switch {
		case err == nil && change.Event.Reason == ledger.ReasonPossibleSecondSend:
			rc.reportLate(change.Event.Reason)
			return nil
		case err == nil || lookup.Result != ledger.LookupFound:
			return unlessStale(err)
		}
		failure = err
		if snap, err = rc.load(ctx, snap.Entry.Identity); err != nil {
			return err // the lookup is still due, and is made again
		}
	}
	return failure
}

// scheduleLookups schedules the lookups of unknown entries that have none: their provider could not be asked when they
// became unknown, and can be now.
func (rc *Reconciler) scheduleLookups(ctx context.Context) error {
	return rc.eachUnknown(ctx, func(e ledger.Entry) error {
		change, changed := ledger.ScheduleLookup(e, rc.Rules(e))
		if !changed {
			return nil
		}
		_, err := rc.write(ctx, change)
		return unlessStale(err)
	})
}

// eachUnknown calls do for every unknown entry, the longest in doubt first. An error for one entry does not keep the
// others from their turn; the first errors are returned joined.
func (rc *Reconciler) eachUnknown(ctx context.Context, do func(ledger.Entry) error) error {
	var failures []error
	for after := (ledger.DoubtPosition{}); ctx.Err() == nil; {
		bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
		page, err := rc.Work.Unknown(bounded, after, scheduleBatch)
		cancel()
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, e := range page {
			if err := do(e); err != nil && len(failures) < maxIterations {
				failures = append(failures, err)
			}
			after = ledger.DoubtPosition{Since: e.DoubtSince, Identity: e.Identity}
		}
		if len(page) < scheduleBatch {
			break
		}
	}
	return errors.Join(failures...)
}

// unlessStale drops [ledger.ErrStale]: somebody else changed the entry first, which is no failure of a sweep.
func unlessStale(err error) error {
	if errors.Is(err, ledger.ErrStale) {
		return nil
	}
	return err
}
