// Package policy holds what the configuration allows: how a reminder becomes an entry, whether an entry
// may be sent now, and how long to wait between attempts.
//
// Invariants: every answer is a value with its reason, made from the arguments alone; no wait is
// negative, overflows, or is longer than its cap or, where that is shorter, a second and its jitter.
//
// What it does not do: it never decides what an outcome means (package ledger does), and reads neither
// clock nor configuration.
package policy

import (
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Type is what the configuration says about one type of reminder.
type Type struct {
	MaxAttempts   int
	Backoff       Backoff
	Deadline      time.Duration // how long it is of use, from not_before or else from its birth
	OnUnknown     ledger.OnUnknown
	AsksRelevance bool
}

// Memory bounds the age of what may still be sent.
type Memory struct {
	Span        time.Duration // how far back the ledger remembers
	AcceptSince time.Time     // the cut-over onto a live stream; zero for none
}

// Arrival is how a reminder came to us, beside its own words.
type Arrival struct {
	Source    string
	Published time.Time // by the broker; zero when it does not say
}

// Birth is the entry that a reminder would become, without the state that its first visit gives it.
//
// Its age counts from created_at, else from the broker's publish time, else from now; a time ahead of
// the ledger's clock counts as now, so that nobody can write themselves a longer deadline.
func Birth(r reminder.Reminder, a Arrival, t Type, now time.Time) ledger.Entry {
	published := now
	for _, said := range []time.Time{r.CreatedAt, a.Published} {
		if !said.IsZero() {
			published = earlier(said, now)
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

// lastInstant is the last one that RFC 3339 can write.
func lastInstant() time.Time { return time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC) }

// deadline is the earlier of the reminder's own and the type's, which counts from the later of not_before
// and where the age counts from.
func deadline(r reminder.Reminder, t Type, published time.Time) time.Time {
	from := published
	if r.NotBefore.After(published) {
		from = r.NotBefore
	}
	byType := earlier(from.Add(t.Deadline), lastInstant())
	if r.Deadline.IsZero() {
		return byType
	}
	return earlier(r.Deadline, byType)
}

// Admit tells whether an entry may be sent now: before its first claim and before every other one.
// The ledger's memory is asked of newcomers only: what is in the ledger is remembered.
func Admit(e ledger.Entry, notBefore time.Time, m Memory, now time.Time) ledger.Admission {
	newcomer := e.Absent()
	switch {
	case newcomer && e.Published.Before(now.Add(-m.Span)):
		return ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonBeforeMemory}
	case newcomer && e.Published.Before(m.AcceptSince):
		return ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonBeforeCutOff}
	case newcomer && notBefore.After(now.Add(m.Span)):
		return ledger.Admission{Refusal: ledger.Dead, Class: ledger.ClassPermanent, Reason: ledger.ReasonTooFarAhead}
	case !e.Deadline.IsZero() && !now.Before(e.Deadline):
		return ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonExpired}
	default:
		return ledger.Admission{}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// micro is t as the ledger keeps it.
func micro(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
