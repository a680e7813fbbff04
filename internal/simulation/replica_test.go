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
	lease    = 30 * time.Second
	margin   = 3 * time.Second
	takeover = 2 * time.Minute
	deadline = 20 * time.Minute
	forgets  = time.Minute // how long before a failover commits may be forgotten
)

// replica is one life of one process, with a ledger that it reaches through trouble.
type replica struct {
	w       *world
	name    string
	luck    *dice
	desk    *deliver.Desk
	sweep   *reconcile.Desk
	redrive *redrive.Desk
	keep    *retention.Desk
	fleet   *provider.Fleet
	worker  sync.WaitGroup
	stop    context.CancelFunc
	looked  atomic.Bool // it has read the gates
	crashed atomic.Bool
	gaveUp  atomic.Bool // an outcome could not be recorded for so long that it was left to the lease
}

func (w *world) start(p plan) *replica {
	life := len(w.everybody) + 1
	r := &replica{w: w, name: fmt.Sprintf("d%d", life), luck: w.dice(aReplica + life)}
	w.mu.Lock()
	w.everybody = append(w.everybody, r)
	w.mu.Unlock()
	var lanes []provider.Lane
	for i, account := range p.accounts {
		timeout := []time.Duration{10 * time.Second, 25 * time.Second}[(i+life)%2]
		lanes = append(lanes, provider.Lane{Provider: account, Timeout: timeout, Concurrency: 2})
	}
	var err error
	if r.fleet, err = provider.NewFleet(r, provider.Options{Rules: ledger.DefaultGateRules(lease), Refresh: time.Second + r.luck.upTo(time.Second)}, lanes...); err != nil {
		panic(err)
	}
	r.desk = deliver.New(desk(r, r.fleet, p.channels, p.onUnknown, r.name))
	failovers := reconcile.NewFailovers(r, forgets, nil)
	r.desk.Epochs, r.desk.Asks, r.desk.Memory.Span = failovers, asks(), w.keep.Entry
	r.desk.Slots, r.desk.Sender = r, r
	r.desk.Clock = func() time.Time { r.pause(6); return time.Now() }
	r.desk.Draw = r.luck.float
	r.desk.Settled = func(_ context.Context, _ ledger.Reply, err error) { r.gives(err) }
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	worker := &deliver.Worker{Agenda: r, Capacity: r.fleet, Visitor: r, Poll: 2 * time.Second, Draw: r.luck.float}
	r.sweep = sweeper(r, enquirer{r.fleet, r}, r, r.desk, failovers, 10*time.Second)
	r.redrive, r.keep = r.letterDesk(failovers), r.cellar()
	r.worker.Go(func() { r.redrive.Run(ctx) })
	r.worker.Go(func() { r.keep.Run(ctx) })
	r.worker.Go(func() { r.sweep.Run(ctx) })
	r.worker.Go(func() { r.fleet.Run(ctx) })
	r.worker.Go(func() { worker.Run(ctx) })
	return r
}

// asks are the waits before each question to a lookup provider.
func asks() []time.Duration {
	return []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 4 * time.Minute}
}

// store is a ledger as a desk needs it, with the question beside it.
type store interface {
	deliver.Ledger
	deliver.Archive
	deliver.Register
	deliver.Relevance
}

// desk is what all desks here have in common. Its tokens begin with the replica's name.
func desk(s store, fleet *provider.Fleet, channels map[string]string, onUnknown ledger.OnUnknown, name string) deliver.Options {
	kind := policy.Type{MaxAttempts: 4, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: deadline, OnUnknown: onUnknown}
	asked := kind
	asked.AsksRelevance = true
	var tokens atomic.Int64
	return deliver.Options{
		Ledger: s, Archive: s, Register: s, Relevance: s, Slots: fleet, Sender: fleet, Routes: fleet,
		Lease: lease, Margin: margin, Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types:    map[string]policy.Type{"default": kind, "asked": asked},
		Channels: channels,
		Sources: map[string]deliver.Source{
			"queue":   {RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeover, AnswerWithin: 9 * time.Second},
			"ordered": {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
			"buried":  {RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeover, AnswerWithin: 9 * time.Second, DeadLetters: true},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now,
		Draw:    func() float64 { return .5 },
		Token:   func() string { return fmt.Sprintf("%s.%d", name, tokens.Add(1)) },
	}
}

// lookedAfter is a ledger as a sweep needs it.
type lookedAfter interface {
	reconcile.Ledger
	reconcile.Records
	reconcile.Agenda
	reconcile.EpochLog
}

func sweeper(s lookedAfter, providers reconcile.Providers, visitor reconcile.Visitor, d *deliver.Desk, f *reconcile.Failovers, every time.Duration) *reconcile.Desk {
	return reconcile.New(reconcile.Options{
		Ledger: s, Records: s, Agenda: s, Visitor: visitor, Providers: providers, Rules: d.Rules,
		Failovers: f, Sweep: every, Clock: time.Now, Token: d.Token, Draw: d.Draw,
	})
}

// crash ends the replica on the spot: nothing that it still does has an effect.
func (r *replica) crash() {
	if !r.crashed.Swap(true) {
		r.w.fire(crashed, r.name)
	}
}

// alive stops a dead one for ever, which is until the run is over.
func (r *replica) alive() error {
	if r.crashed.Load() {
		<-r.w.over
		return errDead
	}
	return nil
}

// gives tells how a visit ended.
func (r *replica) gives(err error) {
	if err != nil && strings.Contains(err.Error(), "not settled") {
		r.gaveUp.Store(true)
	}
	if err != nil && strings.Contains(err.Error(), "panic of type") {
		r.w.breaks("%s: %v", r.name, err)
	}
}

// pause is a process that the scheduler forgot, now and then.
func (r *replica) pause(permille int) {
	if r.w.trouble.Load() && r.luck.roll(1000) < permille {
		r.w.fire(paused, r.name)
		time.Sleep(r.luck.upTo(90 * time.Second))
	}
	_ = r.alive()
}

// Visit is the worker's.
func (r *replica) Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	reply, err := r.desk.Visit(ctx, id)
	r.gives(err)
	return reply, err
}

// Take checks that nobody is let through a gate that is known to be closed. What opens or closes while a
// visit stands in line is not judged.
func (r *replica) Take(ctx context.Context, name string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	before, begun := r.closed(name), time.Now()
	slot, done := r.fleet.Take(ctx, name)
	switch {
	case slot.Reason == ledger.ReasonGateClosed:
		r.w.count(gates, 1)
	case slot.Held && !r.looked.Load():
		r.w.breaks("%s calls at %s before it has read the gates", r.name, name)
	case slot.Held && before && time.Now().Equal(begun) && r.closed(name):
		r.w.breaks("%s calls at %s through a closed gate", r.name, name)
	}
	return slot, done
}

// closed tells what the replica knows of a gate, by the ledger's true clock and in spite of its leaps.
func (r *replica) closed(name string) bool {
	for _, s := range r.fleet.Status() {
		if s.Name == name && s.Gate.Paused {
			return true
		}
		if until, fixed := s.Gate.ClosedUntil.Fixed(); s.Name == name && fixed {
			return until.Sub(r.w.now()) > farLeap
		}
	}
	return false
}

// Send is where a crash may fall between the claim and the wire, or between the wire and the settle.
func (r *replica) Send(ctx context.Context, name string, s ledger.Shipment) ledger.Outcome {
	if r.alive() != nil {
		return ledger.Outcome{Result: ledger.ResultNotCalled}
	}
	o := r.fleet.Send(ctx, name, s)
	if o.Result != ledger.ResultNotCalled {
		r.w.mu.Lock()
		r.w.heard[heard{s.Identity, r}]++
		r.w.mu.Unlock()
	}
	r.pause(20)
	return o
}

// enquirer is where a crash may fall between a question to a provider and the record of its answer.
type enquirer struct {
	*provider.Fleet
	r *replica
}

func (e enquirer) Ask(ctx context.Context, name, sendKey string) (ledger.Finding, ledger.Outcome) {
	if e.r.alive() != nil {
		return ledger.Unanswered, ledger.Outcome{}
	}
	finding, o := e.Fleet.Ask(ctx, name, sendKey)
	e.r.pause(20)
	_ = e.r.mortal(e.r.w.perMille.crashes, "ask")
	return finding, o
}

// Ask is the question whether it is still wanted.
func (r *replica) Ask(_ context.Context, e ledger.Entry) ledger.Relevance {
	if r.w.trouble.Load() {
		time.Sleep(r.luck.upTo(12 * time.Second))
		switch r.luck.roll(10) {
		case 0:
			r.w.fire(obsolete, e.ReminderID)
			return ledger.NotWanted
		case 1, 2:
			r.w.fire(unasked, e.ReminderID)
			return ledger.NoAnswer
		}
	}
	_ = r.alive()
	return ledger.StillWanted
}

var (
	_ deliver.Agenda  = (*replica)(nil)
	_ deliver.Visitor = (*replica)(nil)
	_ deliver.Slots   = (*replica)(nil)
	_ provider.Gates  = (*replica)(nil)
)
