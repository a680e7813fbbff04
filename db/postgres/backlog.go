package postgres

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Backlog counts the entries that are not settled, in one round trip. The counts are not taken at one instant.
func (s *Store) Backlog(ctx context.Context) (ledger.Backlog, error) {
	var (
		reads   pipeline
		backlog = ledger.Backlog{Dead: map[ledger.Class]int64{}, Ready: map[string]int64{}}
	)
	pending := func(state ledger.State, count int64, since any) {
		at, _ := since.(time.Time)
		if at.After(backlog.Now) {
			at = time.Time{}
		}
		backlog.Pending = append(backlog.Pending, ledger.PendingCount{State: state, Count: count, Since: utc(at)})
	}
	reads.read(ctx, nowInto(&backlog.Now))
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.CountSending(ctx)
		if err == nil {
			pending(ledger.Sending, row.Entries, row.Since)
		}
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.CountWaiting(ctx)
		if err == nil {
			pending(ledger.Waiting, row.Entries, row.Since)
		}
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.CountUnknown(ctx)
		if err == nil {
			pending(ledger.Unknown, row.Entries, row.Since)
		}
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.CountDead(ctx)
		for _, row := range rows {
			backlog.Dead[ledger.Class(row.Class)] = row.Entries
		}
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.CountReady(ctx)
		for _, row := range rows {
			backlog.Ready[row.Provider] = row.Entries
		}
		return err
	})
	if err := s.send(ctx, &reads.batch); err != nil {
		return ledger.Backlog{}, err
	}
	return backlog, nil
}
