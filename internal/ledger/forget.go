package ledger

import "time"

// Forget is what a change takes out of the ledger beside moving its entry.
type Forget uint8

const (
	// ForgetNothing : all of it stays.
	ForgetNothing Forget = iota
	// ForgetPayload : what the entry carries goes; its hash stays, so that other content is still told apart.
	ForgetPayload
	// ForgetPerson : the payload goes, and with it every hash of what was said to whom.
	ForgetPerson
)

// Retention says how long what has come to rest is kept, counted from the last write. Zero keeps for ever.
type Retention struct {
	Sent    time.Duration // the payload of what was sent
	Dead    time.Duration // the payload of a dead letter
	Dropped time.Duration // the payload of what was not wanted
	Entry   time.Duration // the entry itself: the ledger's memory
}

// Kept is an entry as a purge finds it.
type Kept struct {
	Entry   Entry
	Payload bool // its payload is kept
}

// Ageing is what age has done to an entry.
type Ageing uint8

const (
	// AgeingNone : it stays as it is.
	AgeingNone Ageing = iota
	// AgeingPayload : its payload is to go, by [Purge].
	AgeingPayload
	// AgeingEntry : it is to go, with all that belongs to it.
	AgeingEntry
)

// Aged tells what is to go of an entry. Only what is final ages: what is pending keeps everything.
func (keep Retention) Aged(k Kept, now time.Time) Ageing {
	e := k.Entry
	if !e.Final() {
		return AgeingNone
	}
	beyond := func(span time.Duration) bool { return span > 0 && now.After(e.Updated.Add(span)) }
	payload := map[State]time.Duration{Sent: keep.Sent, Dead: keep.Dead, Dropped: keep.Dropped}[e.State]
	switch {
	case beyond(keep.Entry):
		return AgeingEntry
	case k.Payload && beyond(payload):
		return AgeingPayload
	default:
		return AgeingNone
	}
}

// Purge takes the payload of an entry that has come to rest. It is a write like any other, by version, so that
// a redrive of a dead letter and its purge exclude each other.
func Purge(e Entry) Change {
	event := decision(Visit{Origin: OriginPurge})
	event.State, event.Reason, event.Provider = e.State, ReasonPurged, e.Provider
	return Change{Entry: e, Event: event, Forget: ForgetPayload}
}

// Erase takes whom an entry was for and what it said out of the ledger, for a person who asked for that. What
// is unsent can then not be sent any more and is dropped; what may be on its way gets the cancel's mark. That
// it was sent stays known, so that a later delivery of the same still finds it sent.
func Erase(e Entry, act Act) Change {
	next := e
	next.UserID = ""
	switch e.State {
	case Waiting, Dead:
		next.CancelAsked = true
		next = end(next, ReasonErased, Rules{}) // in doubt it stays unknown, for a person to close
	case Sending, Unknown:
		next.CancelAsked = true
	}
	change := byPerson(e, next, "erase", act)
	change.Event.Reason = ReasonErased
	change.Forget = ForgetPerson
	return change
}
