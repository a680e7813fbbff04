package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Load returns the entry of an identity, absent if there is none, with the ledger's now and epoch, read before the
// entry in the same round trip, and the low-water mark, read after it: it is raised before an entry is deleted.
func (s *Store) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	var (
		reads    pipeline
		snapshot ledger.Snapshot
	)
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.NowAndEpoch(ctx)
		snapshot.Now, snapshot.Epoch = utc(row.Now), row.Epoch
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadEntry(ctx, pgsql.LoadEntryParams(id))
		if err == nil {
			snapshot.Entry = entryOf(row)
		}
		return noRowsAs(err, nil)
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		mark, err := q.LoadLowWater(ctx)
		if err == nil {
			snapshot.LowWater = utc(mark)
		}
		return noRowsAs(err, nil)
	})
	if err := s.send(ctx, &reads.batch); err != nil {
		return ledger.Snapshot{}, err
	}
	return snapshot, nil
}

// Epoch returns the system identifier and timeline of the database, as every snapshot does.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	var epoch string
	err := s.do(ctx, func(q *pgsql.Queries) error {
		row, err := q.NowAndEpoch(ctx)
		epoch = row.Epoch
		return err
	})
	return epoch, err
}

// RecordEpoch returns when an epoch was first noticed, and stores it if it is new. The time is zero for the epoch on
// which the ledger was created. With again the epoch counts as noticed now: the caller has seen another one since.
func (s *Store) RecordEpoch(ctx context.Context, epoch string, again bool) (time.Time, error) {
	var noticed time.Time
	err := s.do(ctx, func(q *pgsql.Queries) error {
		known, err := q.ListEpochs(ctx)
		if err != nil {
			return err
		}
		switch at := slices.IndexFunc(known, func(e pgsql.Epoch) bool { return e.Epoch == epoch }); {
		case at >= 0 && again:
			err = q.MarkEpochNoticed(ctx, epoch)
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

// nowInto reads the ledger's now; it is queued first in a pipeline.
func nowInto(now *time.Time) func(context.Context, *pgsql.Queries) error {
	return func(ctx context.Context, q *pgsql.Queries) (err error) {
		*now, err = q.Now(ctx)
		*now = now.UTC()
		return err
	}
}

// Payload returns the payload of an entry, or [ledger.ErrNotFound] if it has none or it was purged.
func (s *Store) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	var row pgsql.Payload
	err := s.do(ctx, func(q *pgsql.Queries) (err error) {
		row, err = q.LoadPayload(ctx, pgsql.LoadPayloadParams(id))
		return noRowsAs(err, ledger.ErrNotFound)
	})
	if err != nil {
		return ledger.Payload{}, err
	}
	return payloadOf(row), nil
}

// EntryDetail returns everything that is stored about an entry, read in one snapshot, or [ledger.ErrNotFound].
func (s *Store) EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
	var (
		reads  pipeline
		detail ledger.EntryDetail
	)
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadEntry(ctx, pgsql.LoadEntryParams(id))
		detail.Entry = entryOf(row)
		return noRowsAs(err, nil)
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		row, err := q.LoadPayload(ctx, pgsql.LoadPayloadParams(id))
		if err == nil {
			payload := payloadOf(row)
			detail.Payload = &payload
		}
		return noRowsAs(err, nil)
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListTimeline(ctx, pgsql.ListTimelineParams(id))
		detail.Timeline = mapRows(rows, eventOf)
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListConflicts(ctx, pgsql.ListConflictsParams(id))
		detail.Conflicts = mapRows(rows, conflictOf)
		return err
	})
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListEntryAudit(ctx, pgsql.ListEntryAuditParams(id))
		detail.Audit = mapRows(rows, auditEventOf)
		return err
	})
	if err := s.snapshot(ctx, &reads); err != nil {
		return ledger.EntryDetail{}, err
	}
	if detail.Entry.Absent() {
		return ledger.EntryDetail{}, ledger.ErrNotFound
	}
	return detail, nil
}

// Timeline returns the events of an entry in the order of their versions.
func (s *Store) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error) {
	return list(ctx, s, eventOf, func(q *pgsql.Queries) ([]pgsql.Timeline, error) {
		return q.ListTimeline(ctx, pgsql.ListTimelineParams(id))
	})
}

// ByReminder returns every entry of a reminder, ordered by type and channel.
func (s *Store) ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		return q.ListByReminder(ctx, reminderID)
	})
}

// List returns a page of entries, newest first.
func (s *Store) List(ctx context.Context, query ledger.Query) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		if query.Conflict {
			return q.ListConflicted(ctx, pgsql.ListConflictedParams(listParams(query)))
		}
		return q.ListEntries(ctx, listParams(query))
	})
}

// Due returns up to limit entries of a provider whose wake time has come, longest overdue first.
func (s *Store) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListDueRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListDueRow, error) {
			return q.ListDue(ctx, pgsql.ListDueParams{Provider: provider, AtMost: atMost(limit)})
		})
}

// WaitingProviders returns every provider with at least one entry that waits, due or not.
func (s *Store) WaitingProviders(ctx context.Context) ([]string, error) {
	return list(ctx, s, func(provider string) string { return provider }, func(q *pgsql.Queries) ([]string, error) {
		return q.ListWaitingProviders(ctx)
	})
}

// ExpiredLeases returns up to limit entries that were claimed within the given span and whose lease has expired,
// longest expired first. The span bounds the scan.
func (s *Store) ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListExpiredLeasesRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListExpiredLeasesRow, error) {
			return q.ListExpiredLeases(ctx, pgsql.ListExpiredLeasesParams{WithinMicros: -within.Microseconds(), AtMost: atMost(limit)})
		})
}

// DueLookups returns up to limit unknown entries of a provider whose next lookup is due, longest overdue first.
func (s *Store) DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	return list(ctx, s, func(r pgsql.ListDueLookupsRow) ledger.Identity { return ledger.Identity(r) },
		func(q *pgsql.Queries) ([]pgsql.ListDueLookupsRow, error) {
			return q.ListDueLookups(ctx, pgsql.ListDueLookupsParams{Provider: provider, AtMost: atMost(limit)})
		})
}

// Unknown returns a page of unknown entries, longest in doubt first.
func (s *Store) Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error) {
	return list(ctx, s, entryOf, func(q *pgsql.Queries) ([]pgsql.Entry, error) {
		return q.ListUnknown(ctx, pgsql.ListUnknownParams{
			AfterDoubt: &after.Since, AfterReminderID: after.ReminderID, AfterType: after.Type,
			AfterChannel: after.Channel, AtMost: atMost(limit),
		})
	})
}

// Gates returns every stored gate, and the ledger's now, read before them.
func (s *Store) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	var (
		reads pipeline
		now   time.Time
		gates []ledger.Gate
	)
	reads.read(ctx, nowInto(&now))
	reads.read(ctx, func(ctx context.Context, q *pgsql.Queries) error {
		rows, err := q.ListGates(ctx)
		gates = mapRows(rows, gateOf)
		return err
	})
	if err := s.send(ctx, &reads.batch); err != nil {
		return nil, time.Time{}, err
	}
	return gates, now, nil
}

// list runs a query that returns many rows.
func list[Row, T any](
	ctx context.Context, s *Store, of func(Row) T, query func(*pgsql.Queries) ([]Row, error),
) ([]T, error) {
	var found []T
	err := s.do(ctx, func(q *pgsql.Queries) error {
		rows, err := query(q)
		found = mapRows(rows, of)
		return err
	})
	return found, err
}

func mapRows[Row, T any](rows []Row, of func(Row) T) []T {
	var all []T
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}
