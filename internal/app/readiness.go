package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

const (
	writeProof        = 3 * time.Second  // how long one write proves that the next one can be made
	checkWriteTimeout = 10 * time.Second // of a check that nobody waits for any more
)

// readiness tells whether a delivery could be recorded now: a database that is read-only, full or locked answers
// every read. The last write proves it, and where there was none the store's check does, at most one at a time and
// one in each writeProof, however often it is asked.
type readiness struct {
	store store

	mu      sync.Mutex
	written time.Time     // the last write that succeeded
	checked time.Time     // the last check that ended
	err     error         // its result
	running chan struct{} // closed when the running check ends; nil where none runs
}

// Ready implements api.Readiness.
func (r *readiness) Ready(ctx context.Context) error {
	if err := r.store.Ping(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	switch {
	case !r.written.IsZero() && time.Since(r.written) < writeProof:
		r.mu.Unlock()
		return nil
	case !r.checked.IsZero() && time.Since(r.checked) < writeProof:
		defer r.mu.Unlock()
		return r.err
	}
	if r.running == nil {
		r.running = make(chan struct{})
		go r.check(context.WithoutCancel(ctx), r.running)
	}
	running := r.running
	r.mu.Unlock()
	select {
	case <-running:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("a write to the ledger waits, perhaps for a lock: %w", ctx.Err())
	}
}

// check outlives the request that began it: SQLite waits for a lock without looking at the context.
func (r *readiness) check(ctx context.Context, done chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, checkWriteTimeout)
	defer cancel()
	err := r.store.CheckWrite(ctx)
	if err != nil {
		err = fmt.Errorf("nothing can be written to the ledger: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked, r.err, r.running = time.Now(), err, nil
	close(done)
}

// observe notes what a write proved. Only a failure that is not the outcome of a race or of the caller's patience
// ends what an earlier write proved.
func (r *readiness) observe(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil:
		r.written = time.Now()
	case errors.Is(err, ledger.ErrExists), errors.Is(err, ledger.ErrStale), errors.Is(err, context.Canceled):
	default:
		r.written = time.Time{}
	}
}

// observed is a store whose writes are noted for the readiness.
type observed struct {
	store
	readiness *readiness
}

func (o observed) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	entry, err := o.store.Insert(ctx, c)
	o.readiness.observe(err)
	return entry, err
}

func (o observed) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	entry, err := o.store.Update(ctx, c)
	o.readiness.observe(err)
	return entry, err
}
