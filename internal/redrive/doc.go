// Package redrive puts dead letters to work again, in batches that an operator bounds, previews, paces and can
// stop; and it discards those that nobody wants any more.
//
// Invariants:
//
//   - it sends nothing: it puts entries to wait for the ledger's worker, and never anything but dead letters;
//   - the items of a redrive are fixed when it is laid out, in one commit with the line of the audit, and each
//     has its turn once, also over a crash between the entry's write and the item's;
//   - each write repeats the version of the entry as it was laid out, so that any number of redrives over the
//     same dead letters puts each to work once;
//   - one replica at a time works on a redrive; a cancel is seen before the next item.
//
// It decides nothing itself: package ledger says what may be reopened, and what became of it.
package redrive

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger holds the entries. See the errors of package ledger.
type Ledger interface {
	Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error)
	Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// Letters are the dead letters, and what belongs to them.
type Letters interface {
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	Story(ctx context.Context, id ledger.Identity) (ledger.Story, error)
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error)
}

// Book holds the redrives.
type Book interface {
	CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error)
	Redrive(ctx context.Context, id string) (ledger.Redrive, error)
	RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error)
	IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error)
	RunningRedrives(ctx context.Context) (int, error)
	SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error)
	RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error)
	SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error
}

// Reader parses once more what could not be read, and answers the entry that stands for it then, or what is
// still wrong with it.
type Reader interface {
	Reread(ctx context.Context, dead ledger.Entry, raw []byte, by, redrive string) (ledger.Entry, []string, error)
}

// Epochs knows when the database changed under us last, by the epoch that a reading came with.
type Epochs interface {
	Failover(ctx context.Context, epoch string) (ledger.Failover, error)
}

// Options are all that a desk needs.
type Options struct {
	Ledger  Ledger
	Letters Letters
	Book    Book
	Reader  Reader
	Epochs  Epochs // nil for a ledger that never changes

	Rules func(e ledger.Entry) ledger.Rules                    // what the configuration says about one entry
	Admit func(e ledger.Entry, now time.Time) ledger.Admission // the policy's word on one entry

	Most    int           // redrives that one entry may have; then it is parked
	Running int           // redrives that may be under way; replicas that start some at once may go over it by one each
	Lease   time.Duration // how long a replica that falls silent holds a redrive
	Poll    time.Duration // between two looks for a redrive to work on, and for a cancel

	Clock  func() time.Time
	Draw   func() float64      // in [0, 1), for the pauses; nil for the runtime's own
	Token  func() string       // never the same twice, over all replicas
	Turned func(result string) // told what became of each item at its turn; may be nil
	Failed func(error)         // told when a redrive could not be brought on; may be nil
}

// Desk lays redrives out and works on them.
type Desk struct {
	Options
	starting chan struct{} // holds one: who start at once are counted one after another
}

// New is a desk; every option must be set but those that say so.
func New(o Options) *Desk {
	if o.Epochs == nil {
		o.Epochs = steady{}
	}
	if o.Draw == nil {
		o.Draw = rand.Float64
	}
	if o.Turned == nil {
		o.Turned = func(string) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	return &Desk{Options: o, starting: make(chan struct{}, 1)}
}

// steady is a ledger that never changes.
type steady struct{}

func (steady) Failover(context.Context, string) (ledger.Failover, error) {
	return ledger.Failover{}, nil
}

// Bounds of what a desk does at once.
const (
	ledgerTimeout = 5 * time.Second // for one statement
	maxPasses     = 8               // readings of one entry that others keep moving
	maxFailures   = 3               // tries at one item while the ledger fails
)

// seen is an entry with what is needed to decide about it.
type seen struct {
	entry ledger.Entry
	now   time.Time
	rules ledger.Rules
}

func (d *Desk) look(ctx context.Context, id ledger.Identity) (seen, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	read, err := d.Ledger.Load(ctx, id)
	if err != nil {
		return seen{}, err
	}
	rules := d.Rules(read.Entry)
	rules.Failover, err = d.Epochs.Failover(ctx, read.Epoch)
	return seen{entry: read.Entry, now: read.Now, rules: rules}, err
}

func (d *Desk) swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Swap(ctx, c)
}

// payload is what an entry carries; kept tells whether it is.
func (d *Desk) payload(ctx context.Context, id ledger.Identity) (p ledger.Payload, kept bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	p, err = d.Letters.Payload(ctx, id)
	switch err {
	case nil:
		return p, true, nil
	case ledger.ErrNotFound:
		return p, false, nil
	default:
		return p, false, err
	}
}
