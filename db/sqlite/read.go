package sqlite

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Load is the entry under an identity, absent where there is none, and the ledger's now, read before it. A
// file has no epoch: nobody promotes a copy of it.
func (s *Store) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	seen := ledger.Reading{Now: s.now()}
	row, err := litesql.New(s.read).LoadEntry(ctx, litesql.LoadEntryParams(id))
	if err != nil {
		return seen, wrapped(none(err, nil))
	}
	seen.Entry = entryOf(row)
	return seen, nil
}

// Epoch is empty: see [Store.Load].
func (s *Store) Epoch(context.Context) (string, error) { return "", nil }

// Notice tells that nothing ever changed.
func (s *Store) Notice(context.Context, string, bool) (time.Time, error) { return time.Time{}, nil }

// Payload is what an entry carries; [ledger.ErrNotFound] once it is purged.
func (s *Store) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	row, err := litesql.New(s.read).LoadPayload(ctx, litesql.LoadPayloadParams(id))
	if err != nil {
		return ledger.Payload{}, wrapped(none(err, ledger.ErrNotFound))
	}
	return payloadOf(row), nil
}

// Story is all that is known of an entry, from one snapshot; [ledger.ErrNotFound] where there is none.
func (s *Store) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	var story ledger.Story
	err := s.snapshot(ctx, func(q *litesql.Queries) error {
		entry, err := q.LoadEntry(ctx, litesql.LoadEntryParams(id))
		if err != nil {
			return none(err, ledger.ErrNotFound)
		}
		payload, err := q.LoadPayload(ctx, litesql.LoadPayloadParams(id))
		if err == nil {
			kept := payloadOf(payload)
			story.Payload = &kept
		} else if err = none(err, nil); err != nil {
			return err
		}
		events, err := q.ListTimeline(ctx, litesql.ListTimelineParams(id))
		if err != nil {
			return err
		}
		acts, err := q.ListActs(ctx, litesql.ListActsParams(id))
		if err != nil {
			return err
		}
		conflicts, err := q.ListConflicts(ctx, litesql.ListConflictsParams(id))
		story.Acts = each(acts, actOf)
		story.Entry, story.Timeline, story.Conflicts = entryOf(entry), each(events, eventOf), each(conflicts, conflictOf)
		return err
	})
	if err != nil {
		return ledger.Story{}, err
	}
	return story, nil
}

// Timeline is the events of an entry, in the order of their versions.
func (s *Store) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	rows, err := litesql.New(s.read).ListTimeline(ctx, litesql.ListTimelineParams(id))
	return each(rows, eventOf), wrapped(err)
}

// ByReminder is every entry of a reminder, in the order of type and channel.
func (s *Store) ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error) {
	rows, err := litesql.New(s.read).ListByReminder(ctx, reminderID)
	return each(rows, entryOf), wrapped(err)
}

// List is a page of entries, the newest first.
func (s *Store) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	list := litesql.New(s.read).ListEntries
	if q.Conflict {
		list = func(ctx context.Context, p litesql.ListEntriesParams) ([]litesql.Entry, error) {
			return litesql.New(s.read).ListConflicted(ctx, litesql.ListConflictedParams(p))
		}
	}
	rows, err := list(ctx, listParams(q))
	return each(rows, entryOf), wrapped(err)
}

// Due is up to limit entries of a provider that the ledger has to look at, the longest due first.
func (s *Store) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListDue(ctx, litesql.ListDueParams{
		Provider: provider, AtMost: int64(max(limit, 1)),
	})
	return each(rows, func(r litesql.ListDueRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// Lanes is every provider for which some entry waits, due or not.
func (s *Store) Lanes(ctx context.Context) ([]string, error) {
	lanes, err := litesql.New(s.read).ListLanes(ctx)
	return lanes, wrapped(err)
}

// Lapsed is up to limit entries that were claimed within the given span and whose holder went silent, the
// longest lapsed first. The span bounds what is read.
func (s *Store) Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListLapsed(ctx, litesql.ListLapsedParams{
		BackMicros: -within.Microseconds(), AtMost: int64(max(limit, 1)),
	})
	return each(rows, func(r litesql.ListLapsedRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// Asks is up to limit unknown entries of a provider that it is to be asked about now, the longest due first.
func (s *Store) Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	rows, err := litesql.New(s.read).ListAsks(ctx, litesql.ListAsksParams{
		Provider: provider, AtMost: int64(max(limit, 1)),
	})
	return each(rows, func(r litesql.ListAsksRow) ledger.Identity { return ledger.Identity(r) }), wrapped(err)
}

// Unknown is a page of unknown entries, the longest in doubt first.
func (s *Store) Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error) {
	since := after.Since.UnixMicro()
	rows, err := litesql.New(s.read).ListUnknown(ctx, litesql.ListUnknownParams{
		AfterDoubt: &since, AfterReminderID: after.ReminderID, AfterType: after.Type,
		AfterChannel: after.Channel, AtMost: int64(max(limit, 1)),
	})
	return each(rows, entryOf), wrapped(err)
}

// Gates is every gate that was ever written, and the ledger's now, read before them.
func (s *Store) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	now := s.now()
	rows, err := litesql.New(s.read).ListGates(ctx)
	return each(rows, gateOf), now, wrapped(err)
}

// Census counts what needs somebody's attention.
func (s *Store) Census(ctx context.Context) (ledger.Census, error) {
	census := ledger.Census{Now: s.now(), Dead: map[ledger.Class]int64{}, Ready: map[string]int64{}}
	pending := func(state ledger.State, count int64, since any) {
		row := ledger.PendingCount{State: state, Count: count}
		if at, is := since.(int64); is && !timeOf(&at).After(census.Now) {
			row.Since = timeOf(&at)
		}
		census.Pending = append(census.Pending, row)
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
			census.Dead[ledger.Class(row.Class)] = row.Entries
		}
		if err != nil {
			return err
		}
		ready, err := q.CountReady(ctx)
		for _, row := range ready {
			census.Ready[row.Provider] = row.Entries
		}
		return err
	})
	if err != nil {
		return ledger.Census{}, err
	}
	return census, nil
}

func each[Row, T any](rows []Row, of func(Row) T) []T {
	var all []T
	for _, row := range rows {
		all = append(all, of(row))
	}
	return all
}
