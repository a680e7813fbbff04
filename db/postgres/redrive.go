package postgres

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// InsertRedrive inserts a redrive with all of its items and its audit event in one transaction, unless its actor has
// used its idempotency key before ([ledger.ErrExists]). It returns the redrive as stored.
func (s *Store) InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error) {
	var row pgsql.Redrive
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = q.AddRedrive(ctx, addRedriveParams(r)); err != nil {
			return noRowsAs(err, ledger.ErrExists)
		}
		if err := q.AddRedriveItems(ctx, itemsParams(r.ID, items)); err != nil {
			return err
		}
		return q.AddAuditEvent(ctx, auditEventParams(audit))
	})
	if err != nil {
		return ledger.Redrive{}, err
	}
	return redriveOf(row), nil
}

// Redrive returns the redrive with an id, or [ledger.ErrNotFound].
func (s *Store) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return s.redrive(ctx, func(q *pgsql.Queries) (pgsql.Redrive, error) { return q.LoadRedrive(ctx, id) })
}

// RedriveByKey returns the redrive that an actor created under an idempotency key, or [ledger.ErrNotFound].
func (s *Store) RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error) {
	return s.redrive(ctx, func(q *pgsql.Queries) (pgsql.Redrive, error) {
		return q.LoadRedriveByKey(ctx, pgsql.LoadRedriveByKeyParams{Actor: actor, RequestKey: key})
	})
}

func (s *Store) redrive(ctx context.Context, load func(*pgsql.Queries) (pgsql.Redrive, error)) (ledger.Redrive, error) {
	var found ledger.Redrive
	err := s.do(ctx, func(q *pgsql.Queries) error {
		row, err := load(q)
		if err == nil {
			found = redriveOf(row)
		}
		return noRowsAs(err, ledger.ErrNotFound)
	})
	return found, err
}

// Redrives returns a page of redrives, newest first. A nil position starts at the newest.
func (s *Store) Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error) {
	p := pgsql.ListRedrivesParams{BeforeCreated: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), AtMost: atMost(limit)}
	if after != nil {
		p.BeforeCreated, p.BeforeID = micros(after.Created), after.ID
	}
	return list(ctx, s, redriveOf, func(q *pgsql.Queries) ([]pgsql.Redrive, error) { return q.ListRedrives(ctx, p) })
}

// IdleRedrives returns up to limit running redrives that no replica holds, oldest first.
func (s *Store) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	return list(ctx, s, redriveOf, func(q *pgsql.Queries) ([]pgsql.Redrive, error) {
		return q.ListIdleRedrives(ctx, atMost(limit))
	})
}

// RunningRedrives returns the number of redrives that are not finished.
func (s *Store) RunningRedrives(ctx context.Context) (int, error) {
	var running int64
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		running, err = q.CountRunningRedrives(ctx)
		return err
	})
	return int(running), err
}

// UpdateRedrive writes state, holder and lease of a redrive over the version that was read, with the audit event if an
// operator caused the change. It returns [ledger.ErrStale] if another write came first.
func (s *Store) UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error) {
	p := pgsql.UpdateRedriveParams{ID: r.ID, Version: r.Version, State: string(r.State), Holder: r.Holder}
	p.LeaseAt, p.LeaseAfter = momentParams(r.LeaseUntil)
	p.FinishedAt, p.FinishedAfter = momentParams(r.Finished)
	var row pgsql.Redrive
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = q.UpdateRedrive(ctx, p); err != nil || audit == nil {
			return noRowsAs(err, ledger.ErrStale)
		}
		return q.AddAuditEvent(ctx, auditEventParams(*audit))
	})
	if err != nil {
		return ledger.Redrive{}, err
	}
	return redriveOf(row), nil
}

// RedriveItems returns every item of a redrive in order, each with the current state of its entry.
func (s *Store) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	return list(ctx, s, itemOf, func(q *pgsql.Queries) ([]pgsql.ListRedriveItemsRow, error) {
		return q.ListRedriveItems(ctx, id)
	})
}

// SetItemResult stores the result of an item once, for the replica that holds its redrive by this token. It returns
// [ledger.ErrStale] if a result is stored already or another replica holds the redrive; an item that was in
// progress when the redrive was cancelled gets its result still.
func (s *Store) SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error {
	return s.do(ctx, func(q *pgsql.Queries) error {
		return staleIfNone(q.SetRedriveItemResult(ctx, pgsql.SetRedriveItemResultParams{
			RedriveID: item.RedriveID, Position: int64(item.Position), Result: item.Result, ReparsedAs: item.ReparsedAs, Holder: holder,
		}))
	})
}

func addRedriveParams(r ledger.Redrive) pgsql.AddRedriveParams {
	return pgsql.AddRedriveParams{
		ID: r.ID, Actor: r.Actor, Role: r.Role, Reason: r.Reason, RequestKey: r.IdempotencyKey, RequestHash: r.RequestHash, Request: r.Request,
		State: string(r.State), Size: int64(r.Size), IntervalMicros: r.Interval.Microseconds(), Deadline: timeParam(r.Deadline),
		Permanent: r.Permanent,
	}
}

func itemsParams(id string, items []ledger.RedriveItem) pgsql.AddRedriveItemsParams {
	p := pgsql.AddRedriveItemsParams{RedriveID: id}
	for _, item := range items {
		p.Positions = append(p.Positions, int64(item.Position))
		p.ReminderIds = append(p.ReminderIds, item.ReminderID)
		p.Types = append(p.Types, item.Type)
		p.Channels = append(p.Channels, item.Channel)
		p.Versions = append(p.Versions, item.Version)
	}
	return p
}

func redriveOf(r pgsql.Redrive) ledger.Redrive {
	return ledger.Redrive{
		ID: r.ID, Actor: r.Actor, Role: r.Role, Reason: r.Reason, IdempotencyKey: r.RequestKey, RequestHash: r.RequestHash, Request: r.Request,
		State: ledger.RedriveState(r.State), Size: int(r.Size), Interval: time.Duration(r.IntervalMicros) * time.Microsecond,
		Deadline: timeOf(r.Deadline), Permanent: r.Permanent,
		Holder: r.Holder, LeaseUntil: momentOf(r.LeaseUntil), Version: r.Version,
		Created: utc(r.Created), Updated: utc(r.Updated), Finished: momentOf(r.Finished),
	}
}

func itemOf(r pgsql.ListRedriveItemsRow) ledger.RedriveItem {
	i := r.RedriveItem
	item := ledger.RedriveItem{
		Identity:  ledger.Identity{ReminderID: i.ReminderID, Type: i.Type, Channel: i.Channel},
		RedriveID: i.RedriveID, Position: int(i.Position), Version: i.Version, Result: i.Result, ReparsedAs: i.ReparsedAs, At: timeOf(i.At),
	}
	if r.State != nil && r.Class != nil && r.Reason != nil { // the entry exists
		item.Current = ledger.StateSummary{State: ledger.State(*r.State), Class: ledger.Class(*r.Class), Reason: ledger.Reason(*r.Reason)}
	}
	return item
}
