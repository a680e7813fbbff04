// Package reconcile looks after what nobody else does: holders that went silent, entries that wait where no
// lane works, what may have been sent and only its provider, or a person, can tell, and a database that
// changed under us.
//
// Invariants:
//
//   - it sends nothing: it puts entries where package deliver brings them on, or leaves them to a person;
//   - each write repeats the version that was read, so that any number of replicas may sweep one ledger;
//   - a round is bounded, and what it cannot help does not hold up what it can;
//   - what a person decides is committed together with its line in the audit, or not at all.
//
// It decides nothing itself: package ledger says what an answer, a report or a verdict means.
package reconcile

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger holds the entries. See the errors of package ledger.
type Ledger interface {
	Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error)
	Create(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// Records hold what belongs to entries, and what people did.
type Records interface {
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error)
	Story(ctx context.Context, id ledger.Identity) (ledger.Story, error)
	Record(ctx context.Context, a ledger.Act) error
}

// Agenda tells what has to be looked after.
type Agenda interface {
	// Lapsed lists what was claimed within a span of now by holders that have gone silent since.
	Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
	// Lanes lists the providers at which anything waits, configured or not.
	Lanes(ctx context.Context) ([]string, error)
	// Due lists what is due for the ledger at one provider, the longest due first.
	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	// Asks lists what a provider is to be asked about now.
	Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	// Unknown lists what may have been sent, the longest in doubt first.
	Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error)
}

// Visitor brings one waiting entry on.
type Visitor interface {
	Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Providers are those that are configured now.
type Providers interface {
	Names() []string
	Shut(provider string) bool // its gate is closed
	// Ask asks one of them whether it took what went out under a send key.
	Ask(ctx context.Context, provider, sendKey string) (ledger.Finding, ledger.Outcome)
	Route(provider string) ledger.Route
}

// Options are all that a desk needs.
type Options struct {
	Ledger    Ledger
	Records   Records
	Agenda    Agenda
	Visitor   Visitor
	Providers Providers
	Rules     func(e ledger.Entry) ledger.Rules // what the configuration says about one entry
	Failovers *Failovers

	Sweep  time.Duration // between two rounds
	Clock  func() time.Time
	Draw   func() float64    // in [0, 1), for the pauses; nil for the runtime's own
	Token  func() string     // never the same twice, over all replicas
	Late   func(kind string) // told of proof that came late; may be nil
	Swept  func()            // told when a look for silent holders has ended well; may be nil
	Failed func(error)       // told when a round could not do all that it should; may be nil
}

// Desk sweeps, and carries out what people and providers say.
type Desk struct {
	Options
	sweep      sweep
	unrecorded map[string]*stuck // by lookup provider: what it said and nobody could record
	runs       runs
}

// New is a desk; every option must be set but those that say so.
func New(o Options) *Desk {
	if o.Late == nil {
		o.Late = func(string) {}
	}
	if o.Draw == nil {
		o.Draw = rand.Float64
	}
	if o.Swept == nil {
		o.Swept = func() {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	d := &Desk{Options: o, unrecorded: map[string]*stuck{}, runs: runs{wanted: make(chan struct{}, 1)}}
	for _, name := range o.Providers.Names() {
		d.unrecorded[name] = &stuck{}
	}
	return d
}

// Bounds of what a desk does at once.
const (
	ledgerTimeout = 5 * time.Second // for one statement
	maxPasses     = 8               // readings of one entry that others keep moving
)

func (d *Desk) load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Ledger.Load(ctx, id)
}

// put creates or swaps, as the change's version says.
func (d *Desk) put(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if c.Entry.Absent() {
		return d.Ledger.Create(ctx, c)
	}
	return d.Ledger.Swap(ctx, c)
}

func (d *Desk) failed(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		d.Failed(err)
	}
}
