package sqlite

import (
	"context"
	"errors"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Create inserts an entry with its payload and its first event, unless the identity exists
// ([ledger.ErrExists]). It returns the entry as stored.
func (s *Store) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.put(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.CreateEntry(ctx, createParams(c.Entry))
		if err != nil {
			return row, none(err, ledger.ErrExists)
		}
		if c.Payload != nil {
			err = q.AddPayload(ctx, payloadParams(c.Entry.Identity, *c.Payload))
		}
		return row, err
	}, c.Event)
}

// Swap writes an entry over the version that was read, with its event and the act that caused it, unless
// another write was faster ([ledger.ErrStale]). It returns the entry as stored.
func (s *Store) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return s.put(ctx, func(q *litesql.Queries) (litesql.Entry, error) {
		row, err := q.SwapEntry(ctx, swapParams(c.Entry))
		if err != nil {
			return row, none(err, ledger.ErrStale)
		}
		if c.Act != nil {
			err = q.AddAct(ctx, actParams(*c.Act))
		}
		return row, err
	}, c.Event)
}

// Record adds an act on no entry to the audit.
func (s *Store) Record(ctx context.Context, a ledger.Act) error {
	return s.commit(ctx, func(q *litesql.Queries) error { return q.AddAct(ctx, actParams(a)) })
}

// put commits what write puts into the ledger together with its event.
func (s *Store) put(
	ctx context.Context, write func(*litesql.Queries) (litesql.Entry, error), event *ledger.Event,
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

// RecordConflict keeps other content that came under an identity, once per content hash; fresh tells
// whether it was new. [ledger.ErrNotFound] where there is no such entry.
func (s *Store) RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error) {
	err = s.commit(ctx, func(q *litesql.Queries) error {
		added, err := q.AddConflict(ctx, litesql.AddConflictParams{
			ReminderID: c.ReminderID, Type: c.Type, Channel: c.Channel,
			ContentHash: c.ContentHash, Source: c.Source, MessageID: c.MessageID,
		})
		fresh = added > 0
		return noSuchEntry(err)
	})
	return fresh, err
}

// noSuchEntry turns a foreign key's refusal into what it means.
func noSuchEntry(err error) error {
	var refused *sqlite.Error
	if errors.As(err, &refused) && refused.Code() == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY {
		return ledger.ErrNotFound
	}
	return err
}

// SwapGate writes a gate over the version that was read; version 0 is a gate that no store knows yet.
// [ledger.ErrStale] where another write was faster. It returns the gate as stored.
func (s *Store) SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	at, after := momentParams(g.ClosedUntil)
	var row litesql.Gate
	err := s.commit(ctx, func(q *litesql.Queries) (err error) {
		if g.Version == 0 {
			row, err = q.CreateGate(ctx, litesql.CreateGateParams{
				Provider: g.Provider, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes),
			})
		} else {
			row, err = q.SwapGate(ctx, litesql.SwapGateParams{
				Provider: g.Provider, Version: g.Version, ClosedAt: at, ClosedAfter: after,
				Class: string(g.Class), ClosedBy: g.By, Strikes: int64(g.Strikes),
			})
		}
		return none(err, ledger.ErrStale)
	})
	if err != nil {
		return ledger.Gate{}, err
	}
	return gateOf(row), nil
}
