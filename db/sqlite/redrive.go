package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// CreateRedrive lays out a redrive with all of its items and the line of the audit, in one commit, unless its
// person has used its key before ([ledger.ErrExists]). It returns the redrive as stored.
func (s *Store) CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error) {
	var row litesql.Redrive
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		if row, err = q.AddRedrive(ctx, addRedriveParams(r)); err != nil {
			return none(err, ledger.ErrExists)
		}
		for _, item := range items {
			if err := q.AddRedriveItem(ctx, itemParams(r.ID, item)); err != nil {
				return err
			}
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
	return redriveOr(litesql.New(s.read).LoadRedrive(ctx, id))
}

// RedriveByKey is the one that a person asked for under a key; [ledger.ErrNotFound] where there is none.
func (s *Store) RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error) {
	return redriveOr(litesql.New(s.read).LoadRedriveByKey(ctx, litesql.LoadRedriveByKeyParams{Actor: by, RequestKey: key}))
}

func redriveOr(row litesql.Redrive, err error) (ledger.Redrive, error) {
	if err != nil {
		return ledger.Redrive{}, wrapped(none(err, ledger.ErrNotFound))
	}
	return redriveOf(row), nil
}

// Redrives is a page of redrives, the newest first; nil starts at the newest.
func (s *Store) Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error) {
	p := litesql.ListRedrivesParams{BeforeCreated: math.MaxInt64, AtMost: int64(max(limit, 1))}
	if after != nil {
		p.BeforeCreated, p.BeforeID = after.Created.UnixMicro(), after.ID
	}
	rows, err := litesql.New(s.read).ListRedrives(ctx, p)
	return each(rows, redriveOf), wrapped(err)
}

// IdleRedrives is up to limit running redrives that nobody is at work on, the oldest first.
func (s *Store) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	rows, err := litesql.New(s.read).ListIdleRedrives(ctx, int64(max(limit, 1)))
	return each(rows, redriveOf), wrapped(err)
}

// RunningRedrives counts those that are not finished.
func (s *Store) RunningRedrives(ctx context.Context) (int, error) {
	running, err := litesql.New(s.read).CountRunningRedrives(ctx)
	return int(running), wrapped(err)
}

// SwapRedrive writes state, holder and lease of a redrive over the version that was read, and the act that
// caused it, if a person did; [ledger.ErrStale] where another write was faster.
func (s *Store) SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error) {
	p := litesql.SwapRedriveParams{ID: r.ID, Version: r.Version, State: string(r.State), Holder: r.Holder}
	p.LeaseAt, p.LeaseAfter = momentParams(r.LeaseUntil)
	p.FinishedAt, p.FinishedAfter = momentParams(r.Finished)
	var row litesql.Redrive
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
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
	rows, err := litesql.New(s.read).ListRedriveItems(ctx, id)
	return each(rows, itemOf), wrapped(err)
}

// SettleItem records what became of an item, once, for the replica that holds its redrive by this token;
// [ledger.ErrStale] where that stands already, or another holds it by now.
func (s *Store) SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error {
	return s.commit(ctx, func(q *litesql.Queries) error {
		return orStale(q.SettleRedriveItem(ctx, litesql.SettleRedriveItemParams{
			RedriveID: item.Redrive, Place: int64(item.Place), Result: item.Result, Became: item.Became, Holder: holder,
		}))
	})
}

func addRedriveParams(r ledger.Redrive) litesql.AddRedriveParams {
	return litesql.AddRedriveParams{
		ID: r.ID, Actor: r.By, Role: r.Role, Why: r.Why, RequestKey: r.Key, RequestHash: r.RequestHash, Asked: r.Asked,
		State: string(r.State), Size: int64(r.Size), PaceMicros: r.Pace.Microseconds(), Deadline: timeParam(r.Deadline),
		Permanent: r.Permanent,
	}
}

func itemParams(id string, item ledger.RedriveItem) litesql.AddRedriveItemParams {
	return litesql.AddRedriveItemParams{
		RedriveID: id, Place: int64(item.Place), ReminderID: item.ReminderID, Type: item.Type, Channel: item.Channel,
		Version: item.Version,
	}
}

func redriveOf(r litesql.Redrive) ledger.Redrive {
	return ledger.Redrive{
		ID: r.ID, By: r.Actor, Role: r.Role, Why: r.Why, Key: r.RequestKey, RequestHash: r.RequestHash, Asked: r.Asked,
		State: ledger.RedriveState(r.State), Size: int(r.Size), Pace: time.Duration(r.PaceMicros) * time.Microsecond,
		Deadline: timeOf(r.Deadline), Permanent: r.Permanent,
		Holder: r.Holder, LeaseUntil: momentOf(r.LeaseUntil), Version: r.Version,
		Created: timeOf(&r.Created), Updated: timeOf(&r.Updated), Finished: momentOf(r.Finished),
	}
}

func itemOf(r litesql.ListRedriveItemsRow) ledger.RedriveItem {
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
