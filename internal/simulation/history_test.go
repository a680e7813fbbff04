package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/reconcile"
)

// ops is a person who may close a gate, and outcome is what calls put in the same place.
const (
	ops     = "ops@example.org"
	outcome = "outcome"
)

// outlet is a provider that does as it is told, and accepts where it is told nothing.
type outlet struct {
	name     string
	contract ledger.Contract
	send     func(context.Context, ledger.Shipment) ledger.Outcome
	calls    atomic.Int64
}

func (o *outlet) Route() ledger.Route {
	return ledger.Route{Provider: o.name, Fingerprint: o.name + "-1", Contract: o.contract}
}

func (o *outlet) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	o.calls.Add(1)
	if o.send != nil {
		return o.send(ctx, s)
	}
	return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
}

// always is a provider's one answer.
func always(result ledger.Result) func(context.Context, ledger.Shipment) ledger.Outcome {
	return func(context.Context, ledger.Shipment) ledger.Outcome { return ledger.Outcome{Result: result} }
}

// quiet is one replica without trouble, but for what a history makes for it.
type quiet struct {
	*dbtest.Memory
	t            *testing.T
	fleet        *provider.Fleet
	desk         *deliver.Desk
	answer       ledger.Relevance // to the question
	thinks       time.Duration    // before the answer
	beforeCreate func() error
	beforeSwap   func() error
	loads        atomic.Int64
}

// newQuiet is a replica over m. Its providers take concurrency calls at once, 25 s each.
func newQuiet(t *testing.T, m *dbtest.Memory, channels map[string]string, concurrency int, outlets ...*outlet) *quiet {
	t.Helper()
	q := &quiet{Memory: m, t: t, answer: ledger.StillWanted}
	var lanes []provider.Lane
	for _, o := range outlets {
		lanes = append(lanes, provider.Lane{Provider: o, Timeout: 25 * time.Second, Concurrency: concurrency})
	}
	var err error
	if q.fleet, err = provider.NewFleet(q, provider.Options{Rules: ledger.DefaultGateRules(lease)}, lanes...); err != nil {
		t.Fatal(err)
	}
	q.desk = deliver.New(desk(q, q.fleet, channels, ledger.Hold, fmt.Sprintf("%p", q)))
	for name, kind := range q.desk.Types {
		kind.Deadline = time.Hour
		q.desk.Types[name] = kind
	}
	return q
}

func (q *quiet) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if q.beforeCreate != nil {
		if err := q.beforeCreate(); err != nil {
			return ledger.Entry{}, err
		}
	}
	return q.Memory.Create(ctx, c)
}

func (q *quiet) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if q.beforeSwap != nil {
		if err := q.beforeSwap(); err != nil {
			return ledger.Entry{}, err
		}
	}
	return q.Memory.Swap(ctx, c)
}

func (q *quiet) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	q.loads.Add(1)
	return q.Memory.Load(ctx, id)
}

func (q *quiet) Ask(context.Context, ledger.Entry) ledger.Relevance {
	time.Sleep(q.thinks)
	return q.answer
}

// works starts the worker; what it gives back stops it.
func (q *quiet) works() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	w := &deliver.Worker{Agenda: q, Capacity: q.fleet, Visitor: q.desk, Poll: 500 * time.Millisecond}
	s := sweeper(q.Memory, q.fleet, q.desk, q.desk, reconcile.NewFailovers(q.Memory, 0, nil), 5*time.Second)
	wg.Go(func() { s.Run(ctx) })
	wg.Go(func() { q.fleet.Run(ctx) })
	wg.Go(func() { w.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

func (q *quiet) deliver(source string, id ledger.Identity) (ledger.Reply, error) {
	return q.desk.Deliver(context.Background(), ledger.Delivery{Source: source, MessageID: "m", Raw: message(id, "ada@example.org", "")})
}

func (q *quiet) push(source string, id ledger.Identity) ledger.Reply {
	q.t.Helper()
	reply, err := q.deliver(source, id)
	if err != nil {
		q.t.Fatal(err)
	}
	return reply
}

// abandon is a push whose outcome never gets into the ledger: its holder stays silent.
func (q *quiet) abandon(id ledger.Identity, why error) {
	q.t.Helper()
	q.beforeSwap = func() error { return why }
	if reply, err := q.deliver("queue", id); err != nil || reply.Ack {
		q.t.Errorf("an outcome that is not recorded: %+v, %v", reply, err)
	}
	_ = q.desk.Wait(context.Background())
	q.beforeSwap = nil
}

func (q *quiet) request(id ledger.Identity, to string) (ledger.Reply, error) {
	return q.desk.Request(context.Background(), "caller", parsed(message(id, to, "")), ledger.Trace{})
}

func (q *quiet) look() {
	q.t.Helper()
	if err := q.fleet.Look(context.Background()); err != nil {
		q.t.Fatal(err)
	}
}

func (q *quiet) entry(id ledger.Identity) ledger.Entry {
	seen, _ := q.Memory.Load(context.Background(), id)
	return seen.Entry
}

func (q *quiet) lines(id ledger.Identity) int {
	lines, _ := q.Timeline(context.Background(), id)
	return len(lines)
}

func (q *quiet) count(state ledger.State) int {
	all, _ := q.List(context.Background(), ledger.Query{State: state, Limit: 10_000})
	return len(all)
}

func plain(i int, channel string) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("h-%d", i), Type: "plain", Channel: channel}
}

var (
	aReminder  = plain(1, "email")
	anAskedOne = ledger.Identity{ReminderID: "h-1", Type: "asked", Channel: "email"}
)

// closeGate closes a provider's gate for d from now.
func closeGate(m dbtest.Store, name, by string, d time.Duration, strikes int) {
	g := ledger.Gate{Provider: name, ClosedUntil: ledger.In(d), Class: ledger.ClassCredentials, By: by, Strikes: strikes}
	gates, _, _ := m.Gates(context.Background())
	for _, known := range gates {
		if known.Provider == name {
			g.Version = known.Version
		}
	}
	_, _ = m.SwapGate(context.Background(), g) // somebody who was faster has the last word
}
