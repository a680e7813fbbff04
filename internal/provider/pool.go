package provider

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
)

// Gates stores the gates, shared by all replicas.
type Gates interface {
	// Gates returns every gate that was ever written, and the current time of the ledger.
	Gates(ctx context.Context) ([]ledger.Gate, time.Time, error)
	// UpdateGate writes g if the stored version is still g's version (0 for a gate that is not stored yet), and
	// returns the gate as written. It returns [ledger.ErrStale] if the stored version differs.
	UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error)
	// UpdateGateByOperator is UpdateGate for a change by an operator: the audit event is written in the same
	// commit.
	UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error)
}

// Options configure a [Pool]. Zero values select the defaults given below.
type Options struct {
	Rules        ledger.GateRules
	Refresh      time.Duration     // interval between two reads of the stored gates; 1 s
	Write        time.Duration     // how long writing a gate may delay the call that changed it; 1 s
	Now          func() time.Time  // this host's clock, with its monotonic reading; time.Now
	Token        func() string     // returns an id that is unique across all replicas; crypto/rand.Text
	OnGateChange func(ledger.Gate) // called with each gate that a call of this replica closed or opened; may be nil
}

// Pool is the set of all configured providers with their limits and gates. It is safe for concurrent use.
type Pool struct {
	members map[string]*member
	names   []string
	gates   Gates
	o       Options
	offset  atomic.Pointer[clockOffset]
	loaded  atomic.Bool // the stored gates have been read; until then every gate counts as closed
}

// clockOffset relates the ledger's clock to this host's: the readings of both at one instant.
type clockOffset struct{ ledger, local time.Time }

// NewPool returns a pool of the given providers, by the names of their routes. It fails if two providers have the
// same name, or one has none.
func NewPool(gates Gates, o Options, limits ...LimitedProvider) (*Pool, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Refresh <= 0 {
		o.Refresh = time.Second
	}
	if o.Token == nil {
		o.Token = rand.Text
	}
	if o.OnGateChange == nil {
		o.OnGateChange = func(ledger.Gate) {}
	}
	if o.Write <= 0 {
		o.Write = time.Second
	}
	p := &Pool{members: map[string]*member{}, gates: gates, o: o}
	now := o.Now()
	p.offset.Store(&clockOffset{ledger: now, local: now})
	for _, l := range limits {
		m := newMember(l)
		name := m.route.Provider
		if _, duplicate := p.members[name]; duplicate || name == "" {
			return nil, fmt.Errorf("provider: empty or duplicate name %q", name)
		}
		p.members[name] = m
		p.names = append(p.names, name)
	}
	slices.Sort(p.names)
	return p, nil
}

// Names returns the names of the configured providers, sorted.
func (p *Pool) Names() []string { return slices.Clone(p.names) }

// Route returns a provider's route; the zero Route if the provider is not configured.
func (p *Pool) Route(name string) ledger.Route {
	if m := p.members[name]; m != nil {
		return m.route
	}
	return ledger.Route{}
}

// Timeout returns how long one call to a provider may take; 0 if it is not configured.
func (p *Pool) Timeout(name string) time.Duration {
	if m := p.members[name]; m != nil {
		return m.Timeout
	}
	return 0
}

// Send calls a provider. The caller must hold a slot from [Pool.Acquire]. If ctx has expired, no call is made.
func (p *Pool) Send(ctx context.Context, name string, s ledger.Shipment) ledger.Outcome {
	m := p.members[name]
	switch {
	case m == nil:
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "not_configured"}
	case outbound.Expired(ctx):
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	return redactRecipient(m.Provider.Send(ctx, s), s.Recipient)
}

// Lookup asks a provider, within its timeout, whether it accepted the message sent under a send key. It takes no
// slot: a lookup is not a send, and callers run lookups one at a time. The result is [ledger.LookupUnanswered] if
// the provider is not configured or does not support lookups.
func (p *Pool) Lookup(ctx context.Context, name, sendKey string) (result ledger.LookupResult, o ledger.Outcome) {
	m := p.members[name]
	if m == nil {
		return ledger.LookupUnanswered, ledger.Outcome{Cause: "not_configured"}
	}
	looker, ok := m.Provider.(Looker)
	if !ok {
		return ledger.LookupUnanswered, ledger.Outcome{Cause: "lookup_unsupported"}
	}
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	defer func() {
		if recover() != nil {
			result, o = ledger.LookupUnanswered, ledger.Outcome{Cause: "panic"}
		}
	}()
	return looker.Lookup(ctx, sendKey)
}

// Free returns how many calls to a provider could start within the next second: its free slots, as far as its
// rate limit allows; at most 1 while its gate waits for a probe, and 0 while the gate is closed.
func (p *Pool) Free(name string) int {
	m := p.members[name]
	if m == nil {
		return 0
	}
	switch status := p.status(m); {
	case !status.Open:
		return 0
	case status.Probe:
		return min(m.free(p.o.Now()), 1)
	default:
		return m.free(p.o.Now())
	}
}

// Closed reports whether a provider's gate is closed. It is true for a provider that is not configured.
func (p *Pool) Closed(name string) bool {
	m := p.members[name]
	return m == nil || !p.status(m).Open
}

// Status is the state of a provider as shown to operators.
type Status struct {
	Name       string
	Gate       ledger.Gate
	GateStatus ledger.GateStatus
	Capacity   int     // maximum number of calls in flight
	Rate       float64 // calls per second; 0 for no limit
	InFlight   int
}

// Status returns the state of every provider, sorted by name.
func (p *Pool) Status() []Status {
	all := make([]Status, 0, len(p.names))
	for _, name := range p.names {
		m := p.members[name]
		m.mu.Lock()
		gate := m.gate
		m.mu.Unlock()
		all = append(all, Status{
			Name: name, Gate: gate, GateStatus: p.status(m),
			Capacity: m.Concurrency, Rate: m.Rate, InFlight: len(m.slots),
		})
	}
	return all
}

// Run reads the stored gates every refresh interval until ctx ends. A failed read changes nothing.
func (p *Pool) Run(ctx context.Context) {
	tick := time.NewTicker(p.o.Refresh)
	defer tick.Stop()
	for {
		_ = p.Refresh(ctx) // retried after the interval; the readiness check covers the database
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Refresh reads the stored gates once.
func (p *Pool) Refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(p.o.Refresh, p.o.Write))
	defer cancel()
	stored, now, err := p.gates.Gates(ctx)
	if err != nil {
		return fmt.Errorf("provider: reading gates: %w", err)
	}
	// Read our clock after the query: the estimate of the ledger's time is then slightly behind, and gates open
	// late rather than early.
	p.offset.Store(&clockOffset{ledger: now, local: p.o.Now()})
	for _, gate := range stored {
		if m := p.members[gate.Provider]; m != nil {
			m.apply(gate, now)
		}
	}
	p.loaded.Store(true)
	return nil
}

// apply adopts a gate read from the store, unless the local gate is newer, or is closed by a change that could not
// be written yet.
func (m *member) apply(stored ledger.Gate, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keepLocal := m.unsaved && m.gate.Status(now).Wait > 0 && stored.Version <= m.gate.Version
	if stored.Version >= m.gate.Version && !keepLocal {
		m.gate, m.unsaved = atFixedTime(stored, now), false
	}
}

// ledgerNow estimates the ledger's current time.
func (p *Pool) ledgerNow() time.Time {
	c := p.offset.Load()
	return c.ledger.Add(p.o.Now().Sub(c.local))
}

// status returns the gate's status. A replica that has not read the stored gates yet, for example because it
// started during a database outage, must not make calls through a gate that another replica closed.
func (p *Pool) status(m *member) ledger.GateStatus {
	if !p.loaded.Load() {
		return ledger.GateStatus{Wait: p.o.Refresh}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gate.Status(p.ledgerNow())
}

// atFixedTime returns the gate with a relative ClosedUntil converted to an absolute time.
func atFixedTime(g ledger.Gate, now time.Time) ledger.Gate {
	g.ClosedUntil = ledger.At(g.ClosedUntil.On(now))
	return g
}
