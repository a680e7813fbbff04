package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// EpochLog keeps the systems and timelines that the ledger has lived on.
type EpochLog interface {
	Epoch(ctx context.Context) (string, error)
	Notice(ctx context.Context, epoch string, again bool) (noticed time.Time, err error)
}

// Failovers knows when the database changed under us last. It is asked with every reading, so that a change
// is noticed before anything is decided on what the new database says.
type Failovers struct {
	log    EpochLog
	window time.Duration
	told   func(ledger.Failover) // told when this replica learns of one

	learning chan struct{} // held while the log is asked, so that one asks for all
	mu       sync.Mutex
	epoch    string // the one of the last reading
	noticed  time.Time
	learned  bool
}

// NewFailovers keeps watch; window is how long before a change commits may be forgotten, 0 where none ever
// are. told may be nil.
func NewFailovers(log EpochLog, window time.Duration, told func(ledger.Failover)) *Failovers {
	if told == nil {
		told = func(ledger.Failover) {}
	}
	return &Failovers{log: log, window: window, told: told, learning: make(chan struct{}, 1)}
}

// Failover is what a reading of this epoch has to reckon with. It is an error where that cannot be learned:
// then nothing may be decided on the reading.
func (f *Failovers) Failover(ctx context.Context, epoch string) (ledger.Failover, error) {
	if last, known := f.known(epoch); known {
		return last, nil
	}
	select {
	case f.learning <- struct{}{}:
		defer func() { <-f.learning }()
	case <-ctx.Done():
		return ledger.Failover{}, fmt.Errorf("reconcile: epoch: %w", ctx.Err())
	}
	if last, known := f.known(epoch); known {
		return last, nil
	}
	return f.learn(ctx, epoch)
}

func (f *Failovers) known(epoch string) (ledger.Failover, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ledger.Failover{Noticed: f.noticed, Window: f.window}, f.learned && epoch == f.epoch
}

func (f *Failovers) learn(ctx context.Context, epoch string) (ledger.Failover, error) {
	f.mu.Lock()
	again := f.learned
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	noticed, err := f.log.Notice(ctx, epoch, again)
	if err != nil {
		return ledger.Failover{}, fmt.Errorf("reconcile: epoch: %w", err)
	}
	f.mu.Lock()
	f.epoch, f.noticed, f.learned = epoch, noticed, true
	f.mu.Unlock()
	last := ledger.Failover{Noticed: noticed, Window: f.window}
	if !noticed.IsZero() {
		f.told(last)
	}
	return last, nil
}

// Last is the last change that this replica knows of; the zero value where there was none.
func (f *Failovers) Last() ledger.Failover {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ledger.Failover{Noticed: f.noticed, Window: f.window}
}

// look notices a change also where nobody reads.
func (f *Failovers) look(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	epoch, err := f.log.Epoch(bounded)
	if err != nil {
		return fmt.Errorf("reconcile: epoch: %w", err)
	}
	_, err = f.Failover(ctx, epoch)
	return err
}
