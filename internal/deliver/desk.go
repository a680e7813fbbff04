// Package deliver is the story of one delivery: parse, admit, claim, send, settle, answer.
//
// Invariants:
//
//   - nothing is called before the claim is committed, and nothing is acked before what was decided is;
//   - the call's deadline is fixed before the claim's entry is read, and looked at again right before
//     dialling;
//   - settling outlives the request: a broker that hangs up does not cost us the record;
//   - after an error on a write nothing is assumed: the entry is read again, and the holder's token
//     tells whether the write happened.
//
// It decides nothing itself: package ledger says what to do next, and package policy what is allowed.
// It does not know brokers, providers, databases or HTTP; it names what it needs of them below.
package deliver

import (
	"context"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// Ledger holds the entries. See the errors of package ledger: any other error of Create or Swap means
// that the write may have happened.
type Ledger interface {
	Create(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error)
	Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// Archive holds what belongs to entries and is not needed to decide about them.
type Archive interface {
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error)
	RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error)
}

// Register finds the entries of one reminder.
type Register interface {
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
}

// Slots guards the providers' rate, concurrency and gates. With a slot that is held comes the function that
// gives it back, else nil. It is called once: when the call is over, with what that proved and how long the
// policy waits after it, or with [ledger.ResultNotCalled] when there was none. It answers how long the gate
// is closed from then on; 0 while it is open.
type Slots interface {
	Take(ctx context.Context, provider string) (ledger.Slot, func(o ledger.Outcome, wait time.Duration) time.Duration)
}

// Sender calls a provider: at most one request on the wire, and never a bare error.
type Sender interface {
	Send(ctx context.Context, provider string, s ledger.Shipment) ledger.Outcome
}

// Routes knows the providers as configured now; the zero Route is one that is not.
type Routes interface {
	Route(provider string) ledger.Route
	Timeout(provider string) time.Duration
}

// Relevance asks whether a reminder is still wanted. It never answers [ledger.RelevanceUnasked].
type Relevance interface {
	Ask(ctx context.Context, e ledger.Entry) ledger.Relevance
}

// Epochs knows when the database changed under us last, by the epoch that a reading came with.
type Epochs interface {
	Failover(ctx context.Context, epoch string) (ledger.Failover, error)
}

// Source is what the configuration says about who brings deliveries.
type Source struct {
	RetriesBy     ledger.Owner
	TakeoverAfter time.Duration
	AnswerWithin  time.Duration // the broker's patience, less a margin
	DeadLetters   bool          // it brings what its broker gave up on
}

// Options are all that a desk needs.
type Options struct {
	Ledger    Ledger
	Archive   Archive
	Register  Register
	Slots     Slots
	Sender    Sender
	Routes    Routes
	Relevance Relevance
	Epochs    Epochs // nil for a ledger that never changes

	Lease    time.Duration
	Margin   time.Duration
	Memory   policy.Memory
	Types    map[string]policy.Type // "default" must be among them
	Channels map[string]string      // channel to provider
	Asks     []time.Duration        // waits before each question to a lookup provider
	Sources  map[string]Source
	Callers  Source // what holds for every caller of the API

	Clock func() time.Time // monotonic; decides nothing that the ledger's clock decides
	Draw  func() float64   // in [0, 1)
	Token func() string    // never the same twice, over all replicas

	Late    func(kind string)                                    // told of what a late holder recorded; may be nil
	Settled func(ctx context.Context, r ledger.Reply, err error) // told how a visit ended that had been answered before; may be nil
}

// Bounds of a desk's patience.
const (
	maxLapses     = 5                // holders that may go silent over one entry; then a person looks
	maxPasses     = 24               // steps of one visit
	maxFailures   = 3                // writes that fail in one visit
	slotPatience  = 2 * time.Second  // for a provider's rate and concurrency
	ledgerTimeout = 5 * time.Second  // for one statement
	lastLook      = time.Second      // for one reading when the asker's patience is over
	settleFor     = 90 * time.Second // for getting an outcome into a ledger that is away
	defaultType   = "default"
)

// Desk takes deliveries, requests and the worker's visits.
type Desk struct {
	Options
	underway sync.WaitGroup
}

// New is a desk; every option must be set but those that say so.
func New(o Options) *Desk {
	if o.Late == nil {
		o.Late = func(string) {}
	}
	if o.Epochs == nil {
		o.Epochs = steady{}
	}
	if o.Settled == nil {
		o.Settled = func(context.Context, ledger.Reply, error) {}
	}
	return &Desk{Options: o}
}

// steady is a ledger that never changes.
type steady struct{}

func (steady) Failover(context.Context, string) (ledger.Failover, error) {
	return ledger.Failover{}, nil
}

// Wait returns when nothing is in flight any more, or ctx ends.
func (d *Desk) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		d.underway.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Desk) typeOf(e ledger.Entry) policy.Type {
	if t, ok := d.Types[e.Type]; ok {
		return t
	}
	return d.Types[defaultType]
}

// Rules gathers what the configuration says about one entry that nobody is visiting.
func (d *Desk) Rules(e ledger.Entry) ledger.Rules { return d.rulesFor(e, ledger.Visit{}) }

// rulesFor gathers what the configuration says about one entry and one visitor.
func (d *Desk) rulesFor(e ledger.Entry, v ledger.Visit) ledger.Rules {
	t := d.typeOf(e)
	src, known := d.Sources[e.Source]
	if v.Origin == ledger.OriginAPI || !known {
		src = d.Callers
	}
	return ledger.Rules{
		Lease: d.Lease, Margin: d.Margin,
		Channel:       d.Routes.Route(d.Channels[e.Channel]),
		Bound:         d.Routes.Route(e.Provider),
		OnUnknown:     t.OnUnknown,
		MaxAttempts:   t.MaxAttempts,
		MaxLapses:     maxLapses,
		Asks:          d.Asks,
		RetriesBy:     src.RetriesBy,
		TakeoverAfter: src.TakeoverAfter,
		AsksRelevance: t.AsksRelevance,
	}
}
