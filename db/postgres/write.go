package postgres

import (
	"context"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Create inserts an entry with its payload and its first event, unless the identity exists
// ([ledger.ErrExists]). It returns the entry as stored.
func (s *Store) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	var row pgsql.CreateEntryRow
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = q.CreateEntry(ctx, createParams(c))
		return none(err, ledger.ErrExists)
	})
	if err != nil {
		return ledger.Entry{}, err
	}
	return entryOf(pgsql.Entry(row)), nil
}

// Swap writes an entry over the version that was read, with its event and the act that caused it, unless
// another write was faster ([ledger.ErrStale]). It returns the entry as stored.
func (s *Store) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	var row pgsql.SwapEntryRow
	swap := func(q *pgsql.Queries) (err error) {
		row, err = q.SwapEntry(ctx, swapParams(c))
		return none(err, ledger.ErrStale)
	}
	var err error
	if c.Act == nil && c.Forget == ledger.ForgetNothing {
		err = s.do(ctx, swap)
	} else {
		err = s.commit(ctx, func(q *pgsql.Queries) error {
			if err := swap(q); err != nil {
				return err
			}
			if c.Act != nil {
				if err := q.AddAct(ctx, actParams(*c.Act)); err != nil {
					return err
				}
			}
			return forget(ctx, q, c)
		})
	}
	if err != nil {
		return ledger.Entry{}, err
	}
	return entryOf(pgsql.Entry(row)), nil
}

// forget takes out what a change says is to go.
func forget(ctx context.Context, q *pgsql.Queries, c ledger.Change) error {
	id := c.Entry.Identity
	if c.Forget == ledger.ForgetNothing {
		return nil
	}
	if err := q.DeletePayload(ctx, pgsql.DeletePayloadParams(id)); err != nil || c.Forget == ledger.ForgetPayload {
		return err
	}
	if err := q.DeleteConflicts(ctx, pgsql.DeleteConflictsParams(id)); err != nil {
		return err
	}
	return q.ClearHash(ctx, pgsql.ClearHashParams{
		ReminderID: id.ReminderID, Type: id.Type, Channel: id.Channel, Version: c.Entry.Version + 1,
	})
}

// RecordConflict keeps other content that came under an identity, once per content hash; fresh tells
// whether it was new. Beside no entry, and beside one that a person was erased from, nothing is kept.
func (s *Store) RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error) {
	err = s.do(ctx, func(q *pgsql.Queries) error {
		added, err := q.AddConflict(ctx, pgsql.AddConflictParams{
			ReminderID: c.ReminderID, Type: c.Type, Channel: c.Channel,
			OtherHash: c.ContentHash, FromSource: c.Source, MessageID: c.MessageID,
		})
		fresh = added > 0
		return err
	})
	return fresh, err
}

// SwapGate writes a gate over the version that was read; version 0 is a gate that no store knows yet.
// [ledger.ErrStale] where another write was faster. It returns the gate as stored.
func (s *Store) SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	var row pgsql.Gate
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = swapGate(ctx, q, g)
		return err
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}

// SteerGate is [Store.SwapGate] for a person: the line of the audit is in the same commit, or nothing is.
func (s *Store) SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error) {
	var row pgsql.Gate
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = swapGate(ctx, q, g); err != nil {
			return err
		}
		return q.AddAct(ctx, actParams(act))
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}

func swapGate(ctx context.Context, q *pgsql.Queries, g ledger.Gate) (row pgsql.Gate, err error) {
	at, after := momentParams(g.ClosedUntil)
	if g.Version == 0 {
		row, err = q.CreateGate(ctx, pgsql.CreateGateParams{
			Provider: g.Provider, ClosedAt: at, ClosedAfter: after,
			Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes), Paused: g.Paused,
		})
	} else {
		row, err = q.SwapGate(ctx, pgsql.SwapGateParams{
			Provider: g.Provider, Version: g.Version, ClosedAt: at, ClosedAfter: after,
			Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes), Paused: g.Paused,
		})
	}
	return row, none(err, ledger.ErrStale)
}

// Record adds an act on no entry to the audit.
func (s *Store) Record(ctx context.Context, a ledger.Act) error {
	return s.do(ctx, func(q *pgsql.Queries) error { return q.AddAct(ctx, actParams(a)) })
}
