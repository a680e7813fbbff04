package ledger

import (
	"errors"
	"time"
)

// The three refusals of a store. Any other error of Create or Swap means that the write may have
// happened: load, and compare.
var (
	// ErrExists : Create met an entry with this identity.
	ErrExists = errors.New("ledger: the identity exists")
	// ErrStale : Swap met another version than the one that was read.
	ErrStale = errors.New("ledger: the entry has moved on")
	// ErrNotFound : there is no such row.
	ErrNotFound = errors.New("ledger: not found")
)

// Change is one write to one entry, made in one commit. Entry is the entry as it is to stand, with the
// Version that was read (0 to create) and the Updated that was read with it; the store raises the version and
// fixes the moments. Both are the fence: a database that forgot commits counts versions a second time, and no
// two writes of one version are of the same microsecond.
type Change struct {
	Entry   Entry
	Payload *Payload // on create; nil for a tombstone
	Event   *Event   // the line that the timeline gains
	Act     *Act     // with Swap: the line that the audit gains; without it the act does not happen
	Forget  Forget   // with Swap: what goes
}

// EventKind is what a line of the timeline tells.
type EventKind string

const (
	// EventAttempt : a call to a provider was settled.
	EventAttempt EventKind = "attempt"
	// EventLapse : a holder went silent past its lease; its call may have been made.
	EventLapse EventKind = "lapse"
	// EventLate : a holder came back after its entry had moved on.
	EventLate EventKind = "late"
	// EventDecision : the entry moved without a call.
	EventDecision EventKind = "decision"
	// EventLookup : its provider was asked whether it had taken it.
	EventLookup EventKind = "lookup"
	// EventReport : its provider said what became of it, without being asked.
	EventReport EventKind = "report"
)

// Event is one line of an entry's timeline. Lines are numbered by the version of the write that brought
// them.
type Event struct {
	Version  int64 // set by the store
	Kind     EventKind
	State    State // the entry's, after it
	Reason   Reason
	Origin   Origin
	Source   string
	Message  string // the delivery's message id
	Count    int    // the broker's delivery counter
	Holder   string
	Number   int // the attempt's number; 0 for other lines
	Provider string
	Started  time.Time // by the ledger's clock
	Finished time.Time
	Outcome  Outcome
	At       time.Time // set by the store
}

// Conflict is other content that came under an identity which stands with its first content. One row
// per content hash, only ever added.
type Conflict struct {
	Identity
	ContentHash string
	Source      string
	MessageID   string
	FirstSeen   time.Time // set by the store
}
