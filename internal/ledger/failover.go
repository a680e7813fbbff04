package ledger

import "time"

// Failover is what is known of the last time that the database changed under us: a standby was promoted, or
// a backup restored. Commits that it had acknowledged shortly before may be forgotten, and with them sends.
type Failover struct {
	Noticed time.Time     // by the ledger's clock; zero where it never changed
	Window  time.Duration // how long before that commits may be forgotten; 0 where none ever are
}

func (f Failover) happened() bool { return !f.Noticed.IsZero() && f.Window > 0 }

// forgot tells whether an entry about to be born may have stood and been sent before: what brings it was
// published, and could be sent, before the change was noticed.
func (f Failover) forgot(e Entry, notBefore time.Time) bool {
	return f.happened() && e.Published.Before(f.Noticed) && notBefore.Before(f.Noticed)
}

// overtook tells whether a waiting entry's claim may have been forgotten: it was due before the change was
// noticed, and nothing was written to it since, but was due or written within the window before.
func (f Failover) overtook(e Entry, due time.Time) bool {
	return f.happened() && !e.InDoubt() && due.Before(f.Noticed) && e.Updated.Before(f.Noticed) &&
		later(due, e.Updated).After(f.Noticed.Add(-f.Window))
}

// forgotten is what becomes of an entry whose send may have been forgotten: in doubt since the first moment
// at which that may have begun, at the provider that would have got it. Nothing is assumed sent here: there
// is no attempt to assume it of.
func forgotten(e Entry, since time.Time, r Rules, now time.Time) Entry {
	if e.Fingerprint == "" {
		e.Provider, e.Fingerprint = r.Channel.Provider, r.Channel.Fingerprint
		r.Bound = r.Channel
	}
	if r.OnUnknown == AssumeSent {
		r.OnUnknown = Hold
	}
	e.Class = ClassUnknown
	return unproven(e, later(since, r.Failover.Noticed.Add(-r.Failover.Window)), ReasonLedgerChanged, 0, r, now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
