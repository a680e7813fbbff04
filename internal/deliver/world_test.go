package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// world is a desk with a real ledger in memory and a provider that a test scripts. Tests run it inside
// a synctest bubble, whose clock is the ledger's and everybody's.
type world struct {
	t       *testing.T
	memory  *dbtest.Memory
	ledger  *faulty
	desk    *deliver.Desk
	options deliver.Options

	mu    sync.Mutex
	calls []ledger.Shipment
	send  func(ctx context.Context, s ledger.Shipment) ledger.Outcome
	slot  ledger.Slot // what Take answers when it is not held
	full  bool
	ask   ledger.Relevance
	late  []string
	route ledger.Route
}

func newWorld(t *testing.T) *world {
	memory := dbtest.NewMemory(time.Now)
	w := &world{
		t: t, memory: memory, ledger: &faulty{Memory: memory}, ask: ledger.StillWanted,
		route: ledger.Route{Provider: "mail", Fingerprint: "mail-1", Contract: ledger.Contract{Kind: ledger.Idempotent, Window: 24 * time.Hour}},
	}
	w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1", Status: 202}
	}
	var tokens atomic.Int64
	w.options = deliver.Options{
		Ledger: w.ledger, Archive: w.ledger, Register: w.ledger,
		Slots: w, Sender: w, Routes: w, Relevance: w,
		Lease: 30 * time.Second, Margin: 3 * time.Second,
		Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types: map[string]policy.Type{
			"default": {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: ledger.Hold},
			"asked":   {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: ledger.Hold, AsksRelevance: true},
		},
		Channels: map[string]string{"email": "mail"},
		Sources: map[string]deliver.Source{
			"queue":   {RetriesBy: ledger.OwnerBroker, TakeoverAfter: 2 * time.Minute, AnswerWithin: 9 * time.Second},
			"ordered": {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now,
		Draw:    func() float64 { return 0.5 },
		Token:   func() string { return fmt.Sprintf("token-%d", tokens.Add(1)) },
		Late:    func(kind string) { w.mu.Lock(); defer w.mu.Unlock(); w.late = append(w.late, kind) },
	}
	w.desk = deliver.New(w.options)
	return w
}

func (w *world) Take(_ context.Context, provider string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	if w.full {
		return w.slot, nil
	}
	return ledger.Slot{Provider: provider, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { return 0 }
}

func (w *world) Send(ctx context.Context, _ string, s ledger.Shipment) ledger.Outcome {
	w.mu.Lock()
	w.calls = append(w.calls, s)
	send := w.send
	w.mu.Unlock()
	return send(ctx, s)
}

func (w *world) Route(provider string) ledger.Route {
	if provider == w.route.Provider {
		return w.route
	}
	return ledger.Route{}
}

func (w *world) Timeout(string) time.Duration { return 10 * time.Second }

func (w *world) Ask(context.Context, ledger.Entry) ledger.Relevance { return w.ask }

func (w *world) callCount() int { return len(w.made()) }

// made is a copy of the calls so far.
func (w *world) made() []ledger.Shipment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

// answers makes the provider answer with these results in turn, the last one for ever.
func (w *world) answers(results ...ledger.Result) {
	var n atomic.Int64
	w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
		i := min(int(n.Add(1)), len(results)) - 1
		o := ledger.Outcome{Result: results[i]}
		if o.Result == ledger.ResultAccepted {
			o.Receipt = fmt.Sprintf("r-%d", i+1)
		}
		return o
	}
}

var rem1 = ledger.Identity{ReminderID: "rem-1", Type: "seat_expiring", Channel: "email"}

func message(typ, to string) []byte {
	return fmt.Appendf(nil, `{"reminder_id": "rem-1", "type": %q, "channel": "email", "to": %q, "content": {"text": "hello"}}`, typ, to)
}

func (w *world) push(source string, raw []byte) ledger.Reply {
	w.t.Helper()
	reply, err := w.desk.Deliver(w.t.Context(), ledger.Delivery{Source: source, MessageID: "m-1", Raw: raw})
	if err != nil {
		w.t.Fatalf("Deliver: %v", err)
	}
	return reply
}

func (w *world) entry(id ledger.Identity) ledger.Entry {
	w.t.Helper()
	seen, err := w.memory.Load(context.Background(), id)
	if err != nil {
		w.t.Fatalf("Load: %v", err)
	}
	return seen.Entry
}

func (w *world) timeline(id ledger.Identity) []ledger.Event {
	w.t.Helper()
	lines, err := w.memory.Timeline(context.Background(), id)
	if err != nil {
		w.t.Fatalf("Timeline: %v", err)
	}
	return lines
}

func (w *world) wants(id ledger.Identity, state ledger.State, reason ledger.Reason) ledger.Entry {
	w.t.Helper()
	e := w.entry(id)
	if e.State != state || e.Reason != reason {
		w.t.Fatalf("entry is %s, %s; want %s, %s\n%+v", e.State, e.Reason, state, reason, e)
	}
	if err := e.Check(); err != nil {
		w.t.Fatalf("entry breaks an invariant: %v", err)
	}
	return e
}

var errLost = errors.New("connection reset while waiting for COMMIT")

// faulty is the ledger behind a bad network: hooks may fail a verb before it happened, or after.
type faulty struct {
	*dbtest.Memory
	before func(verb string) error
	after  func(verb string) error
}

func (f *faulty) fail(hook func(string) error, verb string) error {
	if hook == nil {
		return nil
	}
	return hook(verb)
}

func (f *faulty) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return f.put(ctx, "create", c, f.Memory.Create)
}

func (f *faulty) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return f.put(ctx, "swap", c, f.Memory.Swap)
}

func (f *faulty) put(ctx context.Context, verb string, c ledger.Change, do func(context.Context, ledger.Change) (ledger.Entry, error)) (ledger.Entry, error) {
	if err := f.fail(f.before, verb); err != nil {
		return ledger.Entry{}, err
	}
	e, err := do(ctx, c)
	if err == nil {
		err = f.fail(f.after, verb)
	}
	if err != nil {
		return ledger.Entry{}, err
	}
	return e, nil
}

func (f *faulty) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	if err := f.fail(f.before, "load"); err != nil {
		return ledger.Reading{}, err
	}
	return f.Memory.Load(ctx, id)
}

// once fails a verb the first n times.
func once(verb string, n int) func(string) error {
	var left atomic.Int64
	left.Store(int64(n))
	return func(v string) error {
		if v == verb && left.Add(-1) >= 0 {
			return errLost
		}
		return nil
	}
}
