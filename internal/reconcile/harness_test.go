package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reconcile"
)

const (
	lease = 30 * time.Second
	sweep = 5 * time.Second
)

func lookupSchedule() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
}

// harness is one in-memory ledger with providers that the test scripts, for any number of replicas. Tests run inside a
// synctest bubble, whose clock is the ledger's and everything else's.
type harness struct {
	t      *testing.T
	memory *storetest.Memory
	ledger *faultyLedger

	mu        sync.Mutex
	routes    map[string]ledger.Route
	closed    map[string]bool
	onUnknown ledger.OnUnknown
	lookup    func(ctx context.Context, provider, key string) (ledger.LookupResult, ledger.Outcome)
	lookups   []lookupCall
	processed []ledger.Identity
	late      []string
	failures  []error
	tokens    atomic.Int64
}

type lookupCall struct {
	provider, key string
	at            time.Time
}

func bubble(t *testing.T, f func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newHarness(t)) })
}

func newHarness(t *testing.T) *harness {
	memory := storetest.NewMemory(time.Now)
	return &harness{
		t: t, memory: memory, ledger: &faultyLedger{Memory: memory},
		routes: map[string]ledger.Route{
			"idempotent": {Provider: "idempotent", Fingerprint: "idempotent-1", Contract: ledger.Contract{Kind: ledger.ContractIdempotent, Window: 24 * time.Hour}},
			"blind":      {Provider: "blind", Fingerprint: "blind-1"},
			"lookup":     {Provider: "lookup", Fingerprint: "lookup-1", Contract: ledger.Contract{Kind: ledger.ContractLookup}},
			"lookup2":    {Provider: "lookup2", Fingerprint: "lookup2-1", Contract: ledger.Contract{Kind: ledger.ContractLookup}},
		},
		closed: map[string]bool{}, onUnknown: ledger.Hold,
		lookup: func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
			return ledger.LookupNotFound, ledger.Outcome{Status: 404}
		},
	}
}

// newReconciler returns the Reconciler of another replica over the same ledger; changes may replace its options.
func (h *harness) newReconciler(changes ...func(*reconcile.Options)) *reconcile.Reconciler {
	o := reconcile.Options{
		Ledger: h.ledger, Records: h.ledger, Work: h.ledger, Processor: h, Providers: h, Rules: h.Rules,
		Failovers: reconcile.NewFailoverDetector(h.memory, time.Hour, nil),
		Interval:  sweep, Clock: time.Now,
		Token:   func() string { return fmt.Sprintf("audit-%d", h.tokens.Add(1)) },
		OnLate:  func(kind string) { h.mu.Lock(); defer h.mu.Unlock(); h.late = append(h.late, kind) },
		OnError: func(err error) { h.mu.Lock(); defer h.mu.Unlock(); h.failures = append(h.failures, err) },
	}
	for _, change := range changes {
		change(&o)
	}
	return reconcile.New(o)
}

// start runs reconcilers until the returned function is called.
func (h *harness) start(reconcilers ...*reconcile.Reconciler) (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var all sync.WaitGroup
	for _, rc := range reconcilers {
		all.Go(func() { rc.Run(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (h *harness) Names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name := range h.routes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (h *harness) Closed(provider string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.closed[provider]
}

func (h *harness) Route(provider string) ledger.Route {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.routes[provider]
}

func (h *harness) Lookup(ctx context.Context, provider, key string) (ledger.LookupResult, ledger.Outcome) {
	h.mu.Lock()
	h.lookups = append(h.lookups, lookupCall{provider, key, time.Now()})
	lookup := h.lookup
	h.mu.Unlock()
	return lookup(ctx, provider, key)
}

func (h *harness) Process(_ context.Context, id ledger.Identity) (ledger.Reply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.processed = append(h.processed, id)
	return ledger.Reply{}, nil
}

func (h *harness) Rules(e ledger.Entry) ledger.Rules {
	h.mu.Lock()
	defer h.mu.Unlock()
	return ledger.Rules{
		Lease: lease, Margin: lease / 10, ChannelRoute: h.routes["idempotent"], BoundRoute: h.routes[e.Provider],
		OnUnknown: h.onUnknown, MaxAttempts: 3, MaxLeaseExpirations: 5, LookupSchedule: lookupSchedule(),
	}
}

// setResults makes the lookups of every provider return these results in turn, and the last one from then on.
func (h *harness) setResults(results ...ledger.LookupResult) {
	var n atomic.Int64
	h.lookup = func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
		f := results[min(int(n.Add(1)), len(results))-1]
		if f == ledger.LookupFound {
			return f, ledger.Outcome{Status: 200, Receipt: "found"}
		}
		return f, ledger.Outcome{Cause: "status"}
	}
}

func (h *harness) lookupCalls() []lookupCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.lookups)
}

func (h *harness) lateReasons() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.late)
}

func identity(n int) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("r-%04d", n), Type: "t", Channel: "email"}
}

// newEntry returns an entry that was attempted once at a provider; the caller sets its state.
func (h *harness) newEntry(n int, provider string) ledger.Entry {
	id := identity(n)
	return ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "c", Provider: provider, Fingerprint: provider + "-1",
		Owner: ledger.OwnerLedger, Published: time.Now(), Deadline: time.Now().Add(100 * time.Hour), Attempts: 1, BudgetUsed: 1,
	}
}

func (h *harness) insertSending(n int, provider string, claimed, until time.Duration) ledger.Entry {
	e := h.newEntry(n, provider)
	e.State, e.Reason, e.Holder = ledger.Sending, ledger.ReasonClaimed, fmt.Sprintf("holder-%d", n)
	e.ClaimedAt, e.LeaseUntil = ledger.In(claimed), ledger.In(until)
	return h.insert(e)
}

func (h *harness) insertWaiting(n int, provider string, due time.Duration) ledger.Entry {
	e := h.newEntry(n, provider)
	e.State, e.Reason = ledger.Waiting, ledger.ReasonUnreachable
	e.Due, e.Wake = ledger.In(due), ledger.In(due)
	return h.insert(e)
}

// insertUnknown inserts an unknown entry whose next lookup is due after a wait; below 0 none is scheduled.
func (h *harness) insertUnknown(n int, provider string, nextLookup time.Duration, changes ...func(*ledger.Entry)) ledger.Entry {
	e := h.newEntry(n, provider)
	e.State, e.Reason, e.Class = ledger.Unknown, ledger.ReasonUnanswered, ledger.ClassUnknown
	e.DoubtSince = time.Now()
	if nextLookup >= 0 {
		e.NextLookup = ledger.In(nextLookup)
	}
	for _, change := range changes {
		change(&e)
	}
	return h.insert(e)
}

func (h *harness) insert(e ledger.Entry) ledger.Entry {
	h.t.Helper()
	stored, err := h.memory.Insert(context.Background(), ledger.Change{Entry: e, Payload: &ledger.Payload{Recipient: "a@b.example"}})
	if err != nil {
		h.t.Fatalf("Insert %+v: %v", e, err)
	}
	return stored
}

// update writes to an entry, as another replica would.
func (h *harness) update(n int, change func(ledger.Entry) ledger.Change) {
	if _, err := h.memory.Update(context.Background(), change(h.entry(n))); err != nil {
		h.t.Errorf("Update %d: %v", n, err)
	}
}

func (h *harness) entry(n int) ledger.Entry {
	h.t.Helper()
	snap, err := h.memory.Load(context.Background(), identity(n))
	if err != nil {
		h.t.Fatal(err)
	}
	return snap.Entry
}

func (h *harness) detail(n int) ledger.EntryDetail {
	h.t.Helper()
	detail, err := h.memory.EntryDetail(context.Background(), identity(n))
	if err != nil {
		h.t.Fatal(err)
	}
	return detail
}

// events returns the events of one kind in an entry's timeline.
func (h *harness) events(n int, kind ledger.EventKind) []ledger.TimelineEvent {
	var events []ledger.TimelineEvent
	for _, event := range h.detail(n).Timeline {
		if event.Kind == kind {
			events = append(events, event)
		}
	}
	return events
}

func (h *harness) wantEntry(n int, state ledger.State, reason ledger.Reason) ledger.Entry {
	h.t.Helper()
	e := h.entry(n)
	if e.State != state || e.Reason != reason {
		h.t.Errorf("entry %d is %s, %s; want %s, %s", n, e.State, e.Reason, state, reason)
	}
	if err := e.Check(); err != nil {
		h.t.Errorf("entry %d breaks an invariant: %v", n, err)
	}
	return e
}

// settleAccepted returns the change by which a holder settles an accepted call with this receipt.
func settleAccepted(receipt string) func(ledger.Entry) ledger.Change {
	return func(e ledger.Entry) ledger.Change {
		return ledger.Settle(e, ledger.Attempt{
			Holder: e.Holder, Provider: e.Provider, Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: receipt},
		}, ledger.Rules{MaxAttempts: 3}, time.Now())
	}
}

var errLost = errors.New("connection reset while waiting for COMMIT")

// faultyLedger is a ledger behind an unreliable network: hooks may fail or delay an operation before or after it happens.
type faultyLedger struct {
	*storetest.Memory
	before func(op string, id ledger.Identity) error
	after  func(op string, id ledger.Identity) error
	record error
}

func (f *faultyLedger) around(op string, id ledger.Identity, do func() error) error {
	if f.before != nil {
		if err := f.before(op, id); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && f.after != nil {
		err = f.after(op, id)
	}
	return err
}

func (f *faultyLedger) Load(ctx context.Context, id ledger.Identity) (snap ledger.Snapshot, err error) {
	err = f.around("load", id, func() error { snap, err = f.Memory.Load(ctx, id); return err })
	return snap, err
}

func (f *faultyLedger) Update(ctx context.Context, c ledger.Change) (e ledger.Entry, err error) {
	err = f.around("update", c.Entry.Identity, func() error { e, err = f.Memory.Update(ctx, c); return err })
	return e, err
}

func (f *faultyLedger) Insert(ctx context.Context, c ledger.Change) (e ledger.Entry, err error) {
	err = f.around("insert", c.Entry.Identity, func() error { e, err = f.Memory.Insert(ctx, c); return err })
	return e, err
}

func (f *faultyLedger) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	if f.record != nil {
		return f.record
	}
	return f.Memory.RecordAudit(ctx, a)
}

// failUpdatesBelow makes every update of the first n entries fail.
func (h *harness) failUpdatesBelow(n int) {
	h.ledger.before = func(op string, id ledger.Identity) error {
		if op == "update" && id.ReminderID < identity(n).ReminderID {
			return errors.New("rejected for ever")
		}
		return nil
	}
}

// onFirst returns a hook that runs do at the first operation of this kind on an entry.
func onFirst(op string, n int, do func() error) func(string, ledger.Identity) error {
	var once atomic.Bool
	return func(current string, id ledger.Identity) error {
		if current == op && id == identity(n) && !once.Swap(true) {
			return do()
		}
		return nil
	}
}
