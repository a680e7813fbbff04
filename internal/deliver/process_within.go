package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// processWithin processes a task to its end, whether or not the caller still waits for it, and replies within the
// timeout. If the timeout passes first, the send continues and settles, and the next delivery is answered from the
// ledger.
func (d *Deliverer) processWithin(ctx context.Context, timeout time.Duration, t task) (ledger.Reply, error) {
	type result struct {
		reply ledger.Reply
		err   error
	}
	ended, left := make(chan result), make(chan struct{})
	d.inFlight.Add(1)
	go func() {
		defer d.inFlight.Done()
		defer recoverPanic(new(error)) // a panic of OnSettled; process recovers its own
		started := d.Clock()
		reply, err := d.process(context.WithoutCancel(ctx), t)
		reply.Durations.Total = d.Clock().Sub(started)
		select {
		case ended <- result{reply, err}:
		case <-left:
			d.OnSettled(context.WithoutCancel(ctx), reply, err)
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case r := <-ended:
		return r.reply, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	close(left)
	return d.replyInFlight(context.WithoutCancel(ctx), &t)
}

// replyInFlight returns the reply for a task that is still in flight. Only what the ledger stores is promised, since
// only that is durable. An API caller is promised a retry only of an entry that the ledger owns, so an entry whose
// broker retries is taken over first.
func (d *Deliverer) replyInFlight(ctx context.Context, t *task) (ledger.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, lastReadTimeout)
	defer cancel()
	for range maxIterations {
		snap, err := d.load(ctx, t.id)
		if err != nil {
			return ledger.Reply{}, err
		}
		if t.Origin == ledger.OriginAPI && snap.entry.BrokerRetries() {
			if _, err := d.update(ctx, ledger.TakeOver(snap.entry, t.Trigger)); err != nil && !errors.Is(err, ledger.ErrStale) {
				return ledger.Reply{}, fmt.Errorf("deliver: take over: %w", err)
			}
			continue
		}
		reply := ledger.ReplyFor(snap.entry, snap.now)
		reply.InFlight, reply.Before = true, snap.entry.State
		reply.Conflict = snap.entry.Conflicts(t.contentHash)
		return reply, nil
	}
	return ledger.Reply{}, fmt.Errorf("%w: %s", errKeptChanging, t.id.EntryID())
}
