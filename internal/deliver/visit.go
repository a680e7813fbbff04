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

// visit is one arrival at an entry, with all that is found out on its way.
type visit struct {
	ledger.Visit
	id          ledger.Identity
	contentHash string                                    // of what was brought; empty for the worker
	entryAt     func(d *Desk, now time.Time) ledger.Entry // what was brought, as an entry born now; nil for the worker
	verdict     ledger.Admission                          // given before any policy: the message could not be read
	faults      []string                                  // why not
	facts       ledger.Facts
	failures    int   // writes that failed, and may have happened all the same
	failure     error // the last of them
	slot        slot
	before      ledger.Entry // as it was met first
	met         bool
}

// slot is the place at a provider that a visit holds, until its call is over or it turns out that there
// is none to make.
type slot struct {
	done func(o ledger.Outcome, wait time.Duration) time.Duration
}

// over gives the slot back with what the call proved, and tells how long the gate is closed now.
func (s *slot) over(o ledger.Outcome, wait time.Duration) time.Duration {
	if s.done == nil {
		return 0
	}
	done := s.done
	s.done = nil
	return done(o, wait)
}

func (s *slot) giveBack() { s.over(ledger.Outcome{Result: ledger.ResultNotCalled}, 0) }

// brings makes a reminder the visit's load.
func (v *visit) brings(r reminder.Reminder, a policy.Arrival) {
	v.id = ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel}
	v.contentHash = r.ContentHash()
	v.NotYet = r.NotBefore
	v.Payload = &ledger.Payload{Recipient: r.To, Content: r.Content, Metadata: r.Metadata}
	v.entryAt = func(d *Desk, now time.Time) ledger.Entry {
		return policy.Birth(r, a, d.typeOf(ledger.Entry{Identity: v.id}), now)
	}
}

// bringsDelivery parses a delivery and makes it the visit's load.
func (v *visit) bringsDelivery(del ledger.Delivery) {
	if del.Fault != "" {
		v.bringsMalformed(del, []string{del.Fault})
		return
	}
	r, err := reminder.Parse(del.Raw)
	if err != nil {
		v.bringsMalformed(del, faultsOf(err))
		return
	}
	v.brings(r, policy.Arrival{Source: del.Source, Published: del.Published})
}

// bringsMalformed makes what is authentic but cannot be read a dead letter, which is acked: a poison message
// must not come back for ever.
func (v *visit) bringsMalformed(del ledger.Delivery, faults []string) {
	v.faults = faults
	v.id = ledger.MalformedIdentity(del.Source, del.MessageID, del.Raw)
	v.verdict = ledger.Admission{Refusal: ledger.Dead, Class: ledger.ClassMalformed, Reason: ledger.ReasonMalformed}
	why, _ := json.Marshal(map[string][]string{"faults": faults}) // strings always marshal
	v.Payload = &ledger.Payload{Raw: del.Raw, Metadata: why}
	id, source, published := v.id, del.Source, del.Published
	v.entryAt = func(_ *Desk, now time.Time) ledger.Entry {
		if published.IsZero() || published.After(now) {
			published = now
		}
		return ledger.Entry{
			Identity: id, SendKey: id.SendKey(), Source: source,
			Published: published.UTC().Truncate(time.Microsecond),
		}
	}
}

// faultsOf is one line for each thing that was wrong.
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

// born prepares the entry that the visit's load would become, by the ledger's now.
func (v *visit) born(d *Desk, now time.Time) {
	if v.entryAt != nil {
		entry := v.entryAt(d, now)
		v.Birth = &entry
	}
}

// subject is the entry that rules are gathered for: what was read, or what would be born.
func (v *visit) subject(read ledger.Entry) ledger.Entry {
	if read.Absent() && v.Birth != nil {
		return *v.Birth
	}
	return read
}

// meets remembers how the entry stood when the visit came.
func (v *visit) meets(e ledger.Entry) {
	if !v.met {
		v.before, v.met = e, true
	}
}

// holds tells whether the visit is the entry's holder.
func (v *visit) holds(e ledger.Entry) bool {
	return e.State == ledger.Sending && e.Holder == v.facts.Holder
}
