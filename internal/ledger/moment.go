package ledger

import "time"

// Moment is a point in time on the ledger's clock: known, or still to be fixed by the write that
// carries it. Leases and dues are written as spans because only the database's clock may judge them;
// a replica's own clock would let a fast one steal a live lease.
//
// The zero Moment is "never" (SQL NULL).
type Moment struct {
	at     time.Time
	after  time.Duration
	isSpan bool
}

// At is the moment t, in UTC and whole microseconds, as every store keeps it. The zero time is never.
func At(t time.Time) Moment {
	if t.IsZero() {
		return Moment{}
	}
	return Moment{at: t.UTC().Truncate(time.Microsecond)}
}

// In is the moment d after the ledger's now at the instant of the write.
func In(d time.Duration) Moment { return Moment{after: d.Truncate(time.Microsecond), isSpan: true} }

// IsZero tells whether the moment is never.
func (m Moment) IsZero() bool { return m == Moment{} }

// Fixed is the known time, and whether the moment is known; a store passes it on as it stands.
func (m Moment) Fixed() (time.Time, bool) { return m.at, !m.at.IsZero() }

// Span is the distance from the write, and whether the moment is such a distance.
func (m Moment) Span() (time.Duration, bool) { return m.after, m.isSpan }

// On is the moment as a time, given the ledger's now; the zero time for never.
func (m Moment) On(now time.Time) time.Time {
	if m.isSpan {
		return now.UTC().Truncate(time.Microsecond).Add(m.after)
	}
	return m.at
}
