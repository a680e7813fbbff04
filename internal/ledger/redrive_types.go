package ledger

import (
	"errors"
	"time"
)

// RedriveState is the state of a redrive.
type RedriveState string

// The states of a redrive.
const (
	RedriveRunning   RedriveState = "running"   // some items have not been processed
	RedriveCancelled RedriveState = "cancelled" // an operator cancelled it; the remaining items are not processed
	RedriveDone      RedriveState = "done"      // every item has been processed
)

// Redrive is an operator's bounded batch of dead letters, as it was created, and its progress. Its items are fixed
// when it is created: entries that become dead later are not part of it.
type Redrive struct {
	ID             string
	Actor          string // the operator
	Role           string
	Reason         string
	IdempotencyKey string // by which an operator's repeated request is recognised; unique per operator
	RequestHash    string // of the request made under the key
	Request        string // JSON: filter or ids, limit, rate
	State          RedriveState
	Size           int           // items
	Interval       time.Duration // between two items
	Deadline       time.Time     // that the operator grants each item; zero keeps their own
	Permanent      bool          // the class permanent was requested explicitly

	Holder     string // the token of the replica that processes it
	LeaseUntil Moment // end of that replica's lease
	Version    int64  // rises by one with every write
	Created    time.Time
	Updated    time.Time
	Finished   Moment // zero while it runs
}

// RedriveRequest is an operator's request for a redrive.
type RedriveRequest struct {
	Filter         Query      // dead letters; without IDs
	IDs            []Identity // or these dead letters, by identity
	Limit          int        // maximum number of items
	Rate           float64    // items per second
	Deadline       time.Time  // that the operator grants each item; zero keeps their own
	Permanent      bool       // the class permanent is requested explicitly
	IdempotencyKey string     // by which a repeated request is recognised; empty for a request that is never a repeat
	RequestHash    string     // of all of the above, to detect another request under the same key
	Request        string     // JSON: all of the above, for the record
	Audit          AuditEvent // actor and reason
}

// RedriveReport is a redrive with its items and the current states of their entries.
type RedriveReport struct {
	Redrive Redrive
	Items   []RedriveItem
	Counts  RedriveCounts
}

// RedriveCounts counts the items of a redrive by their result and by the current state of their entries.
type RedriveCounts struct {
	Waiting  int                // not processed yet
	Skipped  map[SkipReason]int // skipped, by reason
	Sent     int                // redriven, and sent
	Pending  int                // redriven, and waiting or sending
	Unknown  int                // redriven, and may have been sent: to be resolved
	Obsolete int                // redriven, and not wanted any more
	Expired  int                // redriven, and past the deadline
	Dropped  int                // redriven, and cancelled, discarded or erased since
	Failed   map[Class]int      // redriven, and dead again, by class
}

// CountItems counts a redrive's items by their result and by the current state of their entries.
func CountItems(items []RedriveItem) RedriveCounts {
	counts := RedriveCounts{Skipped: map[SkipReason]int{}, Failed: map[Class]int{}}
	for _, item := range items {
		switch {
		case item.Result == "":
			counts.Waiting++
		case item.Result != ItemRedriven && item.Result != ItemReparsed:
			counts.Skipped[SkipReason(item.Result)]++
		case item.Current.State == Sent:
			counts.Sent++
		case item.Current.State == Unknown:
			counts.Unknown++
		case item.Current.State == Dead:
			counts.Failed[item.Current.Class]++
		case item.Current.State == Dropped && item.Current.Reason == ReasonObsolete:
			counts.Obsolete++
		case item.Current.State == Dropped && item.Current.Reason == ReasonExpired:
			counts.Expired++
		case item.Current.State == Dropped || item.Current.State == "":
			counts.Dropped++
		default:
			counts.Pending++
		}
	}
	return counts
}

// Errors of a redrive's creation and cancellation.
var (
	// ErrKeyReused is returned if the same operator used the idempotency key for another request.
	ErrKeyReused = errors.New("ledger: the idempotency key belongs to another redrive")
	// ErrTooManyRedrives is returned while the maximum number of redrives is running.
	ErrTooManyRedrives = errors.New("ledger: too many redrives are running")
	// ErrNothingToRedrive is returned if no dead letter matches.
	ErrNothingToRedrive = errors.New("ledger: no dead letter matches")
	// ErrRedriveEnded is returned if the redrive has ended, so that there is nothing to cancel.
	ErrRedriveEnded = errors.New("ledger: the redrive has ended")
)

// RedriveItem is one dead letter of a redrive.
type RedriveItem struct {
	Identity
	RedriveID  string
	Position   int    // from 1
	Version    int64  // of the entry when the redrive was created
	Result     string // "redriven", "reparsed", or a [SkipReason]; empty until it is processed
	ReparsedAs string // entry id of what a malformed one was parsed as
	At         time.Time

	Current StateSummary // of its entry
}

// The results of an item that was not skipped.
const (
	ItemRedriven = "redriven" // the dead letter was redriven
	ItemReparsed = "reparsed" // the message could be parsed now, and is another entry
)

// StateSummary is the state of an entry with its class and reason. The state is empty if there is no entry.
type StateSummary struct {
	State  State
	Class  Class
	Reason Reason
}

// RedrivePosition is a position in the list of redrives, which is ordered by creation, then id, both descending.
type RedrivePosition struct {
	Created time.Time
	ID      string
}
