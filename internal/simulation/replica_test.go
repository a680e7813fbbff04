package simulation_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
)

const (
	lease          = 30 * time.Second
	margin         = 3 * time.Second
	takeoverAfter  = 2 * time.Minute
	deadline       = 20 * time.Minute
	failoverWindow = time.Minute // how long before a failover commits may be lost
	longestMemory  = 400 * 24 * time.Hour
)

// replica is one life of one process. Faults are injected between it and the ledger.
type replica struct {
	sim          *simulation
	name         string
	rnd          *randSource
	deliverer    *deliver.Deliverer
	reconciler   *reconcile.Reconciler
	redriver     *redrive.Redriver
	purger       *retention.Purger
	pool         *provider.Pool
	worker       sync.WaitGroup
	stop         context.CancelFunc
	gatesRead    atomic.Bool // it has loaded the gates
	crashed      atomic.Bool
	settleFailed atomic.Bool // recording an outcome failed for so long that the lease was left to expire
	memory       time.Duration
}

func (sim *simulation) start(c config) *replica {
	life := len(sim.allReplicas) + 1
	r := &replica{sim: sim, name: fmt.Sprintf("d%d", life), rnd: sim.rand(replicaActor + life), memory: sim.retention.Entry}
	if life%2 == 0 {
		r.memory = longestMemory // replicas differ, and one may be started again with more memory than the ledger has
	}
	sim.mu.Lock()
	sim.allReplicas = append(sim.allReplicas, r)
	sim.mu.Unlock()
	var limits []provider.LimitedProvider
	for i, p := range c.providers {
		timeout := []time.Duration{10 * time.Second, 25 * time.Second}[(i+life)%2]
		limits = append(limits, provider.LimitedProvider{Provider: p, Timeout: timeout, Concurrency: 2})
	}
	var err error
	if r.pool, err = provider.NewPool(r, provider.Options{Rules: ledger.DefaultGateRules(lease), Refresh: time.Second + r.rnd.upTo(time.Second)}, limits...); err != nil {
		panic(err)
	}
	r.deliverer = deliver.New(delivererOptions(r, r.pool, c.channels, c.onUnknown, r.name))
	failovers := reconcile.NewFailoverDetector(r, failoverWindow, nil)
	r.deliverer.Failovers, r.deliverer.LookupSchedule, r.deliverer.Memory.Span = failovers, lookupSchedule(), r.memory
	r.deliverer.Slots, r.deliverer.Sender = r, r
	r.deliverer.Clock = func() time.Time { r.mayPause(6); return time.Now() }
	r.deliverer.Random = r.rnd.float
	r.deliverer.OnSettled = func(_ context.Context, _ ledger.Reply, err error) { r.taskDone(err) }
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	worker := &deliver.Worker{Due: r, Capacity: r.pool, Processor: r, Poll: 2 * time.Second, Random: r.rnd.float}
	r.reconciler = newReconciler(r, lookupPool{r.pool, r}, r, r.deliverer, failovers, 10*time.Second)
	r.redriver, r.purger = r.newRedriver(failovers), r.newPurger()
	r.worker.Go(func() { r.redriver.Run(ctx) })
	r.worker.Go(func() { r.purger.Run(ctx) })
	r.worker.Go(func() { r.reconciler.Run(ctx) })
	r.worker.Go(func() { r.pool.Run(ctx) })
	r.worker.Go(func() { worker.Run(ctx) })
	return r
}

// lookupSchedule returns the waits before each lookup.
func lookupSchedule() []time.Duration {
	return []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 4 * time.Minute}
}

// delivererStore is the store as a deliverer needs it, with the relevance check.
type delivererStore interface {
	deliver.Ledger
	deliver.DetailStore
	deliver.ReminderIndex
	deliver.Relevance
}

// delivererOptions returns the options that all deliverers here have in common. Tokens begin with the replica's
// name.
func delivererOptions(s delivererStore, pool *provider.Pool, channels map[string]string, onUnknown ledger.OnUnknown, name string) deliver.Options {
	kind := policy.Type{MaxAttempts: 4, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: deadline, OnUnknown: onUnknown}
	checked := kind
	checked.CheckRelevance = true
	var tokens atomic.Int64
	return deliver.Options{
		Ledger: s, Details: s, Reminders: s, Relevance: s, Slots: pool, Sender: pool, Routes: pool,
		Lease: lease, Margin: margin, Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types:    map[string]policy.Type{"default": kind, "asked": checked},
		Channels: channels,
		Sources: map[string]deliver.Source{
			"queue":   {RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeoverAfter, AnswerWithin: 9 * time.Second},
			"ordered": {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
			"buried":  {RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeoverAfter, AnswerWithin: 9 * time.Second, DeadLetters: true},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now,
		Random:  func() float64 { return .5 },
		Token:   func() string { return fmt.Sprintf("%s.%d", name, tokens.Add(1)) },
	}
}

// reconcilerStore is the store as a reconciler needs it.
type reconcilerStore interface {
	reconcile.Ledger
	reconcile.RecordStore
	reconcile.WorkLister
	reconcile.EpochStore
}

func newReconciler(s reconcilerStore, providers reconcile.Providers, processor reconcile.Processor, d *deliver.Deliverer, f *reconcile.FailoverDetector, every time.Duration) *reconcile.Reconciler {
	return reconcile.New(reconcile.Options{
		Ledger: s, Records: s, Work: s, Processor: processor, Providers: providers, Rules: d.Rules,
		Failovers: f, Interval: every, Clock: time.Now, Token: d.Token, Random: d.Random,
	})
}

// crash ends the replica at once: nothing that it still does has an effect.
func (r *replica) crash() {
	if !r.crashed.Swap(true) {
		r.sim.record(replicaCrashed, r.name)
	}
}

// alive blocks a crashed replica until the run is over.
func (r *replica) alive() error {
	if r.crashed.Load() {
		<-r.sim.done
		return errCrashed
	}
	return nil
}

// taskDone checks the error with which a task ended.
func (r *replica) taskDone(err error) {
	if err != nil && strings.Contains(err.Error(), "settling an attempt failed") {
		r.settleFailed.Store(true)
	}
	if err != nil && strings.Contains(err.Error(), "panic of type") {
		r.sim.violate("%s: %v", r.name, err)
	}
}

// mayPause sometimes pauses the replica, like a process that is not scheduled.
func (r *replica) mayPause(permille int) {
	if r.sim.faulty.Load() && r.rnd.intN(1000) < permille {
		r.sim.record(replicaPaused, r.name)
		time.Sleep(r.rnd.upTo(90 * time.Second))
	}
	_ = r.alive()
}

// Process implements [deliver.Processor] for the worker.
func (r *replica) Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	reply, err := r.deliverer.Process(ctx, id)
	r.taskDone(err)
	return reply, err
}

// Acquire checks that no slot is given at a gate that the replica knows to be closed. A gate that opens or closes
// while a task waits for a slot is not checked.
func (r *replica) Acquire(ctx context.Context, name string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	before, started := r.knowsClosed(name), time.Now()
	slot, done := r.pool.Acquire(ctx, name)
	switch {
	case slot.Reason == ledger.ReasonGateClosed:
		r.sim.count(gatesMet, 1)
	case slot.Held && !r.gatesRead.Load():
		r.sim.violate("%s calls %s before it has loaded the gates", r.name, name)
	case slot.Held && before && time.Now().Equal(started) && r.knowsClosed(name):
		r.sim.violate("%s calls %s through a closed gate", r.name, name)
	}
	return slot, done
}

// knowsClosed reports whether the replica knows that a gate is closed, by the ledger's clock and beyond any jump of
// it.
func (r *replica) knowsClosed(name string) bool {
	for _, s := range r.pool.Status() {
		if s.Name == name && s.Gate.Paused {
			return true
		}
		if until, fixed := s.Gate.ClosedUntil.Fixed(); s.Name == name && fixed {
			return until.Sub(r.sim.now()) > maxJump
		}
	}
	return false
}

// Send is a point at which the replica may crash between the claim and the call, or between the call and the
// settle.
func (r *replica) Send(ctx context.Context, name string, s ledger.Shipment) ledger.Outcome {
	if r.alive() != nil {
		return ledger.Outcome{Result: ledger.ResultNotCalled}
	}
	o := r.pool.Send(ctx, name, s)
	if o.Result != ledger.ResultNotCalled {
		r.sim.mu.Lock()
		r.sim.outcomes[outcomeKey{s.Identity, r}]++
		r.sim.mu.Unlock()
	}
	r.mayPause(20)
	return o
}

// lookupPool is a point at which the replica may crash between a lookup and the record of its result.
type lookupPool struct {
	*provider.Pool
	r *replica
}

func (p lookupPool) Lookup(ctx context.Context, name, sendKey string) (ledger.LookupResult, ledger.Outcome) {
	if p.r.alive() != nil {
		return ledger.LookupUnanswered, ledger.Outcome{}
	}
	result, o := p.Pool.Lookup(ctx, name, sendKey)
	p.r.mayPause(20)
	_ = p.r.mayCrash(p.r.sim.permille.crashes, "lookup")
	return result, o
}

// Check implements the check whether a reminder is still wanted.
func (r *replica) Check(_ context.Context, e ledger.Entry) ledger.Relevance {
	if r.sim.faulty.Load() {
		time.Sleep(r.rnd.upTo(12 * time.Second))
		switch r.rnd.intN(10) {
		case 0:
			r.sim.record(notWanted, e.ReminderID)
			return ledger.RelevanceNotWanted
		case 1, 2:
			r.sim.record(relevanceUnanswered, e.ReminderID)
			return ledger.RelevanceUnanswered
		}
	}
	_ = r.alive()
	return ledger.RelevanceWanted
}

var (
	_ deliver.DueLister = (*replica)(nil)
	_ deliver.Processor = (*replica)(nil)
	_ deliver.Slots     = (*replica)(nil)
	_ provider.Gates    = (*replica)(nil)
)
