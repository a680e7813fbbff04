package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// call makes the one call of a committed claim, and settles its outcome.
func (d *Deliverer) call(ctx context.Context, t *task, snap snapshot) (ledger.Reply, error) {
	claimed := snap.entry
	rules := d.rulesFor(claimed, t.Trigger)
	deadline := snap.started.Add(ledger.CallBudget(claimed, d.Routes.Timeout(claimed.Provider), rules, snap.now))

	attempt := ledger.Attempt{Trigger: t.Trigger, Holder: claimed.Holder, Provider: claimed.Provider}
	started := d.Clock()
	attempt.Started = snap.ledgerTime(started)
	attempt.Outcome = d.send(ctx, t, claimed, deadline)
	finished := d.Clock()
	attempt.Finished = snap.ledgerTime(finished)

	attempt.Wait = policy.Wait(attempt.Outcome, claimed.BudgetUsed+1, d.typeOf(claimed).Backoff, d.Random())
	if attempt.Outcome.Result == ledger.ResultNotCalled {
		attempt.Wait = max(attempt.Wait, d.waitWithoutCall(claimed, attempt.Finished))
	}
	attempt.Wait = max(attempt.Wait, t.slot.finish(attempt.Outcome, attempt.Wait))

	settled, late, err := d.settle(ctx, claimed, attempt, rules)
	if err != nil {
		return ledger.Reply{}, err
	}
	reply := ledger.ReplyFor(settled, snap.ledgerTime(d.Clock()))
	reply.Reason = late
	reply.Outcome = &attempt.Outcome
	reply.Durations.Call = finished.Sub(started)
	return d.finishReply(ctx, t, reply), nil
}

// send calls the provider with the stored content. It checks the clock once more right before: past the deadline
// nothing is dialled.
func (d *Deliverer) send(ctx context.Context, t *task, e ledger.Entry, deadline time.Time) (o ledger.Outcome) {
	payload, err := d.payload(ctx, t, e)
	if err != nil {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "payload_unread"}
	}
	if !d.Clock().Before(deadline) {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "deadline"}
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	defer func() {
		if recover() != nil {
			o = ledger.Outcome{Result: ledger.ResultUnknown, Cause: "panic"} // the request may have been sent
		}
	}()
	return d.Sender.Send(ctx, e.Provider, ledger.Shipment{
		Identity: e.Identity, SendKey: e.SendKey,
		ReservationID: e.ReservationID, CorrelationID: e.CorrelationID,
		Recipient: payload.Recipient, Content: payload.Content, Metadata: payload.Metadata,
	})
}

// payload returns the content that the entry was created with: the task's own if this task inserted the entry,
// otherwise what the ledger stores.
func (d *Deliverer) payload(ctx context.Context, t *task, e ledger.Entry) (ledger.Payload, error) {
	if t.first.Absent() && t.Payload != nil && e.Version == 1 {
		return *t.Payload, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Details.Payload(ctx, e.Identity)
}

// settle records the outcome of an attempt, and keeps trying until settleTimeout. Until it is recorded the lease
// prevents a second send, and after the lease the entry's doubt does. If the entry changed meanwhile, late is the
// reason under which the outcome was recorded.
func (d *Deliverer) settle(ctx context.Context, claimed ledger.Entry, a ledger.Attempt, rules ledger.Rules) (_ ledger.Entry, late ledger.Reason, _ error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	change := ledger.Settle(claimed, a, rules, a.Finished)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		stored, err := d.update(ctx, change)
		if err == nil {
			return stored, d.reportLate(change), nil
		}
		if ctxErr := sleep(ctx, pause); ctxErr != nil {
			return ledger.Entry{}, "", fmt.Errorf("deliver: settling an attempt failed: %w", errors.Join(err, ctxErr))
		}
		snap, err := d.load(ctx, claimed.Identity)
		if err != nil {
			continue // repeat the same change: its version guards it
		}
		if snap.entry.State == ledger.Sending && snap.entry.Holder == a.Holder {
			change = ledger.Settle(snap.entry, a, rules, snap.now) // a cancel was written, or our write did not happen
			continue
		}
		if recorded, err := d.recorded(ctx, claimed.Identity, a.Holder); err == nil && recorded {
			return snap.entry, "", nil
		} else if err == nil {
			change = ledger.SettleLate(snap.entry, a)
		}
	}
}

// recorded reports whether the timeline has an event of this holder: then the write happened, and only its reply was
// lost. A lease-expired event names the holder, but was written by others.
func (d *Deliverer) recorded(ctx context.Context, id ledger.Identity, holder string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	timeline, err := d.Details.Timeline(ctx, id)
	if err != nil {
		return false, err
	}
	for _, event := range timeline {
		if event.Holder == holder && event.Kind != ledger.EventLeaseExpired {
			return true, nil
		}
	}
	return false, nil
}

// reportLate reports what a late holder recorded to OnLate, and returns its reason; empty for any other change.
func (d *Deliverer) reportLate(c ledger.Change) ledger.Reason {
	if c.Event == nil || c.Event.Kind != ledger.EventLate {
		return ""
	}
	d.OnLate(string(c.Event.Reason))
	return c.Event.Reason
}

// sleep waits for a duration, or returns ctx's error when ctx ends first.
func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
