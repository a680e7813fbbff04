package postgres

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Audit is a page of what people did, the newest first.
func (s *Store) Audit(ctx context.Context, query ledger.AuditQuery) ([]ledger.Act, error) {
	return list(ctx, s, actOf, func(q *pgsql.Queries) ([]pgsql.Audit, error) {
		return q.ListAudit(ctx, auditParams(query))
	})
}

// Groups is up to limit groups of dead letters by what they died of, the largest first.
func (s *Store) Groups(ctx context.Context, limit int) ([]ledger.Group, error) {
	return list(ctx, s, groupOf, func(q *pgsql.Queries) ([]pgsql.ListGroupsRow, error) {
		return q.ListGroups(ctx, atMost(limit))
	})
}

// Kept is a page of a walk through all entries, the oldest first, each with whether its payload is kept. The
// zero position is before all.
func (s *Store) Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error) {
	return list(ctx, s, keptOf, func(q *pgsql.Queries) ([]pgsql.ListKeptRow, error) {
		return q.ListKept(ctx, pgsql.ListKeptParams{
			AfterSeen: micros(after.FirstSeen), AfterReminderID: after.ReminderID, AfterType: after.Type,
			AfterChannel: after.Channel, AtMost: atMost(limit),
		})
	})
}

// Delete takes an entry out of the ledger with all that belongs to it, unless it was written to since it was
// read ([ledger.ErrStale]). What people did to it stays in the audit.
func (s *Store) Delete(ctx context.Context, e ledger.Entry) error {
	return s.do(ctx, func(q *pgsql.Queries) error {
		deleted, err := q.DeleteEntry(ctx, pgsql.DeleteEntryParams{
			ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel, Version: e.Version, ReadAt: micros(e.Updated),
		})
		return orStale(deleted, err)
	})
}

// orStale is the refusal of a guarded write that found nothing to write.
func orStale(written int64, err error) error {
	if err == nil && written == 0 {
		return ledger.ErrStale
	}
	return err
}

func auditParams(q ledger.AuditQuery) pgsql.ListAuditParams {
	end := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pgsql.ListAuditParams{
		Actor: q.By, Verb: q.Verb, AtFrom: micros(q.From), AtTo: end, BeforeAt: end, AtMost: atMost(q.Limit),
	}
	if !q.To.IsZero() {
		p.AtTo = micros(q.To)
	}
	if q.After != nil {
		p.BeforeAt, p.BeforeID = micros(q.After.At), q.After.ID
	}
	return p
}

func groupOf(r pgsql.ListGroupsRow) ledger.Group {
	first, _ := r.FirstDied.(time.Time)
	return ledger.Group{
		Class: ledger.Class(r.Class), Provider: r.Provider, Code: r.Code, Type: r.Type, Count: r.Entries,
		FirstDied: utc(first), LastDied: utc(r.Updated),
		Sample: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
	}
}

func keptOf(r pgsql.ListKeptRow) ledger.Kept {
	return ledger.Kept{Entry: entryOf(r.Entry), Payload: r.WithPayload}
}
