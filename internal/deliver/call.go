package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// call makes the one call of a claim that stands, and settles what it proved.
func (d *Desk) call(ctx context.Context, v *visit, seen reading) (ledger.Reply, error) {
	claimed := seen.entry
	rules := d.rulesFor(claimed, v.Visit)
	deadline := seen.begun.Add(ledger.CallBudget(claimed, d.Routes.Timeout(claimed.Provider), rules, seen.now))

	attempt := ledger.Attempt{Visit: v.Visit, Holder: claimed.Holder, Provider: claimed.Provider}
	started := d.Clock()
	attempt.Started = seen.ledgerTime(started)
	attempt.Outcome = d.send(ctx, v, claimed, deadline)
	finished := d.Clock()
	attempt.Finished = seen.ledgerTime(finished)

	attempt.Wait = policy.Wait(attempt.Outcome, claimed.Spent+1, d.typeOf(claimed).Backoff, d.Draw())
	if attempt.Outcome.Result == ledger.ResultNotCalled {
		attempt.Wait = max(attempt.Wait, d.pause(claimed, attempt.Finished))
	}
	attempt.Wait = max(attempt.Wait, v.slot.over(attempt.Outcome, attempt.Wait))

	settled, late, err := d.settle(ctx, claimed, attempt, rules)
	if err != nil {
		return ledger.Reply{}, err
	}
	reply := ledger.ReplyFor(settled, seen.ledgerTime(d.Clock()))
	reply.Reason = late
	reply.Outcome = &attempt.Outcome
	reply.Took.Call = finished.Sub(started)
	return d.told(ctx, v, reply), nil
}

// send hands the frozen content to the provider. It looks at the clock once more right before: past the
// deadline nothing is dialled.
func (d *Desk) send(ctx context.Context, v *visit, e ledger.Entry, deadline time.Time) (o ledger.Outcome) {
	payload, err := d.payload(ctx, v, e)
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
			o = ledger.Outcome{Result: ledger.ResultUnknown, Cause: "panic"} // it may have been past the wire
		}
	}()
	return d.Sender.Send(ctx, e.Provider, ledger.Shipment{
		Identity: e.Identity, SendKey: e.SendKey,
		ReservationID: e.ReservationID, CorrelationID: e.CorrelationID,
		Recipient: payload.Recipient, Content: payload.Content, Metadata: payload.Metadata,
	})
}

// payload is the content that came first: what this visit brought where it brought the entry into
// being, else what the ledger keeps.
func (d *Desk) payload(ctx context.Context, v *visit, e ledger.Entry) (ledger.Payload, error) {
	if v.before.Absent() && v.Payload != nil && e.Version == 1 {
		return *v.Payload, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Archive.Payload(ctx, e.Identity)
}

// settle records what the attempt proved, and does not give up before settleFor: until it stands, the
// lease and then doubt speak for the attempt. late says what it meant where the entry had moved on.
func (d *Desk) settle(ctx context.Context, held ledger.Entry, a ledger.Attempt, rules ledger.Rules) (_ ledger.Entry, late ledger.Reason, _ error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	change := ledger.Settle(held, a, rules, a.Finished)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		stands, err := d.swap(ctx, change)
		if err == nil {
			return stands, d.tellLate(change), nil
		}
		if done := wait(ctx, pause); done != nil {
			return ledger.Entry{}, "", fmt.Errorf("deliver: an attempt is not settled: %w", errors.Join(err, done))
		}
		seen, err := d.read(ctx, held.Identity)
		if err != nil {
			continue // the same change again: its version guards it
		}
		if seen.entry.State == ledger.Sending && seen.entry.Holder == a.Holder {
			change = ledger.Settle(seen.entry, a, rules, seen.now) // a cancel came, or the write did not happen
			continue
		}
		if recorded, err := d.recorded(ctx, held.Identity, a.Holder); err == nil && recorded {
			return seen.entry, "", nil
		} else if err == nil {
			change = ledger.Late(seen.entry, a)
		}
	}
}

// recorded tells whether the holder's own line stands in the timeline: then the write happened, and
// only its reply was lost. A lapse is somebody else's line about it.
func (d *Desk) recorded(ctx context.Context, id ledger.Identity, holder string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	timeline, err := d.Archive.Timeline(ctx, id)
	if err != nil {
		return false, err
	}
	for _, line := range timeline {
		if line.Holder == holder && line.Kind != ledger.EventLapse {
			return true, nil
		}
	}
	return false, nil
}

// tellLate tells the watcher what a late holder recorded, and answers its reason; empty for any other change.
func (d *Desk) tellLate(c ledger.Change) ledger.Reason {
	if c.Event == nil || c.Event.Kind != ledger.EventLate {
		return ""
	}
	d.Late(string(c.Event.Reason))
	return c.Event.Reason
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
