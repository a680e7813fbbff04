package sqlite

import (
	"context"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Insert inserts an entry with its payload and its first timeline event, unless the identity exists
// ([ledger.ErrExists]). It returns the entry as stored.
func (s *Store) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.writeWithEvent(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.InsertEntry(ctx, insertParams(c.Entry))
		if err != nil {
			return row, noRowsAs(err, ledger.ErrExists)
		}
		if c.Payload != nil {
			err = q.AddPayload(ctx, payloadParams(c.Entry.Identity, *c.Payload))
		}
		return row, err
	}, c.Event)
}

// Update writes an entry over the version that was read, with its timeline event and its audit event, unless another
// write came first ([ledger.ErrStale]). It returns the entry as stored.
func (s *Store) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.writeWithEvent(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.UpdateEntry(ctx, updateParams(c.Entry))
		if err != nil {
			return row, noRowsAs(err, ledger.ErrStale)
		}
		if c.Audit != nil {
			if err := q.AddAuditEvent(ctx, auditEventParams(*c.Audit)); err != nil {
				return row, err
			}
		}
		return row, purge(ctx, q, c)
	}, c.Event)
}

// purge deletes what the purge scope of a change names.
func purge(ctx context.Context, q *litesql.Queries, c ledger.Change) error {
	id := c.Entry.Identity
	if c.Purge == ledger.PurgeNothing {
		return nil
	}
	if err := q.DeletePayload(ctx, litesql.DeletePayloadParams(id)); err != nil || c.Purge == ledger.PurgePayload {
		return err
	}
	if err := q.DeleteConflicts(ctx, litesql.DeleteConflictsParams(id)); err != nil {
		return err
	}
	return q.ClearHash(ctx, litesql.ClearHashParams{
		ReminderID: id.ReminderID, Type: id.Type, Channel: id.Channel, Version: c.Entry.Version + 1,
	})
}

// RecordAudit stores an audit event that does not belong to a change of an entry.
func (s *Store) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	return s.commit(ctx, func(q *litesql.Queries) error { return q.AddAuditEvent(ctx, auditEventParams(a)) })
}

// writeWithEvent runs write and inserts its timeline event in one transaction.
func (s *Store) writeWithEvent(
	ctx context.Context, write func(*litesql.Queries) (litesql.Entry, error), event *ledger.TimelineEvent,
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

// RecordConflict stores different content that arrived for an identity, once per content hash. It returns whether the
// hash was new. For an entry that does not exist, or whose personal data was erased, it stores nothing.
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

// UpdateGate writes a gate over the version that was read; version 0 inserts it. It returns the gate as stored, or
// [ledger.ErrStale] if another write came first.
func (s *Store) UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	return s.writeGate(ctx, g, nil)
}

// UpdateGateByOperator is [Store.UpdateGate] for a change by an operator: the audit event is written in the same
// transaction, or nothing is.
func (s *Store) UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error) {
	return s.writeGate(ctx, g, &audit)
}

func (s *Store) writeGate(ctx context.Context, g ledger.Gate, audit *ledger.AuditEvent) (ledger.Gate, error) {
	at, after := momentParams(g.ClosedUntil)
	var row litesql.Gate
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		if g.Version == 0 {
			row, err = q.InsertGate(ctx, litesql.InsertGateParams{
				Provider: g.Provider, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), Actor: g.Actor, Failures: int64(g.Failures), Paused: g.Paused,
			})
		} else {
			row, err = q.UpdateGate(ctx, litesql.UpdateGateParams{
				Provider: g.Provider, Version: g.Version, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), Actor: g.Actor, Failures: int64(g.Failures), Paused: g.Paused,
			})
		}
		if err != nil || audit == nil {
			return noRowsAs(err, ledger.ErrStale)
		}
		return q.AddAuditEvent(ctx, auditEventParams(*audit))
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}
