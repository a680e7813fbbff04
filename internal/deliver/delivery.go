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
	source := d.Sources[del.Source]
	v := visit{Visit: ledger.Visit{
		Origin: ledger.OriginPush, Source: del.Source, Message: del.MessageID, Count: del.Count,
		GaveUp: source.DeadLetters, GaveUpBy: del.GaveUpBy,
	}}
	v.bringsDelivery(del)
	return d.within(ctx, source.AnswerWithin, v)
}

// Reread parses once more what could not be read, as a new delivery that the ledger brings on; by is the person
// and redrive the batch that want it. It answers the entry that stands for it then, or what is still wrong.
func (d *Desk) Reread(ctx context.Context, dead ledger.Entry, raw []byte, by, redrive string) (ledger.Entry, []string, error) {
	d.underway.Add(1)
	defer d.underway.Done()
	r, err := reminder.Parse(raw)
	if err != nil {
		return ledger.Entry{}, faultsOf(err), nil
	}
	v := visit{Visit: ledger.Visit{Origin: ledger.OriginRedrive, Source: by, Message: redrive}}
	v.brings(r, policy.Arrival{Source: dead.Source, Published: dead.Published})
	reply, err := d.attend(context.WithoutCancel(ctx), v)
	if err == nil && reply.Conflict {
		return ledger.Entry{}, []string{"another content stands under this identity"}, nil // it will not be sent
	}
	return reply.Entry, nil, err
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

// attend walks one visit to its end: read, decide, do, until there is nothing left but to call or to
// answer.
func (d *Desk) attend(ctx context.Context, v visit) (_ ledger.Reply, err error) {
	defer survive(&err)
	v.facts.Holder = d.Token()
	defer v.slot.giveBack()
	var seen reading
	for range maxPasses {
		if d.Clock().Sub(seen.begun) >= d.Margin { // too old to go by, or none
			if seen, err = d.look(ctx, &v); err != nil {
				return ledger.Reply{}, err
			}
		}
		switch {
		case v.holds(seen.entry):
			return d.call(ctx, &v, seen)
		case v.failures == maxFailures:
			return ledger.Reply{}, v.failure
		}
		switch step := d.decide(&v, seen); step.Verb {
		case ledger.Answer:
			return d.answer(ctx, &v, seen, step), nil
		case ledger.AskRelevance:
			v.facts.Relevance = d.Relevance.Ask(ctx, v.subject(seen.entry))
		case ledger.TakeSlot:
			v.facts.Slot = d.take(ctx, &v, step.Provider)
		case ledger.Create:
			seen = v.put(ctx, d.create, step.Change, seen)
			if !seen.entry.Absent() && !v.holds(seen.entry) {
				return d.answer(ctx, &v, seen, ledger.Step{}), nil // born at rest: others bring it on
			}
		case ledger.Swap:
			if seen = v.put(ctx, d.swap, step.Change, seen); !v.holds(seen.entry) {
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
	entry    ledger.Entry
	now      time.Time
	begun    time.Time
	failover ledger.Failover // of the database that it came from
}

// ledgerTime is the ledger's clock at a local instant, as well as the reading tells: ahead of it by no more
// than the reading took, so that a window or a deadline ends early rather than late.
func (r reading) ledgerTime(at time.Time) time.Time { return r.now.Add(at.Sub(r.begun)) }

// look reads the entry for a visit. After a write that failed it does not give up before a lease is over:
// a claim of ours may stand, and whoever leaves it leaves a doubt.
func (d *Desk) look(ctx context.Context, v *visit) (reading, error) {
	for waited := time.Duration(0); ; waited += time.Second {
		seen, err := d.read(ctx, v.id)
		if err == nil {
			v.meets(seen.entry)
			return seen, nil
		}
		if v.failures == 0 || waited >= d.Lease || wait(ctx, time.Second) != nil {
			return reading{}, err
		}
	}
}

func (d *Desk) read(ctx context.Context, id ledger.Identity) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	begun := d.Clock()
	seen, err := d.Ledger.Load(ctx, id)
	if err != nil {
		return reading{}, fmt.Errorf("deliver: read: %w", err)
	}
	failover, err := d.Epochs.Failover(ctx, seen.Epoch)
	if err != nil {
		return reading{}, fmt.Errorf("deliver: what the ledger may have forgotten: %w", err)
	}
	return reading{entry: seen.Entry, now: seen.Now, begun: begun, failover: failover}, nil
}

// decide asks the heart what to do next, by all that is known now.
func (d *Desk) decide(v *visit, seen reading) ledger.Step {
	if seen.entry.Absent() {
		v.born(d, seen.now)
	}
	subject := v.subject(seen.entry)
	v.facts.Wait = d.pause(subject, seen.now)
	v.facts.Admission = v.verdict
	if v.verdict.Refusal == "" {
		v.facts.Admission = policy.Admit(subject, v.NotYet, d.Memory, seen.now)
	}
	rules := d.rulesFor(subject, v.Visit)
	rules.Failover = seen.failover
	return ledger.Meet(seen.entry, v.Visit, v.facts, rules, seen.now)
}

// pause is how long to wait where no attempt was made: the longer it has lasted, the longer.
func (d *Desk) pause(e ledger.Entry, now time.Time) time.Duration {
	age := time.Duration(0)
	if !e.Absent() {
		age = now.Sub(e.FirstSeen)
	}
	return policy.Pause(d.typeOf(e).Backoff, age, d.Draw())
}

// put writes what was decided. What stands keeps the times of the reading that it was decided on, since
// that is where a call's deadline counts from. After any error it is read again: that also tells whether
// a write happened whose reply was lost.
func (v *visit) put(ctx context.Context, write func(context.Context, ledger.Change) (ledger.Entry, error), c ledger.Change, seen reading) reading {
	stands, err := write(ctx, c)
	switch {
	case err == nil:
		v.facts.Counted = true
		return reading{entry: stands, now: seen.now, begun: seen.begun, failover: seen.failover}
	case !errors.Is(err, ledger.ErrStale) && !errors.Is(err, ledger.ErrExists):
		v.failures++
		v.failure = fmt.Errorf("deliver: write: %w", err)
	}
	return reading{}
}

func (d *Desk) create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Create(ctx, c)
}

func (d *Desk) swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Swap(ctx, c)
}

// take waits for a slot, but not for long: a queue in memory is no place for a backlog.
func (d *Desk) take(ctx context.Context, v *visit, provider string) ledger.Slot {
	v.slot.giveBack()
	ctx, cancel := context.WithTimeout(ctx, slotPatience)
	defer cancel()
	taken, done := d.Slots.Take(ctx, provider)
	v.slot.done = done
	taken.Wait = policy.Lifted(taken.Wait, d.Draw()) // a gate opens for all; they need not come back together
	return taken
}

// answer tells what follows from where the entry stands, when nobody was called.
func (d *Desk) answer(ctx context.Context, v *visit, seen reading, step ledger.Step) ledger.Reply {
	reply := ledger.ReplyFor(seen.entry, seen.now)
	reply.Reason = step.Reason
	if step.Wait > 0 {
		reply.RetryAfter = ledger.ClampRetryAfter(step.Wait)
	}
	reply.Duplicate = !v.facts.Counted
	return d.told(ctx, v, reply)
}

// told completes a reply with what the visit met on its way.
func (d *Desk) told(ctx context.Context, v *visit, reply ledger.Reply) ledger.Reply {
	reply.Before, reply.Faults = v.before.State, v.faults
	if reply.Conflict = reply.Entry.Conflicts(v.contentHash); reply.Conflict {
		d.recordConflict(ctx, v)
	}
	return reply
}

// recordConflict keeps the other content's hash. Losing it would not change what is sent, so a ledger
// that fails here does not fail the delivery.
func (d *Desk) recordConflict(ctx context.Context, v *visit) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	_, _ = d.Archive.RecordConflict(ctx, ledger.Conflict{
		Identity: v.id, ContentHash: v.contentHash, Source: v.Source, MessageID: v.Message,
	})
}
