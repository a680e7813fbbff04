package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// EpochStore stores the epochs that the ledger has lived in. An epoch names a database system and its timeline: it
// changes when the database is replaced, as by the promotion of a standby.
type EpochStore interface {
	// Epoch returns the current epoch of the database.
	Epoch(ctx context.Context) (string, error)
	// RecordEpoch returns when the epoch was first noticed, and stores it if it is new; the zero time for the epoch that
	// the ledger began in. With again an epoch that is stored already counts as noticed now, since the caller has
	// loaded from another one in between.
	RecordEpoch(ctx context.Context, epoch string, again bool) (noticed time.Time, err error)
}

// FailoverDetector detects that the database was replaced, by the epoch that each snapshot carries. It is consulted for
// every snapshot, so that a change is noticed before anything is decided on what the new database says.
type FailoverDetector struct {
	store      EpochStore
	window     time.Duration
	onFailover func(ledger.Failover)

	reading chan struct{} // held while the store is called, so that one call serves all that wait
	mu      sync.Mutex    // guards the fields below
	epoch   string        // of the last snapshot
	noticed time.Time
	read    bool // epoch and noticed are set
}

// NewFailoverDetector returns a detector. The window is how long before a failover commits may have been lost; 0 if none
// ever are. onFailover is called when this replica learns of a failover; it may be nil.
func NewFailoverDetector(store EpochStore, window time.Duration, onFailover func(ledger.Failover)) *FailoverDetector {
	if onFailover == nil {
		onFailover = func(ledger.Failover) {}
	}
	return &FailoverDetector{store: store, window: window, onFailover: onFailover, reading: make(chan struct{}, 1)}
}

// Failover returns the last failover, for a snapshot of this epoch; its Noticed is zero if there was none. After an
// error nothing may be decided on the snapshot.
func (f *FailoverDetector) Failover(ctx context.Context, epoch string) (ledger.Failover, error) {
	if last, known := f.known(epoch); known {
		return last, nil
	}
	select {
	case f.reading <- struct{}{}:
		defer func() { <-f.reading }()
	case <-ctx.Done():
		return ledger.Failover{}, fmt.Errorf("reconcile: epoch: %w", ctx.Err())
	}
	if last, known := f.known(epoch); known {
		return last, nil
	}
	return f.load(ctx, epoch)
}

// known returns the last failover if the epoch is that of the last snapshot.
func (f *FailoverDetector) known(epoch string) (ledger.Failover, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ledger.Failover{Noticed: f.noticed, Window: f.window}, f.read && epoch == f.epoch
}

// load records the epoch and keeps what the store returns. The caller holds reading.
func (f *FailoverDetector) load(ctx context.Context, epoch string) (ledger.Failover, error) {
	f.mu.Lock()
	again := f.read
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	noticed, err := f.store.RecordEpoch(ctx, epoch, again)
	if err != nil {
		return ledger.Failover{}, fmt.Errorf("reconcile: epoch: %w", err)
	}
	f.mu.Lock()
	f.epoch, f.noticed, f.read = epoch, noticed, true
	f.mu.Unlock()
	last := ledger.Failover{Noticed: noticed, Window: f.window}
	if !noticed.IsZero() {
		f.onFailover(last)
	}
	return last, nil
}

// Last returns the last failover that this replica knows of; its Noticed is zero if there was none.
func (f *FailoverDetector) Last() ledger.Failover {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ledger.Failover{Noticed: f.noticed, Window: f.window}
}

// check notices a failover also while no entries are loaded.
func (f *FailoverDetector) check(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	epoch, err := f.store.Epoch(bounded)
	if err != nil {
		return fmt.Errorf("reconcile: epoch: %w", err)
	}
	_, err = f.Failover(ctx, epoch)
	return err
}
