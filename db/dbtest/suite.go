package dbtest

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

// Run holds the stores that open gives to all that a ledger store must do. Each call of open gives an
// empty, migrated store that open closes itself at the end of the test.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Store)
	}{
		{"an entry comes back as it was written", testRoundTrip},
		{"hostile strings come back as they were written", testHostileStrings},
		{"what is absent is no error", testAbsent},
		{"an identity is created once", testCreateTwice},
		{"three parts of an identity stay three", testIdentityParts},
		{"a stale swap writes nothing", testStaleSwap},
		{"what a swap may not change stays", testFrozen},
		{"spans are fixed by the ledger's clock, and fixed moments are kept", testMoments},
		{"what breaks an invariant is refused and leaves nothing", testConstraints},
		{"of many creators one wins", testManyCreators},
		{"of many swappers one wins", testManySwappers},
		{"of many gatekeepers one wins", testManyGatekeepers},
		{"a payload comes back to the byte", testPayload},
		{"other content is recorded once per hash", testConflicts},
		{"a timeline is in order and complete", testTimeline},
		{"a story holds all that is known", testStory},
		{"a reminder's entries are listed", testByReminder},
		{"a list is paged without gap or repeat", testPaging},
		{"a cursor parts entries of one instant", testCursor},
		{"a list is narrowed by every field", testFilters},
		{"what is due comes oldest first, by provider", testDue},
		{"who has waiting entries has a lane", testLanes},
		{"holders that went silent are found", testLapsed},
		{"what a provider is to be asked about comes oldest first", testAsks},
		{"what is unknown is paged by its doubt without gap or repeat", testUnknown},
		{"an act comes back as it was written", testActs},
		{"an act is written with its entry, or neither", testActOrNothing},
		{"of many deciders one wins", testManyDeciders},
		{"an epoch is one for all readings", testEpoch},
		{"what a change forgets is gone, and nothing else", testForget},
		{"a walk through all entries misses none", testKept},
		{"what is deleted takes all with it but the audit", testDelete},
		{"what other content came under is found", testConflicted},
		{"dead letters are grouped by cause", testGroups},
		{"the audit is paged and narrowed", testAudit},
		{"a person's gate is written with its act, or neither", testSteeredGate},
		{"a redrive is laid out once, and one at a time works on it", testRedrives},
		{"a gate is swapped by version", testGates},
		{"the census counts what needs attention", testCensus},
		{"an ended context writes nothing and is no refusal", testEndedContext},
		{"migrating again changes nothing", testMigrateAgain},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

// full is an entry in which every field says something.
func full(id ledger.Identity) ledger.Entry {
	e := sending(id)
	e.Class, e.Reason = ledger.ClassThrottled, ledger.ReasonClaimed
	e.Attempts, e.Spent, e.Lapses, e.Deliveries, e.Redrives = 3, 2, 1, 4_000_000_000, 2
	e.Code = "550 5.1.1"
	e.Deadline, e.DoubtSince = aTime().Add(time.Hour+789*time.Nanosecond), aTime().Add(-time.Hour)
	e.NotBefore = aTime().Add(3 * time.Minute)
	e.CancelAsked, e.CorrelationID, e.ReservationID, e.UserID = true, "corr-1", "res-1", "user-1"
	return e
}

func testRoundTrip(t *testing.T, s Store) {
	abandoned := dropped(identity(6))
	abandoned.Reason, abandoned.DoubtSince = ledger.ReasonAbandoned, aTime()
	assumed := sent(identity(7))
	assumed.Receipt, assumed.Missing = "", ledger.MissingAssumed
	tombstone := dropped(identity(8))
	tombstone.ContentHash, tombstone.Published, tombstone.CancelAsked = "", time.Time{}, true
	for _, e := range []ledger.Entry{
		full(identity(0)), sending(identity(1)), waiting(identity(2), time.Hour), unknown(identity(3)),
		sent(identity(4)), dead(identity(5), ledger.ClassBroker), abandoned, assumed, tombstone,
	} {
		created := mustCreate(t, s, e)
		same(t, "created "+string(e.State), created, asStored(t, e, created))
		if created.Version != 1 || created.FirstSeen.IsZero() || created.Updated.IsZero() {
			t.Errorf("%s: version %d, first seen %v, updated %v", e.State, created.Version, created.FirstSeen, created.Updated)
		}
		same(t, "loaded "+string(e.State), mustLoad(t, s, e.Identity), created)
	}
	// The same over a swap that changes every field it may.
	was := mustLoad(t, s, identity(2))
	next := full(identity(2))
	next.Version, next.Source, next.Published = was.Version, "other", aTime().Add(time.Minute)
	swapped := mustSwap(t, s, next, nil)
	want := asStored(t, next, swapped)
	want.FirstSeen, want.NotBefore = was.FirstSeen, was.NotBefore
	same(t, "swapped", swapped, want)
	same(t, "loaded after the swap", mustLoad(t, s, identity(2)), swapped)
}

func testHostileStrings(t *testing.T, s Store) {
	for _, word := range hostile() {
		id := ledger.Identity{ReminderID: word, Type: "t" + word, Channel: "c" + word}
		e := full(id)
		e.Provider, e.Fingerprint, e.Holder = word, word, word
		e.Source, e.CorrelationID, e.ReservationID, e.UserID = word, word, word, word
		created := mustCreate(t, s, e)
		same(t, fmt.Sprintf("created %q", word), created, asStored(t, e, created))
		event := attempt(1)
		event.Source, event.Message, event.Holder, event.Provider = word, word, word, word
		event.Outcome.Receipt, event.Outcome.Code, event.Outcome.RequestID, event.Outcome.Cause = word, word, word, word
		next := settled(created)
		next.Receipt, next.DoubtSince = word, time.Time{}
		swapped := mustSwap(t, s, next, event)
		same(t, fmt.Sprintf("loaded %q", word), mustLoad(t, s, id), swapped)
		timeline, err := s.Timeline(context.Background(), id)
		if err != nil || len(timeline) != 1 {
			t.Fatalf("Timeline %q: %v, %v", word, timeline, err)
		}
		same(t, fmt.Sprintf("event %q", word), timeline[0], asTold(event, swapped))
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
	if _, err := s.Story(ctx, identity(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("Story: %v", err)
	}
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 0 {
		t.Errorf("Timeline: %v, %v", events, err)
	}
	if fresh, err := s.RecordConflict(ctx, ledger.Conflict{Identity: identity(1), ContentHash: "h"}); fresh || err != nil {
		t.Errorf("RecordConflict: %v", err)
	}
	ghost := sending(identity(1))
	ghost.Version = 1
	if _, err := s.Swap(ctx, ledger.Change{Entry: ghost}); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("Swap: %v", err)
	}
	if err := s.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
}

func testCreateTwice(t *testing.T, s Store) {
	ctx := context.Background()
	first := mustCreate(t, s, sending(identity(1)))
	again := ledger.Change{
		Entry: dead(identity(1), ledger.ClassBroker), Payload: &ledger.Payload{Recipient: "b"}, Event: decided("x"),
	}
	if _, err := s.Create(ctx, again); !errors.Is(err, ledger.ErrExists) {
		t.Fatalf("second Create: %v, want ErrExists", err)
	}
	same(t, "the first stands", mustLoad(t, s, identity(1)), first)
	if _, err := s.Payload(ctx, identity(1)); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the second's payload was kept: %v", err)
	}
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 0 {
		t.Errorf("the second's event was kept: %v, %v", events, err)
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
		mustCreate(t, s, sending(id))
	}
}

func testStaleSwap(t *testing.T, s Store) {
	ctx := context.Background()
	first := mustCreate(t, s, sending(identity(1)))
	second := mustSwap(t, s, settled(first), attempt(1))
	for _, version := range []int64{first.Version, second.Version + 1, 0, -1} {
		stale := dropped(identity(1))
		stale.Version = version
		if _, err := s.Swap(ctx, ledger.Change{Entry: stale, Event: decided(ledger.ReasonExpired)}); !errors.Is(err, ledger.ErrStale) {
			t.Errorf("Swap over version %d: %v, want ErrStale", version, err)
		}
	}
	claimed := mustCreate(t, s, sending(identity(2)))
	// The same version of another history, as a database that forgot commits has.
	elsewhere := settled(claimed)
	elsewhere.Updated = elsewhere.Updated.Add(-time.Microsecond)
	if _, err := s.Swap(ctx, ledger.Change{Entry: elsewhere, Event: attempt(1)}); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("Swap over the version of another history: %v, want ErrStale", err)
	}
	if _, err := s.Swap(ctx, ledger.Change{Entry: settled(claimed)}); err != nil {
		t.Errorf("Swap over what was read: %v", err)
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), second)
	if events, err := s.Timeline(ctx, identity(1)); err != nil || len(events) != 1 {
		t.Errorf("Timeline: %d events, %v; want the first swap's alone", len(events), err)
	}
}

func testFrozen(t *testing.T, s Store) {
	first := mustCreate(t, s, sending(identity(1)))
	next := settled(first)
	next.ContentHash, next.SendKey, next.FirstSeen, next.NotBefore = "other", "other", aTime(), aTime()
	second := mustSwap(t, s, next, nil)
	if second.ContentHash != first.ContentHash || second.SendKey != first.SendKey || !second.FirstSeen.Equal(first.FirstSeen) || !second.NotBefore.IsZero() {
		t.Errorf("changed: %+v", second)
	}
	same(t, "loaded", mustLoad(t, s, identity(1)), second)
}

func testMoments(t *testing.T, s Store) {
	at := aTime().Add(999 * time.Nanosecond)
	fixed := waiting(identity(1), 0)
	fixed.Due, fixed.Wake = ledger.At(at), ledger.At(time.Unix(0, 0))
	created := mustCreate(t, s, fixed)
	if due, _ := created.Due.Fixed(); !due.Equal(at.Truncate(time.Microsecond)) || due.Location() != time.UTC {
		t.Errorf("due %v, want %v", due, at)
	}
	if wake, is := created.Wake.Fixed(); !is || !wake.Equal(time.Unix(0, 0)) {
		t.Errorf("wake %v, %v; want 1970", wake, is)
	}
	for _, span := range []time.Duration{-time.Hour, 0, time.Microsecond, 90 * 24 * time.Hour} {
		next := waiting(identity(1), span)
		next.Version = mustLoad(t, s, identity(1)).Version
		swapped := mustSwap(t, s, next, nil)
		due, is := swapped.Due.Fixed()
		if seen, _ := s.Load(context.Background(), identity(1)); !is || due.Sub(seen.Now.Add(span)).Abs() > slack {
			t.Errorf("due %v, want %v from %v", due, span, seen.Now)
		}
	}
	// A second write keeps what the first one fixed.
	claim := mustCreate(t, s, sending(identity(2)))
	next := settled(claim)
	same(t, "claimed at", mustSwap(t, s, next, nil).ClaimedAt, claim.ClaimedAt)
}

func testConstraints(t *testing.T, s Store) {
	ctx := context.Background()
	for i, bad := range []struct {
		why   string
		entry ledger.Entry
		spoil func(*ledger.Entry)
	}{
		{"a sending entry without a holder", sending(identity(0)), func(e *ledger.Entry) { e.Holder = "" }},
		{"a sending entry without a lease", sending(identity(0)), func(e *ledger.Entry) { e.LeaseUntil = ledger.Moment{} }},
		{"a sending entry without its claim's time", sending(identity(0)), func(e *ledger.Entry) { e.ClaimedAt = ledger.Moment{} }},
		{"a holder of what is not sending", dropped(identity(0)), func(e *ledger.Entry) { e.Holder = "h" }},
		{"a lease on what is not sending", dropped(identity(0)), func(e *ledger.Entry) { e.LeaseUntil = ledger.In(1) }},
		{"a waiting entry without due", waiting(identity(0), 0), func(e *ledger.Entry) { e.Due = ledger.Moment{} }},
		{"a waiting entry without wake", waiting(identity(0), 0), func(e *ledger.Entry) { e.Wake = ledger.Moment{} }},
		{"a waiting entry without owner", waiting(identity(0), 0), func(e *ledger.Entry) { e.Owner = "" }},
		{"a due of what is not waiting", sent(identity(0)), func(e *ledger.Entry) { e.Due = ledger.In(1) }},
		{"a sent entry without receipt or reason", sent(identity(0)), func(e *ledger.Entry) { e.Receipt = "" }},
		{"a receipt and a reason for its absence", sent(identity(0)), func(e *ledger.Entry) { e.Missing = ledger.MissingUnread }},
		{"a receipt of what is not sent", unknown(identity(0)), func(e *ledger.Entry) { e.Receipt = "r" }},
		{"a missing receipt of what is not sent", unknown(identity(0)), func(e *ledger.Entry) { e.Missing = ledger.MissingAssumed }},
		{"a dead entry in doubt", dead(identity(0), ledger.ClassPermanent), func(e *ledger.Entry) { e.DoubtSince = aTime() }},
		{"a dropped entry in doubt", dropped(identity(0)), func(e *ledger.Entry) { e.DoubtSince = aTime() }},
		{"an unknown entry without doubt", unknown(identity(0)), func(e *ledger.Entry) { e.DoubtSince = time.Time{} }},
		{"a dead entry without a class", dead(identity(0), ""), func(*ledger.Entry) {}},
		{"a dead entry with a class of the living", dead(identity(0), ledger.ClassThrottled), func(*ledger.Entry) {}},
		{"no reason", sent(identity(0)), func(e *ledger.Entry) { e.Reason = "" }},
		{"no send key", sent(identity(0)), func(e *ledger.Entry) { e.SendKey = "" }},
		{"a state nobody knows", dropped(identity(0)), func(e *ledger.Entry) { e.State = "paused" }},
		{"no state", dropped(identity(0)), func(e *ledger.Entry) { e.State = "" }},
		{"a class nobody knows", dropped(identity(0)), func(e *ledger.Entry) { e.Class = "odd" }},
		{"an owner nobody knows", waiting(identity(0), 0), func(e *ledger.Entry) { e.Owner = "nobody" }},
		{"a reason for a missing receipt nobody knows", sent(identity(0)), func(e *ledger.Entry) { e.Receipt, e.Missing = "", "lost" }},
		{"a count below zero", sent(identity(0)), func(e *ledger.Entry) { e.Lapses = -1 }},
		{"a count of answers below zero", unknown(identity(0)), func(e *ledger.Entry) { e.Asked = -1 }},
		{"a question about what is not unknown", sent(identity(0)), func(e *ledger.Entry) { e.AskAt = ledger.In(1) }},
	} {
		refused := func(how string, err error) {
			t.Helper()
			if err == nil || errors.Is(err, ledger.ErrExists) || errors.Is(err, ledger.ErrStale) {
				t.Errorf("%s: %s answered %v", bad.why, how, err)
			}
		}
		e := bad.entry
		e.Identity = identity(100 + i)
		e.SendKey = e.Identity.SendKey()
		bad.spoil(&e)
		_, err := s.Create(ctx, ledger.Change{Entry: e, Payload: &ledger.Payload{Recipient: "a"}, Event: decided("x")})
		refused("Create", err)
		if got := mustLoad(t, s, e.Identity); !got.Absent() {
			t.Errorf("%s: Create left %+v", bad.why, got)
		}
		if e.SendKey == "" {
			continue // a swap does not write it
		}
		e.Identity = identity(200 + i)
		e.SendKey = e.Identity.SendKey()
		e.Version = mustCreate(t, s, sending(e.Identity)).Version
		before := mustLoad(t, s, e.Identity)
		_, err = s.Swap(ctx, ledger.Change{Entry: e, Event: decided("x")})
		refused("Swap", err)
		same(t, bad.why+": after the swap", mustLoad(t, s, e.Identity), before)
		if events, _ := s.Timeline(ctx, e.Identity); len(events) != 0 {
			t.Errorf("%s: Swap left the event", bad.why)
		}
	}
}

// race runs work many times at once and counts how often it won; every loser must have lost by want.
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
		t.Errorf("a loser was told %v, want %v", err, want)
	}
	if wins.Load() != 1 {
		t.Errorf("%d won, want 1", wins.Load())
	}
}

func testManyCreators(t *testing.T, s Store) {
	race(t, ledger.ErrExists, func(n int) error {
		e := sending(identity(1))
		e.Holder = fmt.Sprint("holder-", n)
		_, err := s.Create(context.Background(), ledger.Change{
			Entry: e, Payload: &ledger.Payload{Recipient: e.Holder}, Event: &ledger.Event{Kind: ledger.EventDecision, Holder: e.Holder},
		})
		return err
	})
	story, err := s.Story(context.Background(), identity(1))
	if err != nil || len(story.Timeline) != 1 {
		t.Fatalf("Story: %d events, %v", len(story.Timeline), err)
	}
	if winner := story.Entry.Holder; story.Payload.Recipient != winner || story.Timeline[0].Holder != winner {
		t.Errorf("the entry is %s's, payload and event %s's and %s's", winner, story.Payload.Recipient, story.Timeline[0].Holder)
	}
}

func testManySwappers(t *testing.T, s Store) {
	read := mustCreate(t, s, sending(identity(1)))
	race(t, ledger.ErrStale, func(n int) error {
		next := settled(read)
		next.Receipt = fmt.Sprint("receipt-", n)
		event := attempt(1)
		event.Outcome.Receipt = next.Receipt
		change := ledger.Change{Entry: next, Event: event}
		if n%2 == 0 {
			change.Event = nil // an event must not slip in beside another's silent write
		}
		_, err := s.Swap(context.Background(), change)
		return err
	})
	story, err := s.Story(context.Background(), identity(1))
	if err != nil || story.Entry.Version != read.Version+1 {
		t.Fatalf("version %d, %v; want %d", story.Entry.Version, err, read.Version+1)
	}
	for _, event := range story.Timeline {
		if event.Outcome.Receipt != story.Entry.Receipt {
			t.Errorf("the event is of %s, the entry of %s", event.Outcome.Receipt, story.Entry.Receipt)
		}
	}
}

func testManyGatekeepers(t *testing.T, s Store) {
	g := ledger.Gate{Provider: "mailer", ClosedUntil: ledger.In(time.Minute), By: "outcome"}
	for version := range int64(2) {
		g.Version = version
		race(t, ledger.ErrStale, func(int) error {
			_, err := s.SwapGate(context.Background(), g)
			return err
		})
	}
}

func testEndedContext(t *testing.T, s Store) {
	ended, end := context.WithCancel(context.Background())
	end()
	read := mustCreate(t, s, sending(identity(1)))
	_, createErr := s.Create(ended, ledger.Change{Entry: sending(identity(2))})
	_, swapErr := s.Swap(ended, ledger.Change{Entry: settled(read), Event: attempt(1)})
	_, gateErr := s.SwapGate(ended, ledger.Gate{Provider: "mailer"})
	_, loadErr := s.Load(ended, identity(1))
	for verb, err := range map[string]error{"Create": createErr, "Swap": swapErr, "SwapGate": gateErr, "Load": loadErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the context's end", verb, err)
		}
		if errors.Is(err, ledger.ErrExists) || errors.Is(err, ledger.ErrStale) {
			t.Errorf("%s: %v reads like a refusal", verb, err)
		}
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), read)
	if e := mustLoad(t, s, identity(2)); !e.Absent() {
		t.Errorf("created: %+v", e)
	}
}

func testMigrateAgain(t *testing.T, s Store) {
	created := mustCreate(t, s, sending(identity(1)))
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	same(t, "the entry", mustLoad(t, s, identity(1)), created)
}
