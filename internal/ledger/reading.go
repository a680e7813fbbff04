package ledger

import (
	"errors"
	"time"
)

// Reading is an entry as it was read, and by what.
type Reading struct {
	Entry Entry
	Now   time.Time // the ledger's, of the same moment
	Epoch string    // names the database's system and timeline; empty where a ledger cannot tell
}

// Query selects entries for a list, newest first. Empty fields do not narrow.
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
	Conflict      bool      // only what other content came under
	From, To      time.Time // first seen in [From, To)
	After         *Position // continue behind this entry
	Limit         int       // at most so many, at least 1
}

// Position is a place in a list that is ordered by first seen, then identity, both falling.
type Position struct {
	FirstSeen time.Time
	Identity
}

// Doubt is a place in the list of what waits for a decision, ordered by the start of the doubt, then
// identity, both rising. The zero value is before all.
type Doubt struct {
	Since time.Time
	Identity
}

// Story is all that is known of one entry, in order.
type Story struct {
	Entry     Entry
	Payload   *Payload // nil once it is purged, and for a tombstone
	Timeline  []Event
	Conflicts []Conflict
	Acts      []Act // of people, in order
}

// Run is a sweep that a person started, as far as it has come.
type Run struct {
	By       string
	Started  time.Time
	Finished time.Time // zero while it runs
	Unknown  int       // entries passed over
	Asked    int       // questions put to their providers
	Failed   int       // entries that could not be asked about or written
}

// ErrRunning : a sweep that a person started is still under way.
var ErrRunning = errors.New("ledger: a run is under way")

// Census counts what needs somebody's attention; what is sent is not counted.
type Census struct {
	Now     time.Time
	Pending []PendingCount
	Dead    map[Class]int64
	Ready   map[string]int64 // waiting entries that are due now, by provider
}

// PendingCount is how many entries stand in one pending state, and what the age of the oldest of them counts
// from: the claim of a sending one, the wake of a waiting one, the start of the doubt about an unknown one. Of sending
// ones a store may leave out those claimed more than two hours ago.
type PendingCount struct {
	State State
	Count int64
	Since time.Time // zero when there is none, or no waiting one is due
}

// Cancelled is what a cancel did to one entry.
type Cancelled struct {
	Entry     Entry
	Result    CancelResult
	Tombstone bool // it was cancelled before its first delivery
}

// Group is what dead letters of one cause have in common.
type Group struct {
	Class     Class
	Provider  string
	Code      string // the provider's own; empty where it gave none
	Type      string
	Count     int64
	FirstDied time.Time
	LastDied  time.Time
	Sample    Identity // the one that died last
}

// ProviderView is a provider as an operator sees it.
type ProviderView struct {
	Name     string
	Contract Contract
	Gate     Gate
	Open     bool    // the gate lets calls through now
	Capacity int     // calls in flight that one replica makes
	InFlight int     // of this replica
	Rate     float64 // calls a second of one replica; 0 for no limit
	Ready    int64   // waiting entries that are due now
}

// AuditQuery selects acts, newest first. Empty fields do not narrow.
type AuditQuery struct {
	By       string
	Verb     string
	From, To time.Time // done in [From, To)
	After    *ActPlace // continue behind this act
	Limit    int       // at most so many, at least 1
}

// ActPlace is a place in the audit, which is ordered by time, then id, both falling.
type ActPlace struct {
	At time.Time
	ID string
}
