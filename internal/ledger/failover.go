package ledger

import "time"

// Failover is the last change of the database that was detected: a standby was promoted, or a backup restored.
// Commits acknowledged shortly before may be lost, and with them the records of sends.
type Failover struct {
	Noticed time.Time     // when it was detected, by the ledger's clock; zero if the database never changed
	Window  time.Duration // how far before Noticed commits may be lost; 0 if none ever are
}

// happened reports whether a change was detected that may have lost commits.
func (f Failover) happened() bool { return !f.Noticed.IsZero() && f.Window > 0 }

// mayHaveLostEntry reports whether an entry about to be created may have existed, and been sent, before: the message
// was published, and could be sent, before the failover was noticed. If its publish time is not known, the broker's
// delivery counter shows that it is not new.
func (f Failover) mayHaveLostEntry(e Entry, t Trigger, now time.Time) bool {
	if !f.happened() || !t.NotBefore.Before(f.Noticed) {
		return false
	}
	undated := !e.Published.Before(now.Truncate(time.Microsecond))
	return e.Published.Before(f.Noticed) || undated && t.DeliveryCount > 1 && now.Before(f.Noticed.Add(f.Window))
}

// mayHaveLostClaim reports whether a claim of a waiting entry may have been lost: it was due before the failover was
// noticed. Every later wait sets a new due time, so the entry is put in doubt only once. How long it had been due
// proves nothing, since a gate or a backlog may have delayed it until the last moment.
func (f Failover) mayHaveLostClaim(e Entry, now time.Time) bool {
	return f.happened() && !e.InDoubt() && e.Due.On(now).Before(f.Noticed)
}

// mayHaveLostRedrive reports whether the lost commits may include a redrive of a dead letter, or a send of it before it
// became dead: it was published before the failover was noticed, and has not been claimed since. (An event recorded
// since, such as a bounce, proves nothing.) If the publish time of a broker's dead letter is not known, it may have
// been before.
func (f Failover) mayHaveLostRedrive(e Entry, now time.Time) bool {
	claimedSince := !e.ClaimedAt.IsZero() && !e.ClaimedAt.On(now).Before(f.Noticed)
	if !f.happened() || claimedSince {
		return false
	}
	undated := e.Class == ClassBroker && !e.Published.Before(e.FirstSeen.Truncate(time.Microsecond))
	return e.Published.Before(f.Noticed) || undated && e.FirstSeen.Before(f.Noticed.Add(f.Window))
}

// doubtDeadLetter puts such a dead letter in doubt. Its lost send went to the provider that its channel had then: if
// the channel has another one now, it is not known at which of the two a repeat is safe.
func doubtDeadLetter(e Entry, r Rules, now time.Time) Entry {
	since := e.Published // if it became dead after the failover, it may have been sent before it did
	if e.Updated.Before(r.Failover.Noticed) {
		since = e.Updated
	}
	if e.Fingerprint != "" && e.Provider != r.ChannelRoute.Provider {
		e.Class = ClassUnknown
		return markUnknown(markDoubt(e, later(since, r.Failover.Noticed.Add(-r.Failover.Window))), ReasonDatabaseChanged, r)
	}
	return doubtAfterFailover(e, since, r, now)
}

// doubtAfterFailover puts an entry whose send may have been lost in doubt, since the first moment at which that send
// may have begun, at the provider that would have been called. AssumeSent does not apply: there is no known attempt
// of which to assume it.
func doubtAfterFailover(e Entry, since time.Time, r Rules, now time.Time) Entry {
	if e.Fingerprint == "" {
		e.Provider, e.Fingerprint = r.ChannelRoute.Provider, r.ChannelRoute.Fingerprint
		r.BoundRoute = r.ChannelRoute
	}
	if r.OnUnknown == AssumeSent {
		r.OnUnknown = Hold
	}
	e.Class = ClassUnknown
	return settleUnproven(e, later(since, r.Failover.Noticed.Add(-r.Failover.Window)), ReasonDatabaseChanged, 0, r, now)
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
