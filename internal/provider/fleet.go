package provider

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
)

// Gates is where the gates are kept, for all replicas.
type Gates interface {
	// Gates returns every gate that was ever written, and the ledger's now.
	Gates(ctx context.Context) ([]ledger.Gate, time.Time, error)
	// SwapGate writes a gate where the store's version is still the one that g carries (0 for one that
	// no store knows), and returns it as written; [ledger.ErrStale] when it has moved on.
	SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error)
	// SteerGate is SwapGate with a person's line in the audit, in one commit.
	SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error)
}

// Options shape a [Fleet].
type Options struct {
	Rules   ledger.GateRules
	Refresh time.Duration     // between two looks at the kept gates; 1 s
	Write   time.Duration     // how long a gate's write may hold up the call that moved it; 1 s
	Now     func() time.Time  // this host's clock, with its monotonic reading; time.Now
	Token   func() string     // never the same twice, over all replicas; crypto/rand.Text
	Moved   func(ledger.Gate) // told of each gate that a call of this replica closed or opened; may be nil
}

// Fleet is all configured providers, each with its lane. It is safe for concurrent use.
type Fleet struct {
	lanes  map[string]*lane
	names  []string
	gates  Gates
	o      Options
	anchor atomic.Pointer[anchor]
	looked atomic.Bool // the kept gates have been read; until then every gate counts as closed
}

// anchor ties the ledger's clock to this host's: at one instant the two read so.
type anchor struct{ ledger, local time.Time }

// NewFleet makes a fleet of the lanes, by the names of their routes. It is an error when two have one
// name, or one has none.
func NewFleet(gates Gates, o Options, lanes ...Lane) (*Fleet, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Refresh <= 0 {
		o.Refresh = time.Second
	}
	if o.Token == nil {
		o.Token = rand.Text
	}
	if o.Moved == nil {
		o.Moved = func(ledger.Gate) {}
	}
	if o.Write <= 0 {
		o.Write = time.Second
	}
	f := &Fleet{lanes: map[string]*lane{}, gates: gates, o: o}
	now := o.Now()
	f.anchor.Store(&anchor{ledger: now, local: now})
	for _, l := range lanes {
		made := newLane(l)
		name := made.route.Provider
		if _, twice := f.lanes[name]; twice || name == "" {
			return nil, fmt.Errorf("provider: no name, or one that is taken: %q", name)
		}
		f.lanes[name] = made
		f.names = append(f.names, name)
	}
	slices.Sort(f.names)
	return f, nil
}

// Names lists the configured providers, sorted.
func (f *Fleet) Names() []string { return slices.Clone(f.names) }

// Route is a provider as configured; the zero Route when it is not.
func (f *Fleet) Route(name string) ledger.Route {
	if l := f.lanes[name]; l != nil {
		return l.route
	}
	return ledger.Route{}
}

// Timeout is how long one call to a provider may take; 0 when it is not configured.
func (f *Fleet) Timeout(name string) time.Duration {
	if l := f.lanes[name]; l != nil {
		return l.Timeout
	}
	return 0
}

// Send calls a provider. The caller holds a slot from [Fleet.Take]. Where ctx is over, nobody is called.
func (f *Fleet) Send(ctx context.Context, name string, s ledger.Shipment) ledger.Outcome {
	l := f.lanes[name]
	switch {
	case l == nil:
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "not_configured"}
	case outbound.Over(ctx):
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	return struck(l.Provider.Send(ctx, s), s.Recipient)
}

// struck leaves out a provider's words that hold the recipient: codes and request ids are kept beside the entry for
// as long as it is, shown to everybody who may see it, and no erasure finds a person in them.
func struck(o ledger.Outcome, recipient string) ledger.Outcome {
	holds := func(word string) bool {
		return recipient != "" && strings.Contains(strings.ToLower(word), strings.ToLower(recipient))
	}
	if holds(o.Code) {
		o.Code = ""
	}
	if holds(o.RequestID) {
		o.RequestID = ""
	}
	return o
}

// Ask asks a provider whether it took a send key, within its timeout. It takes no slot: a question is no
// send, and whoever asks does so one at a time. A provider that is not there, or cannot be asked, gives no
// answer.
func (f *Fleet) Ask(ctx context.Context, name, sendKey string) (found ledger.Finding, o ledger.Outcome) {
	l := f.lanes[name]
	if l == nil {
		return ledger.Unanswered, ledger.Outcome{Cause: "not_configured"}
	}
	asker, can := l.Provider.(Asker)
	if !can {
		return ledger.Unanswered, ledger.Outcome{Cause: "cannot_be_asked"}
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	defer func() {
		if recover() != nil {
			found, o = ledger.Unanswered, ledger.Outcome{Cause: "panic"}
		}
	}()
	return asker.Ask(ctx, sendKey)
}

// Free is how many calls a provider could begin within the next second: its free concurrency, as far as
// its rate allows; 1 while its gate waits for the one that tries, and 0 while it is closed.
func (f *Fleet) Free(name string) int {
	l := f.lanes[name]
	if l == nil {
		return 0
	}
	switch view := f.view(l); {
	case !view.Open:
		return 0
	case view.Probe:
		return min(l.free(f.o.Now()), 1)
	default:
		return l.free(f.o.Now())
	}
}

// Shut tells whether a provider's gate is closed.
func (f *Fleet) Shut(name string) bool {
	l := f.lanes[name]
	return l == nil || !f.view(l).Open
}

// Status is a provider as an operator sees it.
type Status struct {
	Name     string
	Gate     ledger.Gate
	View     ledger.GateView
	Capacity int     // calls in flight that it takes
	Rate     float64 // calls a second; 0 for no limit
	InFlight int
}

// Status tells how every provider stands, sorted by name.
func (f *Fleet) Status() []Status {
	all := make([]Status, 0, len(f.names))
	for _, name := range f.names {
		l := f.lanes[name]
		l.mu.Lock()
		gate := l.gate
		l.mu.Unlock()
		all = append(all, Status{
			Name: name, Gate: gate, View: f.view(l),
			Capacity: l.Concurrency, Rate: l.Rate, InFlight: len(l.slots),
		})
	}
	return all
}

// Run looks at the kept gates until ctx ends. A look that fails leaves what is known.
func (f *Fleet) Run(ctx context.Context) {
	tick := time.NewTicker(f.o.Refresh)
	defer tick.Stop()
	for {
		_ = f.Look(ctx) // the next one comes soon; readiness watches the database
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look reads the kept gates once.
func (f *Fleet) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(f.o.Refresh, f.o.Write))
	defer cancel()
	kept, now, err := f.gates.Gates(ctx)
	if err != nil {
		return fmt.Errorf("provider: read the gates: %w", err)
	}
	// After the answer: the ledger's now is a little behind then, and gates open late rather than early.
	f.anchor.Store(&anchor{ledger: now, local: f.o.Now()})
	for _, gate := range kept {
		if l := f.lanes[gate.Provider]; l != nil {
			l.learn(gate, now)
		}
	}
	f.looked.Store(true)
	return nil
}

// learn takes over a gate from the store, unless ours is newer, or moved here and could not be written.
func (l *lane) learn(kept ledger.Gate, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ours := l.local && l.gate.View(now).Wait > 0 && kept.Version <= l.gate.Version
	if kept.Version >= l.gate.Version && !ours {
		l.gate, l.local = fixed(kept, now), false
	}
}

func (f *Fleet) ledgerNow() time.Time {
	a := f.anchor.Load()
	return a.ledger.Add(f.o.Now().Sub(a.local))
}

// view is what the gate says. A replica that has not read the kept gates yet, because it starts into an
// outage of the database, say, must not call through one that the others closed.
func (f *Fleet) view(l *lane) ledger.GateView {
	if !f.looked.Load() {
		return ledger.GateView{Wait: f.o.Refresh}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate.View(f.ledgerNow())
}

// fixed is the gate with its span made a moment.
func fixed(g ledger.Gate, now time.Time) ledger.Gate {
	g.ClosedUntil = ledger.At(g.ClosedUntil.On(now))
	return g
}
