package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// InsertRedrive inserts a redrive with all of its items and its audit event in one transaction, unless its actor has
// used its idempotency key before ([ledger.ErrExists]). It returns the redrive as stored.
func (s *Store) InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error) {
	var row litesql.Redrive
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		if row, err = q.AddRedrive(ctx, addRedriveParams(r)); err != nil {
			return noRowsAs(err, ledger.ErrExists)
		}
		for _, item := range items {
			if err := q.AddRedriveItem(ctx, itemParams(r.ID, item)); err != nil {
				return err
			}
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
	return redriveOrNotFound(litesql.New(s.read).LoadRedrive(ctx, id))
}

// RedriveByKey returns the redrive that an actor created under an idempotency key, or [ledger.ErrNotFound].
func (s *Store) RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error) {
	return redriveOrNotFound(litesql.New(s.read).LoadRedriveByKey(ctx, litesql.LoadRedriveByKeyParams{Actor: actor, RequestKey: key}))
}

func redriveOrNotFound(row litesql.Redrive, err error) (ledger.Redrive, error) {
	if err != nil {
		return ledger.Redrive{}, wrapped(noRowsAs(err, ledger.ErrNotFound))
	}
	return redriveOf(row), nil
}

// Redrives returns a page of redrives, newest first. A nil position starts at the newest.
func (s *Store) Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error) {
	p := litesql.ListRedrivesParams{BeforeCreated: math.MaxInt64, AtMost: int64(max(limit, 1))}
	if after != nil {
		p.BeforeCreated, p.BeforeID = after.Created.UnixMicro(), after.ID
	}
	rows, err := litesql.New(s.read).ListRedrives(ctx, p)
	return mapRows(rows, redriveOf), wrapped(err)
}

// IdleRedrives returns up to limit running redrives that no replica holds, oldest first.
func (s *Store) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	rows, err := litesql.New(s.read).ListIdleRedrives(ctx, int64(max(limit, 1)))
	return mapRows(rows, redriveOf), wrapped(err)
}

// RunningRedrives returns the number of redrives that are not finished.
func (s *Store) RunningRedrives(ctx context.Context) (int, error) {
	running, err := litesql.New(s.read).CountRunningRedrives(ctx)
	return int(running), wrapped(err)
}

// UpdateRedrive writes state, holder and lease of a redrive over the version that was read, with the audit event if an
// operator caused the change. It returns [ledger.ErrStale] if another write came first.
func (s *Store) UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error) {
	p := litesql.UpdateRedriveParams{ID: r.ID, Version: r.Version, State: string(r.State), Holder: r.Holder}
	p.LeaseAt, p.LeaseAfter = momentParams(r.LeaseUntil)
	p.FinishedAt, p.FinishedAfter = momentParams(r.Finished)
	var row litesql.Redrive
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
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
	rows, err := litesql.New(s.read).ListRedriveItems(ctx, id)
	return mapRows(rows, itemOf), wrapped(err)
}

// SetItemResult stores the result of an item once, for the replica that holds its redrive by this token. It returns
// [ledger.ErrStale] if a result is stored already or another replica holds the redrive; an item that was in
// progress when the redrive was cancelled gets its result still.
func (s *Store) SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error {
	return s.commit(ctx, func(q *litesql.Queries) error {
		return staleIfNone(q.SetRedriveItemResult(ctx, litesql.SetRedriveItemResultParams{
			RedriveID: item.RedriveID, Position: int64(item.Position), Result: item.Result, ReparsedAs: item.ReparsedAs, Holder: holder,
		}))
	})
}

func addRedriveParams(r ledger.Redrive) litesql.AddRedriveParams {
	return litesql.AddRedriveParams{
		ID: r.ID, Actor: r.Actor, Role: r.Role, Reason: r.Reason, RequestKey: r.IdempotencyKey, RequestHash: r.RequestHash, Request: r.Request,
		State: string(r.State), Size: int64(r.Size), IntervalMicros: r.Interval.Microseconds(), Deadline: timeParam(r.Deadline),
		Permanent: r.Permanent,
	}
}

func itemParams(id string, item ledger.RedriveItem) litesql.AddRedriveItemParams {
	return litesql.AddRedriveItemParams{
		RedriveID: id, Position: int64(item.Position), ReminderID: item.ReminderID, Type: item.Type, Channel: item.Channel,
		Version: item.Version,
	}
}

func redriveOf(r litesql.Redrive) ledger.Redrive {
	return ledger.Redrive{
		ID: r.ID, Actor: r.Actor, Role: r.Role, Reason: r.Reason, IdempotencyKey: r.RequestKey, RequestHash: r.RequestHash, Request: r.Request,
		State: ledger.RedriveState(r.State), Size: int(r.Size), Interval: time.Duration(r.IntervalMicros) * time.Microsecond,
		Deadline: timeOf(r.Deadline), Permanent: r.Permanent,
		Holder: r.Holder, LeaseUntil: momentOf(r.LeaseUntil), Version: r.Version,
		Created: timeOf(&r.Created), Updated: timeOf(&r.Updated), Finished: momentOf(r.Finished),
	}
}

func itemOf(r litesql.ListRedriveItemsRow) ledger.RedriveItem {
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
