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

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// harness is a Deliverer over an in-memory ledger, with a provider that the test scripts. Tests run it inside a synctest
// bubble, whose clock is the ledger's and everything else's.
type harness struct {
	t         *testing.T
	memory    *storetest.Memory
	ledger    *faultyLedger
	deliverer *deliver.Deliverer
	options   deliver.Options

	mu        sync.Mutex
	calls     []ledger.Shipment
	send      func(ctx context.Context, s ledger.Shipment) ledger.Outcome
	slot      ledger.Slot // what Acquire returns while noSlot is set
	noSlot    bool
	relevance ledger.Relevance
	late      []string
	route     ledger.Route
}

func newHarness(t *testing.T) *harness {
	memory := storetest.NewMemory(time.Now)
	h := &harness{
		t: t, memory: memory, ledger: &faultyLedger{Memory: memory}, relevance: ledger.RelevanceWanted,
		route: ledger.Route{Provider: "mail", Fingerprint: "mail-1", Contract: ledger.Contract{Kind: ledger.ContractIdempotent, Window: 24 * time.Hour}},
	}
	h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1", Status: 202}
	}
	var tokens atomic.Int64
	h.options = deliver.Options{
		Ledger: h.ledger, Details: h.ledger, Reminders: h.ledger,
		Slots: h, Sender: h, Routes: h, Relevance: h,
		Lease: 30 * time.Second, Margin: 3 * time.Second,
		Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types: map[string]policy.Type{
			"default": {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: ledger.Hold},
			"checked": {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: ledger.Hold, CheckRelevance: true},
		},
		Channels: map[string]string{"email": "mail"},
		Sources: map[string]deliver.Source{
			"queue":   {RetriesBy: ledger.OwnerBroker, TakeoverAfter: 2 * time.Minute, AnswerWithin: 9 * time.Second},
			"ordered": {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now,
		Random:  func() float64 { return 0.5 },
		Token:   func() string { return fmt.Sprintf("token-%d", tokens.Add(1)) },
		OnLate:  func(kind string) { h.mu.Lock(); defer h.mu.Unlock(); h.late = append(h.late, kind) },
	}
	h.deliverer = deliver.New(h.options)
	return h
}

func (h *harness) Acquire(_ context.Context, provider string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	if h.noSlot {
		return h.slot, nil
	}
	return ledger.Slot{Provider: provider, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { return 0 }
}

func (h *harness) Send(ctx context.Context, _ string, s ledger.Shipment) ledger.Outcome {
	h.mu.Lock()
	h.calls = append(h.calls, s)
	send := h.send
	h.mu.Unlock()
	return send(ctx, s)
}

func (h *harness) Route(provider string) ledger.Route {
	if provider == h.route.Provider {
		return h.route
	}
	return ledger.Route{}
}

func (h *harness) Timeout(string) time.Duration { return 10 * time.Second }

func (h *harness) Check(context.Context, ledger.Entry) ledger.Relevance { return h.relevance }

func (h *harness) callCount() int { return len(h.shipments()) }

// shipments returns a copy of what was sent so far.
func (h *harness) shipments() []ledger.Shipment {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// setResults makes the provider return these results in turn, and the last one from then on.
func (h *harness) setResults(results ...ledger.Result) {
	var n atomic.Int64
	h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
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

func (h *harness) push(source string, raw []byte) ledger.Reply {
	h.t.Helper()
	reply, err := h.deliverer.Deliver(h.t.Context(), ledger.Delivery{Source: source, MessageID: "m-1", Raw: raw})
	if err != nil {
		h.t.Fatalf("Deliver: %v", err)
	}
	return reply
}

func (h *harness) entry(id ledger.Identity) ledger.Entry {
	h.t.Helper()
	snap, err := h.memory.Load(context.Background(), id)
	if err != nil {
		h.t.Fatalf("Load: %v", err)
	}
	return snap.Entry
}

func (h *harness) timeline(id ledger.Identity) []ledger.TimelineEvent {
	h.t.Helper()
	events, err := h.memory.Timeline(context.Background(), id)
	if err != nil {
		h.t.Fatalf("Timeline: %v", err)
	}
	return events
}

func (h *harness) wantEntry(id ledger.Identity, state ledger.State, reason ledger.Reason) ledger.Entry {
	h.t.Helper()
	e := h.entry(id)
	if e.State != state || e.Reason != reason {
		h.t.Fatalf("entry is %s, %s; want %s, %s\n%+v", e.State, e.Reason, state, reason, e)
	}
	if err := e.Check(); err != nil {
		h.t.Fatalf("entry breaks an invariant: %v", err)
	}
	return e
}

var errLost = errors.New("connection reset while waiting for COMMIT")

// faultyLedger is a ledger behind an unreliable network: hooks may fail an operation before or after it happens.
type faultyLedger struct {
	*storetest.Memory
	before func(op string) error
	after  func(op string) error
}

func (f *faultyLedger) fail(hook func(string) error, op string) error {
	if hook == nil {
		return nil
	}
	return hook(op)
}

func (f *faultyLedger) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return f.write(ctx, "insert", c, f.Memory.Insert)
}

func (f *faultyLedger) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return f.write(ctx, "update", c, f.Memory.Update)
}

func (f *faultyLedger) write(ctx context.Context, op string, c ledger.Change, do func(context.Context, ledger.Change) (ledger.Entry, error)) (ledger.Entry, error) {
	if err := f.fail(f.before, op); err != nil {
		return ledger.Entry{}, err
	}
	e, err := do(ctx, c)
	if err == nil {
		err = f.fail(f.after, op)
	}
	if err != nil {
		return ledger.Entry{}, err
	}
	return e, nil
}

func (f *faultyLedger) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	if err := f.fail(f.before, "load"); err != nil {
		return ledger.Snapshot{}, err
	}
	return f.Memory.Load(ctx, id)
}

// once returns a hook that fails an operation the first n times.
func once(op string, n int) func(string) error {
	var left atomic.Int64
	left.Store(int64(n))
	return func(current string) error {
		if current == op && left.Add(-1) >= 0 {
			return errLost
		}
		return nil
	}
}
