// Package retention lets the ledger forget: what has come to rest, once its time is over, and what is known of one
// person, when that is asked for.
//
// Invariants:
//
//   - only what is final ages, counted from its last write; that a reminder was sent outlives what it said;
//   - each step is one small write, guarded by the version that was read: what moves meanwhile stays;
//   - an erasure is committed entry by entry, each with its line in the audit, and may be repeated.
//
// It decides nothing itself: package ledger says what has aged, and what an erasure leaves.
package retention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger holds the entries. See the errors of package ledger.
type Ledger interface {
	Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error)
	Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Delete(ctx context.Context, e ledger.Entry) error
}

// Shelves are walked through.
type Shelves interface {
	Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error)
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
	Record(ctx context.Context, a ledger.Act) error
}

// Options are all that a desk needs.
type Options struct {
	Ledger  Ledger
	Shelves Shelves
	Keep    ledger.Retention
	Every   time.Duration // between two walks
	Breath  time.Duration // between two pages of a walk, in which others have the ledger to themselves
	Now     func() time.Time
	Token   func() string  // never the same twice, over all replicas
	Walked  func(Walk)     // told how a walk ended; may be nil
	Failed  func(error)    // told when a walk could not go on; may be nil
	Draw    func() float64 // in [0, 1), for the pauses; nil for the runtime's own
}

// Walk is what one walk through the ledger did.
type Walk struct {
	Seen     int // entries looked at
	Payloads int // taken
	Entries  int // taken
	Moved    int // written to meanwhile, and left for the next walk
}

// Desk forgets.
type Desk struct{ Options }

// New is a desk; every option must be set but those that say so.
func New(o Options) *Desk {
	if o.Walked == nil {
		o.Walked = func(Walk) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Draw == nil {
		o.Draw = rand.Float64
	}
	return &Desk{o}
}

// Bounds of what a desk does at once.
const (
	page          = 500             // entries read together
	ledgerTimeout = 5 * time.Second // for one statement
	maxPasses     = 8               // readings of one entry that others keep moving
)

// Run walks through the ledger again and again until ctx ends. Several replicas may walk through one ledger.
func (d *Desk) Run(ctx context.Context) {
	for ctx.Err() == nil {
		walked, err := d.Walk(ctx)
		if err != nil && ctx.Err() == nil {
			d.Failed(err)
		}
		d.Walked(walked)
		pause(ctx, time.Duration(float64(d.Every)*(0.9+0.2*d.Draw()))) // so that replicas do not walk in step
	}
}

// Walk goes through the ledger once, the oldest entry first, as far as anything may have aged.
func (d *Desk) Walk(ctx context.Context) (Walk, error) {
	var (
		done  Walk
		place ledger.Position
	)
	for {
		kept, err := d.shelf(ctx, place)
		if err != nil {
			return done, err
		}
		now := d.Now()
		for _, k := range kept {
			if d.young(k.Entry, now) {
				return done, nil
			}
			done.Seen++
			if err := d.forget(ctx, k, now, &done); err != nil {
				return done, err
			}
		}
		if len(kept) < page {
			return done, nil
		}
		last := kept[len(kept)-1].Entry
		place = ledger.Position{FirstSeen: last.FirstSeen, Identity: last.Identity}
		pause(ctx, d.Breath)
	}
}

func (d *Desk) shelf(ctx context.Context, after ledger.Position) ([]ledger.Kept, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	kept, err := d.Shelves.Kept(ctx, after, page)
	if err != nil {
		return nil, fmt.Errorf("retention: %w", err)
	}
	return kept, nil
}

// young tells whether an entry, and with it every one that was first seen later, is too young for anything to have
// aged, since no last write comes before the first.
func (d *Desk) young(e ledger.Entry, now time.Time) bool {
	shortest := time.Duration(0)
	for _, span := range []time.Duration{d.Keep.Sent, d.Keep.Dead, d.Keep.Dropped, d.Keep.Entry} {
		if span > 0 && (shortest == 0 || span < shortest) {
			shortest = span
		}
	}
	return shortest == 0 || now.Before(e.FirstSeen.Add(shortest))
}

func (d *Desk) forget(ctx context.Context, k ledger.Kept, now time.Time, done *Walk) error {
	if d.Keep.Aged(k, now) == ledger.AgeingNone {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	seen, err := d.Ledger.Load(ctx, k.Entry.Identity) // its age is the ledger's clock's to tell
	if err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	var count *int
	k.Entry = seen.Entry
	switch d.Keep.Aged(k, seen.Now) {
	case ledger.AgeingPayload:
		count = &done.Payloads
		_, err = d.Ledger.Swap(ctx, ledger.Purge(k.Entry))
	case ledger.AgeingEntry:
		count = &done.Entries
		err = d.Ledger.Delete(ctx, k.Entry)
	default:
		return nil
	}
	switch {
	case errors.Is(err, ledger.ErrStale):
		done.Moved++
		return nil
	case err != nil:
		return fmt.Errorf("retention: %w", err)
	}
	*count++
	return nil
}

// Erase takes what is known of a person out of every entry that names them, and answers of how many. It may be
// repeated, and goes on where it stopped. The audit keeps who asked, and not of whom.
func (d *Desk) Erase(ctx context.Context, userID string, act ledger.Act) (int, error) {
	asked := act
	asked.ID, asked.Verb = d.Token(), "erase:user"
	if err := d.Shelves.Record(ctx, asked); err != nil {
		return 0, fmt.Errorf("retention: erase: %w", err)
	}
	for erased := 0; ; {
		entries, err := d.Shelves.List(ctx, ledger.Query{UserID: userID, Limit: page})
		if err != nil {
			return erased, fmt.Errorf("retention: erase: %w", err)
		}
		if len(entries) == 0 {
			return erased, nil
		}
		for _, e := range entries {
			if err := d.erase(ctx, e.Identity, userID, act); err != nil {
				return erased, fmt.Errorf("retention: erase: %w", err)
			}
			erased++
		}
	}
}

func (d *Desk) erase(ctx context.Context, id ledger.Identity, userID string, act ledger.Act) error {
	for range maxPasses {
		seen, err := d.Ledger.Load(ctx, id)
		if err != nil {
			return err
		}
		if seen.Entry.UserID != userID {
			return nil // erased already, or gone
		}
		act.ID = d.Token()
		_, err = d.Ledger.Swap(ctx, ledger.Erase(seen.Entry, act))
		if !errors.Is(err, ledger.ErrStale) {
			return err
		}
	}
	return ledger.ErrStale
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
