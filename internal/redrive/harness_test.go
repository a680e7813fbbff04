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

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/redrive"
)

const (
	lease       = 30 * time.Second
	poll        = 500 * time.Millisecond
	maxRedrives = 3
)

// harness is one in-memory ledger for any number of replicas, inside a synctest bubble whose clock all of them use.
type harness struct {
	t      *testing.T
	memory *storetest.Memory
	ledger *faultyLedger

	mu       sync.Mutex
	contract ledger.ContractKind
	failover ledger.Failover
	reparse  func(dead ledger.Entry, raw []byte) (ledger.Identity, []string, error)
	results  map[string]int
	failures []error
	tokens   atomic.Int64
}

func bubble(t *testing.T, f func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		memory := storetest.NewMemory(time.Now)
		f(t, &harness{t: t, memory: memory, ledger: &faultyLedger{Memory: memory}, contract: ledger.ContractBlind, results: map[string]int{}})
	})
}

func (h *harness) newRedriver(changes ...func(*redrive.Options)) *redrive.Redriver {
	o := redrive.Options{
		Ledger: h.ledger, DeadLetters: h.ledger, Redrives: h.ledger, Reparser: h, Failovers: h,
		Rules: h.rules, Admit: admit,
		MaxRedrives: maxRedrives, MaxRunning: 100, Lease: lease, Poll: poll, Clock: time.Now, Random: func() float64 { return 0.5 },
		Token:      func() string { return fmt.Sprintf("token-%d", h.tokens.Add(1)) },
		OnItemDone: func(result string) { h.mu.Lock(); defer h.mu.Unlock(); h.results[result]++ },
		OnError:    func(err error) { h.mu.Lock(); defer h.mu.Unlock(); h.failures = append(h.failures, err) },
	}
	for _, change := range changes {
		change(&o)
	}
	return redrive.New(o)
}

func (h *harness) rules(ledger.Entry) ledger.Rules {
	route := ledger.Route{Provider: "mail", Fingerprint: "mail-1", Contract: ledger.Contract{Kind: h.contract, Window: 24 * time.Hour}}
	return ledger.Rules{Lease: lease, Margin: 3 * time.Second, ChannelRoute: route, BoundRoute: route, MaxAttempts: 6, MaxLeaseExpirations: 5}
}

func admit(e ledger.Entry, now time.Time) ledger.Admission {
	if !e.Deadline.IsZero() && !now.Before(e.Deadline) {
		return ledger.Admission{State: ledger.Dropped, Reason: ledger.ReasonExpired}
	}
	return ledger.Admission{}
}

func (h *harness) Failover(context.Context, string) (ledger.Failover, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failover, nil
}

// Reparse inserts an entry under the identity that the test's function returns for the message, once.
func (h *harness) Reparse(ctx context.Context, dead ledger.Entry, raw []byte, actor, redriveID string) (ledger.Entry, []string, error) {
	id, faults, err := h.reparse(dead, raw)
	if err != nil || faults != nil {
		return ledger.Entry{}, faults, err
	}
	e := deadLetter(id)
	e.State, e.Class, e.Reason, e.Owner = ledger.Waiting, "", ledger.ReasonRedriven, ledger.OwnerLedger
	e.Due, e.Wake = ledger.In(0), ledger.In(0)
	stored, err := h.ledger.Insert(ctx, ledger.Change{Entry: e})
	if errors.Is(err, ledger.ErrExists) {
		snap, err := h.memory.Load(ctx, id)
		return snap.Entry, nil, err
	}
	return stored, nil, err
}

// run runs redrivers until the returned function is called.
func (h *harness) run(redrivers ...*redrive.Redriver) (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	var all sync.WaitGroup
	for _, rd := range redrivers {
		all.Go(func() { rd.Run(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func identity(n int) ledger.Identity {
	return ledger.Identity{ReminderID: fmt.Sprintf("rem-%03d", n), Type: "seat", Channel: "email"}
}

// deadLetter returns a dead letter to insert.
func deadLetter(id ledger.Identity) ledger.Entry {
	return ledger.Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "hash", State: ledger.Dead, Class: ledger.ClassExhausted,
		Reason: ledger.ReasonBudgetSpent, Provider: "mail", Fingerprint: "mail-1", Published: time.Now(), Source: "queue",
		BudgetUsed: 6, Attempts: 6,
	}
}

func (h *harness) insertDead(id ledger.Identity, changes ...func(*ledger.Entry)) ledger.Entry {
	h.t.Helper()
	e := deadLetter(id)
	for _, change := range changes {
		change(&e)
	}
	payload := &ledger.Payload{Recipient: "ada@example.org", Content: []byte(`{}`), Raw: []byte("raw " + id.ReminderID)}
	stored, err := h.memory.Insert(h.t.Context(), ledger.Change{Entry: e, Payload: payload})
	if err != nil {
		h.t.Fatal(err)
	}
	return stored
}

func (h *harness) insertDeadLetters(n int) {
	h.t.Helper()
	for i := range n {
		h.insertDead(identity(i))
	}
}

func (h *harness) entry(id ledger.Identity) ledger.Entry {
	h.t.Helper()
	snap, err := h.memory.Load(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return snap.Entry
}

// send marks waiting entries as sent, as the worker would.
func (h *harness) send(ids ...ledger.Identity) {
	h.t.Helper()
	for _, id := range ids {
		e := h.entry(id)
		if e.State != ledger.Waiting {
			h.t.Fatalf("%s: %s", id.ReminderID, e.State)
		}
		e.State, e.Reason, e.Receipt, e.Due, e.Wake = ledger.Sent, ledger.ReasonAccepted, "r", ledger.Moment{}, ledger.Moment{}
		if _, err := h.memory.Update(h.t.Context(), ledger.Change{Entry: e}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// redriven returns how often an entry was redriven.
func (h *harness) redriven(id ledger.Identity) (n int) {
	h.t.Helper()
	timeline, err := h.memory.Timeline(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, event := range timeline {
		if event.Origin == ledger.OriginRedrive {
			n++
		}
	}
	return n
}

func request(key string, changes ...func(*ledger.RedriveRequest)) ledger.RedriveRequest {
	r := ledger.RedriveRequest{
		Filter: ledger.Query{Class: ledger.ClassExhausted}, Limit: 1000, Rate: 10, IdempotencyKey: key, RequestHash: "hash", Request: `{}`,
		Audit: ledger.AuditEvent{Actor: "ada", Role: "operator", Reason: "the provider is back"},
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func rate(r float64) func(*ledger.RedriveRequest) {
	return func(req *ledger.RedriveRequest) { req.Rate = r }
}

func byName(ids ...ledger.Identity) func(*ledger.RedriveRequest) {
	return func(req *ledger.RedriveRequest) { req.IDs = ids }
}

func (h *harness) start(rd *redrive.Redriver, req ledger.RedriveRequest) ledger.Redrive {
	h.t.Helper()
	r, err := rd.Start(h.t.Context(), req)
	if err != nil {
		h.t.Fatal(err)
	}
	return r
}

func (h *harness) show(id string) ledger.RedriveReport {
	h.t.Helper()
	report, err := h.newRedriver().Show(h.t.Context(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return report
}

// finish works on redrives until none is left.
func (h *harness) finish(rd *redrive.Redriver) {
	h.t.Helper()
	for range 1000 {
		if worked, err := rd.Next(h.t.Context()); !worked && err == nil {
			return // after an error the redrive is continued
		}
	}
	h.t.Fatal("redrives are still running after 1000 steps")
}

// faultyLedger is a ledger whose operations the test can fail.
type faultyLedger struct {
	*storetest.Memory
	mu     sync.Mutex
	before func(op string) error // fails a write before it happens
	after  func(op string) error // loses the reply of a write that happened
}

func (f *faultyLedger) call(hook func(string) error, op string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

func (f *faultyLedger) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if err := f.call(f.before, "update "+c.Entry.ReminderID); err != nil {
		return ledger.Entry{}, err
	}
	e, err := f.Memory.Update(ctx, c)
	if lost := f.call(f.after, "update "+c.Entry.ReminderID); err == nil && lost != nil {
		return ledger.Entry{}, lost
	}
	return e, err
}

func (f *faultyLedger) SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error {
	if err := f.call(f.before, fmt.Sprint("set_result ", item.Position)); err != nil {
		return err
	}
	err := f.Memory.SetItemResult(ctx, holder, item)
	return errors.Join(err, f.call(f.after, fmt.Sprint("set_result ", item.Position)))
}

func (f *faultyLedger) InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error) {
	stored, err := f.Memory.InsertRedrive(ctx, r, items, audit)
	if lost := f.call(f.after, "insert"); err == nil && lost != nil {
		return ledger.Redrive{}, lost
	}
	return stored, err
}
