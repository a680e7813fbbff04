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

// Deliver processes one delivery of a broker. An error means that the ledger could not be reached: nothing is known
// to be recorded, and the broker has to deliver again.
func (d *Deliverer) Deliver(ctx context.Context, del ledger.Delivery) (ledger.Reply, error) {
	source := d.Sources[del.Source]
	t := task{Trigger: ledger.Trigger{
		Origin: ledger.OriginPush, Source: del.Source, MessageID: del.MessageID, DeliveryCount: del.DeliveryCount,
		DeadLettered: source.DeadLetters, DeadLetteredBy: del.DeadLetteredBy,
	}}
	t.withDelivery(del)
	return d.processWithin(ctx, source.AnswerWithin, t)
}

// Request processes one reminder of an API caller. The trace is not used here: it is for decorators of this method.
func (d *Deliverer) Request(ctx context.Context, caller string, r reminder.Reminder, _ ledger.Trace) (ledger.Reply, error) {
	t := task{Trigger: ledger.Trigger{Origin: ledger.OriginAPI, Source: caller}}
	t.withReminder(r, policy.Arrival{Source: caller})
	return d.processWithin(ctx, d.Callers.AnswerWithin, t)
}

// Process processes an entry that is due, or whose lease has expired.
func (d *Deliverer) Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	d.inFlight.Add(1)
	defer d.inFlight.Done()
	return d.process(context.WithoutCancel(ctx), task{Trigger: ledger.Trigger{Origin: ledger.OriginWorker}, id: id})
}

// Reparse parses a malformed dead letter again, as a new delivery that the ledger's worker sends. The actor is the
// operator, and the redrive the batch, that asked for it. It returns the entry of the reparsed message, or the
// faults that the message still has.
func (d *Deliverer) Reparse(ctx context.Context, dead ledger.Entry, raw []byte, actor, redriveID string) (ledger.Entry, []string, error) {
	d.inFlight.Add(1)
	defer d.inFlight.Done()
	r, err := reminder.Parse(raw)
	if err != nil {
		return ledger.Entry{}, faultsOf(err), nil
	}
	t := task{Trigger: ledger.Trigger{Origin: ledger.OriginRedrive, Source: actor, MessageID: redriveID}}
	t.withReminder(r, policy.Arrival{Source: dead.Source, Published: dead.Published})
	reply, err := d.process(context.WithoutCancel(ctx), t)
	if err == nil && reply.Conflict {
		return ledger.Entry{}, []string{"other content is stored under this identity"}, nil // it will not be sent
	}
	return reply.Entry, nil, err
}

// process carries one task through to its reply. Each iteration works on a snapshot of the entry, loaded unless the one
// at hand is recent enough, and takes one step: if this task holds the claim, it makes the call; otherwise it does what
// package ledger decides. A claim is an insert or update that makes this task the holder, so a call always follows a
// committed claim. After a lost race or a failed write the entry is loaded again and decided on anew.
func (d *Deliverer) process(ctx context.Context, t task) (_ ledger.Reply, err error) {
	defer recoverPanic(&err)
	t.facts.Holder = d.Token()
	defer t.slot.releaseUnused()
	var snap snapshot
	for range maxIterations {
		if d.Clock().Sub(snap.started) >= d.Margin { // too old to decide on, or not loaded yet
			if snap, err = d.loadWithRetry(ctx, &t); err != nil {
				return ledger.Reply{}, err
			}
		}
		switch {
		case t.isHolder(snap.entry):
			return d.call(ctx, &t, snap) // claimed and committed: send and settle
		case t.failures == maxFailures:
			return ledger.Reply{}, t.failure
		}
		switch step := d.decide(&t, snap); step.Action {
		case ledger.ActionDone:
			return d.reply(ctx, &t, snap, step), nil
		case ledger.ActionCheckRelevance:
			t.facts.Relevance = d.Relevance.Check(ctx, t.entry(snap.entry))
		case ledger.ActionAcquireSlot:
			t.facts.Slot = d.acquireSlot(ctx, &t, step.Provider)
		case ledger.ActionInsert:
			snap = t.write(ctx, d.insert, step.Change, snap)
			if !snap.entry.Absent() && !t.isHolder(snap.entry) {
				return d.reply(ctx, &t, snap, ledger.Step{}), nil // inserted without a claim: nothing to send now
			}
		case ledger.ActionUpdate:
			if snap = t.write(ctx, d.update, step.Change, snap); !t.isHolder(snap.entry) {
				snap = snapshot{} // decide on what it has become, by a newer now
			}
		}
	}
	return ledger.Reply{}, fmt.Errorf("%w: %s", errKeptChanging, t.id.EntryID())
}

// errKeptChanging is returned when the entry changed at every iteration, because of other writers or of a ledger that
// fails half of the time.
var errKeptChanging = errors.New("deliver: the entry changed at every iteration")

// recoverPanic turns a panic of our own code into a failed task: one message must not end a process that holds others
// in flight. The panic's value is left out, since it may contain anything.
func recoverPanic(err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("deliver: panic of type %T\n%s", cause, debug.Stack())
	}
}

// snapshot is an entry and the ledger's now, loaded together after started. Deadlines count from started, so that the
// time that loading took is never added to anyone's budget. The zero snapshot is one that was not loaded.
type snapshot struct {
	entry    ledger.Entry
	now      time.Time       // of the ledger's clock
	started  time.Time       // of the local clock
	failover ledger.Failover // of the database that it was loaded from
	lowWater time.Time       // up to where the ledger had deleted entries
}

// ledgerTime returns the ledger's clock at a local instant, as estimated from the snapshot: it is ahead of that clock
// by no more than loading took, so that a window or a deadline ends early rather than late.
func (s snapshot) ledgerTime(at time.Time) time.Time { return s.now.Add(at.Sub(s.started)) }

// loadWithRetry loads the entry for a task. After a failed write it retries for one lease duration: this task's claim
// may be committed, and giving it up leaves the entry in doubt.
func (d *Deliverer) loadWithRetry(ctx context.Context, t *task) (snapshot, error) {
	for waited := time.Duration(0); ; waited += time.Second {
		snap, err := d.load(ctx, t.id)
		if err == nil {
			t.rememberFirst(snap.entry)
			return snap, nil
		}
		if t.failures == 0 || waited >= d.Lease || sleep(ctx, time.Second) != nil {
			return snapshot{}, err
		}
	}
}

func (d *Deliverer) load(ctx context.Context, id ledger.Identity) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	started := d.Clock()
	loaded, err := d.Ledger.Load(ctx, id)
	if err != nil {
		return snapshot{}, fmt.Errorf("deliver: load: %w", err)
	}
	failover, err := d.Failovers.Failover(ctx, loaded.Epoch)
	if err != nil {
		return snapshot{}, fmt.Errorf("deliver: check for a failover: %w", err)
	}
	return snapshot{entry: loaded.Entry, now: loaded.Now, started: started, failover: failover, lowWater: loaded.LowWater}, nil
}

// decide returns the next step that package ledger decides on, by all that is known now.
func (d *Deliverer) decide(t *task, snap snapshot) ledger.Step {
	if snap.entry.Absent() {
		t.prepareNewEntry(d, snap.now)
	}
	subject := t.entry(snap.entry)
	t.facts.Wait = d.waitWithoutCall(subject, snap.now)
	t.facts.Admission = t.rejection
	if t.rejection.State == "" {
		memory := d.Memory
		memory.LowWater = snap.lowWater
		t.facts.Admission = policy.Admit(subject, t.NotBefore, memory, snap.now)
	}
	rules := d.rulesFor(subject, t.Trigger)
	rules.Failover = snap.failover
	return ledger.Decide(snap.entry, t.Trigger, t.facts, rules, snap.now)
}

// waitWithoutCall returns how long to wait if no call was made. The wait grows with the entry's age.
func (d *Deliverer) waitWithoutCall(e ledger.Entry, now time.Time) time.Duration {
	age := time.Duration(0)
	if !e.Absent() {
		age = now.Sub(e.FirstSeen)
	}
	return policy.UncalledWait(d.typeOf(e).Backoff, age, d.Random())
}

// write writes a change and returns the new snapshot. It keeps the times of the snapshot that was decided on, since
// the call's deadline counts from those. After any error it returns the zero snapshot, so that the entry is loaded
// again: that also shows whether a write happened whose reply was lost.
func (t *task) write(ctx context.Context, write func(context.Context, ledger.Change) (ledger.Entry, error), c ledger.Change, snap snapshot) snapshot {
	stored, err := write(ctx, c)
	switch {
	case err == nil:
		t.facts.Wrote = true
		return snapshot{entry: stored, now: snap.now, started: snap.started, failover: snap.failover}
	case !errors.Is(err, ledger.ErrStale) && !errors.Is(err, ledger.ErrExists):
		t.failures++
		t.failure = fmt.Errorf("deliver: write: %w", err)
	}
	return snapshot{}
}

func (d *Deliverer) insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Insert(ctx, c)
}

func (d *Deliverer) update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Update(ctx, c)
}

// acquireSlot waits for a slot, but not for long: a backlog belongs in the ledger, not in a queue in memory.
func (d *Deliverer) acquireSlot(ctx context.Context, t *task, provider string) ledger.Slot {
	t.slot.releaseUnused()
	ctx, cancel := context.WithTimeout(ctx, slotTimeout)
	defer cancel()
	acquired, release := d.Slots.Acquire(ctx, provider)
	t.slot.release = release
	acquired.Wait = policy.SpreadReopening(acquired.Wait, d.Random()) // a gate opens for all entries; they must not return all at once
	return acquired
}

// reply returns the reply that follows from the entry's state, for a task that made no call.
func (d *Deliverer) reply(ctx context.Context, t *task, snap snapshot, step ledger.Step) ledger.Reply {
	reply := ledger.ReplyFor(snap.entry, snap.now)
	reply.Reason = step.Reason
	if step.Wait > 0 {
		reply.RetryAfter = ledger.ClampRetryAfter(step.Wait)
	}
	reply.Duplicate = !t.facts.Wrote
	return d.finishReply(ctx, t, reply)
}

// finishReply adds what the task found out on the way, and records a content conflict.
func (d *Deliverer) finishReply(ctx context.Context, t *task, reply ledger.Reply) ledger.Reply {
	reply.Before, reply.Faults = t.first.State, t.faults
	if reply.Conflict = reply.Entry.Conflicts(t.contentHash); reply.Conflict {
		d.recordConflict(ctx, t)
	}
	return reply
}

// recordConflict stores the other content's hash. Losing it would not change what is sent, so a ledger that fails
// here does not fail the delivery.
func (d *Deliverer) recordConflict(ctx context.Context, t *task) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	_, _ = d.Details.RecordConflict(ctx, ledger.Conflict{
		Identity: t.id, ContentHash: t.contentHash, Source: t.Source, MessageID: t.MessageID,
	})
}
