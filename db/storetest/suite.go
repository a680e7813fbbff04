package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Run tests everything that a ledger store must do. Each call of open returns an empty, migrated store, which open
// closes at the end of the test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"entry round trip", testRoundTrip},
		{"hostile strings", testHostileStrings},
		{"absent entry", testAbsent},
		{"second insert of an identity", testInsertTwice},
		{"parts of an identity are distinct", testIdentityParts},
		{"stale update", testStaleUpdate},
		{"update keeps immutable columns", testImmutableColumns},
		{"moments", testMoments},
		{"constraints", testConstraints},
		{"concurrent inserts", testConcurrentInserts},
		{"concurrent updates", testConcurrentUpdates},
		{"concurrent gate updates", testConcurrentGateUpdates},
		{"payload round trip", testPayload},
		{"conflicts are stored once per hash", testConflicts},
		{"timeline", testTimeline},
		{"entry detail", testEntryDetail},
		{"entries of a reminder", testByReminder},
		{"list pages", testPaging},
		{"list cursor within one instant", testCursor},
		{"list filters", testFilters},
		{"due entries by provider", testDue},
		{"waiting providers", testWaitingProviders},
		{"expired leases", testExpiredLeases},
		{"due lookups by provider", testDueLookups},
		{"unknown pages", testUnknown},
		{"audit event round trip", testAuditEvents},
		{"audit event and entry are written together", testAuditEventIsAtomic},
		{"concurrent resolutions", testConcurrentResolutions},
		{"epoch", testEpoch},
		{"purge", testPurge},
		{"retention candidates", testRetentionCandidates},
		{"delete", testDelete},
		{"low-water mark", testLowWater},
		{"low-water mark and concurrent deletions", testConcurrentLowWater},
		{"list conflicted entries", testConflicted},
		{"dead letter groups", testDeadLetterGroups},
		{"audit pages and filters", testAudit},
		{"gate update by an operator", testUpdateGateByOperator},
		{"redrives", testRedrives},
		{"gates", testGates},
		{"backlog", testBacklog},
		{"ended context", testEndedContext},
		{"second migration", testMigrateAgain},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// full is an entry with a value in every field.
func full(id ledger.Identity) ledger.Entry {
	e := sending(id)
	e.Class, e.Reason = ledger.ClassThrottled, ledger.ReasonClaimed
	e.Attempts, e.BudgetUsed, e.LeaseExpirations, e.Deliveries, e.Redrives = 3, 2, 1, 4_000_000_000, 2
	e.Code = "550 5.1.1"
	e.Deadline, e.DoubtSince = someTime().Add(time.Hour+789*time.Nanosecond), someTime().Add(-time.Hour)
	e.NotBefore = someTime().Add(3 * time.Minute)
	e.CancelRequested, e.CorrelationID, e.ReservationID, e.UserID = true, "corr-1", "res-1", "user-1"
	return e
}

func testRoundTrip(t *testing.T, s Store) {
	abandoned := dropped(identity(6))
	abandoned.Reason, abandoned.DoubtSince = ledger.ReasonAbandoned, someTime()
	assumed := sent(identity(7))
	assumed.Receipt, assumed.ReceiptMissing = "", ledger.MissingAssumed
	tombstone := dropped(identity(8))
	tombstone.ContentHash, tombstone.Published, tombstone.CancelRequested = "", time.Time{}, true
	for _, e := range []ledger.Entry{
		full(identity(0)), sending(identity(1)), waiting(identity(2), time.Hour), unknown(identity(3)),
		sent(identity(4)), dead(identity(5), ledger.ClassBroker), abandoned, assumed, tombstone,
	} {
		created := mustInsert(t, s, e)
		same(t, "created "+string(e.State), created, asStored(t, e, created))
		if created.Version != 1 || created.FirstSeen.IsZero() || created.Updated.IsZero() {
			t.Errorf("%s: version %d, first seen %v, updated %v", e.State, created.Version, created.FirstSeen, created.Updated)
		}
		same(t, "loaded "+string(e.State), mustLoad(t, s, e.Identity), created)
	}
	// The same for an update that changes every field it may.
	was := mustLoad(t, s, identity(2))
	next := full(identity(2))
	next.Version, next.Source, next.Published = was.Version, "other", someTime().Add(time.Minute)
	updated := mustUpdate(t, s, next, nil)
	want := asStored(t, next, updated)
	want.FirstSeen, want.NotBefore = was.FirstSeen, was.NotBefore
	same(t, "swapped", updated, want)
	same(t, "loaded after the update", mustLoad(t, s, identity(2)), updated)
}

func testHostileStrings(t *testing.T, s Store) {
	for _, word := range hostile() {
		id := ledger.Identity{ReminderID: word, Type: "t" + word, Channel: "c" + word}
		e := full(id)
		e.Provider, e.Fingerprint, e.Holder = word, word, word
		e.Source, e.CorrelationID, e.ReservationID, e.UserID = word, word, word, word
		created := mustInsert(t, s, e)
		same(t, fmt.Sprintf("created %q", word), created, asStored(t, e, created))
		event := attempt(1)
		event.Source, event.MessageID, event.Holder, event.Provider = word, word, word, word
		event.Outcome.Receipt, event.Outcome.Code, event.Outcome.RequestID, event.Outcome.Cause = word, word, word, word
		next := settled(created)
		next.Receipt, next.DoubtSince = word, time.Time{}
		updated := mustUpdate(t, s, next, event)
		same(t, fmt.Sprintf("loaded %q", word), mustLoad(t, s, id), updated)
		timeline, err := s.Timeline(context.Background(), id)
		if err != nil || len(timeline) != 1 {
			t.Fatalf("Timeline %q: %v, %v", word, timeline, err)
		}
		same(t, fmt.Sprintf("event %q", word), timeline[0], eventAsStored(event, updated))
		found, err := s.List(context.Background(), ledger.Query{UserID: word, ReservationID: word, Limit: 10})
		if err != nil || len(found) != 1 || found[0].Identity != id {
			t.Errorf("List %q: %v, %v", word, found, err)
		}
	}
}

func testAbsent(t *testing.T, s Store) {
	ctx := context.Background()
	if e := mustLoad(t, s, identity(1)); !e.Absent() || e != (ledger.Entry{}) {
		t.Errorf("Load: %+v", e)
	}
	if _, err := s.Payload(ctx, identity(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("Payload: %v", err)
	}
	if _, err := s.EntryDetail(ctx, identity(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("EntryDetail: %v", err)
	}
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 0 {
		t.Errorf("Timeline: %v, %v", events, err)
	}
	if fresh, err := s.RecordConflict(ctx, ledger.Conflict{Identity: identity(1), ContentHash: "h"}); fresh || err != nil {
		t.Errorf("RecordConflict: %v", err)
	}
	missing := sending(identity(1))
	missing.Version = 1
	if _, err := s.Update(ctx, ledger.Change{Entry: missing}); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("Update: %v", err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func testInsertTwice(t *testing.T, s Store) {
	ctx := context.Background()
	first := mustInsert(t, s, sending(identity(1)))
	again := ledger.Change{
		Entry: dead(identity(1), ledger.ClassBroker), Payload: &ledger.Payload{Recipient: "b"}, Event: decided("x"),
	}
	if _, err := s.Insert(ctx, again); !errors.Is(err, ledger.ErrExists) {
		t.Fatalf("second Insert: %v, want ErrExists", err)
	}
	same(t, "the first is stored", mustLoad(t, s, identity(1)), first)
	if _, err := s.Payload(ctx, identity(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the second's payload was stored: %v", err)
	}
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 0 {
		t.Errorf("the second's event was stored: %v, %v", events, err)
	}
}

func testIdentityParts(t *testing.T, s Store) {
	for _, id := range []ledger.Identity{
		{ReminderID: "a:b", Type: "c", Channel: "d"},
		{ReminderID: "a", Type: "b:c", Channel: "d"},
		{ReminderID: "a", Type: "b", Channel: "c:d"},
		{ReminderID: "A", Type: "b", Channel: "c:d"},
		{ReminderID: "a ", Type: "b", Channel: "c:d"},
		{ReminderID: "é", Type: "b", Channel: "d"},
		{ReminderID: "e\u0301", Type: "b", Channel: "d"},
	} {
		mustInsert(t, s, sending(id))
	}
}

func testStaleUpdate(t *testing.T, s Store) {
	ctx := context.Background()
	first := mustInsert(t, s, sending(identity(1)))
	second := mustUpdate(t, s, settled(first), attempt(1))
	for _, version := range []int64{first.Version, second.Version + 1, 0, -1} {
		stale := dropped(identity(1))
		stale.Version = version
		if _, err := s.Update(ctx, ledger.Change{Entry: stale, Event: decided(ledger.ReasonExpired)}); !errors.Is(err, ledger.ErrStale) {
			t.Errorf("Update over version %d: %v, want ErrStale", version, err)
		}
	}
	claimed := mustInsert(t, s, sending(identity(2)))
	// The same version of another history, as in a database that lost commits.
	elsewhere := settled(claimed)
	elsewhere.Updated = elsewhere.Updated.Add(-time.Microsecond)
	if _, err := s.Update(ctx, ledger.Change{Entry: elsewhere, Event: attempt(1)}); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("Update over the version of another history: %v, want ErrStale", err)
	}
	if _, err := s.Update(ctx, ledger.Change{Entry: settled(claimed)}); err != nil {
		t.Errorf("Update over what was read: %v", err)
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), second)
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 1 {
		t.Errorf("Timeline: %d events, %v; want only that of the first update", len(events), err)
	}
}

func testImmutableColumns(t *testing.T, s Store) {
	first := mustInsert(t, s, sending(identity(1)))
	next := settled(first)
	next.ContentHash, next.SendKey, next.FirstSeen, next.NotBefore = "other", "other", someTime(), someTime()
	second := mustUpdate(t, s, next, nil)
	if second.ContentHash != first.ContentHash || second.SendKey != first.SendKey || !second.FirstSeen.Equal(first.FirstSeen) || !second.NotBefore.IsZero() {
		t.Errorf("changed: %+v", second)
	}
	same(t, "loaded", mustLoad(t, s, identity(1)), second)
}

func testMoments(t *testing.T, s Store) {
	at := someTime().Add(999 * time.Nanosecond)
	fixed := waiting(identity(1), 0)
	fixed.Due, fixed.Wake = ledger.At(at), ledger.At(time.Unix(0, 0))
	created := mustInsert(t, s, fixed)
	if due, _ := created.Due.Fixed(); !due.Equal(at.Truncate(time.Microsecond)) || due.Location() != time.UTC {
		t.Errorf("due %v, want %v", due, at)
	}
	if wake, is := created.Wake.Fixed(); !is || !wake.Equal(time.Unix(0, 0)) {
		t.Errorf("wake %v, %v; want 1970", wake, is)
	}
	for _, span := range []time.Duration{-time.Hour, 0, time.Microsecond, 90 * 24 * time.Hour} {
		next := waiting(identity(1), span)
		next.Version = mustLoad(t, s, identity(1)).Version
		updated := mustUpdate(t, s, next, nil)
		due, is := updated.Due.Fixed()
		if seen, _ := s.Load(context.Background(), identity(1)); !is || due.Sub(seen.Now.Add(span)).Abs() > slack {
			t.Errorf("due %v, want %v from %v", due, span, seen.Now)
		}
	}
	// A second write keeps the moment that the first one fixed.
	claim := mustInsert(t, s, sending(identity(2)))
	next := settled(claim)
	same(t, "claimed at", mustUpdate(t, s, next, nil).ClaimedAt, claim.ClaimedAt)
}

func testConstraints(t *testing.T, s Store) {
	ctx := context.Background()
	for i, bad := range []struct {
		name  string
		entry ledger.Entry
		spoil func(*ledger.Entry)
	}{
		{"a sending entry without a holder", sending(identity(0)), func(e *ledger.Entry) { e.Holder = "" }},
		{"a sending entry without a lease", sending(identity(0)), func(e *ledger.Entry) { e.LeaseUntil = ledger.Moment{} }},
		{"a sending entry without the time of its claim", sending(identity(0)), func(e *ledger.Entry) { e.ClaimedAt = ledger.Moment{} }},
		{"a holder of an entry that is not sending", dropped(identity(0)), func(e *ledger.Entry) { e.Holder = "h" }},
		{"a lease of an entry that is not sending", dropped(identity(0)), func(e *ledger.Entry) { e.LeaseUntil = ledger.In(1) }},
		{"a waiting entry without due", waiting(identity(0), 0), func(e *ledger.Entry) { e.Due = ledger.Moment{} }},
		{"a waiting entry without wake", waiting(identity(0), 0), func(e *ledger.Entry) { e.Wake = ledger.Moment{} }},
		{"a waiting entry without owner", waiting(identity(0), 0), func(e *ledger.Entry) { e.Owner = "" }},
		{"a due time of an entry that is not waiting", sent(identity(0)), func(e *ledger.Entry) { e.Due = ledger.In(1) }},
		{"a sent entry without receipt or reason", sent(identity(0)), func(e *ledger.Entry) { e.Receipt = "" }},
		{"a receipt and a reason for its absence", sent(identity(0)), func(e *ledger.Entry) { e.ReceiptMissing = ledger.MissingUnreadable }},
		{"a receipt of an entry that is not sent", unknown(identity(0)), func(e *ledger.Entry) { e.Receipt = "r" }},
		{"a missing receipt of an entry that is not sent", unknown(identity(0)), func(e *ledger.Entry) { e.ReceiptMissing = ledger.MissingAssumed }},
		{"a dead entry in doubt", dead(identity(0), ledger.ClassPermanent), func(e *ledger.Entry) { e.DoubtSince = someTime() }},
		{"a dropped entry in doubt", dropped(identity(0)), func(e *ledger.Entry) { e.DoubtSince = someTime() }},
		{"an unknown entry without doubt", unknown(identity(0)), func(e *ledger.Entry) { e.DoubtSince = time.Time{} }},
		{"a dead entry without a class", dead(identity(0), ""), func(*ledger.Entry) {}},
		{"a dead entry with a class of a waiting one", dead(identity(0), ledger.ClassThrottled), func(*ledger.Entry) {}},
		{"no reason", sent(identity(0)), func(e *ledger.Entry) { e.Reason = "" }},
		{"no send key", sent(identity(0)), func(e *ledger.Entry) { e.SendKey = "" }},
		{"an unknown state", dropped(identity(0)), func(e *ledger.Entry) { e.State = "paused" }},
		{"no state", dropped(identity(0)), func(e *ledger.Entry) { e.State = "" }},
		{"an unknown class", dropped(identity(0)), func(e *ledger.Entry) { e.Class = "odd" }},
		{"an unknown owner", waiting(identity(0), 0), func(e *ledger.Entry) { e.Owner = "nobody" }},
		{"an unknown reason for a missing receipt", sent(identity(0)), func(e *ledger.Entry) { e.Receipt, e.ReceiptMissing = "", "lost" }},
		{"a count below zero", sent(identity(0)), func(e *ledger.Entry) { e.LeaseExpirations = -1 }},
		{"a count of lookups below zero", unknown(identity(0)), func(e *ledger.Entry) { e.LookupsNotFound = -1 }},
		{"a lookup of an entry that is not unknown", sent(identity(0)), func(e *ledger.Entry) { e.NextLookup = ledger.In(1) }},
	} {
		refused := func(call string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, ledger.ErrExists) || errors.Is(err, ledger.ErrStale) {
				t.Errorf("%s: %s returned %v", bad.name, call, err)
			}
		}
		e := bad.entry
		e.Identity = identity(100 + i)
		e.SendKey = e.Identity.SendKey()
		bad.spoil(&e)
		_, err := s.Insert(ctx, ledger.Change{Entry: e, Payload: &ledger.Payload{Recipient: "a"}, Event: decided("x")})
		refused("Insert", err)
		if got := mustLoad(t, s, e.Identity); !got.Absent() {
			t.Errorf("%s: Insert left %+v", bad.name, got)
		}
		if e.SendKey == "" {
			continue // an update does not write it
		}
		e.Identity = identity(200 + i)
		e.SendKey = e.Identity.SendKey()
		e.Version = mustInsert(t, s, sending(e.Identity)).Version
		before := mustLoad(t, s, e.Identity)
		_, err = s.Update(ctx, ledger.Change{Entry: e, Event: decided("x")})
		refused("Update", err)
		same(t, bad.name+": after the update", mustLoad(t, s, e.Identity), before)
		if events, _ := s.Timeline(ctx, e.Identity); len(events) != 0 {
			t.Errorf("%s: Update left the event", bad.name)
		}
	}
}

// race runs work many times concurrently. Exactly one call must succeed, and every other must fail with want.
func race(t *testing.T, want error, work func(n int) error) {
	t.Helper()
	const runners = 64
	var (
		start  = make(chan struct{})
		all    sync.WaitGroup
		wins   atomic.Int64
		losses = make(chan error, runners)
	)
	for n := range runners {
		all.Go(func() {
			<-start
			switch err := work(n); {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, want):
				losses <- err
			}
		})
	}
	close(start)
	all.Wait()
	close(losses)
	for err := range losses {
		t.Errorf("a call failed with %v, want %v", err, want)
	}
	if wins.Load() != 1 {
		t.Errorf("%d calls succeeded, want 1", wins.Load())
	}
}

func testConcurrentInserts(t *testing.T, s Store) {
	race(t, ledger.ErrExists, func(n int) error {
		e := sending(identity(1))
		e.Holder = fmt.Sprint("holder-", n)
		_, err := s.Insert(context.Background(), ledger.Change{
			Entry: e, Payload: &ledger.Payload{Recipient: e.Holder}, Event: &ledger.TimelineEvent{Kind: ledger.EventDecision, Holder: e.Holder},
		})
		return err
	})
	detail, err := s.EntryDetail(context.Background(), identity(1))
	if err != nil || len(detail.Timeline) != 1 {
		t.Fatalf("EntryDetail: %d events, %v", len(detail.Timeline), err)
	}
	if winner := detail.Entry.Holder; detail.Payload.Recipient != winner || detail.Timeline[0].Holder != winner {
		t.Errorf("the entry is %s's, payload and event %s's and %s's", winner, detail.Payload.Recipient, detail.Timeline[0].Holder)
	}
}

func testConcurrentUpdates(t *testing.T, s Store) {
	read := mustInsert(t, s, sending(identity(1)))
	race(t, ledger.ErrStale, func(n int) error {
		next := settled(read)
		next.Receipt = fmt.Sprint("receipt-", n)
		event := attempt(1)
		event.Outcome.Receipt = next.Receipt
		change := ledger.Change{Entry: next, Event: event}
		if n%2 == 0 {
			change.Event = nil // an event must not be written with the update of another call
		}
		_, err := s.Update(context.Background(), change)
		return err
	})
	detail, err := s.EntryDetail(context.Background(), identity(1))
	if err != nil || detail.Entry.Version != read.Version+1 {
		t.Fatalf("version %d, %v; want %d", detail.Entry.Version, err, read.Version+1)
	}
	for _, event := range detail.Timeline {
		if event.Outcome.Receipt != detail.Entry.Receipt {
			t.Errorf("the event is of %s, the entry of %s", event.Outcome.Receipt, detail.Entry.Receipt)
		}
	}
}

func testConcurrentGateUpdates(t *testing.T, s Store) {
	g := ledger.Gate{Provider: "mailer", ClosedUntil: ledger.In(time.Minute), Actor: "outcome"}
	for version := range int64(2) {
		g.Version = version
		race(t, ledger.ErrStale, func(int) error {
			_, err := s.UpdateGate(context.Background(), g)
			return err
		})
	}
}

func testEndedContext(t *testing.T, s Store) {
	ended, end := context.WithCancel(context.Background())
	end()
	read := mustInsert(t, s, sending(identity(1)))
	_, createErr := s.Insert(ended, ledger.Change{Entry: sending(identity(2))})
	_, swapErr := s.Update(ended, ledger.Change{Entry: settled(read), Event: attempt(1)})
	_, gateErr := s.UpdateGate(ended, ledger.Gate{Provider: "mailer"})
	_, loadErr := s.Load(ended, identity(1))
	for call, err := range map[string]error{"Insert": createErr, "Update": swapErr, "UpdateGate": gateErr, "Load": loadErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", call, err)
		}
		if errors.Is(err, ledger.ErrExists) || errors.Is(err, ledger.ErrStale) {
			t.Errorf("%s: %v says that nothing was written", call, err)
		}
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), read)
	if e := mustLoad(t, s, identity(2)); !e.Absent() {
		t.Errorf("created: %+v", e)
	}
}

func testMigrateAgain(t *testing.T, s Store) {
	created := mustInsert(t, s, sending(identity(1)))
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), created)
}
