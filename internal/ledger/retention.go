package ledger

import "time"

// PurgeScope is what a change deletes from the ledger besides updating its entry.
type PurgeScope uint8

// The scopes of a purge.
const (
	// PurgeNothing deletes nothing.
	PurgeNothing PurgeScope = iota
	// PurgePayload deletes the payload. The content hash stays, so that a conflict is still detected.
	PurgePayload
	// PurgePersonalData deletes the payload and every hash of recipient and content.
	PurgePersonalData
)

// Retention is how long data of final entries is kept, counted from the last write. Zero keeps it for ever.
type Retention struct {
	Sent    time.Duration // the payload of a sent entry
	Dead    time.Duration // the payload of a dead letter
	Dropped time.Duration // the payload of a dropped entry
	Entry   time.Duration // the entry itself, by which a later delivery is recognised
}

// RetentionCandidate is an entry that a purge run examines.
type RetentionCandidate struct {
	Entry      Entry
	HasPayload bool // its payload has not been purged
}

// ExpiryAction is what a purge run does with an entry.
type ExpiryAction uint8

// The actions of a purge run.
const (
	// ExpireNothing keeps everything.
	ExpireNothing ExpiryAction = iota
	// ExpirePayload deletes the payload, by [Purge].
	ExpirePayload
	// ExpireEntry deletes the entry and everything that belongs to it.
	ExpireEntry
)

// Expiry returns what has reached its retention. A pending entry keeps everything.
func (keep Retention) Expiry(k RetentionCandidate, now time.Time) ExpiryAction {
	e := k.Entry
	if !e.Final() {
		return ExpireNothing
	}
	beyond := func(span time.Duration) bool { return span > 0 && now.After(e.Updated.Add(span)) }
	payload := map[State]time.Duration{Sent: keep.Sent, Dead: keep.Dead, Dropped: keep.Dropped}[e.State]
	switch {
	case beyond(keep.Entry):
		return ExpireEntry
	case k.HasPayload && beyond(payload):
		return ExpirePayload
	default:
		return ExpireNothing
	}
}

// LowWater returns the low-water mark that the deletion of an entry leaves behind: of nothing that was published up to it
// can the ledger tell afterwards whether it was sent.
//
// It is the last write, since every copy of the reminder that was published before it was recognised until then, and
// the entry is deleted for the age of that write; the copies may be dated later than the entry, which has the date of
// the first one. The last write is never before the entry's own date, unless that is the date of a provider's event.
func (e Entry) LowWater() time.Time { return e.Updated }

// Purge deletes the payload of a final entry. It is an update by version like any other, so that a redrive of a dead
// letter and its purge exclude each other.
func Purge(e Entry) Change {
	event := decisionEvent(Trigger{Origin: OriginPurge})
	event.State, event.Reason, event.Provider = e.State, ReasonPurged, e.Provider
	return Change{Entry: e, Event: event, Purge: PurgePayload}
}

// Erase deletes recipient and content of an entry, on the request of the person whose data it is. An unsent entry
// cannot be sent then and is dropped; one that may be on its way is marked as cancelled. A sent entry stays sent, so
// that a later delivery of the same reminder still finds it sent.
func Erase(e Entry, audit AuditEvent) Change {
	next := e
	next.UserID = ""
	switch e.State {
	case Waiting, Dead:
		next.CancelRequested = true
		next = drop(next, ReasonErased, Rules{}) // in doubt it becomes unknown, for an operator to resolve
	case Sending, Unknown:
		next.CancelRequested = true
	}
	change := operatorChange(e, next, "erase", audit)
	change.Event.Reason = ReasonErased
	change.Purge = PurgePersonalData
	return change
}
