package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// within runs a visit to its end, whoever still waits for it, and answers in time: where patience ends
// first, the send goes on and settles, and the next delivery is answered from the ledger.
func (d *Desk) within(ctx context.Context, patience time.Duration, v visit) (ledger.Reply, error) {
	type result struct {
		reply ledger.Reply
		err   error
	}
	ended, left := make(chan result), make(chan struct{})
	d.underway.Add(1)
	go func() {
		defer d.underway.Done()
		defer survive(new(error)) // of whoever is told
		begun := d.Clock()
		reply, err := d.attend(context.WithoutCancel(ctx), v)
		reply.Took.Total = d.Clock().Sub(begun)
		select {
		case ended <- result{reply, err}:
		case <-left:
			d.Settled(context.WithoutCancel(ctx), reply, err)
		}
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case r := <-ended:
		return r.reply, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	close(left)
	return d.meanwhile(context.WithoutCancel(ctx), &v)
}

// meanwhile answers for a visit that is still under way: what stands in the ledger is durable, and what
// does not stand there yet is not promised. A caller is told that we retry only of what is ours.
func (d *Desk) meanwhile(ctx context.Context, v *visit) (ledger.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, lastLook)
	defer cancel()
	for range maxPasses {
		seen, err := d.read(ctx, v.id)
		if err != nil {
			return ledger.Reply{}, err
		}
		if v.Origin == ledger.OriginAPI && seen.entry.BrokerRetries() {
			if _, err := d.swap(ctx, ledger.Requested(seen.entry, v.Visit)); err != nil && !errors.Is(err, ledger.ErrStale) {
				return ledger.Reply{}, fmt.Errorf("deliver: take over: %w", err)
			}
			continue
		}
		reply := ledger.ReplyFor(seen.entry, seen.now)
		reply.InFlight, reply.Before = true, seen.entry.State
		reply.Conflict = seen.entry.Conflicts(v.contentHash)
		return reply, nil
	}
	return ledger.Reply{}, fmt.Errorf("%w: %s", errRestless, v.id.EntryID())
}
