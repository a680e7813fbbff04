package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Unresolved returns a page of the entries that wait for an operator's decision or for proof from their provider, the
// longest in doubt first, each with its timeline as evidence.
func (rc *Reconciler) Unresolved(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error) {
	entries, err := rc.Work.Unknown(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("reconcile: list unresolved entries: %w", err)
	}
	unresolved := make([]ledger.EntryDetail, 0, len(entries))
	for _, e := range entries {
		timeline, err := rc.Records.Timeline(ctx, e.Identity)
		if err != nil {
			return nil, fmt.Errorf("reconcile: timeline of an unresolved entry: %w", err)
		}
		unresolved = append(unresolved, ledger.EntryDetail{Entry: e, Timeline: timeline})
	}
	return unresolved, nil
}

// Resolve commits an operator's decision together with its audit event. It returns [ledger.ErrStale] if the entry has
// changed since the operator saw it, and [ledger.ErrNotInDoubt] if there is nothing to decide, both with the entry as
// stored if it could be loaded; [ledger.ErrNotFound] if there is no entry.
func (rc *Reconciler) Resolve(ctx context.Context, id ledger.Identity, resolution ledger.Resolution) (ledger.Entry, error) {
	snap, err := rc.load(ctx, id)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("reconcile: resolve: %w", err)
	}
	resolution.Audit.ID = rc.Token()
	change, err := ledger.Resolve(snap.Entry, resolution, snap.Now)
	if err != nil {
		return snap.Entry, err
	}
	stored, err := rc.write(ctx, change)
	switch {
	case err == nil:
		return stored, nil
	case errors.Is(err, ledger.ErrStale):
		if snap, loadErr := rc.load(ctx, id); loadErr == nil {
			return snap.Entry, err
		}
		return ledger.Entry{}, err
	}
	// The write may have happened nevertheless: its audit event shows whether it did.
	detail, loadErr := rc.Records.EntryDetail(ctx, id)
	for _, audit := range detail.Audit {
		if audit.ID == resolution.Audit.ID {
			return detail.Entry, nil
		}
	}
	return ledger.Entry{}, fmt.Errorf("reconcile: resolve: %w", errors.Join(err, loadErr))
}

// RecordStatus records a provider's status event, once however often it is delivered. recorded reports whether the
// event was new and belongs to the entry; see belongsTo.
func (rc *Reconciler) RecordStatus(ctx context.Context, event ledger.StatusEvent) (recorded bool, err error) {
	for range maxIterations {
		snap, err := rc.load(ctx, event.Identity)
		if err != nil {
			return false, fmt.Errorf("reconcile: status event: %w", err)
		}
		if belongs, err := rc.belongsTo(ctx, snap.Entry, event); err != nil || !belongs {
			return false, err
		}
		change, changed := ledger.RecordStatus(snap.Entry, event)
		if !changed {
			return false, nil
		}
		_, err = rc.write(ctx, change)
		switch {
		case err == nil:
			rc.reportLate(change.Event.Reason)
			return true, nil
		case !errors.Is(err, ledger.ErrStale) && !errors.Is(err, ledger.ErrExists):
			return false, fmt.Errorf("reconcile: status event: %w", err) // the provider delivers it again
		}
	}
	return false, fmt.Errorf("reconcile: status event: %w", ledger.ErrStale)
}

// belongsTo reports whether a status event is to be recorded for an entry: it is not recorded yet, and it comes from the
// provider that the entry is bound to or that was called for it. For an entry that the ledger does not have, it must
// come from the provider that the channel leads to. One provider's event proves nothing about what another sent.
func (rc *Reconciler) belongsTo(ctx context.Context, e ledger.Entry, event ledger.StatusEvent) (bool, error) {
	timeline, err := rc.Records.Timeline(ctx, event.Identity)
	if err != nil {
		return false, fmt.Errorf("reconcile: status event: %w", err)
	}
	belongs := e.Provider == event.Provider
	if e.Absent() {
		belongs = rc.Rules(ledger.Entry{Identity: event.Identity}).ChannelRoute.Provider == event.Provider
	}
	for _, past := range timeline {
		if past.Kind == ledger.EventStatus && past.MessageID == event.MessageID && past.Provider == event.Provider {
			return false, nil
		}
		belongs = belongs || past.Kind != ledger.EventStatus && past.Provider == event.Provider
	}
	return belongs, nil
}

// reportLate passes the reason of proof that came late to OnLate.
func (rc *Reconciler) reportLate(reason ledger.Reason) {
	if reason == ledger.ReasonLateAcceptance || reason == ledger.ReasonPossibleSecondSend {
		rc.OnLate(string(reason))
	}
}

// runs holds the last manual sweep of this replica.
type runs struct {
	requested chan struct{} // one run that Run has not started yet
	mu        sync.Mutex
	last      ledger.SweepRun // guarded by mu
}

// StartSweep starts a manual sweep: the provider of every unknown entry is asked if it can be, whether or not a lookup
// is due. StartSweep returns once the audit event is committed; [Reconciler.LastRun] reports the progress. Only one
// manual sweep runs at a time on this replica, else [ledger.ErrSweepRunning].
func (rc *Reconciler) StartSweep(ctx context.Context, audit ledger.AuditEvent) (ledger.SweepRun, error) {
	rc.runs.mu.Lock()
	defer rc.runs.mu.Unlock()
	if !rc.runs.last.Started.IsZero() && rc.runs.last.Finished.IsZero() {
		return rc.runs.last, ledger.ErrSweepRunning
	}
	audit.ID, audit.Action = rc.Token(), "reconcile"
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := rc.Records.RecordAudit(bounded, audit); err != nil {
		return ledger.SweepRun{}, fmt.Errorf("reconcile: start a sweep: %w", err)
	}
	rc.runs.last = ledger.SweepRun{Actor: audit.Actor, Started: rc.Clock()}
	rc.runs.requested <- struct{}{} // never blocks: no run is under way
	return rc.runs.last, nil
}

// LastRun returns the last manual sweep that was started on this replica; the zero value if there was none.
func (rc *Reconciler) LastRun() ledger.SweepRun {
	rc.runs.mu.Lock()
	defer rc.runs.mu.Unlock()
	return rc.runs.last
}

// runManualSweeps carries out the sweeps that operators start, until ctx ends.
func (rc *Reconciler) runManualSweeps(ctx context.Context) {
	for {
		select {
		case <-rc.runs.requested:
			rc.manualSweep(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (rc *Reconciler) manualSweep(ctx context.Context) {
	err := rc.eachUnknown(ctx, func(e ledger.Entry) error {
		called, err := rc.lookup(ctx, e.Identity, true)
		rc.updateRun(func(r *ledger.SweepRun) {
			r.Unknown++
			if called {
				r.Lookups++
			}
			if err != nil {
				r.Failed++
			}
		})
		return err
	})
	rc.report(ctx, err)
	rc.updateRun(func(r *ledger.SweepRun) { r.Finished = rc.Clock() })
}

func (rc *Reconciler) updateRun(update func(*ledger.SweepRun)) {
	rc.runs.mu.Lock()
	defer rc.runs.mu.Unlock()
	update(&rc.runs.last)
}
