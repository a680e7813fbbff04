package sqlite

import (
	"context"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Create inserts an entry with its payload and its first event, unless the identity exists
// ([ledger.ErrExists]). It returns the entry as stored.
func (s *Store) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.put(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.CreateEntry(ctx, createParams(c.Entry))
		if err != nil {
			return row, none(err, ledger.ErrExists)
		}
		if c.Payload != nil {
			err = q.AddPayload(ctx, payloadParams(c.Entry.Identity, *c.Payload))
		}
		return row, err
	}, c.Event)
}

// Swap writes an entry over the version that was read, with its event and the act that caused it, unless
// another write was faster ([ledger.ErrStale]). It returns the entry as stored.
func (s *Store) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.put(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.SwapEntry(ctx, swapParams(c.Entry))
		if err != nil {
			return row, none(err, ledger.ErrStale)
		}
		if c.Act != nil {
			if err := q.AddAct(ctx, actParams(*c.Act)); err != nil {
				return row, err
			}
		}
		return row, forget(ctx, q, c)
	}, c.Event)
}

// forget takes out what a change says is to go.
func forget(ctx context.Context, q *litesql.Queries, c ledger.Change) error {
	id := c.Entry.Identity
	if c.Forget == ledger.ForgetNothing {
		return nil
	}
	if err := q.DeletePayload(ctx, litesql.DeletePayloadParams(id)); err != nil || c.Forget == ledger.ForgetPayload {
		return err
	}
	if err := q.DeleteConflicts(ctx, litesql.DeleteConflictsParams(id)); err != nil {
		return err
	}
	return q.ClearHash(ctx, litesql.ClearHashParams{
		ReminderID: id.ReminderID, Type: id.Type, Channel: id.Channel, Version: c.Entry.Version + 1,
	})
}

// Record adds an act on no entry to the audit.
func (s *Store) Record(ctx context.Context, a ledger.Act) error {
	return s.commit(ctx, func(q *litesql.Queries) error { return q.AddAct(ctx, actParams(a)) })
}

// put commits what write puts into the ledger together with its event.
func (s *Store) put(
	ctx context.Context, write func(*litesql.Queries) (litesql.Entry, error), event *ledger.Event,
) (ledger.Entry, error) {
	var row litesql.Entry
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		row, err = write(q)
		if err != nil || event == nil {
			return err
		}
		return q.AddEvent(ctx, eventParams(row, *event))
	})
	if err != nil {
		return ledger.Entry{}, err
	}
	return entryOf(row), nil
}

// RecordConflict keeps other content that came under an identity, once per content hash; fresh tells
// whether it was new. Beside no entry, and beside one that a person was erased from, nothing is kept.
func (s *Store) RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error) {
	err = s.commit(ctx, func(q *litesql.Queries) error {
		added, err := q.AddConflict(ctx, litesql.AddConflictParams{
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
	return s.moveGate(ctx, g, nil)
}

// SteerGate is [Store.SwapGate] for a person: the line of the audit is in the same commit, or nothing is.
func (s *Store) SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error) {
	return s.moveGate(ctx, g, &act)
}

func (s *Store) moveGate(ctx context.Context, g ledger.Gate, act *ledger.Act) (ledger.Gate, error) {
	at, after := momentParams(g.ClosedUntil)
	var row litesql.Gate
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		if g.Version == 0 {
			row, err = q.CreateGate(ctx, litesql.CreateGateParams{
				Provider: g.Provider, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes), Paused: g.Paused,
			})
		} else {
			row, err = q.SwapGate(ctx, litesql.SwapGateParams{
				Provider: g.Provider, Version: g.Version, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes), Paused: g.Paused,
			})
		}
		if err != nil || act == nil {
			return none(err, ledger.ErrStale)
		}
		return q.AddAct(ctx, actParams(*act))
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}
