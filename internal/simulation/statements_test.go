package simulation_test

import (
	"context"
	"errors"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

var (
	errUnavailable = errors.New("the ledger is unavailable")
	errReplyLost   = errors.New("the reply of a commit is lost")
	errCrashed     = errors.New("this replica has crashed")
)

// inject draws whether a fault is injected into a statement, and records it.
func (r *replica) inject(permille int, kind fault, statement string) bool {
	if r.rnd.intN(1000) >= permille {
		return false
	}
	r.sim.record(kind, r.name+" "+statement)
	r.sim.recordComponentFault(kind, statement)
	return true
}

// beforeStatement injects faults before a statement reaches the ledger.
func (r *replica) beforeStatement(statement string) error {
	if err := r.alive(); err != nil || !r.sim.faulty.Load() {
		return err
	}
	switch {
	case r.inject(r.sim.permille.away, ledgerUnavailable, statement):
		return errUnavailable
	case r.inject(5, statementStalled, statement):
		time.Sleep(r.rnd.upTo(time.Minute))
	case r.inject(300, statementSlow, statement):
		time.Sleep(r.rnd.upTo(200 * time.Millisecond))
	}
	return r.mayCrash(r.sim.permille.crashes, statement)
}

// afterStatement injects faults after a statement, on the way back.
func (r *replica) afterStatement(statement string, err error) error {
	if dead := r.alive(); dead != nil || !r.sim.faulty.Load() {
		return errors.Join(dead, err)
	}
	switch {
	case err != nil:
	case r.inject(r.sim.permille.lost, replyLost, statement):
		err = errReplyLost
	case r.inject(5, statementStalled, statement):
		time.Sleep(r.rnd.upTo(time.Minute))
	}
	if dead := r.mayCrash(r.sim.permille.crashes, statement); dead != nil {
		return dead
	}
	return err
}

// mayCrash is a point at which the replica may crash.
func (r *replica) mayCrash(permille int, statement string) error {
	if r.sim.faulty.Load() && r.rnd.intN(1000) < permille {
		r.crash()
		r.sim.recordComponentFault(replicaCrashed, statement)
	}
	return r.alive()
}

// statement executes one statement about an entry, a redrive or a gate, with faults.
func statement[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	if err := r.beforeStatement(statement); err != nil {
		return none, err
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	got, err := do()
	r.checkError(ctx, statement, err)
	if err = r.afterStatement(statement, err); err != nil {
		return none, err
	}
	return got, nil
}

// poll executes one of the many statements that only look for work. It gets few faults, so that most of a run's
// faults hit the statements that matter.
func poll[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	if r.sim.faulty.Load() {
		switch {
		case r.inject((r.sim.permille.away+r.sim.permille.lost)/4, pollFailed, statement):
			return none, errUnavailable
		case r.inject(1, statementStalled, statement):
			time.Sleep(r.rnd.upTo(time.Minute))
		case r.inject(30, statementSlow, statement):
			time.Sleep(r.rnd.upTo(200 * time.Millisecond))
		}
		_ = r.mayCrash(r.sim.permille.crashes/8, statement)
	}
	if err := r.alive(); err != nil {
		return none, err
	}
	got, err := do()
	r.checkError(ctx, statement, err)
	return got, errors.Join(err, r.alive())
}

// statementUnderLock executes a statement whose caller holds a mutex. It must not sleep, since a bubble's clock
// stands still while a goroutine waits for a mutex.
func statementUnderLock[T any](ctx context.Context, r *replica, statement string, do func() (T, error)) (T, error) {
	var none T
	faulty := r.sim.faulty.Load()
	if r.crashed.Load() || faulty && r.inject(r.sim.permille.away, ledgerUnavailable, statement) {
		return none, errUnavailable
	}
	got, err := do()
	r.checkError(ctx, statement, err)
	if err == nil && faulty && r.inject(r.sim.permille.lost, replyLost, statement) {
		return none, errReplyLost
	}
	return got, err
}

// checkError checks that the ledger returns none but its own errors: here the store never fails, so any other error
// means that a schema would reject the write.
func (r *replica) checkError(ctx context.Context, statement string, err error) {
	for _, own := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == own {
			return
		}
	}
	if ctx.Err() == nil {
		r.sim.violate("%s %s: unexpected error of the ledger: %v", r.name, statement, err)
	}
}

// dated is a value with the ledger's now.
type dated[T any] struct {
	value T
	now   time.Time
}

func (r *replica) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return statement(ctx, r, "insert "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		return r.sim.checkedWrite(ctx, c, func(ctx context.Context, s storetest.Store) (ledger.Entry, error) { return s.Insert(ctx, c) })
	})
}

func (r *replica) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return statement(ctx, r, "update "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		return r.sim.checkedWrite(ctx, c, func(ctx context.Context, s storetest.Store) (ledger.Entry, error) { return s.Update(ctx, c) })
	})
}

func (r *replica) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	return statement(ctx, r, "load "+id.ReminderID, func() (ledger.Snapshot, error) { return r.sim.store().Load(ctx, id) })
}

func (r *replica) EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
	return statement(ctx, r, "entrydetail "+id.ReminderID, func() (ledger.EntryDetail, error) { return r.sim.store().EntryDetail(ctx, id) })
}

func (r *replica) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	_, err := statementUnderLock(ctx, r, "recordaudit "+a.Action, func() (struct{}, error) {
		return commit(ctx, r.sim, a.Identity, func(ctx context.Context, s storetest.Store) (struct{}, error) {
			return struct{}{}, s.RecordAudit(ctx, a)
		})
	})
	return err
}

func (r *replica) Epoch(ctx context.Context) (string, error) {
	return poll(ctx, r, "epoch", func() (string, error) { return r.sim.store().Epoch(ctx) })
}

func (r *replica) RecordEpoch(ctx context.Context, epoch string, again bool) (time.Time, error) {
	return statementUnderLock(ctx, r, "recordepoch "+epoch, func() (time.Time, error) {
		return commit(ctx, r.sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (time.Time, error) {
			return s.RecordEpoch(ctx, epoch, again)
		})
	})
}

func (r *replica) DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return poll(ctx, r, "duelookups", func() ([]ledger.Identity, error) { return r.sim.store().DueLookups(ctx, provider, limit) })
}

func (r *replica) Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error) {
	return poll(ctx, r, "unknown", func() ([]ledger.Entry, error) { return r.sim.store().Unknown(ctx, after, limit) })
}

func (r *replica) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	return statement(ctx, r, "payload "+id.ReminderID, func() (ledger.Payload, error) { return r.sim.store().Payload(ctx, id) })
}

func (r *replica) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error) {
	return statement(ctx, r, "timeline "+id.ReminderID, func() ([]ledger.TimelineEvent, error) { return r.sim.store().Timeline(ctx, id) })
}

func (r *replica) RecordConflict(ctx context.Context, c ledger.Conflict) (bool, error) {
	return statement(ctx, r, "recordconflict "+c.ReminderID, func() (bool, error) {
		return commit(ctx, r.sim, c.Identity, func(ctx context.Context, s storetest.Store) (bool, error) { return s.RecordConflict(ctx, c) })
	})
}

func (r *replica) ByReminder(ctx context.Context, id string) ([]ledger.Entry, error) {
	return statement(ctx, r, "byreminder "+id, func() ([]ledger.Entry, error) { return r.sim.store().ByReminder(ctx, id) })
}

func (r *replica) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return poll(ctx, r, "due", func() ([]ledger.Identity, error) { return r.sim.store().Due(ctx, provider, limit) })
}

func (r *replica) WaitingProviders(ctx context.Context) ([]string, error) {
	return poll(ctx, r, "waitingproviders", func() ([]string, error) { return r.sim.store().WaitingProviders(ctx) })
}

func (r *replica) ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	return poll(ctx, r, "expiredleases", func() ([]ledger.Identity, error) { return r.sim.store().ExpiredLeases(ctx, within, limit) })
}

func (r *replica) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	got, err := poll(ctx, r, "gates", func() (got dated[[]ledger.Gate], err error) {
		got.value, got.now, err = r.sim.store().Gates(ctx)
		return got, err
	})
	if err == nil {
		r.gatesRead.Store(true)
	}
	return got.value, got.now, err
}

func (r *replica) UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	return statement(ctx, r, "updategate "+g.Provider, func() (ledger.Gate, error) {
		return commit(ctx, r.sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (ledger.Gate, error) { return s.UpdateGate(ctx, g) })
	})
}

func (r *replica) UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error) {
	return statement(ctx, r, "updategatebyoperator "+g.Provider, func() (ledger.Gate, error) {
		return commit(ctx, r.sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (ledger.Gate, error) {
			return s.UpdateGateByOperator(ctx, g, audit)
		})
	})
}
