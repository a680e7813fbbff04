// Package redrive lets dead letters be sent again, in batches that an operator limits, previews, paces and can cancel;
// and it discards dead letters that nobody needs any more.
//
// Invariants:
//
//   - it sends nothing: it makes entries wait for the ledger's worker, and it never touches anything but dead letters;
//   - the items of a redrive are fixed when it is created, in one commit with its audit event, and each item is
//     processed once, also if the process dies between the entry's write and the item's;
//   - each write repeats the version that the entry had when the redrive was created, so that any number of redrives
//     over the same dead letters redrives each of them once;
//   - one replica at a time works on a redrive; a cancel takes effect before the next item.
//
// The package decides nothing itself: package ledger decides what may be redriven, and what becomes of it.
package redrive

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger stores entries. Besides the errors of package ledger, any error of Update means that the write may have
// happened.
type Ledger interface {
	// Load returns the entry, absent if there is none, together with the ledger's now and the database's epoch.
	Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error)
	// Update writes over the version that was loaded; [ledger.ErrStale] if the entry has another version.
	Update(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// DeadLetterReader reads dead letters, and what belongs to them.
type DeadLetterReader interface {
	// List returns a page of the entries that match a query, the newest first.
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
	// Payload returns the content that was stored with the entry; [ledger.ErrNotFound] once it is purged.
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	// EntryDetail returns all that is stored about an entry, in one snapshot; [ledger.ErrNotFound] if there is none.
	EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error)
	// Timeline returns the entry's timeline, the oldest event first.
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error)
}

// RedriveStore stores redrives and their items.
type RedriveStore interface {
	// InsertRedrive stores a redrive with its items and its audit event, in one commit; [ledger.ErrExists] if the actor
	// has used the idempotency key before.
	InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error)
	// Redrive returns a redrive; [ledger.ErrNotFound] if there is none.
	Redrive(ctx context.Context, id string) (ledger.Redrive, error)
	// RedriveByKey returns the redrive that an actor requested under an idempotency key; [ledger.ErrNotFound] if there
	// is none.
	RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error)
	// IdleRedrives returns at most limit running redrives that no replica holds a lease on, the oldest first.
	IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error)
	// RunningRedrives counts the redrives that have not ended.
	RunningRedrives(ctx context.Context) (int, error)
	// UpdateRedrive writes state, holder and lease over the version that was loaded, in one commit with the audit event
	// if there is one; [ledger.ErrStale] if the redrive has another version.
	UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error)
	// RedriveItems returns all items of a redrive in order, each with the current state of its entry.
	RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error)
	// SetItemResult stores the result of an item, once; [ledger.ErrStale] if the item has a result already, or if the
	// holder does not hold the redrive any more. A cancelled redrive has no holder: an item that was in progress gets
	// its result still.
	SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error
}

// Reparser parses malformed dead letters again.
type Reparser interface {
	// Reparse parses a dead letter's raw message again. It returns the entry of the reparsed message, or the faults that
	// the message still has.
	Reparse(ctx context.Context, dead ledger.Entry, raw []byte, actor, redriveID string) (ledger.Entry, []string, error)
}

// FailoverDetector detects that the database was replaced by one that may have lost commits.
type FailoverDetector interface {
	// Failover returns the last failover, for a snapshot that was loaded in this epoch; the zero value if there was
	// none. After an error nothing may be decided on the snapshot.
	Failover(ctx context.Context, epoch string) (ledger.Failover, error)
}

// Options configures a [Redriver].
type Options struct {
	Ledger      Ledger
	DeadLetters DeadLetterReader
	Redrives    RedriveStore
	Reparser    Reparser
	Failovers   FailoverDetector // nil for a database that is never replaced

	Rules func(e ledger.Entry) ledger.Rules                    // what the configuration says about one entry
	Admit func(e ledger.Entry, now time.Time) ledger.Admission // what the policy says about one entry

	MaxRedrives int           // redrives that one entry may have; then it is parked
	MaxRunning  int           // redrives that may run at a time; replicas that start some at once may exceed it by one each
	Lease       time.Duration // how long a replica that falls silent holds a redrive
	Poll        time.Duration // between two checks for a redrive to work on, and for a cancel

	Clock      func() time.Time
	Random     func() float64      // in [0, 1), for the pauses; nil for math/rand
	Token      func() string       // never the same twice, over all replicas
	OnItemDone func(result string) // called with the result of each item; may be nil
	OnError    func(error)         // called when a redrive could not be continued, or an item failed; may be nil
}

// Redriver creates redrives and works on them.
type Redriver struct {
	Options
	starting chan struct{} // held while a redrive is started, so that concurrent starts are counted one after another
}

// New returns a Redriver. Every option must be set unless its comment says otherwise.
func New(o Options) *Redriver {
	if o.Failovers == nil {
		o.Failovers = noFailover{}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.OnItemDone == nil {
		o.OnItemDone = func(string) {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	return &Redriver{Options: o, starting: make(chan struct{}, 1)}
}

// noFailover is the FailoverDetector of a database that is never replaced.
type noFailover struct{}

func (noFailover) Failover(context.Context, string) (ledger.Failover, error) {
	return ledger.Failover{}, nil
}

// Limits of a Redriver.
const (
	ledgerTimeout = 5 * time.Second // for one statement
	maxIterations = 8               // loads of one entry that others keep changing
	maxFailures   = 3               // tries at one item while the ledger fails
)

// loadedEntry is an entry with what is needed to decide about it.
type loadedEntry struct {
	entry ledger.Entry
	now   time.Time
	rules ledger.Rules
}

func (rd *Redriver) load(ctx context.Context, id ledger.Identity) (loadedEntry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	snap, err := rd.Ledger.Load(ctx, id)
	if err != nil {
		return loadedEntry{}, err
	}
	rules := rd.Rules(snap.Entry)
	rules.Failover, err = rd.Failovers.Failover(ctx, snap.Epoch)
	return loadedEntry{entry: snap.Entry, now: snap.Now, rules: rules}, err
}

func (rd *Redriver) update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return rd.Ledger.Update(ctx, c)
}

// payload returns an entry's payload; stored is false if it has none any more.
func (rd *Redriver) payload(ctx context.Context, id ledger.Identity) (p ledger.Payload, stored bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	p, err = rd.DeadLetters.Payload(ctx, id)
	switch err {
	case nil:
		return p, true, nil
	case ledger.ErrNotFound:
		return p, false, nil
	default:
		return p, false, err
	}
}
