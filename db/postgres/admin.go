package postgres

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Audit returns a page of audit events, newest first.
func (s *Store) Audit(ctx context.Context, query ledger.AuditQuery) ([]ledger.AuditEvent, error) {
	return list(ctx, s, auditEventOf, func(q *pgsql.Queries) ([]pgsql.Audit, error) {
		return q.ListAudit(ctx, auditParams(query))
	})
}

// DeadLetterGroups returns up to limit groups of dead letters with the same class, provider, code and type, largest
// first.
func (s *Store) DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error) {
	return list(ctx, s, groupOf, func(q *pgsql.Queries) ([]pgsql.ListDeadLetterGroupsRow, error) {
		return q.ListDeadLetterGroups(ctx, atMost(limit))
	})
}

// RetentionCandidates returns a page of all entries, oldest first, each with whether it still has a payload. The zero
// position is before all of them.
func (s *Store) RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error) {
	return list(ctx, s, candidateOf, func(q *pgsql.Queries) ([]pgsql.ListRetentionCandidatesRow, error) {
		return q.ListRetentionCandidates(ctx, pgsql.ListRetentionCandidatesParams{
			AfterSeen: micros(after.FirstSeen), AfterReminderID: after.ReminderID, AfterType: after.Type,
			AfterChannel: after.Channel, AtMost: atMost(limit),
		})
	})
}

// Delete deletes an entry with its payload, timeline and conflicts, unless it was written to since it was read
// ([ledger.ErrStale]). Its audit events stay.
//
// The low-water mark is raised by a commit of its own before that: entry and mark may be stored on different nodes, where
// one commit becomes visible at different times. If the entry changed meanwhile, the mark stays raised.
func (s *Store) Delete(ctx context.Context, e ledger.Entry) error {
	return s.do(ctx, func(q *pgsql.Queries) error {
		if err := raiseLowWater(ctx, q, micros(e.LowWater())); err != nil {
			return err
		}
		deleted, err := q.DeleteEntry(ctx, pgsql.DeleteEntryParams{
			ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel, Version: e.Version, ReadAt: micros(e.Updated),
		})
		return staleIfNone(deleted, err)
	})
}

// raiseLowWater raises the low-water mark to at least the given time. Each statement commits on its own.
func raiseLowWater(ctx context.Context, q *pgsql.Queries, mark time.Time) error {
	if raised, err := q.RaiseLowWater(ctx, mark); err != nil || raised > 0 {
		return err
	}
	if added, err := q.AddLowWater(ctx, mark); err != nil || added > 0 {
		return err
	}
	_, err := q.RaiseLowWater(ctx, mark) // another replica may have added a lower one meanwhile
	return err
}

// staleIfNone returns [ledger.ErrStale] if a write that is guarded by a version changed no row.
func staleIfNone(written int64, err error) error {
	if err == nil && written == 0 {
		return ledger.ErrStale
	}
	return err
}

func auditParams(q ledger.AuditQuery) pgsql.ListAuditParams {
	end := time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	p := pgsql.ListAuditParams{
		Actor: q.Actor, Action: q.Action, AtFrom: micros(q.From), AtTo: end, BeforeAt: end, AtMost: atMost(q.Limit),
	}
	if !q.To.IsZero() {
		p.AtTo = micros(q.To)
	}
	if q.After != nil {
		p.BeforeAt, p.BeforeID = micros(q.After.At), q.After.ID
	}
	return p
}

func groupOf(r pgsql.ListDeadLetterGroupsRow) ledger.DeadLetterGroup {
	first, _ := r.FirstDead.(time.Time)
	return ledger.DeadLetterGroup{
		Class: ledger.Class(r.Class), Provider: r.Provider, Code: r.Code, Type: r.Type, Count: r.Entries,
		FirstDead: utc(first), LastDead: utc(r.Updated),
		Sample: ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
	}
}

func candidateOf(r pgsql.ListRetentionCandidatesRow) ledger.RetentionCandidate {
	return ledger.RetentionCandidate{Entry: entryOf(r.Entry), HasPayload: r.HasPayload}
}
