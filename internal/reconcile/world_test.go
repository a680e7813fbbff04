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

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reconcile"
)

const (
	lease = 30 * time.Second
	sweep = 5 * time.Second
)

func asks() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
}

// world is one ledger in memory, providers that a test scripts, and as many replicas as it wants. Tests run
// inside a synctest bubble, whose clock is the ledger's and everybody's.
type world struct {
	t      *testing.T
	memory *dbtest.Memory
	ledger *faulty

	mu        sync.Mutex
	routes    map[string]ledger.Route
	shut      map[string]bool
	onUnknown ledger.OnUnknown
	answer    func(ctx context.Context, provider, key string) (ledger.Finding, ledger.Outcome)
	asked     []asking
	visited   []ledger.Identity
	late      []string
	failures  []error
	tokens    atomic.Int64
}

type asking struct {
	provider, key string
	at            time.Time
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	memory := dbtest.NewMemory(time.Now)
	return &world{
		t: t, memory: memory, ledger: &faulty{Memory: memory},
		routes: map[string]ledger.Route{
			"keyed": {Provider: "keyed", Fingerprint: "keyed-1", Contract: ledger.Contract{Kind: ledger.Idempotent, Window: 24 * time.Hour}},
			"blind": {Provider: "blind", Fingerprint: "blind-1"},
			"desk":  {Provider: "desk", Fingerprint: "desk-1", Contract: ledger.Contract{Kind: ledger.Lookup}},
			"desk2": {Provider: "desk2", Fingerprint: "desk2-1", Contract: ledger.Contract{Kind: ledger.Lookup}},
		},
		shut: map[string]bool{}, onUnknown: ledger.Hold,
		answer: func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
			return ledger.NotFound, ledger.Outcome{Status: 404}
		},
	}
}

// replica is a desk over the world's ledger; changes may replace its parts.
func (w *world) replica(changes ...func(*reconcile.Options)) *reconcile.Desk {
	o := reconcile.Options{
		Ledger: w.ledger, Records: w.ledger, Agenda: w.ledger, Visitor: w, Providers: w, Rules: w.Rules,
		Failovers: reconcile.NewFailovers(w.memory, time.Hour, nil),
		Sweep:     sweep, Clock: time.Now,
		Token:  func() string { return fmt.Sprintf("act-%d", w.tokens.Add(1)) },
		Late:   func(kind string) { w.mu.Lock(); defer w.mu.Unlock(); w.late = append(w.late, kind) },
		Failed: func(err error) { w.mu.Lock(); defer w.mu.Unlock(); w.failures = append(w.failures, err) },
	}
	for _, change := range changes {
		change(&o)
	}
	return reconcile.New(o)
}

// runs lets desks run until the returned function is called.
func (w *world) runs(desks ...*reconcile.Desk) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	var all sync.WaitGroup
	for _, d := range desks {
		all.Go(func() { d.Run(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (w *world) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.routes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (w *world) Shut(provider string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.shut[provider]
}

func (w *world) Route(provider string) ledger.Route {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.routes[provider]
}

func (w *world) Ask(ctx context.Context, provider, key string) (ledger.Finding, ledger.Outcome) {
	w.mu.Lock()
	w.asked = append(w.asked, asking{provider, key, time.Now()})
	answer := w.answer
	w.mu.Unlock()
	return answer(ctx, provider, key)
}

func (w *world) Visit(_ context.Context, id ledger.Identity) (ledger.Reply, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visited = append(w.visited, id)
	return ledger.Reply{}, nil
}

func (w *world) Rules(e ledger.Entry) ledger.Rules {
	w.mu.Lock()
	defer w.mu.Unlock()
	return ledger.Rules{
		Lease: lease, Margin: lease / 10, Channel: w.routes["keyed"], Bound: w.routes[e.Provider],
		OnUnknown: w.onUnknown, MaxAttempts: 3, MaxLapses: 5, Asks: asks(),
	}
}

// answers makes every provider find, in turn, what is said, the last one for ever.
func (w *world) answers(findings ...ledger.Finding) {
	var n atomic.Int64
	w.answer = func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
		f := findings[min(int(n.Add(1)), len(findings))-1]
		if f == ledger.Found {
			return f, ledger.Outcome{Status: 200, Receipt: "found"}
		}
		return f, ledger.Outcome{Cause: "status"}
	}
}

func (w *world) questions() []asking {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.asked)
}

func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.late)
}

func identity(n int) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("r-%04d", n), Type: "t", Channel: "email"}
}

// base is an entry that was claimed at a provider.
func (w *world) base(n int, provider string) ledger.Entry {
	id := identity(n)
	return ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "c", Provider: provider, Fingerprint: provider + "-1",
		Owner: ledger.OwnerLedger, Published: time.Now(), Deadline: time.Now().Add(100 * time.Hour), Attempts: 1, Spent: 1,
	}
}

func (w *world) holds(n int, provider string, claimed, until time.Duration) ledger.Entry {
	e := w.base(n, provider)
	e.State, e.Reason, e.Holder = ledger.Sending, ledger.ReasonClaimed, fmt.Sprintf("holder-%d", n)
	e.ClaimedAt, e.LeaseUntil = ledger.In(claimed), ledger.In(until)
	return w.create(e)
}

func (w *world) waits(n int, provider string, due time.Duration) ledger.Entry {
	e := w.base(n, provider)
	e.State, e.Reason = ledger.Waiting, ledger.ReasonUnreachable
	e.Due, e.Wake = ledger.In(due), ledger.In(due)
	return w.create(e)
}

// doubts is an unknown entry whose provider is asked in so long; below 0 nobody is asked.
func (w *world) doubts(n int, provider string, ask time.Duration, changes ...func(*ledger.Entry)) ledger.Entry {
	e := w.base(n, provider)
	e.State, e.Reason, e.Class = ledger.Unknown, ledger.ReasonUnanswered, ledger.ClassUnknown
	e.DoubtSince = time.Now()
	if ask >= 0 {
		e.AskAt = ledger.In(ask)
	}
	for _, change := range changes {
		change(&e)
	}
	return w.create(e)
}

func (w *world) create(e ledger.Entry) ledger.Entry {
	w.t.Helper()
	stands, err := w.memory.Create(context.Background(), ledger.Change{Entry: e, Payload: &ledger.Payload{Recipient: "a@b.example"}})
	if err != nil {
		w.t.Fatalf("Create %+v: %v", e, err)
	}
	return stands
}

// moves writes to an entry beside whoever else does.
func (w *world) moves(n int, change func(ledger.Entry) ledger.Change) {
	if _, err := w.memory.Swap(context.Background(), change(w.entry(n))); err != nil {
		w.t.Errorf("Swap %d: %v", n, err)
	}
}

func (w *world) entry(n int) ledger.Entry {
	w.t.Helper()
	seen, err := w.memory.Load(context.Background(), identity(n))
	if err != nil {
		w.t.Fatal(err)
	}
	return seen.Entry
}

func (w *world) story(n int) ledger.Story {
	w.t.Helper()
	story, err := w.memory.Story(context.Background(), identity(n))
	if err != nil {
		w.t.Fatal(err)
	}
	return story
}

// lines are the lines of one kind in an entry's timeline.
func (w *world) lines(n int, kind ledger.EventKind) []ledger.Event {
	var lines []ledger.Event
	for _, line := range w.story(n).Timeline {
		if line.Kind == kind {
			lines = append(lines, line)
		}
	}
	return lines
}

func (w *world) wants(n int, state ledger.State, reason ledger.Reason) ledger.Entry {
	w.t.Helper()
	e := w.entry(n)
	if e.State != state || e.Reason != reason {
		w.t.Errorf("entry %d is %s, %s; want %s, %s", n, e.State, e.Reason, state, reason)
	}
	if err := e.Check(); err != nil {
		w.t.Errorf("entry %d breaks an invariant: %v", n, err)
	}
	return e
}

// settles is the holder's own word: accepted, with this receipt.
func settles(receipt string) func(ledger.Entry) ledger.Change {
	return func(e ledger.Entry) ledger.Change {
		return ledger.Settle(e, ledger.Attempt{
			Holder: e.Holder, Provider: e.Provider, Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: receipt},
		}, ledger.Rules{MaxAttempts: 3}, time.Now())
	}
}

var errLost = errors.New("connection reset while waiting for COMMIT")

// faulty is the ledger behind a bad network: hooks may fail or delay a verb before it happens, or after.
type faulty struct {
	*dbtest.Memory
	before func(verb string, id ledger.Identity) error
	after  func(verb string, id ledger.Identity) error
	record error
}

func (f *faulty) around(verb string, id ledger.Identity, do func() error) error {
	if f.before != nil {
		if err := f.before(verb, id); err != nil {
			return err
		}
	}
	err := do()
	if err == nil && f.after != nil {
		err = f.after(verb, id)
	}
	return err
}

func (f *faulty) Load(ctx context.Context, id ledger.Identity) (seen ledger.Reading, err error) {
	err = f.around("load", id, func() error { seen, err = f.Memory.Load(ctx, id); return err })
	return seen, err
}

func (f *faulty) Swap(ctx context.Context, c ledger.Change) (e ledger.Entry, err error) {
	err = f.around("swap", c.Entry.Identity, func() error { e, err = f.Memory.Swap(ctx, c); return err })
	return e, err
}

func (f *faulty) Create(ctx context.Context, c ledger.Change) (e ledger.Entry, err error) {
	err = f.around("create", c.Entry.Identity, func() error { e, err = f.Memory.Create(ctx, c); return err })
	return e, err
}

func (f *faulty) Record(ctx context.Context, a ledger.Act) error {
	if f.record != nil {
		return f.record
	}
	return f.Memory.Record(ctx, a)
}

// refuses makes the ledger refuse for ever what is written over the first n entries.
func (w *world) refuses(n int) {
	w.ledger.before = func(verb string, id ledger.Identity) error {
		if verb == "swap" && id.ReminderID < identity(n).ReminderID {
			return errors.New("refused for ever")
		}
		return nil
	}
}

// first runs do at the first time that a verb comes for an entry.
func first(verb string, n int, do func() error) func(string, ledger.Identity) error {
	var once atomic.Bool
	return func(v string, id ledger.Identity) error {
		if v == verb && id == identity(n) && !once.Swap(true) {
			return do()
		}
		return nil
	}
}
