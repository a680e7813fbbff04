package deliver

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

// task is the processing of one entry on behalf of one trigger, with what was found out so far.
type task struct {
	ledger.Trigger
	id          ledger.Identity
	contentHash string                                         // of the content that was delivered; empty for the worker
	buildEntry  func(d *Deliverer, now time.Time) ledger.Entry // builds the entry to insert; nil for the worker
	rejection   ledger.Admission                               // takes precedence over any policy: the message could not be parsed
	faults      []string                                       // why it could not be parsed
	facts       ledger.Facts
	failures    int   // writes that failed, and may have happened nevertheless
	failure     error // the last of them
	slot        slot
	first       ledger.Entry // as it was when the task loaded it first
	hasFirst    bool         // first is set
}

// slot is the task's slot at a provider. It is held until the call is over or it is clear that none is made.
type slot struct {
	release func(o ledger.Outcome, wait time.Duration) time.Duration
}

// finish releases the slot with the outcome of the call, and returns how long the gate is closed from now on. It
// does nothing if no slot is held.
func (s *slot) finish(o ledger.Outcome, wait time.Duration) time.Duration {
	if s.release == nil {
		return 0
	}
	release := s.release
	s.release = nil
	return release(o, wait)
}

// releaseUnused releases a slot that no call was made with.
func (s *slot) releaseUnused() { s.finish(ledger.Outcome{Result: ledger.ResultNotCalled}, 0) }

// withReminder makes a parsed reminder the content of the task.
func (t *task) withReminder(r reminder.Reminder, a policy.Arrival) {
	t.id = ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel}
	t.contentHash = r.ContentHash()
	t.NotBefore = r.NotBefore
	t.Payload = &ledger.Payload{Recipient: r.To, Content: r.Content, Metadata: r.Metadata}
	t.buildEntry = func(d *Deliverer, now time.Time) ledger.Entry {
		return policy.NewEntry(r, a, d.typeOf(ledger.Entry{Identity: t.id}), now)
	}
}

// withDelivery parses a delivery and makes it the content of the task.
func (t *task) withDelivery(del ledger.Delivery) {
	if del.Fault != "" {
		t.withMalformed(del, []string{del.Fault})
		return
	}
	r, err := reminder.Parse(del.Raw)
	if err != nil {
		t.withMalformed(del, faultsOf(err))
		return
	}
	t.withReminder(r, policy.Arrival{Source: del.Source, Published: del.Published})
}

// withMalformed makes an authentic message that cannot be parsed a dead letter. It is acked: a poison message must
// not be redelivered for ever.
func (t *task) withMalformed(del ledger.Delivery, faults []string) {
	t.faults = faults
	t.id = ledger.MalformedIdentity(del.Source, del.MessageID, del.Raw)
	t.rejection = ledger.Admission{State: ledger.Dead, Class: ledger.ClassMalformed, Reason: ledger.ReasonMalformed}
	metadata, _ := json.Marshal(map[string][]string{"faults": faults}) // strings always marshal
	t.Payload = &ledger.Payload{Raw: del.Raw, Metadata: metadata}
	id, source, published := t.id, del.Source, del.Published
	t.buildEntry = func(_ *Deliverer, now time.Time) ledger.Entry {
		if published.IsZero() || published.After(now) {
			published = now
		}
		return ledger.Entry{
			Identity: id, SendKey: id.SendKey(), Source: source,
			Published: published.UTC().Truncate(time.Microsecond),
		}
	}
}

// faultsOf returns one line for each fault of a message.
func faultsOf(err error) []string {
	var faults reminder.Faults
	if !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	var lines []string
	for _, f := range faults {
		lines = append(lines, strings.TrimSpace(f.Field+" "+f.Problem))
	}
	return lines
}

// prepareNewEntry sets the entry that would be inserted for the task's content, by the ledger's now.
func (t *task) prepareNewEntry(d *Deliverer, now time.Time) {
	if t.buildEntry != nil {
		entry := t.buildEntry(d, now)
		t.NewEntry = &entry
	}
}

// entry returns the entry that rules apply to: the one that was loaded, or the one that would be inserted.
func (t *task) entry(loaded ledger.Entry) ledger.Entry {
	if loaded.Absent() && t.NewEntry != nil {
		return *t.NewEntry
	}
	return loaded
}

// rememberFirst keeps the entry as the task loaded it first.
func (t *task) rememberFirst(e ledger.Entry) {
	if !t.hasFirst {
		t.first, t.hasFirst = e, true
	}
}

// isHolder reports whether the task holds the claim on the entry.
func (t *task) isHolder(e ledger.Entry) bool {
	return e.State == ledger.Sending && e.Holder == t.facts.Holder
}
