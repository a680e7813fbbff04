package redrive_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/redrive"
)

const (
	lease = 30 * time.Second
	poll  = 500 * time.Millisecond
	most  = 3
)

// world is one ledger in memory and as many replicas as a test wants, inside a synctest bubble whose clock is
// everybody's.
type world struct {
	t      *testing.T
	memory *dbtest.Memory
	ledger *faulty

	mu       sync.Mutex
	contract ledger.ContractKind
	failover ledger.Failover
	read     func(dead ledger.Entry, raw []byte) (ledger.Identity, []string, error)
	turned   map[string]int
	failures []error
	tokens   atomic.Int64
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := dbtest.NewMemory(time.Now)
		f(t, &world{t: t, memory: memory, ledger: &faulty{Memory: memory}, contract: ledger.Blind, turned: map[string]int{}})
	})
}

func (w *world) replica(changes ...func(*redrive.Options)) *redrive.Desk {
	o := redrive.Options{
		Ledger: w.ledger, Letters: w.ledger, Book: w.ledger, Reader: w, Epochs: w,
		Rules: w.rules, Admit: admit,
		Most: most, Running: 100, Lease: lease, Poll: poll, Clock: time.Now, Draw: func() float64 { return 0.5 },
		Token:  func() string { return fmt.Sprintf("token-%d", w.tokens.Add(1)) },
		Turned: func(result string) { w.mu.Lock(); defer w.mu.Unlock(); w.turned[result]++ },
		Failed: func(err error) { w.mu.Lock(); defer w.mu.Unlock(); w.failures = append(w.failures, err) },
	}
	for _, change := range changes {
		change(&o)
	}
	return redrive.New(o)
}

func (w *world) rules(ledger.Entry) ledger.Rules {
	route := ledger.Route{Provider: "mail", Fingerprint: "mail-1", Contract: ledger.Contract{Kind: w.contract, Window: 24 * time.Hour}}
	return ledger.Rules{Lease: lease, Margin: 3 * time.Second, Channel: route, Bound: route, MaxAttempts: 6, MaxLapses: 5}
}

func admit(e ledger.Entry, now time.Time) ledger.Admission {
	if !e.Deadline.IsZero() && !now.Before(e.Deadline) {
		return ledger.Admission{Refusal: ledger.Dropped, Reason: ledger.ReasonExpired}
	}
	return ledger.Admission{}
}

func (w *world) Failover(context.Context, string) (ledger.Failover, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failover, nil
}

// Reread brings what a test says that the message is into the ledger, once.
func (w *world) Reread(ctx context.Context, dead ledger.Entry, raw []byte, by, job string) (ledger.Entry, []string, error) {
	id, faults, err := w.read(dead, raw)
	if err != nil || faults != nil {
		return ledger.Entry{}, faults, err
	}
	e := letter(id)
	e.State, e.Class, e.Reason, e.Owner = ledger.Waiting, "", ledger.ReasonRedriven, ledger.OwnerLedger
	e.Due, e.Wake = ledger.In(0), ledger.In(0)
	stands, err := w.ledger.Create(ctx, ledger.Change{Entry: e})
	if errors.Is(err, ledger.ErrExists) {
		seen, err := w.memory.Load(ctx, id)
		return seen.Entry, nil, err
	}
	return stands, nil, err
}

// runs lets desks run until the returned function is called.
func (w *world) runs(desks ...*redrive.Desk) (stop func()) {
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

func identity(n int) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("rem-%03d", n), Type: "seat", Channel: "email"}
}

// letter is a dead letter as it is put into the ledger.
func letter(id ledger.Identity) ledger.Entry {
	return ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "hash", State: ledger.Dead, Class: ledger.ClassExhausted,
		Reason: ledger.ReasonBudgetSpent, Provider: "mail", Fingerprint: "mail-1", Published: time.Now(), Source: "queue",
		Spent: 6, Attempts: 6,
	}
}

func (w *world) die(id ledger.Identity, changes ...func(*ledger.Entry)) ledger.Entry {
	w.t.Helper()
	e := letter(id)
	for _, change := range changes {
		change(&e)
	}
	payload := &ledger.Payload{Recipient: "ada@example.org", Content: []byte(`{}`), Raw: []byte("raw " + id.ReminderID)}
	stands, err := w.memory.Create(w.t.Context(), ledger.Change{Entry: e, Payload: payload})
	if err != nil {
		w.t.Fatal(err)
	}
	return stands
}

func (w *world) dead(n int) {
	w.t.Helper()
	for i := range n {
		w.die(identity(i))
	}
}

func (w *world) entry(id ledger.Identity) ledger.Entry {
	w.t.Helper()
	seen, err := w.memory.Load(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return seen.Entry
}

// sends settles what waits, as the worker would.
func (w *world) sends(ids ...ledger.Identity) {
	w.t.Helper()
	for _, id := range ids {
		e := w.entry(id)
		if e.State != ledger.Waiting {
			w.t.Fatalf("%s: %s", id.ReminderID, e.State)
		}
		e.State, e.Reason, e.Receipt, e.Due, e.Wake = ledger.Sent, ledger.ReasonAccepted, "r", ledger.Moment{}, ledger.Moment{}
		if _, err := w.memory.Swap(w.t.Context(), ledger.Change{Entry: e}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// reopened counts how often redrives put an entry to work.
func (w *world) reopened(id ledger.Identity) (n int) {
	w.t.Helper()
	timeline, err := w.memory.Timeline(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, line := range timeline {
		if line.Origin == ledger.OriginRedrive {
			n++
		}
	}
	return n
}

func ask(key string, changes ...func(*ledger.RedriveRequest)) ledger.RedriveRequest {
	r := ledger.RedriveRequest{
		Filter: ledger.Query{Class: ledger.ClassExhausted}, Limit: 1000, Rate: 10, Key: key, Hash: "hash", Asked: `{}`,
		Act: ledger.Act{By: "ada", Role: "operator", Why: "the provider is back"},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func rate(r float64) func(*ledger.RedriveRequest) {
	return func(ask *ledger.RedriveRequest) { ask.Rate = r }
}

func byName(ids ...ledger.Identity) func(*ledger.RedriveRequest) {
	return func(ask *ledger.RedriveRequest) { ask.IDs = ids }
}

func (w *world) start(d *redrive.Desk, ask ledger.RedriveRequest) ledger.Redrive {
	w.t.Helper()
	r, err := d.Start(w.t.Context(), ask)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) show(id string) ledger.RedriveReport {
	w.t.Helper()
	report, err := w.replica().Show(w.t.Context(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// finish works on everything that is laid out.
func (w *world) finish(d *redrive.Desk) {
	w.t.Helper()
	for range 1000 {
		if worked, err := d.Next(w.t.Context()); !worked && err == nil {
			return // what fails is gone on with
		}
	}
	w.t.Fatal("there is no end to the work")
}

// faulty is the ledger as a test breaks it.
type faulty struct {
	*dbtest.Memory
	mu     sync.Mutex
	before func(what string) error // fails a write before it happens
	after  func(what string) error // loses the reply of a write that happened
}

func (f *faulty) broken(hook func(string) error, what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(what)
}

func (f *faulty) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if err := f.broken(f.before, "swap "+c.Entry.ReminderID); err != nil {
		return ledger.Entry{}, err
	}
	e, err := f.Memory.Swap(ctx, c)
	if lost := f.broken(f.after, "swap "+c.Entry.ReminderID); err == nil && lost != nil {
		return ledger.Entry{}, lost
	}
	return e, err
}

func (f *faulty) SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error {
	if err := f.broken(f.before, fmt.Sprint("settle ", item.Place)); err != nil {
		return err
	}
	err := f.Memory.SettleItem(ctx, holder, item)
	return errors.Join(err, f.broken(f.after, fmt.Sprint("settle ", item.Place)))
}

func (f *faulty) CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error) {
	stands, err := f.Memory.CreateRedrive(ctx, r, items, act)
	if lost := f.broken(f.after, "create"); err == nil && lost != nil {
		return ledger.Redrive{}, lost
	}
	return stands, err
}
