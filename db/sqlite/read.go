package sqlite

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Load returns the entry of an identity, absent if there is none, with the ledger's now, read before the entry, and, of
// an absent entry, the low-water mark, read after it. The epoch is empty: a file has no standby that could be promoted.
func (s *Store) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	snapshot := ledger.Snapshot{Now: s.now()}
	q := litesql.New(s.read)
	row, err := q.LoadEntry(ctx, litesql.LoadEntryParams(id))
	if err == nil {
		snapshot.Entry = entryOf(row)
		return snapshot, nil
	}
	if err = noRowsAs(err, nil); err != nil {
		return snapshot, wrapped(err)
	}
	mark, err := q.LoadLowWater(ctx)
	if err == nil {
		snapshot.LowWater = timeOf(&mark)
	}
	return snapshot, wrapped(noRowsAs(err, nil))
}

// Epoch is empty: see [Store.Load].
func (s *Store) Epoch(context.Context) (string, error) { return "", nil }

// RecordEpoch always returns the zero time: the epoch never changes.
func (s *Store) RecordEpoch(context.Context, string, bool) (time.Time, error) {
	return time.Time{}, nil
}

// Payload returns the payload of an entry, or [ledger.ErrNotFound] if it has none or it was purged.
func (s *Store) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	row, err := litesql.New(s.read).LoadPayload(ctx, litesql.LoadPayloadParams(id))
	if err != nil {
		return ledger.Payload{}, wrapped(noRowsAs(err, ledger.ErrNotFound))
	}
	return payloadOf(row), nil
}

// EntryDetail returns everything that is stored about an entry, read in one snapshot, or [ledger.ErrNotFound].
func (s *Store) EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
	var detail ledger.EntryDetail
	err := s.snapshot(ctx, func(q *litesql.Queries) error {
		entry, err := q.LoadEntry(ctx, litesql.LoadEntryParams(id))
		if err != nil {
			return noRowsAs(err, ledger.ErrNotFound)
		}
		payload, err := q.LoadPayload(ctx, litesql.LoadPayloadParams(id))
		if err == nil {
			loaded := payloadOf(payload)
			detail.Payload = &loaded
		} else if err = noRowsAs(err, nil); err != nil {
			return err
		}
		events, err := q.ListTimeline(ctx, litesql.ListTimelineParams(id))
		if err != nil {
			return err
		}
		audit, err := q.ListEntryAudit(ctx, litesql.ListEntryAuditParams(id))
		if err != nil {
			return err
		}
		conflicts, err := q.ListConflicts(ctx, litesql.ListConflictsParams(id))
		detail.Audit = mapRows(audit, auditEventOf)
		detail.Entry, detail.Timeline, detail.Conflicts = entryOf(entry), mapRows(events, eventOf), mapRows(conflicts, conflictOf)
		return err
	})
	if err != nil {
		return ledger.EntryDetail{}, err
	}
	return detail, nil
}

// Timeline returns the events of an entry in the order of their versions.
func (s *Store) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error) {
	rows, err := litesql.New(s.read).ListTimeline(ctx, litesql.ListTimelineParams(id))
	return mapRows(rows, eventOf), wrapped(err)
}

// ByReminder returns every entry of a reminder, ordered by type and channel.
func (s *Store) ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error) {
	rows, err := litesql.New(s.read).ListByReminder(ctx, reminderID)
	return mapRows(rows, entryOf), wrapped(err)
}

// List returns a page of entries, newest first.
func (s *Store) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	list := litesql.New(s.read).ListEntries
	if q.Conflict {
		list = func(ctx context.Context, p litesql.ListEntriesParams) ([]litesql.Entry, error) {
			return litesql.New(s.read).ListConflicted(ctx, litesql.ListConflictedParams(p))
		}
	}
	rows, err := list(ctx, listParams(q))
	return mapRows(rows, entryOf), wrapped(err)
}

// Due returns up to limit entries of a provider whose wake time has come, longest overdue first.
func (s *Store) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListDue(ctx, litesql.ListDueParams{
		Provider: provider, AtMost: int64(max(limit, 1)),
	})
	return mapRows(rows, func(r litesql.ListDueRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// WaitingProviders returns every provider with at least one entry that waits, due or not.
func (s *Store) WaitingProviders(ctx context.Context) ([]string, error) {
	providers, err := litesql.New(s.read).ListWaitingProviders(ctx)
	return providers, wrapped(err)
}

// ExpiredLeases returns up to limit entries that were claimed within the given span and whose lease has expired,
// longest expired first. The span bounds the scan.
func (s *Store) ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListExpiredLeases(ctx, litesql.ListExpiredLeasesParams{
		WithinMicros: -within.Microseconds(), AtMost: int64(max(limit, 1)),
	})
	return mapRows(rows, func(r litesql.ListExpiredLeasesRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// DueLookups returns up to limit unknown entries of a provider whose next lookup is due, longest overdue first.
func (s *Store) DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListDueLookups(ctx, litesql.ListDueLookupsParams{
		Provider: provider, AtMost: int64(max(limit, 1)),
	})
	return mapRows(rows, func(r litesql.ListDueLookupsRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// Unknown returns a page of unknown entries, longest in doubt first.
func (s *Store) Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error) {
	since := after.Since.UnixMicro()
	rows, err := litesql.New(s.read).ListUnknown(ctx, litesql.ListUnknownParams{
		AfterDoubt: &since, AfterReminderID: after.ReminderID, AfterType: after.Type,
		AfterChannel: after.Channel, AtMost: int64(max(limit, 1)),
	})
	return mapRows(rows, entryOf), wrapped(err)
}

// Gates is every gate that was ever written, and the ledger's now, read before them.
func (s *Store) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	now := s.now()
	rows, err := litesql.New(s.read).ListGates(ctx)
	return mapRows(rows, gateOf), now, wrapped(err)
}

// Backlog counts the entries that are not settled.
func (s *Store) Backlog(ctx context.Context) (ledger.Backlog, error) {
	backlog := ledger.Backlog{Now: s.now(), Dead: map[ledger.Class]int64{}, Ready: map[string]int64{}}
	pending := func(state ledger.State, count int64, since any) {
		row := ledger.PendingCount{State: state, Count: count}
		if at, is := since.(int64); is && !timeOf(&at).After(backlog.Now) {
			row.Since = timeOf(&at)
		}
		backlog.Pending = append(backlog.Pending, row)
	}
	err := s.snapshot(ctx, func(q *litesql.Queries) error {
		sending, err := q.CountSending(ctx)
		if err != nil {
			return err
		}
		pending(ledger.Sending, sending.Entries, sending.Since)
		waiting, err := q.CountWaiting(ctx)
		if err != nil {
			return err
		}
		pending(ledger.Waiting, waiting.Entries, waiting.Since)
		unknown, err := q.CountUnknown(ctx)
		if err != nil {
			return err
		}
		pending(ledger.Unknown, unknown.Entries, unknown.Since)
		dead, err := q.CountDead(ctx)
		for _, row := range dead {
			backlog.Dead[ledger.Class(row.Class)] = row.Entries
		}
		if err != nil {
			return err
		}
		ready, err := q.CountReady(ctx)
		for _, row := range ready {
			backlog.Ready[row.Provider] = row.Entries
		}
		return err
	})
	if err != nil {
		return ledger.Backlog{}, err
	}
	return backlog, nil
}

func mapRows[Row, T any](rows []Row, of func(Row) T) []T {
	var all []T
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}
