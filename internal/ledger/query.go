package ledger

import (
	"errors"
	"time"
)

// Snapshot is an entry as it was read, with the time and the database of the read.
type Snapshot struct {
	Entry Entry
	Now   time.Time // the ledger's, at the same moment
	Epoch string    // identifies the database's system and timeline; empty if the store cannot tell

	// LowWater is the latest [Entry.LowWater] of all entries that were ever deleted, read with an absent entry or after
	// it; zero if none was. With an entry that exists it may be missing.
	LowWater time.Time
}

// Query selects entries for a list, newest first. Empty fields do not filter.
type Query struct {
	ReminderID    string
	ReservationID string
	UserID        string
	State         State
	Class         Class
	Type          string
	Channel       string
	Provider      string
	Code          string
	Conflict      bool           // only entries with a conflict
	From, To      time.Time      // first seen in [From, To)
	After         *EntryPosition // continue after this entry
	Limit         int            // maximum number of entries, at least 1
}

// EntryPosition is a position in a list that is ordered by first seen, then identity, both descending.
type EntryPosition struct {
	FirstSeen time.Time
	Identity
}

// DoubtPosition is a position in the list of unresolved entries, which is ordered by the start of the doubt, then
// identity, both ascending. The zero value is before all of them.
type DoubtPosition struct {
	Since time.Time
	Identity
}

// EntryDetail is an entry with its payload and everything recorded about it, each in order of time.
type EntryDetail struct {
	Entry     Entry
	Payload   *Payload // nil once it is purged, and for a tombstone
	Timeline  []TimelineEvent
	Conflicts []Conflict
	Audit     []AuditEvent // of operators
}

// SweepRun is a sweep that an operator started, and its progress.
type SweepRun struct {
	Actor    string
	Started  time.Time
	Finished time.Time // zero while it runs
	Unknown  int       // unknown entries examined
	Lookups  int       // lookups made at their providers
	Failed   int       // entries whose lookup or write failed
}

// ErrSweepRunning is returned while a sweep that an operator started is still running.
var ErrSweepRunning = errors.New("ledger: a sweep is running")

// Backlog counts the pending and the dead entries.
type Backlog struct {
	Now     time.Time
	Pending []PendingCount
	Dead    map[Class]int64
	Ready   map[string]int64 // waiting entries that are due now, by provider
}

// PendingCount is the number of entries in one pending state, and the time from which the age of the oldest counts:
// the claim of a sending entry, the wake of a waiting one, the start of the doubt of an unknown one. A store may
// leave out sending entries that were claimed more than two hours ago.
type PendingCount struct {
	State State
	Count int64
	Since time.Time // zero if there is none, or no waiting entry is due
}

// Cancelled is the result of a cancel for one entry.
type Cancelled struct {
	Entry     Entry
	Result    CancelResult
	Tombstone bool // the entry was created by a cancel before its first delivery
}

// DeadLetterGroup summarises the dead letters that have class, provider, code and type in common.
type DeadLetterGroup struct {
	Class     Class
	Provider  string
	Code      string // the provider's own; empty if it gave none
	Type      string
	Count     int64
	FirstDead time.Time
	LastDead  time.Time
	Sample    Identity // the entry that became dead last
}

// ProviderStatus is the status of a provider, for operators.
type ProviderStatus struct {
	Name     string
	Contract Contract
	Gate     Gate
	Open     bool    // the gate lets calls through now
	Capacity int     // maximum number of calls in flight per replica
	InFlight int     // calls in flight of this replica
	Rate     float64 // calls per second and replica; 0 for no limit
	Ready    int64   // waiting entries that are due now
}

// AuditQuery selects audit events, newest first. Empty fields do not filter.
type AuditQuery struct {
	Actor    string
	Action   string
	From, To time.Time      // recorded in [From, To)
	After    *AuditPosition // continue after this event
	Limit    int            // maximum number of events, at least 1
}

// AuditPosition is a position in the audit log, which is ordered by time, then id, both descending.
type AuditPosition struct {
	At time.Time
	ID string
}
