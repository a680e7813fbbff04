package ledger

import "time"

// Origin is what caused a change to an entry.
type Origin string

// The origins of a change.
const (
	OriginPush      Origin = "push"      // a broker delivered a message
	OriginAPI       Origin = "api"       // an API caller requested it
	OriginWorker    Origin = "worker"    // the worker found the entry due
	OriginReconcile Origin = "reconcile" // the reconciliation sweep found it
	OriginOperator  Origin = "operator"  // an operator decided it
	OriginProvider  Origin = "provider"  // its provider sent a status event
	OriginRedrive   Origin = "redrive"   // an operator redrove the dead letter
	OriginPurge     Origin = "purge"     // its retention ended
)

// Delivery is one delivery of a message, opened from its envelope and not yet parsed.
type Delivery struct {
	Source         string    // the configured push source
	MessageID      string    // the broker's id: recorded as evidence, never used as identity
	Published      time.Time // when the broker accepted it; zero if the broker does not say
	DeliveryCount  int       // the broker's own delivery counter, 1-based; 0 if it does not say
	Raw            []byte    // the message's own bytes, without the envelope's counters; its head and hash if it is over the limit
	DeadLetteredBy string    // the subscription or queue that dead-lettered it; may be empty
	Fault          string    // why an authentic envelope could not be opened, or is over the limit; empty if it was opened
	Trace          Trace
}

// Trace is the W3C trace context that came with a delivery (https://www.w3.org/TR/trace-context/),
// unparsed; its fields are empty if there was none.
type Trace struct {
	Parent string
	State  string
}

// Payload is the content of an entry, stored apart from it so that it can be purged.
type Payload struct {
	Recipient string
	Content   []byte // a JSON object, as received
	Metadata  []byte // a JSON object of strings, or nil
	Raw       []byte // only of a malformed message: its bytes, as far as [Delivery].Raw has them
}

// Shipment is what a provider is given to send.
type Shipment struct {
	Identity
	SendKey       string
	ReservationID string
	CorrelationID string
	Recipient     string
	Content       []byte
	Metadata      []byte
}

// Reply is the result of one task, for its caller and for the log.
type Reply struct {
	Ack        bool          // the broker need not redeliver: the entry is final, or durably owned by the ledger
	RetryAfter time.Duration // with a nack: when a redelivery makes sense
	Entry      Entry         // after the task; absent if nothing could be recorded
	Before     State         // of the entry when the task first loaded it; empty if there was none
	Reason     Reason        // why nothing was done, where the entry's own reason does not say
	Conflict   bool          // other content was delivered under the same identity; the first is kept
	Duplicate  bool          // the task changed nothing and made no call
	InFlight   bool          // the reply came before the send was settled; the send continues
	Faults     []string      // what is wrong with a malformed message; quotes no values
	Outcome    *Outcome      // of the call that the task made; nil if it made none
	Durations  Durations
}

// Durations is how long a task and its call took.
type Durations struct {
	Total time.Duration
	Call  time.Duration
}

// CancelResult is the result of a cancel for one entry.
type CancelResult string

// The results of a cancel.
const (
	CancelDropped  CancelResult = "dropped"         // it will not be sent
	CancelInFlight CancelResult = "in_flight"       // it may be on its way or sent already; no later attempt is made
	CancelTooLate  CancelResult = "sent"            // it was sent
	CancelNothing  CancelResult = "already_dropped" // it had been dropped before
)
