package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/reconcile"
)

// ops is the actor of an operator who closes a gate; outcome is what calls write in the same field.
const (
	ops     = "ops@example.org"
	outcome = "outcome"
)

// fakeProvider is a provider that answers as its send function says, and accepts if it has none.
type fakeProvider struct {
	name     string
	contract ledger.Contract
	send     func(context.Context, ledger.Shipment) ledger.Outcome
	calls    atomic.Int64
}

func (p *fakeProvider) Route() ledger.Route {
	return ledger.Route{Provider: p.name, Fingerprint: p.name + "-1", Contract: p.contract}
}

func (p *fakeProvider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	p.calls.Add(1)
	if p.send != nil {
		return p.send(ctx, s)
	}
	return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
}

// alwaysReturn returns a send function with one fixed result.
func alwaysReturn(result ledger.Result) func(context.Context, ledger.Shipment) ledger.Outcome {
	return func(context.Context, ledger.Shipment) ledger.Outcome { return ledger.Outcome{Result: result} }
}

// harness is one replica without faults, except for those that a test injects.
type harness struct {
	*storetest.Memory
	t              *testing.T
	pool           *provider.Pool
	deliverer      *deliver.Deliverer
	relevance      ledger.Relevance // of every check
	relevanceDelay time.Duration    // before the answer of a check
	beforeInsert   func() error
	beforeUpdate   func() error
	loads          atomic.Int64
}

// newHarness returns a replica over m. Its providers take the given number of concurrent calls, 25 s each.
func newHarness(t *testing.T, m *storetest.Memory, channels map[string]string, concurrency int, providers ...*fakeProvider) *harness {
	t.Helper()
	h := &harness{Memory: m, t: t, relevance: ledger.RelevanceWanted}
	var limits []provider.LimitedProvider
	for _, o := range providers {
		limits = append(limits, provider.LimitedProvider{Provider: o, Timeout: 25 * time.Second, Concurrency: concurrency})
	}
	var err error
	if h.pool, err = provider.NewPool(h, provider.Options{Rules: ledger.DefaultGateRules(lease)}, limits...); err != nil {
		t.Fatal(err)
	}
	h.deliverer = deliver.New(delivererOptions(h, h.pool, channels, ledger.Hold, fmt.Sprintf("%p", h)))
	for name, kind := range h.deliverer.Types {
		kind.Deadline = time.Hour
		h.deliverer.Types[name] = kind
	}
	return h
}

func (h *harness) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if h.beforeInsert != nil {
		if err := h.beforeInsert(); err != nil {
			return ledger.Entry{}, err
		}
	}
	return h.Memory.Insert(ctx, c)
}

func (h *harness) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if h.beforeUpdate != nil {
		if err := h.beforeUpdate(); err != nil {
			return ledger.Entry{}, err
		}
	}
	return h.Memory.Update(ctx, c)
}

func (h *harness) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	h.loads.Add(1)
	return h.Memory.Load(ctx, id)
}

func (h *harness) Check(context.Context, ledger.Entry) ledger.Relevance {
	time.Sleep(h.relevanceDelay)
	return h.relevance
}

// start starts the worker, the sweep and the pool; the returned function stops them.
func (h *harness) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	sim := &deliver.Worker{Due: h, Capacity: h.pool, Processor: h.deliverer, Poll: 500 * time.Millisecond}
	s := newReconciler(h.Memory, h.pool, h.deliverer, h.deliverer, reconcile.NewFailoverDetector(h.Memory, 0, nil), 5*time.Second)
	wg.Go(func() { s.Run(ctx) })
	wg.Go(func() { h.pool.Run(ctx) })
	wg.Go(func() { sim.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

func (h *harness) deliver(source string, id ledger.Identity) (ledger.Reply, error) {
	return h.deliverer.Deliver(context.Background(), ledger.Delivery{Source: source, MessageID: "m", Raw: message(id, "ada@example.org", "")})
}

func (h *harness) push(source string, id ledger.Identity) ledger.Reply {
	h.t.Helper()
	reply, err := h.deliver(source, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return reply
}

// pushTo is push for a recipient of the test's choice.
func (h *harness) pushTo(source string, id ledger.Identity, to string) {
	h.t.Helper()
	if _, err := h.deliverer.Deliver(context.Background(), ledger.Delivery{Source: source, MessageID: "m", Raw: message(id, to, "")}); err != nil {
		h.t.Fatal(err)
	}
}

// abandon delivers a reminder whose outcome is never recorded, so that its lease expires.
func (h *harness) abandon(id ledger.Identity, reason error) {
	h.t.Helper()
	h.beforeUpdate = func() error { return reason }
	if reply, err := h.deliver("queue", id); err != nil || reply.Ack {
		h.t.Errorf("a delivery whose outcome is not recorded: %+v, %v", reply, err)
	}
	_ = h.deliverer.Wait(context.Background())
	h.beforeUpdate = nil
}

func (h *harness) request(id ledger.Identity, to string) (ledger.Reply, error) {
	return h.deliverer.Request(context.Background(), "caller", mustParse(message(id, to, "")), ledger.Trace{})
}

func (h *harness) refreshGates() {
	h.t.Helper()
	if err := h.pool.Refresh(context.Background()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) entry(id ledger.Identity) ledger.Entry {
	seen, _ := h.Memory.Load(context.Background(), id)
	return seen.Entry
}

func (h *harness) events(id ledger.Identity) int {
	events, _ := h.Timeline(context.Background(), id)
	return len(events)
}

func (h *harness) count(state ledger.State) int {
	all, _ := h.List(context.Background(), ledger.Query{State: state, Limit: 10_000})
	return len(all)
}

func plainReminder(i int, channel string) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("h-%d", i), Type: "plain", Channel: channel}
}

var (
	reminder1       = plainReminder(1, "email")
	checkedReminder = ledger.Identity{ReminderID: "h-1", Type: "asked", Channel: "email"}
)

// closeGate closes a provider's gate for d from now.
func closeGate(m storetest.Store, name, actor string, d time.Duration, failures int) {
	g := ledger.Gate{Provider: name, ClosedUntil: ledger.In(d), Class: ledger.ClassCredentials, Actor: actor, Failures: failures}
	gates, _, _ := m.Gates(context.Background())
	for _, known := range gates {
		if known.Provider == name {
			g.Version = known.Version
		}
	}
	_, _ = m.UpdateGate(context.Background(), g) // a concurrent write may win
}
