package postgres

import (
	"context"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Insert inserts an entry with its payload and its first timeline event, unless the identity exists
// ([ledger.ErrExists]). It returns the entry as stored.
func (s *Store) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	var row pgsql.InsertEntryRow
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = q.InsertEntry(ctx, insertParams(c))
		return noRowsAs(err, ledger.ErrExists)
	})
	if err != nil {
		return ledger.Entry{}, err
	}
	return entryOf(pgsql.Entry(row)), nil
}

// Update writes an entry over the version that was read, with its timeline event and its audit event, unless another
// write came first ([ledger.ErrStale]). It returns the entry as stored.
func (s *Store) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	var row pgsql.UpdateEntryRow
	update := func(q *pgsql.Queries) (err error) {
		row, err = q.UpdateEntry(ctx, updateParams(c))
		return noRowsAs(err, ledger.ErrStale)
	}
	var err error
	if c.Audit == nil && c.Purge == ledger.PurgeNothing {
		err = s.do(ctx, update)
	} else {
		err = s.commit(ctx, func(q *pgsql.Queries) error {
			if err := update(q); err != nil {
				return err
			}
			if c.Audit != nil {
				if err := q.AddAuditEvent(ctx, auditEventParams(*c.Audit)); err != nil {
					return err
				}
			}
			return purge(ctx, q, c)
		})
	}
	if err != nil {
		return ledger.Entry{}, err
	}
	return entryOf(pgsql.Entry(row)), nil
}

// purge deletes what the purge scope of a change names.
func purge(ctx context.Context, q *pgsql.Queries, c ledger.Change) error {
	id := c.Entry.Identity
	if c.Purge == ledger.PurgeNothing {
		return nil
	}
	if err := q.DeletePayload(ctx, pgsql.DeletePayloadParams(id)); err != nil || c.Purge == ledger.PurgePayload {
		return err
	}
	if err := q.DeleteConflicts(ctx, pgsql.DeleteConflictsParams(id)); err != nil {
		return err
	}
	return q.ClearHash(ctx, pgsql.ClearHashParams{
		ReminderID: id.ReminderID, Type: id.Type, Channel: id.Channel, Version: c.Entry.Version + 1,
	})
}

// RecordConflict stores different content that arrived for an identity, once per content hash. It returns whether the
// hash was new. For an entry that does not exist, or whose personal data was erased, it stores nothing.
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

// UpdateGate writes a gate over the version that was read; version 0 inserts it. It returns the gate as stored, or
// [ledger.ErrStale] if another write came first.
func (s *Store) UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	var row pgsql.Gate
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = writeGate(ctx, q, g)
		return err
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}

// UpdateGateByOperator is [Store.UpdateGate] for a change by an operator: the audit event is written in the same
// transaction, or nothing is.
func (s *Store) UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error) {
	var row pgsql.Gate
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = writeGate(ctx, q, g); err != nil {
			return err
		}
		return q.AddAuditEvent(ctx, auditEventParams(audit))
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}

func writeGate(ctx context.Context, q *pgsql.Queries, g ledger.Gate) (row pgsql.Gate, err error) {
	at, after := momentParams(g.ClosedUntil)
	if g.Version == 0 {
		row, err = q.InsertGate(ctx, pgsql.InsertGateParams{
			Provider: g.Provider, ClosedAt: at, ClosedAfter: after,
			Class: string(g.Class), Actor: g.Actor, Failures: int64(g.Failures), Paused: g.Paused,
		})
	} else {
		row, err = q.UpdateGate(ctx, pgsql.UpdateGateParams{
			Provider: g.Provider, Version: g.Version, ClosedAt: at, ClosedAfter: after,
			Class: string(g.Class), Actor: g.Actor, Failures: int64(g.Failures), Paused: g.Paused,
		})
	}
	return row, noRowsAs(err, ledger.ErrStale)
}

// RecordAudit stores an audit event that does not belong to a change of an entry.
func (s *Store) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	return s.do(ctx, func(q *pgsql.Queries) error { return q.AddAuditEvent(ctx, auditEventParams(a)) })
}
