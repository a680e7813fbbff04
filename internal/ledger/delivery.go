package ledger

import "time"

// Origin is how a visit to an entry came about.
type Origin string

const (
	// OriginPush : a broker delivered it.
	OriginPush Origin = "push"
	// OriginAPI : a caller asked for it.
	OriginAPI Origin = "api"
	// OriginWorker : it was due, and the ledger owns it.
	OriginWorker Origin = "worker"
	// OriginReconcile : the sweep that looks after what nobody else does.
	OriginReconcile Origin = "reconcile"
	// OriginPerson : a person decided.
	OriginPerson Origin = "person"
	// OriginProvider : its provider reported of its own accord.
	OriginProvider Origin = "provider"
	// OriginRedrive : an operator put the dead letter to work again.
	OriginRedrive Origin = "redrive"
	// OriginPurge : its time was over.
	OriginPurge Origin = "purge"
)

// Delivery is one arrival of a message, opened from its envelope and not yet parsed.
type Delivery struct {
	Source    string    // the configured push source
	MessageID string    // the broker's id: evidence, never identity
	Published time.Time // when the broker took it; zero when the broker does not say
	Count     int       // the broker's own delivery counter, 1-based; 0 when it does not say
	Raw       []byte    // the message's own bytes, without the envelope's counters; of one over the limit, its head and hash
	GaveUpBy  string    // of a broker's dead letter: the subscription or queue that gave up; may be empty
	Fault     string    // why an authentic envelope could not be opened, or is over the limit; empty when it could
	Trace     Trace
}

// Trace is the W3C trace context that came with a delivery (https://www.w3.org/TR/trace-context/),
// unparsed; empty fields when there was none.
type Trace struct {
	Parent string
	State  string
}

// Payload is what an entry carries, kept apart from it so that it can be purged.
type Payload struct {
	Recipient string
	Content   []byte // a JSON object, as it came
	Metadata  []byte // a JSON object of strings, or nil
	Raw       []byte // of a malformed message only: its bytes, as far as [Delivery].Raw has them
}

// Shipment is what a provider gets to send.
type Shipment struct {
	Identity
	SendKey       string
	ReservationID string
	CorrelationID string
	Recipient     string
	Content       []byte
	Metadata      []byte
}

// Reply is what became of one visit, for the one who asked and for the log.
type Reply struct {
	Ack        bool          // the broker may forget it: it is final, or ours to finish, durably
	RetryAfter time.Duration // with a nack: when it is worth coming back
	Entry      Entry         // as it stands afterwards; absent when nothing could be recorded
	Before     State         // as it was met; empty when there was none
	Reason     Reason        // why nothing was done, where the entry's own reason does not tell
	Conflict   bool          // other content came under the same identity; the first stands
	Duplicate  bool          // the visit changed nothing and called nobody
	InFlight   bool          // answered before the send was settled; it goes on
	Faults     []string      // what was wrong with a message that could not be read; it quotes no values
	Outcome    *Outcome      // of the call that this visit made, if it made one
	Took       Took
}

// Took is how long the parts of a visit took.
type Took struct {
	Total time.Duration
	Call  time.Duration
}

// CancelResult says what a cancel did to one entry.
type CancelResult string

const (
	// CancelDropped : it will not be sent.
	CancelDropped CancelResult = "dropped"
	// CancelInFlight : it may be on its way or sent already; no later attempt will be made.
	CancelInFlight CancelResult = "in_flight"
	// CancelTooLate : it was sent.
	CancelTooLate CancelResult = "sent"
	// CancelNothing : it had been dropped before.
	CancelNothing CancelResult = "already_dropped"
)
