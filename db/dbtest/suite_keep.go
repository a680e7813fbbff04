package dbtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// carried is an entry with a payload, a line of its timeline and other content that came under it.
func carried(t *testing.T, s Store, e ledger.Entry) ledger.Entry {
	t.Helper()
	ctx := context.Background()
	e.UserID = "user-1"
	payload := &ledger.Payload{Recipient: "ada@example.org", Content: []byte(`{"text":"x"}`)}
	created, err := s.Create(ctx, ledger.Change{Entry: e, Payload: payload, Event: attempt(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecordConflict(ctx, ledger.Conflict{Identity: e.Identity, ContentHash: "other"}); err != nil {
		t.Fatal(err)
	}
	return created
}

func testForget(t *testing.T, s Store) {
	ctx := context.Background()
	for n, row := range []struct {
		forget             ledger.Forget
		payload, conflicts int
		hash               bool
	}{
		{ledger.ForgetNothing, 1, 1, true},
		{ledger.ForgetPayload, 0, 1, true},
		{ledger.ForgetPerson, 0, 0, false},
	} {
		e := carried(t, s, sent(identity(n)))
		neighbour := carried(t, s, sent(ledger.Identity{ReminderID: e.ReminderID, Type: e.Type, Channel: "push"}))
		stale := e
		stale.Version++
		if _, err := s.Swap(ctx, ledger.Change{Entry: stale, Forget: row.forget}); !errors.Is(err, ledger.ErrStale) {
			t.Fatalf("%d: stale: %v", n, err)
		}
		if _, err := s.Payload(ctx, e.Identity); err != nil {
			t.Fatalf("%d: a stale write forgot: %v", n, err)
		}
		done := anAct(e.Identity, fmt.Sprint("forget-", n))
		if _, err := s.Swap(ctx, ledger.Change{Entry: e, Forget: row.forget, Act: &done}); err != nil {
			t.Fatal(err)
		}
		story, err := s.Story(ctx, e.Identity)
		if err != nil || (story.Payload != nil) != (row.payload == 1) || len(story.Conflicts) != row.conflicts ||
			(story.Entry.ContentHash != "") != row.hash || len(story.Acts) != 1 || len(story.Timeline) != 1 {
			t.Errorf("%d: %+v, %v", n, story, err)
		}
		if fresh, err := s.RecordConflict(ctx, ledger.Conflict{Identity: e.Identity, ContentHash: "late"}); err != nil || fresh != row.hash {
			t.Errorf("%d: a conflict recorded late: %t, %v", n, fresh, err)
		}
		story, err = s.Story(ctx, neighbour.Identity)
		if err != nil || story.Payload == nil || len(story.Conflicts) != 1 || story.Entry.ContentHash == "" {
			t.Errorf("%d: the neighbour lost something: %+v, %v", n, story, err)
		}
	}
}

func testKept(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.Kept
	for n := range 9 {
		kept := ledger.Kept{Entry: sent(identity(n)), Payload: n%3 == 0}
		if kept.Payload {
			kept.Entry = carried(t, s, kept.Entry)
		} else {
			kept.Entry = mustCreate(t, s, kept.Entry)
		}
		want = append(want, kept)
	}
	for _, limit := range []int{1, 4, 100} {
		var got []ledger.Kept
		for place := (ledger.Position{}); len(got) <= len(want); {
			page, err := s.Kept(ctx, place, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1].Entry
			place = ledger.Position{FirstSeen: last.FirstSeen, Identity: last.Identity}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, want)
	}
}

func testDelete(t *testing.T, s Store) {
	ctx := context.Background()
	e := carried(t, s, sent(identity(1)))
	neighbour := carried(t, s, sent(identity(2)))
	done := anAct(e.Identity, "seen")
	moved, err := s.Swap(ctx, ledger.Change{Entry: e, Act: &done})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, e); !errors.Is(err, ledger.ErrStale) {
		t.Fatalf("what moved on was deleted: %v", err)
	}
	if err := s.Delete(ctx, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Story(ctx, e.Identity); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("its story: %v", err)
	}
	if _, err := s.Payload(ctx, e.Identity); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("its payload: %v", err)
	}
	if err := s.Delete(ctx, moved); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("twice: %v", err)
	}
	if story, err := s.Story(ctx, neighbour.Identity); err != nil || story.Payload == nil {
		t.Errorf("the neighbour: %v", err)
	}
	// The identity is free again, and nothing of the old entry shows in the new one; what was done stays.
	mustCreate(t, s, waiting(identity(1), 0))
	story, err := s.Story(ctx, e.Identity)
	if err != nil || len(story.Timeline) != 0 || len(story.Conflicts) != 0 || story.Payload != nil || len(story.Acts) != 1 {
		t.Errorf("%+v, %v", story, err)
	}
}

func testConflicted(t *testing.T, s Store) {
	mustCreate(t, s, sent(identity(1)))
	conflicted := carried(t, s, sent(identity(2)))
	mustCreate(t, s, sent(identity(3)))
	got, err := s.List(context.Background(), ledger.Query{Conflict: true, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "conflicted", got, []ledger.Entry{conflicted})
}

func testGroups(t *testing.T, s Store) {
	ctx := context.Background()
	letters := map[ledger.Group][]ledger.Entry{}
	put := func(n int, class ledger.Class, provider, code, typ string) {
		id := identity(n)
		id.Type = typ
		e := dead(id, class)
		e.Provider, e.Code = provider, code
		cause := ledger.Group{Class: class, Provider: provider, Code: code, Type: typ}
		letters[cause] = append(letters[cause], mustCreate(t, s, e))
	}
	put(1, ledger.ClassPermanent, "mail", "550", "a")
	put(2, ledger.ClassExhausted, "mail", "", "a")
	put(3, ledger.ClassPermanent, "mail", "550", "a")
	put(4, ledger.ClassPermanent, "mail", "550", "b")
	put(5, ledger.ClassPermanent, "mail", "550", "a")
	put(6, ledger.ClassPermanent, "mail", "551", "a")
	put(7, ledger.ClassExhausted, "mail", "", "a")
	put(8, ledger.ClassPermanent, "sms", "550", "a")
	mustCreate(t, s, sent(identity(9)))
	waits := waiting(identity(10), 0)
	waits.Class = ledger.ClassThrottled
	mustCreate(t, s, waits)

	groups, err := s.Groups(ctx, 100)
	if err != nil || len(groups) != len(letters) {
		t.Fatalf("%d groups of %d, %v", len(groups), len(letters), err)
	}
	for i, g := range groups {
		cause := ledger.Group{Class: g.Class, Provider: g.Provider, Code: g.Code, Type: g.Type}
		found := letters[cause]
		if len(found) == 0 {
			t.Fatalf("a group of nothing: %+v", g)
		}
		first, last := found[0], found[len(found)-1]
		if g.Count != int64(len(found)) || !g.FirstDied.Equal(first.Updated) || !g.LastDied.Equal(last.Updated) || g.Sample != last.Identity {
			t.Errorf("%+v, want %d from %v to %v", g, len(found), first.Updated, last.Updated)
		}
		if i > 0 && g.Count > groups[i-1].Count {
			t.Errorf("%d after %d", g.Count, groups[i-1].Count)
		}
	}
	if few, err := s.Groups(ctx, 2); err != nil || len(few) != 2 || few[0].Count != 3 {
		t.Errorf("two: %+v, %v", few, err)
	}
}

func testAudit(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.Act
	for n := range 11 {
		a := anAct(ledger.Identity{}, fmt.Sprintf("id-%02d", n))
		a.By, a.Verb = []string{"ada", "ben"}[n%2], []string{"reconcile", "pause:mail", "erase"}[n%3]
		if err := s.Record(ctx, a); err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	all, err := s.Audit(ctx, ledger.AuditQuery{Limit: 100})
	if err != nil || len(all) != len(want) {
		t.Fatalf("%d of %d, %v", len(all), len(want), err)
	}
	for _, limit := range []int{1, 3, 100} {
		var got []ledger.Act
		for q := (ledger.AuditQuery{Limit: limit}); len(got) <= len(all); {
			page, err := s.Audit(ctx, q)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1]
			q.After = &ledger.ActPlace{At: last.At, ID: last.ID}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, all)
	}
	for name, q := range map[string]ledger.AuditQuery{
		"by":   {By: "ben", Limit: 100},
		"verb": {Verb: "erase", Limit: 100},
		"from": {From: all[4].At, Limit: 100},
		"to":   {To: all[4].At, Limit: 100},
	} {
		var want []ledger.Act
		for _, a := range all {
			if (q.By == "" || a.By == q.By) && (q.Verb == "" || a.Verb == q.Verb) &&
				(q.From.IsZero() || !a.At.Before(q.From)) && (q.To.IsZero() || a.At.Before(q.To)) {
				want = append(want, a)
			}
		}
		got, err := s.Audit(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		same(t, name, got, want)
	}
}

func testSteeredGate(t *testing.T, s Store) {
	ctx := context.Background()
	paused := ledger.Gate{Provider: "mail", Paused: true, By: "ada"}
	stands, err := s.SteerGate(ctx, paused, anAct(ledger.Identity{}, "pause-1"))
	if err != nil || !stands.Paused || stands.Version != 1 {
		t.Fatalf("%+v, %v", stands, err)
	}
	// Neither a gate that moved on nor an act that cannot be written is half done.
	if _, err := s.SteerGate(ctx, paused, anAct(ledger.Identity{}, "pause-2")); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a stale gate: %v", err)
	}
	resumed := stands
	resumed.Paused = false
	if _, err := s.SteerGate(ctx, resumed, anAct(ledger.Identity{}, "pause-1")); err == nil || errors.Is(err, ledger.ErrStale) {
		t.Errorf("an act that stands already: %v", err)
	}
	gates, _, err := s.Gates(ctx)
	if err != nil || len(gates) != 1 || !gates[0].Paused || gates[0].Version != 1 {
		t.Errorf("%+v, %v", gates, err)
	}
	acts, err := s.Audit(ctx, ledger.AuditQuery{Limit: 10})
	if err != nil || len(acts) != 1 {
		t.Errorf("%d acts, %v", len(acts), err)
	}
	if _, err := s.SteerGate(ctx, resumed, anAct(ledger.Identity{}, "resume-1")); err != nil {
		t.Error(err)
	}
}

func redrive(id, key string) ledger.Redrive {
	return ledger.Redrive{
		ID: id, By: "ada", Role: "operator", Why: "the provider is back", Key: key, RequestHash: "hash", Asked: `{"limit":2}`,
		State: ledger.RedriveRunning, Size: 2, Pace: 100 * time.Millisecond, Deadline: aTime().Add(time.Hour), Permanent: true,
	}
}

func testRedrives(t *testing.T, s Store) {
	ctx := context.Background()
	died := mustCreate(t, s, dead(identity(1), ledger.ClassExhausted))
	items := []ledger.RedriveItem{
		{Identity: died.Identity, Place: 1, Version: died.Version},
		{Identity: identity(2), Place: 2, Version: 9}, // purged meanwhile
	}
	first, err := s.CreateRedrive(ctx, redrive("rd-1", "key-1"), items, anAct(ledger.Identity{}, "rd-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := redrive("rd-1", "key-1")
	want.Version, want.Created, want.Updated = 1, first.Created, first.Updated
	want.Deadline = micros(want.Deadline)
	same(t, "created", first, want)
	for name, twin := range map[string]ledger.Redrive{"the same key": redrive("rd-2", "key-1"), "the same id": redrive("rd-1", "key-2")} {
		if _, err := s.CreateRedrive(ctx, twin, items, anAct(ledger.Identity{}, "twin "+name)); !errors.Is(err, ledger.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if acts, err := s.Audit(ctx, ledger.AuditQuery{Limit: 10}); err != nil || len(acts) != 1 {
		t.Errorf("%d acts, %v", len(acts), err)
	}
	byKey, err := s.RedriveByKey(ctx, "ada", "key-1")
	same(t, "by key", byKey, first)
	byID, err2 := s.Redrive(ctx, "rd-1")
	same(t, "by id", byID, first)
	_, err3 := s.Redrive(ctx, "rd-9")
	_, err4 := s.RedriveByKey(ctx, "ben", "key-1")
	if err != nil || err2 != nil || !errors.Is(err3, ledger.ErrNotFound) || !errors.Is(err4, ledger.ErrNotFound) {
		t.Errorf("%v, %v, %v, %v", err, err2, err3, err4)
	}

	// Each item has its turn once, and shows where its entry stands.
	mine := first
	mine.Holder, mine.LeaseUntil = "mine", ledger.In(time.Minute)
	if mine, err = s.SwapRedrive(ctx, mine, nil); err != nil {
		t.Fatal(err)
	}
	turned := ledger.RedriveItem{Redrive: "rd-1", Place: 1, Result: ledger.ItemReopened}
	if err := s.SettleItem(ctx, "whoever held it before", turned); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("by one that does not hold it: %v", err)
	}
	if err := s.SettleItem(ctx, "mine", turned); err != nil {
		t.Fatal(err)
	}
	again := ledger.RedriveItem{Redrive: "rd-1", Place: 1, Result: string(ledger.SkipMoved)}
	if err := s.SettleItem(ctx, "mine", again); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second turn: %v", err)
	}
	mine.Holder, mine.LeaseUntil = "", ledger.Moment{}
	if first, err = s.SwapRedrive(ctx, mine, nil); err != nil {
		t.Fatal(err)
	}
	found, err := s.RedriveItems(ctx, "rd-1")
	if err != nil || len(found) != 2 || found[0].Result != ledger.ItemReopened || found[0].At.IsZero() ||
		found[0].Standing != (ledger.Standing{State: ledger.Dead, Class: ledger.ClassExhausted, Reason: ledger.ReasonRefused}) ||
		found[0].Version != died.Version || found[1].Result != "" || found[1].Standing != (ledger.Standing{}) || found[1].Version != 9 {
		t.Errorf("%+v, %v", found, err)
	}

	second, err := s.CreateRedrive(ctx, redrive("rd-2", "key-2"), nil, anAct(ledger.Identity{}, "rd-2"))
	if err != nil {
		t.Fatal(err)
	}
	testRedriveWork(t, s, first, second)
}

// testRedriveWork : one at a time holds a redrive, and what is finished is nobody's.
func testRedriveWork(t *testing.T, s Store, first, second ledger.Redrive) {
	ctx := context.Background()
	idle := func(want ...string) {
		t.Helper()
		found, err := s.IdleRedrives(ctx, 10)
		var got []string
		for _, r := range found {
			got = append(got, r.ID)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("idle: %v, %v, want %v", got, err, want)
		}
	}
	idle("rd-1", "rd-2")
	held := first
	held.Holder, held.LeaseUntil = "mine", ledger.In(time.Minute)
	held, err := s.SwapRedrive(ctx, held, nil)
	if err != nil || held.Version != first.Version+1 || held.Holder != "mine" {
		t.Fatalf("%+v, %v", held, err)
	}
	idle("rd-2")
	if _, err := s.SwapRedrive(ctx, first, nil); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second holder: %v", err)
	}
	lapsed := held
	lapsed.LeaseUntil = ledger.In(-time.Second)
	if lapsed, err = s.SwapRedrive(ctx, lapsed, nil); err != nil {
		t.Fatal(err)
	}
	idle("rd-1", "rd-2")
	ended := lapsed
	ended.State, ended.Holder, ended.LeaseUntil, ended.Finished = ledger.RedriveCancelled, "", ledger.Moment{}, ledger.In(0)
	twice := anAct(ledger.Identity{}, "rd-1")
	if _, err := s.SwapRedrive(ctx, ended, &twice); err == nil || errors.Is(err, ledger.ErrStale) {
		t.Errorf("an act that cannot be written: %v", err)
	}
	idle("rd-1", "rd-2")
	cancel := anAct(ledger.Identity{}, "cancel")
	ended, err = s.SwapRedrive(ctx, ended, &cancel)
	if err != nil || ended.State != ledger.RedriveCancelled || ended.Finished.IsZero() {
		t.Fatalf("%+v, %v", ended, err)
	}
	idle("rd-2")
	if running, err := s.RunningRedrives(ctx); err != nil || running != 1 {
		t.Errorf("%d running, %v", running, err)
	}
	newest, err := s.Redrives(ctx, nil, 1)
	if err != nil || len(newest) != 1 {
		t.Fatalf("%+v, %v", newest, err)
	}
	same(t, "the newest", newest[0], second)
	rest, err := s.Redrives(ctx, &ledger.RedrivePlace{Created: second.Created, ID: second.ID}, 10)
	if err != nil || len(rest) != 1 {
		t.Fatalf("%+v, %v", rest, err)
	}
	same(t, "the next", rest[0], ended)
}
