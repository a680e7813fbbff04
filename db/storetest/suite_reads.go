package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// eventAsStored is the event as a store must return it after the write that returned the entry.
func eventAsStored(event *ledger.TimelineEvent, after ledger.Entry) ledger.TimelineEvent {
	e := *event
	e.Version, e.At = after.Version, after.Updated
	e.Started, e.Finished = stamp(e.Started), stamp(e.Finished)
	return e
}

func testPayload(t *testing.T, s Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	for i, p := range []ledger.Payload{
		{Recipient: "someone@example.com", Content: []byte(`{"subject":"żółć 🦊"}`), Metadata: []byte(`{"a":"b"}`)},
		{Recipient: "no metadata", Content: []byte(`{}`)},
		{Raw: every},
		{Recipient: strings.Join(hostile(), ""), Content: bytes.Repeat([]byte("long "), 200_000)},
	} {
		_, err := s.Insert(context.Background(), ledger.Change{Entry: sending(identity(i)), Payload: &p})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Payload(context.Background(), identity(i))
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint("payload ", i), got, p)
	}
}

func testConflicts(t *testing.T, s Store) {
	ctx := context.Background()
	mustInsert(t, s, sending(identity(1)))
	mustInsert(t, s, sending(identity(2)))
	other := ledger.Conflict{Identity: identity(1), ContentHash: "h1", Source: `o'r"ders`, MessageID: "m-1"}
	again, third, elsewhere := other, other, other
	again.MessageID, third.ContentHash, elsewhere.Identity = "m-2", "h2", identity(2)
	for i, test := range []struct {
		conflict ledger.Conflict
		fresh    bool
	}{{other, true}, {other, false}, {again, false}, {third, true}, {elsewhere, true}} {
		if fresh, err := s.RecordConflict(ctx, test.conflict); err != nil || fresh != test.fresh {
			t.Errorf("conflict %d: fresh %v, %v; want %v", i, fresh, err, test.fresh)
		}
	}
	detail, err := s.EntryDetail(ctx, identity(1))
	if err != nil || len(detail.Conflicts) != 2 {
		t.Fatalf("EntryDetail: %+v, %v", detail.Conflicts, err)
	}
	for i, want := range []ledger.Conflict{other, third} {
		if detail.Conflicts[i].FirstSeen.IsZero() {
			t.Error("a conflict without a time")
		}
		want.FirstSeen = detail.Conflicts[i].FirstSeen
		same(t, fmt.Sprint("conflict ", i), detail.Conflicts[i], want)
	}
}

func testTimeline(t *testing.T, s Store) {
	ctx := context.Background()
	e, err := s.Insert(ctx, ledger.Change{Entry: sending(identity(1)), Event: decided(ledger.ReasonClaimed)})
	if err != nil {
		t.Fatal(err)
	}
	want := []ledger.TimelineEvent{eventAsStored(decided(ledger.ReasonClaimed), e)}
	for i := range 12 {
		var event *ledger.TimelineEvent
		switch i % 4 {
		case 0:
			event = attempt(i)
		case 1:
			event = decided(ledger.ReasonScheduled)
		case 2:
			event = &ledger.TimelineEvent{Kind: ledger.EventLeaseExpired, Outcome: ledger.Outcome{Result: ledger.Result(i % len(ledger.Results()))}}
		}
		e = mustUpdate(t, s, e, event)
		if event != nil {
			want = append(want, eventAsStored(event, e))
		}
	}
	got, err := s.Timeline(ctx, identity(1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "timeline", got, want)
	for i := 1; i < len(got); i++ {
		if got[i].Version <= got[i-1].Version || got[i].At.Before(got[i-1].At) {
			t.Errorf("event %d is not after the one before it", i)
		}
	}
}

func testEntryDetail(t *testing.T, s Store) {
	payload := ledger.Payload{Recipient: "a@example.com", Content: []byte(`{}`)}
	created, err := s.Insert(context.Background(), ledger.Change{Entry: sending(identity(1)), Payload: &payload})
	if err != nil {
		t.Fatal(err)
	}
	updated := mustUpdate(t, s, settled(created), attempt(1))
	mustInsert(t, s, dropped(identity(2)))
	got, err := s.EntryDetail(context.Background(), identity(1))
	if err != nil {
		t.Fatal(err)
	}
	same(t, "entry detail", got, ledger.EntryDetail{
		Entry: updated, Payload: &payload, Timeline: []ledger.TimelineEvent{eventAsStored(attempt(1), updated)},
	})
	bare, err := s.EntryDetail(context.Background(), identity(2))
	if err != nil || bare.Payload != nil || len(bare.Timeline)+len(bare.Conflicts) != 0 {
		t.Errorf("detail of a tombstone: %+v, %v", bare, err)
	}
}

func testByReminder(t *testing.T, s Store) {
	var want []ledger.Entry
	for _, kind := range []string{"A", "a", "b"} { // ordered by bytes, not by a collation
		for _, channel := range []string{"email", "sms"} {
			want = append(want, mustInsert(t, s, sending(ledger.Identity{ReminderID: "r", Type: kind, Channel: channel})))
		}
	}
	mustInsert(t, s, sending(ledger.Identity{ReminderID: "r2", Type: "a", Channel: "email"}))
	got, err := s.ByReminder(context.Background(), "r")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "entries", got, want)
}

func testPaging(t *testing.T, s Store) {
	const entries = 23
	for n := range entries {
		mustInsert(t, s, sending(identity(n*7%entries)))
	}
	var got []ledger.Entry
	query := ledger.Query{Limit: 5}
	for {
		page, err := s.List(context.Background(), query)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > query.Limit {
			t.Fatalf("a page of %d", len(page))
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)
		last := page[len(page)-1]
		query.After = &ledger.EntryPosition{FirstSeen: last.FirstSeen, Identity: last.Identity}
		mustInsert(t, s, sending(identity(1000+len(got)))) // newer than the pages that are read: it must not be returned
	}
	if len(got) != entries {
		t.Fatalf("%d entries, want %d", len(got), entries)
	}
	newestFirst := func(a, b ledger.Entry) int {
		if byTime := b.FirstSeen.Compare(a.FirstSeen); byTime != 0 {
			return byTime
		}
		return compareIdentity(b, a)
	}
	for i := 1; i < len(got); i++ {
		if newestFirst(got[i-1], got[i]) >= 0 {
			t.Errorf("entry %d is out of order or twice", i)
		}
	}
}

func testCursor(t *testing.T, s Store) {
	e := mustInsert(t, s, sending(ledger.Identity{ReminderID: "m", Type: "m", Channel: "m"}))
	for _, test := range []struct {
		id   ledger.Identity
		seen time.Time
		want int
	}{
		{e.Identity, e.FirstSeen, 0},
		{ledger.Identity{ReminderID: "n", Type: "a", Channel: "a"}, e.FirstSeen, 1},
		{ledger.Identity{ReminderID: "l", Type: "z", Channel: "z"}, e.FirstSeen, 0},
		{ledger.Identity{ReminderID: "m", Type: "n", Channel: "a"}, e.FirstSeen, 1},
		{ledger.Identity{ReminderID: "m", Type: "l", Channel: "z"}, e.FirstSeen, 0},
		{ledger.Identity{ReminderID: "m", Type: "m", Channel: "n"}, e.FirstSeen, 1},
		{ledger.Identity{ReminderID: "m", Type: "m", Channel: "l"}, e.FirstSeen, 0},
		{ledger.Identity{ReminderID: "a", Type: "a", Channel: "a"}, e.FirstSeen.Add(time.Microsecond), 1},
		{ledger.Identity{ReminderID: "z", Type: "z", Channel: "z"}, e.FirstSeen.Add(-time.Microsecond), 0},
	} {
		after := &ledger.EntryPosition{FirstSeen: test.seen, Identity: test.id}
		found, err := s.List(context.Background(), ledger.Query{After: after, Limit: 10})
		if err != nil || len(found) != test.want {
			t.Errorf("after %+v: %d, %v; want %d", after, len(found), err, test.want)
		}
	}
}

func testFilters(t *testing.T, s Store) {
	odd := dead(ledger.Identity{ReminderID: "odd", Type: "odd_type", Channel: "sms"}, ledger.ClassRecipient)
	odd.Provider, odd.ReservationID, odd.UserID = "texter", "res-odd", "user-odd"
	plain := sending(identity(1))
	plain.ReservationID, plain.UserID = "res-1", "user-1"
	mustInsert(t, s, plain)
	mustInsert(t, s, dead(identity(2), ledger.ClassPermanent))
	kept := mustInsert(t, s, odd)
	for name, q := range map[string]ledger.Query{
		"reminder": {ReminderID: "odd"}, "reservation": {ReservationID: "res-odd"}, "user": {UserID: "user-odd"},
		"class": {Class: ledger.ClassRecipient}, "type": {Type: "odd_type"}, "channel": {Channel: "sms"},
		"provider": {Provider: "texter"}, "state and provider": {State: ledger.Dead, Provider: "texter"},
		"all": {
			ReminderID: "odd", ReservationID: "res-odd", UserID: "user-odd", State: ledger.Dead,
			Class: ledger.ClassRecipient, Type: "odd_type", Channel: "sms", Provider: "texter",
			From: kept.FirstSeen, To: kept.FirstSeen.Add(time.Microsecond),
		},
	} {
		q.Limit = 10
		found, err := s.List(context.Background(), q)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		same(t, name, found, []ledger.Entry{kept})
	}
	for name, test := range map[string]struct {
		query ledger.Query
		want  int
	}{
		"nothing":       {ledger.Query{}, 3},
		"state":         {ledger.Query{State: ledger.Dead}, 2},
		"before":        {ledger.Query{To: kept.FirstSeen.Add(-time.Hour)}, 0},
		"not yet":       {ledger.Query{From: kept.FirstSeen.Add(time.Hour)}, 0},
		"up to, open":   {ledger.Query{ReminderID: "odd", To: kept.FirstSeen}, 0},
		"from, closed":  {ledger.Query{ReminderID: "odd", From: kept.FirstSeen}, 1},
		"no such state": {ledger.Query{State: ledger.Waiting}, 0},
		"a pattern":     {ledger.Query{ReminderID: "o%"}, 0},
	} {
		test.query.Limit = 10
		if found, err := s.List(context.Background(), test.query); err != nil || len(found) != test.want {
			t.Errorf("%s: %d, %v; want %d", name, len(found), err, test.want)
		}
	}
}

func testDue(t *testing.T, s Store) {
	for n, wake := range []time.Duration{-2 * time.Hour, -3 * time.Hour, -time.Hour, time.Hour} {
		mustInsert(t, s, waiting(identity(n), wake))
	}
	elsewhere := waiting(identity(10), -time.Hour)
	elsewhere.Provider = "texter"
	mustInsert(t, s, elsewhere)
	later := waiting(identity(11), -time.Hour) // due, but its broker may still redeliver it
	later.Owner, later.Wake = ledger.OwnerBroker, ledger.In(time.Hour)
	mustInsert(t, s, later)
	mustInsert(t, s, sending(identity(12)))
	for _, test := range []struct {
		provider string
		limit    int
		want     []ledger.Identity
	}{
		{"mailer", 10, []ledger.Identity{identity(1), identity(0), identity(2)}},
		{"mailer", 2, []ledger.Identity{identity(1), identity(0)}},
		{"texter", 10, []ledger.Identity{identity(10)}},
		{"nobody", 10, nil},
	} {
		got, err := s.Due(context.Background(), test.provider, test.limit)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("Due %s %d: %v, %v; want %v", test.provider, test.limit, got, err, test.want)
		}
	}
}

func testWaitingProviders(t *testing.T, s Store) {
	for n, provider := range []string{"texter", "mailer", "mailer", ""} {
		e := waiting(identity(n), time.Duration(n)*time.Hour)
		e.Provider = provider
		mustInsert(t, s, e)
	}
	idle := sending(identity(10))
	idle.Provider = "idle"
	mustInsert(t, s, idle)
	got, err := s.WaitingProviders(context.Background())
	if want := []string{"", "mailer", "texter"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("WaitingProviders: %q, %v; want %q", got, err, want)
	}
}

func testExpiredLeases(t *testing.T, s Store) {
	seen, err := s.Load(context.Background(), identity(0))
	if err != nil {
		t.Fatal(err)
	}
	now := seen.Now
	const day = 24 * time.Hour
	for n, test := range []struct{ claimed, lease time.Duration }{
		{-2 * day, -day},
		{-29 * day, -28 * day},
		{-time.Minute, -time.Second},
		{-time.Minute, time.Hour},
		{-31 * day, -30 * day},
	} {
		e := sending(identity(n))
		e.ClaimedAt, e.LeaseUntil = ledger.At(now.Add(test.claimed)), ledger.In(test.lease)
		mustInsert(t, s, e)
	}
	mustInsert(t, s, waiting(identity(10), -time.Hour))
	want := []ledger.Identity{identity(1), identity(0), identity(2)}
	if got, err := s.ExpiredLeases(context.Background(), 30*day, 10); err != nil || !slices.Equal(got, want) {
		t.Errorf("ExpiredLeases: %v, %v; want %v", got, err, want)
	}
	if got, err := s.ExpiredLeases(context.Background(), 30*day, 1); err != nil || !slices.Equal(got, want[:1]) {
		t.Errorf("ExpiredLeases, the first: %v, %v; want %v", got, err, want[:1])
	}
	if got, err := s.ExpiredLeases(context.Background(), time.Hour, 10); err != nil || !slices.Equal(got, want[2:]) {
		t.Errorf("ExpiredLeases, within an hour: %v, %v; want %v", got, err, want[2:])
	}
}

func testGates(t *testing.T, s Store) {
	ctx := context.Background()
	closed := ledger.Gate{
		Provider: `mail"er's`, ClosedUntil: ledger.In(time.Minute), Class: ledger.ClassCredentials, Actor: "outcome", Failures: 2,
	}
	first, err := s.UpdateGate(ctx, closed)
	if err != nil {
		t.Fatal(err)
	}
	until, fixed := first.ClosedUntil.Fixed()
	if !fixed || until.Sub(first.Updated.Add(time.Minute)).Abs() > slack || first.Version != 1 {
		t.Errorf("stored %+v", first)
	}
	want := closed
	want.ClosedUntil, want.Version, want.Updated = first.ClosedUntil, 1, first.Updated
	same(t, "first", first, want)
	if _, err := s.UpdateGate(ctx, closed); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second first write: %v, want ErrStale", err)
	}
	second, err := s.UpdateGate(ctx, ledger.Gate{Provider: first.Provider, Version: first.Version, Actor: "op"})
	if err != nil || !second.ClosedUntil.IsZero() || second.Version != 2 {
		t.Fatalf("opened: %+v, %v", second, err)
	}
	if _, err := s.UpdateGate(ctx, first); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a stale write: %v, want ErrStale", err)
	}
	other, err := s.UpdateGate(ctx, ledger.Gate{Provider: "another"})
	if err != nil {
		t.Fatal(err)
	}
	gates, now, err := s.Gates(ctx)
	if err != nil || now.Sub(second.Updated).Abs() > slack {
		t.Errorf("Gates at %v: %v", now, err)
	}
	same(t, "gates", gates, []ledger.Gate{other, second})
	if _, err := s.UpdateGate(ctx, ledger.Gate{Provider: "nobody", Version: 3}); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a gate that does not exist: %v, want ErrStale", err)
	}
}

func testBacklog(t *testing.T, s Store) {
	ctx := context.Background()
	empty, err := s.Backlog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "empty", empty, ledger.Backlog{
		Now:     empty.Now,
		Pending: []ledger.PendingCount{{State: ledger.Sending}, {State: ledger.Waiting}, {State: ledger.Unknown}},
		Dead:    map[ledger.Class]int64{}, Ready: map[string]int64{},
	})
	mustInsert(t, s, waiting(identity(1), time.Hour))
	if ahead, err := s.Backlog(ctx); err != nil || !ahead.Pending[1].Since.IsZero() || ahead.Pending[1].Count != 1 {
		t.Errorf("with one that is not due yet: %+v, %v", ahead, err)
	}
	old := sending(identity(2))
	old.ClaimedAt = ledger.In(-time.Minute)
	oldest := mustInsert(t, s, old)
	mustInsert(t, s, sending(identity(3)))
	overdue := mustInsert(t, s, waiting(identity(4), -time.Minute))
	taken := waiting(identity(5), -time.Hour)
	taken.Wake, taken.Owner = ledger.In(time.Hour), ledger.OwnerBroker
	mustInsert(t, s, taken)
	texted := waiting(identity(6), -time.Second)
	texted.Provider = "texter"
	mustInsert(t, s, texted)
	now := oldest.Updated
	doubted := func(n int, since time.Time) {
		e := unknown(identity(n))
		e.DoubtSince = since
		mustInsert(t, s, e)
	}
	doubted(7, now.Add(-time.Minute))
	doubted(8, now.Add(-time.Hour))
	for n, class := range []ledger.Class{ledger.ClassPermanent, ledger.ClassPermanent, ledger.ClassMalformed} {
		mustInsert(t, s, dead(identity(20+n), class))
	}
	mustInsert(t, s, sent(identity(30)))
	expired := dropped(identity(31))
	expired.Class = ledger.ClassThrottled
	mustInsert(t, s, expired)
	got, err := s.Backlog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := func(m ledger.Moment) time.Time { fixed, _ := m.Fixed(); return fixed }
	same(t, "backlog", got, ledger.Backlog{
		Now: got.Now,
		Pending: []ledger.PendingCount{
			{State: ledger.Sending, Count: 2, Since: at(oldest.ClaimedAt)},
			{State: ledger.Waiting, Count: 4, Since: at(overdue.Wake)},
			{State: ledger.Unknown, Count: 2, Since: now.Add(-time.Hour)},
		},
		Dead:  map[ledger.Class]int64{ledger.ClassPermanent: 2, ledger.ClassMalformed: 1},
		Ready: map[string]int64{"mailer": 2, "texter": 1},
	})
}
