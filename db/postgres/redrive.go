package postgres

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// CreateRedrive lays out a redrive with all of its items and the line of the audit, in one commit, unless its
// person has used its key before ([ledger.ErrExists]). It returns the redrive as stored.
func (s *Store) CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error) {
	var row pgsql.Redrive
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = q.AddRedrive(ctx, addRedriveParams(r)); err != nil {
			return none(err, ledger.ErrExists)
		}
		if err := q.AddRedriveItems(ctx, itemsParams(r.ID, items)); err != nil {
			return err
		}
		return q.AddAct(ctx, actParams(act))
	})
	if err != nil {
		return ledger.Redrive{}, err
	}
	return redriveOf(row), nil
}

// Redrive is one by its id; [ledger.ErrNotFound] where there is none.
func (s *Store) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return s.redrive(ctx, func(q *pgsql.Queries) (pgsql.Redrive, error) { return q.LoadRedrive(ctx, id) })
}

// RedriveByKey is the one that a person asked for under a key; [ledger.ErrNotFound] where there is none.
func (s *Store) RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error) {
	return s.redrive(ctx, func(q *pgsql.Queries) (pgsql.Redrive, error) {
		return q.LoadRedriveByKey(ctx, pgsql.LoadRedriveByKeyParams{Actor: by, RequestKey: key})
	})
}

func (s *Store) redrive(ctx context.Context, load func(*pgsql.Queries) (pgsql.Redrive, error)) (ledger.Redrive, error) {
	var found ledger.Redrive
	err := s.do(ctx, func(q *pgsql.Queries) error {
		row, err := load(q)
		if err == nil {
			found = redriveOf(row)
		}
		return none(err, ledger.ErrNotFound)
	})
	return found, err
}

// Redrives is a page of redrives, the newest first; nil starts at the newest.
func (s *Store) Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error) {
	p := pgsql.ListRedrivesParams{BeforeCreated: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), AtMost: atMost(limit)}
	if after != nil {
		p.BeforeCreated, p.BeforeID = micros(after.Created), after.ID
	}
	return list(ctx, s, redriveOf, func(q *pgsql.Queries) ([]pgsql.Redrive, error) { return q.ListRedrives(ctx, p) })
}

// IdleRedrives is up to limit running redrives that nobody is at work on, the oldest first.
func (s *Store) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	return list(ctx, s, redriveOf, func(q *pgsql.Queries) ([]pgsql.Redrive, error) {
		return q.ListIdleRedrives(ctx, atMost(limit))
	})
}

// RunningRedrives counts those that are not finished.
func (s *Store) RunningRedrives(ctx context.Context) (int, error) {
	var running int64
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		running, err = q.CountRunningRedrives(ctx)
		return err
	})
	return int(running), err
}

// SwapRedrive writes state, holder and lease of a redrive over the version that was read, and the act that
// caused it, if a person did; [ledger.ErrStale] where another write was faster.
func (s *Store) SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error) {
	p := pgsql.SwapRedriveParams{ID: r.ID, Version: r.Version, State: string(r.State), Holder: r.Holder}
	p.LeaseAt, p.LeaseAfter = momentParams(r.LeaseUntil)
	p.FinishedAt, p.FinishedAfter = momentParams(r.Finished)
	var row pgsql.Redrive
	err := s.commit(ctx, func(q *pgsql.Queries) (err error) {
		if row, err = q.SwapRedrive(ctx, p); err != nil || act == nil {
			return none(err, ledger.ErrStale)
		}
		return q.AddAct(ctx, actParams(*act))
	})
	if err != nil {
		return ledger.Redrive{}, err
	}
	return redriveOf(row), nil
}

// RedriveItems is every item of a redrive, in order, each with where its entry stands now.
func (s *Store) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	return list(ctx, s, itemOf, func(q *pgsql.Queries) ([]pgsql.ListRedriveItemsRow, error) {
		return q.ListRedriveItems(ctx, id)
	})
}

// SettleItem records what became of an item, once, for the replica that holds its redrive by this token;
// [ledger.ErrStale] where that stands already, or another holds it by now.
func (s *Store) SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error {
	return s.do(ctx, func(q *pgsql.Queries) error {
		return orStale(q.SettleRedriveItem(ctx, pgsql.SettleRedriveItemParams{
			RedriveID: item.Redrive, Place: int64(item.Place), Result: item.Result, Became: item.Became, Holder: holder,
		}))
	})
}

func addRedriveParams(r ledger.Redrive) pgsql.AddRedriveParams {
	return pgsql.AddRedriveParams{
		ID: r.ID, Actor: r.By, Role: r.Role, Why: r.Why, RequestKey: r.Key, RequestHash: r.RequestHash, Asked: r.Asked,
		State: string(r.State), Size: int64(r.Size), PaceMicros: r.Pace.Microseconds(), Deadline: timeParam(r.Deadline),
		Permanent: r.Permanent,
	}
}

func itemsParams(id string, items []ledger.RedriveItem) pgsql.AddRedriveItemsParams {
	p := pgsql.AddRedriveItemsParams{RedriveID: id}
	for _, item := range items {
		p.Places = append(p.Places, int64(item.Place))
		p.ReminderIds = append(p.ReminderIds, item.ReminderID)
		p.Types = append(p.Types, item.Type)
		p.Channels = append(p.Channels, item.Channel)
		p.Versions = append(p.Versions, item.Version)
	}
	return p
}

func redriveOf(r pgsql.Redrive) ledger.Redrive {
	return ledger.Redrive{
		ID: r.ID, By: r.Actor, Role: r.Role, Why: r.Why, Key: r.RequestKey, RequestHash: r.RequestHash, Asked: r.Asked,
		State: ledger.RedriveState(r.State), Size: int(r.Size), Pace: time.Duration(r.PaceMicros) * time.Microsecond,
		Deadline: timeOf(r.Deadline), Permanent: r.Permanent,
		Holder: r.Holder, LeaseUntil: momentOf(r.LeaseUntil), Version: r.Version,
		Created: utc(r.Created), Updated: utc(r.Updated), Finished: momentOf(r.Finished),
	}
}

func itemOf(r pgsql.ListRedriveItemsRow) ledger.RedriveItem {
	i := r.RedriveItem
	item := ledger.RedriveItem{
		Identity: ledger.Identity{ReminderID: i.ReminderID, Type: i.Type, Channel: i.Channel},
		Redrive:  i.RedriveID, Place: int(i.Place), Version: i.Version, Result: i.Result, Became: i.Became, At: timeOf(i.At),
	}
	if r.State != nil && r.Class != nil && r.Reason != nil { // there is such an entry
		item.Standing = ledger.Standing{State: ledger.State(*r.State), Class: ledger.Class(*r.Class), Reason: ledger.Reason(*r.Reason)}
	}
	return item
}
