package simulation_test

import (
	"context"
	"errors"
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
)

const (
	lease    = 30 * time.Second
	margin   = 3 * time.Second
	takeover = 2 * time.Minute
	deadline = 20 * time.Minute
)

var (
	errAway = errors.New("the ledger is away")
	errLost = errors.New("the reply of a commit is lost")
	errDead = errors.New("this replica is no more")
)

// replica is one life of one process, with a ledger that it reaches through trouble.
type replica struct {
	w       *world
	name    string
	luck    *dice
	desk    *deliver.Desk
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
	w.everybody = append(w.everybody, r)
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
	r.desk.Slots, r.desk.Sender = r, r
	r.desk.Clock = func() time.Time { r.pause(6); return time.Now() }
	r.desk.Draw = r.luck.float
	r.desk.Settled = func(_ context.Context, _ ledger.Reply, err error) { r.gives(err) }
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	worker := &deliver.Worker{Agenda: r, Capacity: r.fleet, Visitor: r, Poll: 2 * time.Second}
	sweep := sweeper(r, r.fleet, r, r.desk, 10*time.Second)
	r.worker.Go(func() { sweep.Run(ctx) })
	r.worker.Go(func() { r.fleet.Run(ctx) })
	r.worker.Go(func() { worker.Run(ctx) })
	return r
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
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now,
		Draw:    func() float64 { return .5 },
		Token:   func() string { return fmt.Sprintf("%s.%d", name, tokens.Add(1)) },
	}
}

// swept is a ledger as a sweep needs it.
type swept interface {
	reconcile.Ledger
	reconcile.Records
	reconcile.Agenda
	reconcile.EpochLog
}

func sweeper(s swept, fleet *provider.Fleet, visitor reconcile.Visitor, d *deliver.Desk, every time.Duration) *reconcile.Desk {
	var tokens atomic.Int64
	return reconcile.New(reconcile.Options{
		Ledger: s, Records: s, Agenda: s, Visitor: visitor, Providers: fleet, Rules: d.Rules,
		Failovers: reconcile.NewFailovers(s, 10*time.Minute, nil),
		Sweep:     every, Clock: time.Now, Token: func() string { return fmt.Sprintf("act.%d", tokens.Add(1)) },
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

// befalls draws whether a fault meets a statement, and tells of it.
func (r *replica) befalls(permille int, kind fault, statement string) bool {
	if r.luck.roll(1000) >= permille {
		return false
	}
	r.w.fire(kind, r.name+" "+statement)
	return true
}

// before is the way to the ledger.
func (r *replica) before(statement string) error {
	if err := r.alive(); err != nil || !r.w.trouble.Load() {
		return err
	}
	switch {
	case r.befalls(r.w.perMille.away, away, statement):
		return errAway
	case r.befalls(5, stalled, statement):
		time.Sleep(r.luck.upTo(time.Minute))
	case r.befalls(300, slow, statement):
		time.Sleep(r.luck.upTo(200 * time.Millisecond))
	}
	return r.mortal(r.w.perMille.crashes)
}

// after is the way back.
func (r *replica) after(statement string, err error) error {
	if dead := r.alive(); dead != nil || !r.w.trouble.Load() {
		return errors.Join(dead, err)
	}
	switch {
	case err != nil:
	case r.befalls(r.w.perMille.lost, lost, statement):
		err = errLost
	case r.befalls(5, stalled, statement):
		time.Sleep(r.luck.upTo(time.Minute))
	}
	if dead := r.mortal(r.w.perMille.crashes); dead != nil {
		return dead
	}
	return err
}

func (r *replica) mortal(permille int) error {
	if r.luck.roll(1000) < permille {
		r.crash()
	}
	return r.alive()
}

// through is one statement about an entry or a gate.
func through[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	if err := r.before(statement); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	got, err := do()
	r.judge(ctx, statement, err)
	if err = r.after(statement, err); err != nil {
		return none, err
	}
	return got, nil
}

// glance is one of the many statements that look whether there is anything to do: it meets little trouble,
// so that a run's trouble meets what matters.
func glance[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	if r.w.trouble.Load() {
		switch {
		case r.befalls((r.w.perMille.away+r.w.perMille.lost)/4, blind, statement):
			return none, errAway
		case r.befalls(1, stalled, statement):
			time.Sleep(r.luck.upTo(time.Minute))
		case r.befalls(30, slow, statement):
			time.Sleep(r.luck.upTo(200 * time.Millisecond))
		}
		_ = r.mortal(r.w.perMille.crashes / 8)
	}
	if err := r.alive(); err != nil {
		return none, err
	}
	got, err := do()
	r.judge(ctx, statement, err)
	return got, errors.Join(err, r.alive())
}

// judge knows that the ledger itself never fails here: what it refuses, no schema would take.
func (r *replica) judge(ctx context.Context, statement string, err error) {
	for _, own := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == own {
			return
		}
	}
	if ctx.Err() == nil {
		r.w.breaks("%s %s: the ledger refuses it: %v", r.name, statement, err)
	}
}

// dated is what comes with the ledger's now.
type dated[T any] struct {
	it  T
	now time.Time
}

func (r *replica) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return through(ctx, r, "create "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		return r.w.witness(c, func() (ledger.Entry, error) { return r.w.ledger.Create(ctx, c) })
	})
}

func (r *replica) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return through(ctx, r, "swap "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		return r.w.witness(c, func() (ledger.Entry, error) { return r.w.ledger.Swap(ctx, c) })
	})
}

func (r *replica) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	return through(ctx, r, "load "+id.ReminderID, func() (ledger.Reading, error) { return r.w.ledger.Load(ctx, id) })
}

func (r *replica) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	return through(ctx, r, "story "+id.ReminderID, func() (ledger.Story, error) { return r.w.ledger.Story(ctx, id) })
}

func (r *replica) Record(ctx context.Context, a ledger.Act) error {
	_, err := through(ctx, r, "record "+a.Verb, func() (struct{}, error) { return struct{}{}, r.w.ledger.Record(ctx, a) })
	return err
}

func (r *replica) Epoch(ctx context.Context) (string, error) {
	return glance(ctx, r, "epoch", func() (string, error) { return r.w.ledger.Epoch(ctx) })
}

func (r *replica) Notice(ctx context.Context, epoch string, again bool) (time.Time, error) {
	return through(ctx, r, "notice "+epoch, func() (time.Time, error) { return r.w.ledger.Notice(ctx, epoch, again) })
}

func (r *replica) Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "asks", func() ([]ledger.Identity, error) { return r.w.ledger.Asks(ctx, provider, limit) })
}

func (r *replica) Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error) {
	return glance(ctx, r, "unknown", func() ([]ledger.Entry, error) { return r.w.ledger.Unknown(ctx, after, limit) })
}

func (r *replica) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	return through(ctx, r, "payload "+id.ReminderID, func() (ledger.Payload, error) { return r.w.ledger.Payload(ctx, id) })
}

func (r *replica) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	return through(ctx, r, "timeline "+id.ReminderID, func() ([]ledger.Event, error) { return r.w.ledger.Timeline(ctx, id) })
}

func (r *replica) RecordConflict(ctx context.Context, c ledger.Conflict) (bool, error) {
	return through(ctx, r, "recordconflict "+c.ReminderID, func() (bool, error) { return r.w.ledger.RecordConflict(ctx, c) })
}

func (r *replica) ByReminder(ctx context.Context, id string) ([]ledger.Entry, error) {
	return through(ctx, r, "byreminder "+id, func() ([]ledger.Entry, error) { return r.w.ledger.ByReminder(ctx, id) })
}

func (r *replica) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "due", func() ([]ledger.Identity, error) { return r.w.ledger.Due(ctx, provider, limit) })
}

func (r *replica) Lanes(ctx context.Context) ([]string, error) {
	return glance(ctx, r, "lanes", func() ([]string, error) { return r.w.ledger.Lanes(ctx) })
}

func (r *replica) Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "lapsed", func() ([]ledger.Identity, error) { return r.w.ledger.Lapsed(ctx, within, limit) })
}

func (r *replica) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	got, err := glance(ctx, r, "gates", func() (got dated[[]ledger.Gate], err error) {
		got.it, got.now, err = r.w.ledger.Gates(ctx)
		return got, err
	})
	if err == nil {
		r.looked.Store(true)
	}
	return got.it, got.now, err
}

func (r *replica) SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	return through(ctx, r, "swapgate "+g.Provider, func() (ledger.Gate, error) { return r.w.ledger.SwapGate(ctx, g) })
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
