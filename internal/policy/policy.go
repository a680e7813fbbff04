// Package policy computes what the configuration allows: how a reminder becomes an entry, whether an entry may be
// sent now, and how long to wait between attempts.
//
// Invariants: every result is a value with its reason, computed from the arguments alone; no wait is negative or
// overflows, and none is longer than its cap, or than a second and its jitter if the cap is shorter than that.
//
// What it does not do: it never decides what an outcome means (package ledger does), and reads neither
// clock nor configuration.
package policy

import (
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Type is the configuration of one type of reminder.
type Type struct {
	MaxAttempts    int
	Backoff        Backoff
	Deadline       time.Duration // how long it may be sent, from not_before or else from the time its age counts from
	OnUnknown      ledger.OnUnknown
	CheckRelevance bool
}

// Memory bounds the age of a new reminder that may be sent.
type Memory struct {
	Span        time.Duration // how long the ledger keeps its entries
	AcceptSince time.Time     // the cut-over to a live stream; zero for none
	LowWater    time.Time     // up to where the ledger has deleted entries, perhaps under a shorter span; zero for nowhere
}

// Arrival is how a reminder was delivered.
type Arrival struct {
	Source    string
	Published time.Time // by the broker; zero if it does not say
}

// NewEntry returns the entry for a new reminder, without a state: [ledger.Decide] decides that.
//
// Its age counts from created_at, else from the broker's publish time, else from now; a time ahead of the ledger's
// clock counts as now, so that a producer cannot extend its own deadline.
func NewEntry(r reminder.Reminder, a Arrival, t Type, now time.Time) ledger.Entry {
	published := now
	for _, date := range []time.Time{r.CreatedAt, a.Published} {
		if !date.IsZero() {
			published = earlier(date, now)
			break
		}
	}
	id := ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel}
	return ledger.Entry{
		Identity:      id,
		SendKey:       id.SendKey(),
		ContentHash:   r.ContentHash(),
		Published:     micro(published),
		NotBefore:     micro(r.NotBefore),
		Deadline:      micro(deadline(r, t, published)),
		Source:        a.Source,
		CorrelationID: r.CorrelationID,
		ReservationID: r.ReservationID,
		UserID:        r.UserID,
	}
}

// lastInstant is the latest time that RFC 3339 can express.
func lastInstant() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) }

// deadline returns the earlier of the reminder's own deadline and the type's, which counts from not_before or, if that
// is later, from published.
func deadline(r reminder.Reminder, t Type, published time.Time) time.Time {
	from := published
	if r.NotBefore.After(published) {
		from = r.NotBefore
	}
	typeDeadline := earlier(from.Add(t.Deadline), lastInstant())
	if r.Deadline.IsZero() {
		return typeDeadline
	}
	return earlier(r.Deadline, typeDeadline)
}

// Admit decides whether an entry may be sent now. It is called before every claim. Memory bounds only new entries: of
// an existing one the ledger knows whether it was sent.
func Admit(e ledger.Entry, notBefore time.Time, m Memory, now time.Time) ledger.Admission {
	isNew := e.Absent()
	switch {
	case isNew && e.Published.Before(now.Add(-m.Span)):
		return ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonBeforeMemory}
	case isNew && !m.LowWater.IsZero() && !e.Published.After(m.LowWater):
		return ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonBeforeMemory}
	case isNew && e.Published.Before(m.AcceptSince):
		return ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonBeforeCutOff}
	case isNew && notBefore.After(now.Add(m.Span)):
		return ledger.Admission{State: ledger.Dead, Class: ledger.ClassPermanent, Reason: ledger.ReasonTooFarAhead}
	case !e.Deadline.IsZero() && !now.Before(e.Deadline):
		return ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonExpired}
	default:
		return ledger.Admission{}
	}
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// micro returns t in UTC and whole microseconds, as the ledger keeps it.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
