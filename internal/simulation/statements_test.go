package simulation_test

import (
	"context"
	"errors"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

var (
	errAway = errors.New("the ledger is away")
	errLost = errors.New("the reply of a commit is lost")
	errDead = errors.New("this replica is no more")
)

// befalls draws whether a fault meets a statement, and tells of it.
func (r *replica) befalls(permille int, kind fault, statement string) bool {
	if r.luck.roll(1000) >= permille {
		return false
	}
	r.w.fire(kind, r.name+" "+statement)
	r.w.befell(kind, statement)
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
	return r.mortal(r.w.perMille.crashes, statement)
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
	if dead := r.mortal(r.w.perMille.crashes, statement); dead != nil {
		return dead
	}
	return err
}

// mortal is a place where the replica may crash.
func (r *replica) mortal(permille int, statement string) error {
	if r.w.trouble.Load() && r.luck.roll(1000) < permille {
		r.crash()
		r.w.befell(crashed, statement)
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
		_ = r.mortal(r.w.perMille.crashes/8, statement)
	}
	if err := r.alive(); err != nil {
		return none, err
	}
	got, err := do()
	r.judge(ctx, statement, err)
	return got, errors.Join(err, r.alive())
}

// brisk is a statement whose caller holds a mutex meanwhile: nobody may sleep over it, since a bubble's clock
// stands still while anybody waits for a mutex.
func brisk[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	trouble := r.w.trouble.Load()
	if r.crashed.Load() || trouble && r.befalls(r.w.perMille.away, away, statement) {
		return none, errAway
	}
	got, err := do()
	r.judge(ctx, statement, err)
	if err == nil && trouble && r.befalls(r.w.perMille.lost, lost, statement) {
		return none, errLost
	}
	return got, err
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
		return r.w.witness(ctx, c, func(ctx context.Context, s dbtest.Store) (ledger.Entry, error) { return s.Create(ctx, c) })
	})
}

func (r *replica) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return through(ctx, r, "swap "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		return r.w.witness(ctx, c, func(ctx context.Context, s dbtest.Store) (ledger.Entry, error) { return s.Swap(ctx, c) })
	})
}

func (r *replica) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	return through(ctx, r, "load "+id.ReminderID, func() (ledger.Reading, error) { return r.w.store().Load(ctx, id) })
}

func (r *replica) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	return through(ctx, r, "story "+id.ReminderID, func() (ledger.Story, error) { return r.w.store().Story(ctx, id) })
}

func (r *replica) Record(ctx context.Context, a ledger.Act) error {
	_, err := brisk(ctx, r, "record "+a.Verb, func() (struct{}, error) {
		return commit(ctx, r.w, a.Identity, func(ctx context.Context, s dbtest.Store) (struct{}, error) { return struct{}{}, s.Record(ctx, a) })
	})
	return err
}

func (r *replica) Epoch(ctx context.Context) (string, error) {
	return glance(ctx, r, "epoch", func() (string, error) { return r.w.store().Epoch(ctx) })
}

func (r *replica) Notice(ctx context.Context, epoch string, again bool) (time.Time, error) {
	return brisk(ctx, r, "notice "+epoch, func() (time.Time, error) {
		return commit(ctx, r.w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (time.Time, error) { return s.Notice(ctx, epoch, again) })
	})
}

func (r *replica) Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "asks", func() ([]ledger.Identity, error) { return r.w.store().Asks(ctx, provider, limit) })
}

func (r *replica) Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error) {
	return glance(ctx, r, "unknown", func() ([]ledger.Entry, error) { return r.w.store().Unknown(ctx, after, limit) })
}

func (r *replica) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	return through(ctx, r, "payload "+id.ReminderID, func() (ledger.Payload, error) { return r.w.store().Payload(ctx, id) })
}

func (r *replica) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	return through(ctx, r, "timeline "+id.ReminderID, func() ([]ledger.Event, error) { return r.w.store().Timeline(ctx, id) })
}

func (r *replica) RecordConflict(ctx context.Context, c ledger.Conflict) (bool, error) {
	return through(ctx, r, "recordconflict "+c.ReminderID, func() (bool, error) {
		return commit(ctx, r.w, c.Identity, func(ctx context.Context, s dbtest.Store) (bool, error) { return s.RecordConflict(ctx, c) })
	})
}

func (r *replica) ByReminder(ctx context.Context, id string) ([]ledger.Entry, error) {
	return through(ctx, r, "byreminder "+id, func() ([]ledger.Entry, error) { return r.w.store().ByReminder(ctx, id) })
}

func (r *replica) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "due", func() ([]ledger.Identity, error) { return r.w.store().Due(ctx, provider, limit) })
}

func (r *replica) Lanes(ctx context.Context) ([]string, error) {
	return glance(ctx, r, "lanes", func() ([]string, error) { return r.w.store().Lanes(ctx) })
}

func (r *replica) Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	return glance(ctx, r, "lapsed", func() ([]ledger.Identity, error) { return r.w.store().Lapsed(ctx, within, limit) })
}

func (r *replica) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	got, err := glance(ctx, r, "gates", func() (got dated[[]ledger.Gate], err error) {
		got.it, got.now, err = r.w.store().Gates(ctx)
		return got, err
	})
	if err == nil {
		r.looked.Store(true)
	}
	return got.it, got.now, err
}

func (r *replica) SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	return through(ctx, r, "swapgate "+g.Provider, func() (ledger.Gate, error) {
		return commit(ctx, r.w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (ledger.Gate, error) { return s.SwapGate(ctx, g) })
	})
}

func (r *replica) SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error) {
	return through(ctx, r, "steergate "+g.Provider, func() (ledger.Gate, error) {
		return commit(ctx, r.w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (ledger.Gate, error) { return s.SteerGate(ctx, g, act) })
	})
}
