package ledger

import "time"

// Moment is a point in time on the ledger's clock: fixed, or a span from the write that will fix it. Leases and dues
// are written as spans because only the database's clock may measure them; with its own clock, a replica whose
// clock runs fast would take over a lease that has not ended.
//
// The zero Moment is "never" (SQL NULL).
type Moment struct {
	at     time.Time
	after  time.Duration
	isSpan bool
}

// At returns the moment t, in UTC and whole microseconds, as every store keeps it. The zero time is never.
func At(t time.Time) Moment {
	if t.IsZero() {
		return Moment{}
	}
	return Moment{at: t.UTC().Truncate(time.Microsecond)}
}

// In returns the moment d after the ledger's now at the instant of the write.
func In(d time.Duration) Moment { return Moment{after: d.Truncate(time.Microsecond), isSpan: true} }

// IsZero reports whether the moment is never.
func (m Moment) IsZero() bool { return m == Moment{} }

// Fixed returns the moment's time, and whether it is fixed; a store writes such a time unchanged.
func (m Moment) Fixed() (time.Time, bool) { return m.at, !m.at.IsZero() }

// Span returns the span from the write, and whether the moment is such a span.
func (m Moment) Span() (time.Duration, bool) { return m.after, m.isSpan }

// On returns the moment as a time, given the ledger's now; the zero time for never.
func (m Moment) On(now time.Time) time.Time {
	if m.isSpan {
		return now.UTC().Truncate(time.Microsecond).Add(m.after)
	}
	return m.at
}
