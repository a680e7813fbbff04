package deliver

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Deliver takes one delivery of a broker. An error means that the ledger could not be reached: nothing
// is known to be recorded, and the broker has to come back.
func (d *Desk) Deliver(ctx context.Context, del ledger.Delivery) (ledger.Reply, error) {
	v := visit{Visit: ledger.Visit{Origin: ledger.OriginPush, Source: del.Source, Message: del.MessageID, Count: del.Count}}
	v.bringsDelivery(del)
	return d.within(ctx, d.Sources[del.Source].AnswerWithin, v)
}

// Request takes one reminder from a caller of the API; trace is for those who watch.
func (d *Desk) Request(ctx context.Context, caller string, r reminder.Reminder, _ ledger.Trace) (ledger.Reply, error) {
	v := visit{Visit: ledger.Visit{Origin: ledger.OriginAPI, Source: caller}}
	v.brings(r, policy.Arrival{Source: caller})
	return d.within(ctx, d.Callers.AnswerWithin, v)
}

// Visit looks after an entry that is due, or whose holder has gone silent.
func (d *Desk) Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	d.underway.Add(1)
	defer d.underway.Done()
	return d.attend(context.WithoutCancel(ctx), visit{Visit: ledger.Visit{Origin: ledger.OriginWorker}, id: id})
}

// attend walks one visit to its end: read, decide, do, until there is nothing left but to answer.
func (d *Desk) attend(ctx context.Context, v visit) (_ ledger.Reply, err error) {
	defer survive(&err)
	v.facts.Holder = d.Token()
	defer v.slot.giveBack()
	var seen reading
	for range maxPasses {
		if d.Clock().Sub(seen.begun) >= d.Margin {
			if seen, err = d.read(ctx, v.id); err != nil {
				return ledger.Reply{}, err
			}
			v.meets(seen.entry)
		}
		if v.holds(seen.entry) {
			return d.call(ctx, v, seen)
		}
		switch step := d.decide(&v, seen); step.Verb {
		case ledger.Answer:
			return d.answer(ctx, v, seen, step), nil
		case ledger.AskRelevance:
			v.facts.Relevance = d.Relevance.Ask(ctx, v.subject(seen.entry))
		case ledger.TakeSlot:
			v.facts.Slot = d.take(ctx, &v, step.Provider)
		case ledger.Create:
			seen = d.put(ctx, d.Ledger.Create, step.Change, seen)
			if !seen.entry.Absent() && !v.holds(seen.entry) {
				return d.answer(ctx, v, seen, ledger.Step{}), nil // born at rest: others bring it on
			}
		case ledger.Swap:
			if seen = d.put(ctx, d.Ledger.Swap, step.Change, seen); !v.holds(seen.entry) {
				seen = reading{} // meet what it has become, by a newer now
			}
		}
	}
	return ledger.Reply{}, fmt.Errorf("%w: %s", errRestless, v.id.EntryID())
}

// errRestless : others, or a ledger that fails half of the time, moved the entry at every reading.
var errRestless = errors.New("deliver: the entry moved on at every reading")

// survive turns a panic of ours into a failed visit: one message must not end a process that holds others
// in flight. Its value is left out, since nobody knows what it shows.
func survive(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("deliver: panic of type %T\n%s", cause, debug.Stack())
	}
}

// reading is an entry and the ledger's now, read together after begun. Deadlines count from begun, so
// that the time the reading took is never added to anybody's budget. The zero reading is no reading.
type reading struct {
	entry ledger.Entry
	now   time.Time
	begun time.Time
}

func (d *Desk) read(ctx context.Context, id ledger.Identity) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	begun := d.Clock()
	entry, now, err := d.Ledger.Load(ctx, id)
	if err != nil {
		return reading{}, fmt.Errorf("deliver: read: %w", err)
	}
	return reading{entry: entry, now: now, begun: begun}, nil
}

// decide asks the heart what to do next, by all that is known now.
func (d *Desk) decide(v *visit, seen reading) ledger.Step {
	if seen.entry.Absent() {
		v.born(d, seen.now)
	}
	subject := v.subject(seen.entry)
	kind := d.typeOf(subject)
	v.facts.Wait = policy.Pause(kind.Backoff, d.Draw())
	v.facts.Admission = v.verdict
	if v.verdict.Refusal == "" {
		v.facts.Admission = policy.Admit(subject, v.NotYet, d.Memory, seen.now)
	}
	return ledger.Meet(seen.entry, v.Visit, v.facts, d.rulesFor(subject, v.Visit), seen.now)
}

// put writes what was decided. What stands keeps the times of the reading that it was decided on, since
// that is where a call's deadline counts from. After any error it is read again: that also tells whether
// a write happened whose reply was lost.
func (d *Desk) put(ctx context.Context, write func(context.Context, ledger.Change) (ledger.Entry, error), c ledger.Change, seen reading) reading {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	stands, err := write(ctx, c)
	if err != nil {
		return reading{}
	}
	return reading{entry: stands, now: seen.now, begun: seen.begun}
}

// take waits for a slot, but not for long: a queue in memory is no place for a backlog.
func (d *Desk) take(ctx context.Context, v *visit, provider string) ledger.Slot {
	v.slot.giveBack()
	ctx, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	taken, done := d.Slots.Take(ctx, provider)
	v.slot.done = done
	return taken
}

// answer tells what follows from where the entry stands, when nothing was called.
func (d *Desk) answer(ctx context.Context, v visit, seen reading, step ledger.Step) ledger.Reply {
	reply := ledger.ReplyFor(seen.entry, seen.now)
	reply.Reason = step.Reason
	if step.Wait > 0 {
		reply.RetryAfter = ledger.ClampRetryAfter(step.Wait)
	}
	reply.Duplicate = !v.wrote(seen.entry)
	return d.told(ctx, v, reply)
}

// told completes a reply with what the visit met on its way.
func (d *Desk) told(ctx context.Context, v visit, reply ledger.Reply) ledger.Reply {
	reply.Before, reply.Faults = v.before.State, v.faults
	if v.before.Conflicts(v.contentHash) {
		reply.Conflict = true
		d.recordConflict(ctx, v)
	}
	return reply
}

// recordConflict keeps the other content's hash. Losing it would not change what is sent, so a ledger
// that fails here does not fail the delivery.
func (d *Desk) recordConflict(ctx context.Context, v visit) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	_, _ = d.Archive.RecordConflict(ctx, ledger.Conflict{
		Identity: v.id, ContentHash: v.contentHash, Source: v.Source, MessageID: v.Message,
	})
}

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
	return d.meanwhile(context.WithoutCancel(ctx), v)
}

// meanwhile answers for a visit that is still under way: what stands in the ledger is durable, and what
// does not stand there yet is not promised.
func (d *Desk) meanwhile(ctx context.Context, v visit) (ledger.Reply, error) {
	seen, err := d.read(ctx, v.id)
	if err != nil {
		return ledger.Reply{}, err
	}
	reply := ledger.ReplyFor(seen.entry, seen.now)
	reply.InFlight = true
	return reply, nil
}
