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
// published, and could be sent, before the change was noticed. Where nobody says when it was published, the
// broker's counter tells that it is not new.
func (f Failover) forgot(e Entry, v Visit, now time.Time) bool {
	if !f.happened() || !v.NotYet.Before(f.Noticed) {
		return false
	}
	undated := !e.Published.Before(now.Truncate(time.Microsecond))
	return e.Published.Before(f.Noticed) || undated && v.Count > 1 && now.Before(f.Noticed.Add(f.Window))
}

// overtook tells whether a waiting entry's claim may have been forgotten: it was due before the change was
// noticed. Whatever puts it to wait again dates its due anew, so it is doubted once; how long it had been due
// proves nothing, since a gate or a backlog may have held it until the last moment.
func (f Failover) overtook(e Entry, now time.Time) bool {
	return f.happened() && !e.InDoubt() && e.Due.On(now).Before(f.Noticed)
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
