package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Load is the entry under an identity, absent where there is none, and the ledger's now and epoch, read
// before it, in one round trip.
func (s *Store) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	var (
		reads pipeline
		seen  ledger.Reading
	)
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.NowAndEpoch(ctx)
		seen.Now, seen.Epoch = utc(row.Now), row.Epoch
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadEntry(ctx, pgsql.LoadEntryParams(id))
		if err == nil {
			seen.Entry = entryOf(row)
		}
		return none(err, nil)
	})
	if err := s.send(ctx, &reads.batch); err != nil {
		return ledger.Reading{}, err
	}
	return seen, nil
}

// Epoch names the database's system and timeline, as every reading does.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	var epoch string
	err := s.do(ctx, func(q *pgsql.Queries) error {
		row, err := q.NowAndEpoch(ctx)
		epoch = row.Epoch
		return err
	})
	return epoch, err
}

// Notice tells when an epoch was noticed first, and makes it known if it was not; zero for the one that the
// ledger was born on. With again it counts as noticed now: the asker has lived on another one since.
func (s *Store) Notice(ctx context.Context, epoch string, again bool) (time.Time, error) {
	var noticed time.Time
	err := s.do(ctx, func(q *pgsql.Queries) error {
		known, err := q.ListEpochs(ctx)
		if err != nil {
			return err
		}
		switch at := slices.IndexFunc(known, func(e pgsql.Epoch) bool { return e.Epoch == epoch }); {
		case at >= 0 && again:
			err = q.RenewEpoch(ctx, epoch)
		case at >= 0:
			noticed = timeOf(known[at].Noticed)
			return nil
		default:
			first := pgsql.AddEpochParams{Epoch: epoch}
			if len(known) > 0 {
				first.NoticedAt, first.NoticedAfter = momentParams(ledger.In(0))
			}
			err = q.AddEpoch(ctx, first)
		}
		if err != nil {
			return err
		}
		known, err = q.ListEpochs(ctx)
		for _, e := range known {
			if e.Epoch == epoch {
				noticed = timeOf(e.Noticed)
			}
		}
		return err
	})
	return noticed, err
}

// nowInto reads the ledger's now, for the first place in a pipeline.
func nowInto(now *time.Time) func(context.Context, *pgsql.Queries) error {
	return func(ctx context.Context, q *pgsql.Queries) (err error) {
		*now, err = q.Now(ctx)
		*now = now.UTC()
		return err
	}
}

// Payload is what an entry carries; [ledger.ErrNotFound] once it is purged.
func (s *Store) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	var row pgsql.Payload
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = q.LoadPayload(ctx, pgsql.LoadPayloadParams(id))
		return none(err, ledger.ErrNotFound)
	})
	if err != nil {
		return ledger.Payload{}, err
	}
	return payloadOf(row), nil
}

// Story is all that is known of an entry, from one snapshot; [ledger.ErrNotFound] where there is none.
func (s *Store) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	var (
		reads pipeline
		story ledger.Story
	)
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadEntry(ctx, pgsql.LoadEntryParams(id))
		story.Entry = entryOf(row)
		return none(err, nil)
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadPayload(ctx, pgsql.LoadPayloadParams(id))
		if err == nil {
			payload := payloadOf(row)
			story.Payload = &payload
		}
		return none(err, nil)
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListTimeline(ctx, pgsql.ListTimelineParams(id))
		story.Timeline = each(rows, eventOf)
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListConflicts(ctx, pgsql.ListConflictsParams(id))
		story.Conflicts = each(rows, conflictOf)
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListActs(ctx, pgsql.ListActsParams(id))
		story.Acts = each(rows, actOf)
		return err
	})
	if err := s.snapshot(ctx, &reads); err != nil {
		return ledger.Story{}, err
	}
	if story.Entry.Absent() {
		return ledger.Story{}, ledger.ErrNotFound
	}
	return story, nil
}

// Timeline is the events of an entry, in the order of their versions.
func (s *Store) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	return list(ctx, s, eventOf, func(q *pgsql.Queries) ([]pgsql.Timeline, error) {
		return q.ListTimeline(ctx, pgsql.ListTimelineParams(id))
	})
}

// ByReminder is every entry of a reminder, in the order of type and channel.
func (s *Store) ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		return q.ListByReminder(ctx, reminderID)
	})
}

// List is a page of entries, the newest first.
func (s *Store) List(ctx context.Context, query ledger.Query) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		if query.Conflict {
			return q.ListConflicted(ctx, pgsql.ListConflictedParams(listParams(query)))
		}
		return q.ListEntries(ctx, listParams(query))
	})
}

// Due is up to limit entries of a provider that the ledger has to look at, the longest due first.
func (s *Store) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListDueRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListDueRow, error) {
			return q.ListDue(ctx, pgsql.ListDueParams{Provider: provider, AtMost: atMost(limit)})
		})
}

// Lanes is every provider for which some entry waits, due or not.
func (s *Store) Lanes(ctx context.Context) ([]string, error) {
	return list(ctx, s, func(lane string) string { return lane }, func(q *pgsql.Queries) ([]string, error) {
		return q.ListLanes(ctx)
	})
}

// Lapsed is up to limit entries that were claimed within the given span and whose holder went silent, the
// longest lapsed first. The span bounds what is read.
func (s *Store) Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListLapsedRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListLapsedRow, error) {
			return q.ListLapsed(ctx, pgsql.ListLapsedParams{BackMicros: -within.Microseconds(), AtMost: atMost(limit)})
		})
}

// Asks is up to limit unknown entries of a provider that it is to be asked about now, the longest due first.
func (s *Store) Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListAsksRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListAsksRow, error) {
			return q.ListAsks(ctx, pgsql.ListAsksParams{Provider: provider, AtMost: atMost(limit)})
		})
}

// Unknown is a page of unknown entries, the longest in doubt first.
func (s *Store) Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		return q.ListUnknown(ctx, pgsql.ListUnknownParams{
			AfterDoubt: &after.Since, AfterReminderID: after.ReminderID, AfterType: after.Type,
			AfterChannel: after.Channel, AtMost: atMost(limit),
		})
	})
}

// Gates is every gate that was ever written, and the ledger's now, read before them.
func (s *Store) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	var (
		reads pipeline
		now   time.Time
		gates []ledger.Gate
	)
	reads.read(ctx, nowInto(&now))
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListGates(ctx)
		gates = each(rows, gateOf)
		return err
	})
	if err := s.send(ctx, &reads.batch); err != nil {
		return nil, time.Time{}, err
	}
	return gates, now, nil
}

// list runs a query that gives many rows.
func list[Row, T any](
	ctx context.Context, s *Store, of func(Row) T, query func(*pgsql.Queries) ([]Row, error),
) ([]T, error) {
	var found []T
	err := s.do(ctx, func(q *pgsql.Queries) error {
		rows, err := query(q)
		found = each(rows, of)
		return err
	})
	return found, err
}

func each[Row, T any](rows []Row, of func(Row) T) []T {
	var all []T
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}
