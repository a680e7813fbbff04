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

// overtookDead tells whether a dead letter may have been put to work again, or sent before it died, in what was
// forgotten: it was published before the change, and nobody has claimed it since. (What was recorded beside it
// since, a bounce, say, proves nothing.) Where nobody says when a broker's dead letter was published, it may have
// been before.
func (f Failover) overtookDead(e Entry, now time.Time) bool {
	claimedSince := !e.ClaimedAt.IsZero() && !e.ClaimedAt.On(now).Before(f.Noticed)
	if !f.happened() || claimedSince {
		return false
	}
	undated := e.Class == ClassBroker && !e.Published.Before(e.FirstSeen.Truncate(time.Microsecond))
	return e.Published.Before(f.Noticed) || undated && e.FirstSeen.Before(f.Noticed.Add(f.Window))
}

// forgottenDead is what becomes of such a dead letter. Its forgotten send went where its channel led then: where
// that is not where it leads now, nobody can say at which of the two to repeat it.
func forgottenDead(e Entry, r Rules, now time.Time) Entry {
	since := e.Published // it may have been sent before it died, where its death is dated after the change
	if e.Updated.Before(r.Failover.Noticed) {
		since = e.Updated
	}
	if e.Fingerprint != "" && e.Provider != r.Channel.Provider {
		e.Class = ClassUnknown
		return hold(doubted(e, later(since, r.Failover.Noticed.Add(-r.Failover.Window))), ReasonLedgerChanged, r)
	}
	return forgotten(e, since, r, now)
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
