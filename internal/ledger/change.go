package ledger

import (
	"errors"
	"time"
)

// The three errors by which a store refuses a write. Any other error of Insert or Update means that the write may
// have happened: load, and compare.
var (
	// ErrExists is returned by Insert if there is an entry with this identity.
	ErrExists = errors.New("ledger: the identity exists")
	// ErrStale is returned by Update if the stored version is not the one that was read.
	ErrStale = errors.New("ledger: the entry has changed")
	// ErrNotFound is returned if there is no such row.
	ErrNotFound = errors.New("ledger: not found")
)

// Change is one write to one entry, made in one commit. Entry is the entry to store, with the Version that was read (0
// to insert) and the Updated that was read with it; the store increments the version and resolves the
// moments. Version and Updated guard the write together: after a failover that lost commits a version number can occur
// again, but not with the same microsecond.
type Change struct {
	Entry   Entry
	Payload *Payload       // on insert; nil for a tombstone
	Event   *TimelineEvent // to add to the timeline; nil for none
	Audit   *AuditEvent    // on update: to add to the audit log in the same commit; nil for none
	Purge   PurgeScope     // on update: what to delete
}

// EventKind is the kind of a timeline event.
type EventKind string

// The kinds of timeline events.
const (
	EventAttempt      EventKind = "attempt"       // a call to a provider was settled
	EventLeaseExpired EventKind = "lease_expired" // a lease ended before its holder settled; its call may have been made
	EventLate         EventKind = "late"          // a holder returned after its entry had moved on
	EventDecision     EventKind = "decision"      // the entry changed without a call
	EventLookup       EventKind = "lookup"        // its provider was asked whether it had accepted it
	EventStatus       EventKind = "status"        // its provider sent a status event
)

// TimelineEvent is one event of an entry's timeline, numbered by the version of the write that added it.
type TimelineEvent struct {
	Version       int64 // set by the store
	Kind          EventKind
	State         State // of the entry after the event
	Reason        Reason
	Origin        Origin
	Source        string
	MessageID     string // the delivery's message id
	DeliveryCount int    // the broker's delivery counter
	Holder        string
	AttemptNumber int // 0 for events that are no attempt
	Provider      string
	Started       time.Time // by the ledger's clock
	Finished      time.Time
	Outcome       Outcome
	At            time.Time // set by the store
}

// Conflict records other content that was delivered under an existing identity, which keeps its first content. There
// is one row per content hash, and rows are only ever added.
type Conflict struct {
	Identity
	ContentHash string
	Source      string
	MessageID   string
	FirstSeen   time.Time // set by the store
}
