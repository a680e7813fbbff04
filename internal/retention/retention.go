// Package retention deletes what the ledger no longer needs: payloads and entries of final entries once their retention
// is over, and on request everything that is known of one user.
//
// Invariants:
//
//   - only final entries expire, counted from their last write; the proof that a reminder was sent is kept longer than
//     what it said;
//   - each step is one small write, guarded by the version that was loaded: an entry that changed meanwhile stays;
//   - an erasure is committed entry by entry, each with its audit event, and may be repeated.
//
// The package decides nothing itself: package ledger decides what has expired, and what an erasure leaves.
package retention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger stores entries.
type Ledger interface {
	// Load returns the entry, absent if there is none, together with the ledger's now.
	Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error)
	// Update writes over the version that was loaded; [ledger.ErrStale] if the entry has another version.
	Update(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	// Delete removes the entry, and all that belongs to it, in the version that was loaded; [ledger.ErrStale] if the
	// entry has another version.
	Delete(ctx context.Context, e ledger.Entry) error
}

// Store lists the entries that may have expired, and those of one user.
type Store interface {
	// RetentionCandidates returns at most limit entries after a position, the first seen first, each with whether it
	// has a payload.
	RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error)
	// List returns a page of the entries that match a query, the newest first.
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
	// RecordAudit stores an audit event that changes no entry.
	RecordAudit(ctx context.Context, a ledger.AuditEvent) error
}

// Options configures a [Purger].
type Options struct {
	Ledger    Ledger
	Store     Store
	Keep      ledger.Retention
	Every     time.Duration // between two purge runs
	PagePause time.Duration // between two pages of a purge run, to leave the ledger to other work
	Now       func() time.Time
	Token     func() string  // never the same twice, over all replicas
	OnPurge   func(PurgeRun) // called at the end of a purge run; may be nil
	OnError   func(error)    // called when a purge run failed; may be nil
	Random    func() float64 // in [0, 1), for the pauses; nil for math/rand
}

// PurgeRun is what one purge run did.
type PurgeRun struct {
	Seen     int // entries that were examined
	Payloads int // payloads that were removed
	Entries  int // entries that were deleted
	Moved    int // entries that changed meanwhile, and were left for the next run
}

// Purger purges expired payloads and entries, and erases users.
type Purger struct{ Options }

// New returns a Purger. Every option must be set unless its comment says otherwise.
func New(o Options) *Purger {
	if o.OnPurge == nil {
		o.OnPurge = func(PurgeRun) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	return &Purger{o}
}

// Limits of a Purger.
const (
	pageSize      = 500             // entries on one page
	ledgerTimeout = 5 * time.Second // for one statement
	maxIterations = 8               // loads of one entry that others keep changing
)

// Run makes purge runs until ctx ends. Several replicas may purge one ledger.
func (p *Purger) Run(ctx context.Context) {
	for ctx.Err() == nil {
		run, err := p.Purge(ctx)
		if err != nil && ctx.Err() == nil {
			p.OnError(err)
		}
		p.OnPurge(run)
		sleep(ctx, time.Duration(float64(p.Every)*(0.9+0.2*p.Random()))) // with jitter, so that replicas do not purge in step
	}
}

// Purge makes one purge run, the oldest entry first, and ends at the first entry that is too young to have expired.
func (p *Purger) Purge(ctx context.Context) (PurgeRun, error) {
	var (
		run   PurgeRun
		after ledger.EntryPosition
	)
	for {
		candidates, err := p.nextPage(ctx, after)
		if err != nil {
			return run, err
		}
		now := p.Now()
		for _, c := range candidates {
			if p.tooYoung(c.Entry, now) {
				return run, nil
			}
			run.Seen++
			if err := p.expire(ctx, c, now, &run); err != nil {
				return run, err
			}
		}
		if len(candidates) < pageSize {
			return run, nil
		}
		last := candidates[len(candidates)-1].Entry
		after = ledger.EntryPosition{FirstSeen: last.FirstSeen, Identity: last.Identity}
		sleep(ctx, p.PagePause)
	}
}

func (p *Purger) nextPage(ctx context.Context, after ledger.EntryPosition) ([]ledger.RetentionCandidate, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	candidates, err := p.Store.RetentionCandidates(ctx, after, pageSize)
	if err != nil {
		return nil, fmt.Errorf("retention: %w", err)
	}
	return candidates, nil
}

// tooYoung reports whether an entry, and with it every entry that was first seen later, is too young to have expired:
// retention counts from the last write, which is never before the first.
func (p *Purger) tooYoung(e ledger.Entry, now time.Time) bool {
	shortest := time.Duration(0)
	for _, span := range []time.Duration{p.Keep.Sent, p.Keep.Dead, p.Keep.Dropped, p.Keep.Entry} {
		if span > 0 && (shortest == 0 || span < shortest) {
			shortest = span
		}
	}
	return shortest == 0 || now.Before(e.FirstSeen.Add(shortest))
}

// expire purges what has expired of one candidate, and counts it in run.
func (p *Purger) expire(ctx context.Context, c ledger.RetentionCandidate, now time.Time, run *PurgeRun) error {
	if p.Keep.Expiry(c, now) == ledger.ExpireNothing {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	snap, err := p.Ledger.Load(ctx, c.Entry.Identity) // the ledger's clock decides, not this replica's
	if err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	var count *int
	c.Entry = snap.Entry
	switch p.Keep.Expiry(c, snap.Now) {
	case ledger.ExpirePayload:
		count = &run.Payloads
		_, err = p.Ledger.Update(ctx, ledger.Purge(c.Entry))
	case ledger.ExpireEntry:
		count = &run.Entries
		err = p.Ledger.Delete(ctx, c.Entry)
	default:
		return nil
	}
	switch {
	case errors.Is(err, ledger.ErrStale):
		run.Moved++
		return nil
	case err != nil:
		return fmt.Errorf("retention: %w", err)
	}
	*count++
	return nil
}

// Erase removes what is known of a user from every entry that names the user, and returns from how many. It may be
// repeated, and then continues where it stopped. The audit keeps who asked for the erasure, and not whose data it was.
func (p *Purger) Erase(ctx context.Context, userID string, audit ledger.AuditEvent) (int, error) {
	request := audit
	request.ID, request.Action = p.Token(), "erase:user"
	if err := p.Store.RecordAudit(ctx, request); err != nil {
		return 0, fmt.Errorf("retention: erase: %w", err)
	}
	for erased := 0; ; {
		entries, err := p.Store.List(ctx, ledger.Query{UserID: userID, Limit: pageSize})
		if err != nil {
			return erased, fmt.Errorf("retention: erase: %w", err)
		}
		if len(entries) == 0 {
			return erased, nil
		}
		for _, e := range entries {
			if err := p.erase(ctx, e.Identity, userID, audit); err != nil {
				return erased, fmt.Errorf("retention: erase: %w", err)
			}
			erased++
		}
	}
}

func (p *Purger) erase(ctx context.Context, id ledger.Identity, userID string, audit ledger.AuditEvent) error {
	for range maxIterations {
		snap, err := p.Ledger.Load(ctx, id)
		if err != nil {
			return err
		}
		if snap.Entry.UserID != userID {
			return nil // erased already, or deleted
		}
		audit.ID = p.Token()
		_, err = p.Ledger.Update(ctx, ledger.Erase(snap.Entry, audit))
		if !errors.Is(err, ledger.ErrStale) {
			return err
		}
	}
	return ledger.ErrStale
}

// sleep waits for a duration, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
