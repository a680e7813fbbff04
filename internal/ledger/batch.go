package ledger

import (
	"errors"
	"time"
)

// RedriveState is how far a redrive has come.
type RedriveState string

const (
	// RedriveRunning : some items have not had their turn.
	RedriveRunning RedriveState = "running"
	// RedriveCancelled : a person stopped it; what had no turn has none.
	RedriveCancelled RedriveState = "cancelled"
	// RedriveDone : every item had its turn.
	RedriveDone RedriveState = "done"
)

// Redrive is an operator's bounded batch of dead letters, as it was laid out, and how far it has come. Its
// items are fixed when it is laid out: what dies later is no part of it.
type Redrive struct {
	ID          string
	By          string // the person
	Role        string
	Why         string
	Key         string // by which the person's repeated request is known; unique for one person
	RequestHash string // of what was asked under the key
	Asked       string // JSON: filter or ids, limit, rate
	State       RedriveState
	Size        int           // items
	Pace        time.Duration // between two items
	Deadline    time.Time     // that the person grants each item; zero leaves their own
	Permanent   bool          // the class permanent was asked for by name

	Holder     string // the token of the replica at work
	LeaseUntil Moment // until when it may be
	Version    int64  // rises by one with every write
	Created    time.Time
	Updated    time.Time
	Finished   Moment // zero while it runs
}

// RedriveRequest is what a person asks of a redrive.
type RedriveRequest struct {
	Filter    Query      // dead letters; without IDs
	IDs       []Identity // or these, by name
	Limit     int        // items at most
	Rate      float64    // items a second
	Deadline  time.Time  // that the person grants each item; zero leaves their own
	Permanent bool       // the class permanent is asked for by name
	Key       string     // by which a repeated request is known; empty is a request of its own
	Hash      string     // of all of the above, so that another request under the same key is told apart
	Asked     string     // JSON: all of the above, for whoever reads it later
	Act       Act        // who and why
}

// RedriveReport is a redrive with its items, compared with the ledger as it is now.
type RedriveReport struct {
	Redrive Redrive
	Items   []RedriveItem
	Tally   RedriveTally
}

// RedriveTally counts the items of a redrive, by what became of them and of their entries since.
type RedriveTally struct {
	Waiting  int           // without a turn yet
	Skipped  map[Skip]int  // left alone
	Sent     int           // put to work, and sent
	Pending  int           // put to work, and waiting or on its way
	Unknown  int           // put to work, and may have been sent: for reconciliation
	Obsolete int           // put to work, and not wanted any more
	Expired  int           // put to work, and too late
	Dropped  int           // put to work, and cancelled, discarded or erased since
	Failed   map[Class]int // put to work, and dead again
}

// Tally compares a redrive's items with their entries.
func Tally(items []RedriveItem) RedriveTally {
	t := RedriveTally{Skipped: map[Skip]int{}, Failed: map[Class]int{}}
	for _, item := range items {
		switch {
		case item.Result == "":
			t.Waiting++
		case item.Result != ItemReopened && item.Result != ItemReread:
			t.Skipped[Skip(item.Result)]++
		case item.Standing.State == Sent:
			t.Sent++
		case item.Standing.State == Unknown:
			t.Unknown++
		case item.Standing.State == Dead:
			t.Failed[item.Standing.Class]++
		case item.Standing.State == Dropped && item.Standing.Reason == ReasonObsolete:
			t.Obsolete++
		case item.Standing.State == Dropped && item.Standing.Reason == ReasonExpired:
			t.Expired++
		case item.Standing.State == Dropped || item.Standing.State == "":
			t.Dropped++
		default:
			t.Pending++
		}
	}
	return t
}

// The refusals of a redrive.
var (
	// ErrOtherRequest : the key stands for another request of the same person.
	ErrOtherRequest = errors.New("ledger: the key stands for another redrive")
	// ErrTooManyRedrives : as many are under way as may be.
	ErrTooManyRedrives = errors.New("ledger: too many redrives are under way")
	// ErrNothingToRedrive : no dead letter fits.
	ErrNothingToRedrive = errors.New("ledger: no dead letter fits")
	// ErrRedriveEnded : it has ended, so there is nothing to cancel.
	ErrRedriveEnded = errors.New("ledger: the redrive has ended")
)

// RedriveItem is one dead letter of a redrive.
type RedriveItem struct {
	Identity
	Redrive string
	Place   int    // from 1
	Version int64  // of the entry as it was laid out
	Result  string // "reopened", "reread", or a [Skip]; empty before its turn
	Became  string // the entry id of what a malformed one was read as
	At      time.Time

	Standing Standing // of its entry now
}

// What became of an item that was not skipped.
const (
	ItemReopened = "reopened" // it was put to work
	ItemReread   = "reread"   // it could be read at last, and is another entry now
)

// Standing is where an entry stands, for those who compare. Its state is empty where there is none.
type Standing struct {
	State  State
	Class  Class
	Reason Reason
}

// RedrivePlace is a place in the list of redrives, which is ordered by creation, then id, both falling.
type RedrivePlace struct {
	Created time.Time
	ID      string
}
