package sqlite

import (
	"context"
	"math"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Audit returns a page of audit events, newest first.
func (s *Store) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error) {
	rows, err := litesql.New(s.read).ListAudit(ctx, auditParams(q))
	return mapRows(rows, auditEventOf), wrapped(err)
}

// DeadLetterGroups returns up to limit groups of dead letters with the same class, provider, code and type, largest
// first.
func (s *Store) DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error) {
	rows, err := litesql.New(s.read).ListDeadLetterGroups(ctx, int64(max(limit, 1)))
	return mapRows(rows, groupOf), wrapped(err)
}

// RetentionCandidates returns a page of all entries, oldest first, each with whether it still has a payload. The zero
// position is before all of them.
func (s *Store) RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error) {
	rows, err := litesql.New(s.read).ListRetentionCandidates(ctx, litesql.ListRetentionCandidatesParams{
		AfterSeen: after.FirstSeen.UnixMicro(), AfterReminderID: after.ReminderID, AfterType: after.Type,
		AfterChannel: after.Channel, AtMost: int64(max(limit, 1)),
	})
	return mapRows(rows, candidateOf), wrapped(err)
}

// Delete deletes an entry with its payload, timeline and conflicts, unless it was written to since it was read
// ([ledger.ErrStale]). Its audit events stay.
func (s *Store) Delete(ctx context.Context, e ledger.Entry) error {
	return s.commit(ctx, func(q *litesql.Queries) error {
		deleted, err := q.DeleteEntry(ctx, litesql.DeleteEntryParams{
			ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel, Version: e.Version, ReadAt: e.Updated.UnixMicro(),
		})
		if err := staleIfNone(deleted, err); err != nil {
			return err
		}
		return raiseLowWater(ctx, q, e.LowWater().UnixMicro())
	})
}

// raiseLowWater raises the low-water mark to at least the given time.
func raiseLowWater(ctx context.Context, q *litesql.Queries, mark int64) error {
	if added, err := q.AddLowWater(ctx, mark); err != nil || added > 0 {
		return err
	}
	_, err := q.RaiseLowWater(ctx, mark)
	return err
}

// staleIfNone returns [ledger.ErrStale] if a write that is guarded by a version changed no row.
func staleIfNone(written int64, err error) error {
	if err == nil && written == 0 {
		return ledger.ErrStale
	}
	return err
}

func auditParams(q ledger.AuditQuery) litesql.ListAuditParams {
	p := litesql.ListAuditParams{
		Actor: q.Actor, Action: q.Action, AtFrom: q.From.UnixMicro(), AtTo: math.MaxInt64, BeforeAt: math.MaxInt64,
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

func groupOf(r litesql.ListDeadLetterGroupsRow) ledger.DeadLetterGroup {
	first, _ := r.FirstDead.(int64)
	return ledger.DeadLetterGroup{
		Class: ledger.Class(r.Class), Provider: r.Provider, Code: r.Code, Type: r.Type, Count: r.Entries,
		FirstDead: timeOf(&first), LastDead: timeOf(&r.Updated),
		Sample: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
	}
}

func candidateOf(r litesql.ListRetentionCandidatesRow) ledger.RetentionCandidate {
	return ledger.RetentionCandidate{Entry: entryOf(r.Entry), HasPayload: r.HasPayload}
}
