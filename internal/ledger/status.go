package ledger

import "time"

// StatusKind is the kind of a status event: a closed set.
type StatusKind string

// The kinds of status events.
const (
	StatusAccepted   StatusKind = "accepted"   // the provider accepted the message
	StatusDelivered  StatusKind = "delivered"  // the provider delivered the message
	StatusBounced    StatusKind = "bounced"    // the address did not take it
	StatusFailed     StatusKind = "failed"     // the provider gave up on it
	StatusComplained StatusKind = "complained" // the recipient reported it as spam
)

// StatusKinds lists every kind.
func StatusKinds() []StatusKind {
	return []StatusKind{StatusAccepted, StatusDelivered, StatusBounced, StatusFailed, StatusComplained}
}

// StatusEvent is one signed event that a provider sends about one send key, without being asked.
type StatusEvent struct {
	Identity
	Kind      StatusKind
	Provider  string
	MessageID string // the event's own id, by which a repeated event is recognised
	Receipt   string // the provider's id for the message; may be empty
	Code      string // the provider's own machine code; may be empty
	At        time.Time
}

// RecordStatus records a status event in the entry's timeline, and reports whether there is anything to record. Only
// accepted and delivered are proof: they make every entry sent, whatever its state, even one that the ledger does
// not hold, since a failover may have lost it. The other kinds change no state: the ledger does not resend a
// message that bounced.
func RecordStatus(e Entry, s StatusEvent) (Change, bool) {
	reason := statusReasons[s.Kind]
	next := e
	if s.Kind == StatusAccepted || s.Kind == StatusDelivered {
		var proof Reason
		if e.Absent() {
			e = entryFromStatus(s)
		}
		switch next, proof = applyUnboundProof(e, s.Receipt); {
		case proof != ReasonReplayed:
			reason = proof
		case s.Kind == StatusAccepted:
			return Change{}, false
		}
	} else if e.Absent() {
		return Change{}, false
	}
	event := decisionEvent(Trigger{Origin: OriginProvider, Source: s.Provider, MessageID: s.MessageID})
	event.Kind, event.Provider = EventStatus, s.Provider
	event.Outcome = Outcome{Receipt: s.Receipt, Code: s.Code, Cause: string(s.Kind)}
	event.Started, event.Finished = s.At, s.At
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}, true
}

// entryFromStatus returns an entry for a message that the provider knows and the ledger does not hold.
func entryFromStatus(s StatusEvent) Entry {
	return Entry{
		Identity: s.Identity, SendKey: s.Identity.SendKey(), Provider: s.Provider,
		Source: s.Provider, Published: s.At,
	}
}

// statusReasons are the timeline's reasons for each kind of status event.
var statusReasons = map[StatusKind]Reason{
	StatusAccepted: ReasonReplayed, StatusDelivered: ReasonDelivered, StatusBounced: ReasonBounced,
	StatusFailed: ReasonFailedLater, StatusComplained: ReasonComplained,
}
