package sqlite

import (
	"context"
	"math"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Audit is a page of what people did, the newest first.
func (s *Store) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.Act, error) {
	rows, err := litesql.New(s.read).ListAudit(ctx, auditParams(q))
	return each(rows, actOf), wrapped(err)
}

// Groups is up to limit groups of dead letters by what they died of, the largest first.
func (s *Store) Groups(ctx context.Context, limit int) ([]ledger.Group, error) {
	rows, err := litesql.New(s.read).ListGroups(ctx, int64(max(limit, 1)))
	return each(rows, groupOf), wrapped(err)
}

// Kept is a page of a walk through all entries, the oldest first, each with whether its payload is kept. The
// zero position is before all.
func (s *Store) Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error) {
	rows, err := litesql.New(s.read).ListKept(ctx, litesql.ListKeptParams{
		AfterSeen: after.FirstSeen.UnixMicro(), AfterReminderID: after.ReminderID, AfterType: after.Type,
		AfterChannel: after.Channel, AtMost: int64(max(limit, 1)),
	})
	return each(rows, keptOf), wrapped(err)
}

// Delete takes an entry out of the ledger with all that belongs to it, unless it was written to since it was
// read ([ledger.ErrStale]). What people did to it stays in the audit.
func (s *Store) Delete(ctx context.Context, e ledger.Entry) error {
	return s.commit(ctx, func(q *litesql.Queries) error {
		deleted, err := q.DeleteEntry(ctx, litesql.DeleteEntryParams{
			ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel, Version: e.Version, ReadAt: e.Updated.UnixMicro(),
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

func auditParams(q ledger.AuditQuery) litesql.ListAuditParams {
	p := litesql.ListAuditParams{
		Actor: q.By, Verb: q.Verb, AtFrom: q.From.UnixMicro(), AtTo: math.MaxInt64, BeforeAt: math.MaxInt64,
		AtMost: int64(max(q.Limit, 1)),
	}
	if !q.To.IsZero() {
		p.AtTo = q.To.UnixMicro()
	}
	if q.After != nil {
		p.BeforeAt, p.BeforeID = q.After.At.UnixMicro(), q.After.ID
	}
	return p
}

func groupOf(r litesql.ListGroupsRow) ledger.Group {
	first, _ := r.FirstDied.(int64)
	return ledger.Group{
		Class: ledger.Class(r.Class), Provider: r.Provider, Code: r.Code, Type: r.Type, Count: r.Entries,
		FirstDied: timeOf(&first), LastDied: timeOf(&r.Updated),
		Sample: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
	}
}

func keptOf(r litesql.ListKeptRow) ledger.Kept {
	return ledger.Kept{Entry: entryOf(r.Entry), Payload: r.WithPayload}
}
