package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// mustInsertWithPayload inserts an entry with a payload, a timeline event and a conflict.
func mustInsertWithPayload(t *testing.T, s Store, e ledger.Entry) ledger.Entry {
	t.Helper()
	ctx := context.Background()
	e.UserID = "user-1"
	payload := &ledger.Payload{Recipient: "ada@example.org", Content: []byte(`{"text":"x"}`)}
	created, err := s.Insert(ctx, ledger.Change{Entry: e, Payload: payload, Event: attempt(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RecordConflict(ctx, ledger.Conflict{Identity: e.Identity, ContentHash: "other"}); err != nil {
		t.Fatal(err)
	}
	return created
}

func testPurge(t *testing.T, s Store) {
	ctx := context.Background()
	for n, row := range []struct {
		scope              ledger.PurgeScope
		payload, conflicts int
		hash               bool
	}{
		{ledger.PurgeNothing, 1, 1, true},
		{ledger.PurgePayload, 0, 1, true},
		{ledger.PurgePersonalData, 0, 0, false},
	} {
		e := mustInsertWithPayload(t, s, sent(identity(n)))
		neighbour := mustInsertWithPayload(t, s, sent(ledger.Identity{ReminderID: e.ReminderID, Type: e.Type, Channel: "push"}))
		stale := e
		stale.Version++
		if _, err := s.Update(ctx, ledger.Change{Entry: stale, Purge: row.scope}); !errors.Is(err, ledger.ErrStale) {
			t.Fatalf("%d: stale: %v", n, err)
		}
		if _, err := s.Payload(ctx, e.Identity); err != nil {
			t.Fatalf("%d: a stale write purged: %v", n, err)
		}
		done := auditEvent(e.Identity, fmt.Sprint("purge-", n))
		if _, err := s.Update(ctx, ledger.Change{Entry: e, Purge: row.scope, Audit: &done}); err != nil {
			t.Fatal(err)
		}
		detail, err := s.EntryDetail(ctx, e.Identity)
		if err != nil || (detail.Payload != nil) != (row.payload == 1) || len(detail.Conflicts) != row.conflicts ||
			(detail.Entry.ContentHash != "") != row.hash || len(detail.Audit) != 1 || len(detail.Timeline) != 1 {
			t.Errorf("%d: %+v, %v", n, detail, err)
		}
		if fresh, err := s.RecordConflict(ctx, ledger.Conflict{Identity: e.Identity, ContentHash: "late"}); err != nil || fresh != row.hash {
			t.Errorf("%d: a conflict recorded late: %t, %v", n, fresh, err)
		}
		detail, err = s.EntryDetail(ctx, neighbour.Identity)
		if err != nil || detail.Payload == nil || len(detail.Conflicts) != 1 || detail.Entry.ContentHash == "" {
			t.Errorf("%d: the neighbour lost something: %+v, %v", n, detail, err)
		}
	}
}

func testRetentionCandidates(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.RetentionCandidate
	for n := range 9 {
		kept := ledger.RetentionCandidate{Entry: sent(identity(n)), HasPayload: n%3 == 0}
		if kept.HasPayload {
			kept.Entry = mustInsertWithPayload(t, s, kept.Entry)
		} else {
			kept.Entry = mustInsert(t, s, kept.Entry)
		}
		want = append(want, kept)
	}
	for _, limit := range []int{1, 4, 100} {
		var got []ledger.RetentionCandidate
		for position := (ledger.EntryPosition{}); len(got) <= len(want); {
			page, err := s.RetentionCandidates(ctx, position, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1].Entry
			position = ledger.EntryPosition{FirstSeen: last.FirstSeen, Identity: last.Identity}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, want)
	}
}

func testDelete(t *testing.T, s Store) {
	ctx := context.Background()
	e := mustInsertWithPayload(t, s, sent(identity(1)))
	neighbour := mustInsertWithPayload(t, s, sent(identity(2)))
	done := auditEvent(e.Identity, "seen")
	moved, err := s.Update(ctx, ledger.Change{Entry: e, Audit: &done})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, e); !errors.Is(err, ledger.ErrStale) {
		t.Fatalf("a changed entry was deleted: %v", err)
	}
	if err := s.Delete(ctx, moved); err != nil {
		t.Fatal(err)
	}
	if _, err := s.EntryDetail(ctx, e.Identity); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("its detail: %v", err)
	}
	if _, err := s.Payload(ctx, e.Identity); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("its payload: %v", err)
	}
	if err := s.Delete(ctx, moved); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("twice: %v", err)
	}
	if detail, err := s.EntryDetail(ctx, neighbour.Identity); err != nil || detail.Payload == nil {
		t.Errorf("the neighbour: %v", err)
	}
	// The identity can be used again, and the new entry has nothing of the old one but its audit events.
	mustInsert(t, s, waiting(identity(1), 0))
	detail, err := s.EntryDetail(ctx, e.Identity)
	if err != nil || len(detail.Timeline) != 0 || len(detail.Conflicts) != 0 || detail.Payload != nil || len(detail.Audit) != 1 {
		t.Errorf("%+v, %v", detail, err)
	}
}

func testConflicted(t *testing.T, s Store) {
	mustInsert(t, s, sent(identity(1)))
	conflicted := mustInsertWithPayload(t, s, sent(identity(2)))
	mustInsert(t, s, sent(identity(3)))
	got, err := s.List(context.Background(), ledger.Query{Conflict: true, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "conflicted", got, []ledger.Entry{conflicted})
}

func testDeadLetterGroups(t *testing.T, s Store) {
	ctx := context.Background()
	deadLetters := map[ledger.DeadLetterGroup][]ledger.Entry{}
	put := func(n int, class ledger.Class, provider, code, typ string) {
		id := identity(n)
		id.Type = typ
		e := dead(id, class)
		e.Provider, e.Code = provider, code
		cause := ledger.DeadLetterGroup{Class: class, Provider: provider, Code: code, Type: typ}
		deadLetters[cause] = append(deadLetters[cause], mustInsert(t, s, e))
	}
	put(1, ledger.ClassPermanent, "mail", "550", "a")
	put(2, ledger.ClassExhausted, "mail", "", "a")
	put(3, ledger.ClassPermanent, "mail", "550", "a")
	put(4, ledger.ClassPermanent, "mail", "550", "b")
	put(5, ledger.ClassPermanent, "mail", "550", "a")
	put(6, ledger.ClassPermanent, "mail", "551", "a")
	put(7, ledger.ClassExhausted, "mail", "", "a")
	put(8, ledger.ClassPermanent, "sms", "550", "a")
	mustInsert(t, s, sent(identity(9)))
	waits := waiting(identity(10), 0)
	waits.Class = ledger.ClassThrottled
	mustInsert(t, s, waits)

	groups, err := s.DeadLetterGroups(ctx, 100)
	if err != nil || len(groups) != len(deadLetters) {
		t.Fatalf("%d groups of %d, %v", len(groups), len(deadLetters), err)
	}
	for i, g := range groups {
		cause := ledger.DeadLetterGroup{Class: g.Class, Provider: g.Provider, Code: g.Code, Type: g.Type}
		found := deadLetters[cause]
		if len(found) == 0 {
			t.Fatalf("a group without entries: %+v", g)
		}
		first, last := found[0], found[len(found)-1]
		if g.Count != int64(len(found)) || !g.FirstDead.Equal(first.Updated) || !g.LastDead.Equal(last.Updated) || g.Sample != last.Identity {
			t.Errorf("%+v, want %d from %v to %v", g, len(found), first.Updated, last.Updated)
		}
		if i > 0 && g.Count > groups[i-1].Count {
			t.Errorf("%d after %d", g.Count, groups[i-1].Count)
		}
	}
	if few, err := s.DeadLetterGroups(ctx, 2); err != nil || len(few) != 2 || few[0].Count != 3 {
		t.Errorf("two: %+v, %v", few, err)
	}
}

func testAudit(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.AuditEvent
	for n := range 11 {
		a := auditEvent(ledger.Identity{}, fmt.Sprintf("id-%02d", n))
		a.Actor, a.Action = []string{"ada", "ben"}[n%2], []string{"reconcile", "pause:mail", "erase"}[n%3]
		if err := s.RecordAudit(ctx, a); err != nil {
			t.Fatal(err)
		}
		want = append(want, a)
	}
	all, err := s.Audit(ctx, ledger.AuditQuery{Limit: 100})
	if err != nil || len(all) != len(want) {
		t.Fatalf("%d of %d, %v", len(all), len(want), err)
	}
	for _, limit := range []int{1, 3, 100} {
		var got []ledger.AuditEvent
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
			q.After = &ledger.AuditPosition{At: last.At, ID: last.ID}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, all)
	}
	for name, q := range map[string]ledger.AuditQuery{
		"actor":  {Actor: "ben", Limit: 100},
		"action": {Action: "erase", Limit: 100},
		"from":   {From: all[4].At, Limit: 100},
		"to":     {To: all[4].At, Limit: 100},
	} {
		var want []ledger.AuditEvent
		for _, a := range all {
			if (q.Actor == "" || a.Actor == q.Actor) && (q.Action == "" || a.Action == q.Action) &&
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

func testUpdateGateByOperator(t *testing.T, s Store) {
	ctx := context.Background()
	paused := ledger.Gate{Provider: "mail", Paused: true, Actor: "ada"}
	stored, err := s.UpdateGateByOperator(ctx, paused, auditEvent(ledger.Identity{}, "pause-1"))
	if err != nil || !stored.Paused || stored.Version != 1 {
		t.Fatalf("%+v, %v", stored, err)
	}
	// Neither a stale gate nor an audit event that cannot be written leaves anything behind.
	if _, err := s.UpdateGateByOperator(ctx, paused, auditEvent(ledger.Identity{}, "pause-2")); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a stale gate: %v", err)
	}
	resumed := stored
	resumed.Paused = false
	if _, err := s.UpdateGateByOperator(ctx, resumed, auditEvent(ledger.Identity{}, "pause-1")); err == nil || errors.Is(err, ledger.ErrStale) {
		t.Errorf("an audit event that exists already: %v", err)
	}
	gates, _, err := s.Gates(ctx)
	if err != nil || len(gates) != 1 || !gates[0].Paused || gates[0].Version != 1 {
		t.Errorf("%+v, %v", gates, err)
	}
	audit, err := s.Audit(ctx, ledger.AuditQuery{Limit: 10})
	if err != nil || len(audit) != 1 {
		t.Errorf("%d audit events, %v", len(audit), err)
	}
	if _, err := s.UpdateGateByOperator(ctx, resumed, auditEvent(ledger.Identity{}, "resume-1")); err != nil {
		t.Error(err)
	}
}

func redrive(id, key string) ledger.Redrive {
	return ledger.Redrive{
		ID: id, Actor: "ada", Role: "operator", Reason: "the provider is back", IdempotencyKey: key, RequestHash: "hash", Request: `{"limit":2}`,
		State: ledger.RedriveRunning, Size: 2, Interval: 100 * time.Millisecond, Deadline: someTime().Add(time.Hour), Permanent: true,
	}
}

func testRedrives(t *testing.T, s Store) {
	ctx := context.Background()
	letter := mustInsert(t, s, dead(identity(1), ledger.ClassExhausted))
	items := []ledger.RedriveItem{
		{Identity: letter.Identity, Position: 1, Version: letter.Version},
		{Identity: identity(2), Position: 2, Version: 9}, // purged in the meantime
	}
	first, err := s.InsertRedrive(ctx, redrive("rd-1", "key-1"), items, auditEvent(ledger.Identity{}, "rd-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := redrive("rd-1", "key-1")
	want.Version, want.Created, want.Updated = 1, first.Created, first.Updated
	want.Deadline = micros(want.Deadline)
	same(t, "created", first, want)
	for name, duplicate := range map[string]ledger.Redrive{"the same key": redrive("rd-2", "key-1"), "the same id": redrive("rd-1", "key-2")} {
		if _, err := s.InsertRedrive(ctx, duplicate, items, auditEvent(ledger.Identity{}, "duplicate "+name)); !errors.Is(err, ledger.ErrExists) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if audit, err := s.Audit(ctx, ledger.AuditQuery{Limit: 10}); err != nil || len(audit) != 1 {
		t.Errorf("%d audit events, %v", len(audit), err)
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

	// Each item is processed once, and is returned with the current state of its entry.
	held := first
	held.Holder, held.LeaseUntil = "holder-1", ledger.In(time.Minute)
	if held, err = s.UpdateRedrive(ctx, held, nil); err != nil {
		t.Fatal(err)
	}
	item := ledger.RedriveItem{RedriveID: "rd-1", Position: 1, Result: ledger.ItemRedriven}
	if err := s.SetItemResult(ctx, "previous holder", item); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("by a replica that does not hold it: %v", err)
	}
	if err := s.SetItemResult(ctx, "holder-1", item); err != nil {
		t.Fatal(err)
	}
	again := ledger.RedriveItem{RedriveID: "rd-1", Position: 1, Result: string(ledger.SkipMoved)}
	if err := s.SetItemResult(ctx, "holder-1", again); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second result: %v", err)
	}
	held.Holder, held.LeaseUntil = "", ledger.Moment{}
	if first, err = s.UpdateRedrive(ctx, held, nil); err != nil {
		t.Fatal(err)
	}
	found, err := s.RedriveItems(ctx, "rd-1")
	if err != nil || len(found) != 2 || found[0].Result != ledger.ItemRedriven || found[0].At.IsZero() ||
		found[0].Current != (ledger.StateSummary{State: ledger.Dead, Class: ledger.ClassExhausted, Reason: ledger.ReasonRefused}) ||
		found[0].Version != letter.Version || found[1].Result != "" || found[1].Current != (ledger.StateSummary{}) || found[1].Version != 9 {
		t.Errorf("%+v, %v", found, err)
	}

	second, err := s.InsertRedrive(ctx, redrive("rd-2", "key-2"), nil, auditEvent(ledger.Identity{}, "rd-2"))
	if err != nil {
		t.Fatal(err)
	}
	testRedriveLease(t, s, first, second)
}

// testRedriveLease tests that one replica at a time holds a redrive, and none holds a finished one.
func testRedriveLease(t *testing.T, s Store, first, second ledger.Redrive) {
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
	held.Holder, held.LeaseUntil = "holder-1", ledger.In(time.Minute)
	held, err := s.UpdateRedrive(ctx, held, nil)
	if err != nil || held.Version != first.Version+1 || held.Holder != "holder-1" {
		t.Fatalf("%+v, %v", held, err)
	}
	idle("rd-2")
	if _, err := s.UpdateRedrive(ctx, first, nil); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second holder: %v", err)
	}
	expired := held
	expired.LeaseUntil = ledger.In(-time.Second)
	if expired, err = s.UpdateRedrive(ctx, expired, nil); err != nil {
		t.Fatal(err)
	}
	idle("rd-1", "rd-2")
	ended := expired
	ended.State, ended.Holder, ended.LeaseUntil, ended.Finished = ledger.RedriveCancelled, "", ledger.Moment{}, ledger.In(0)
	twice := auditEvent(ledger.Identity{}, "rd-1")
	if _, err := s.UpdateRedrive(ctx, ended, &twice); err == nil || errors.Is(err, ledger.ErrStale) {
		t.Errorf("an audit event that cannot be written: %v", err)
	}
	idle("rd-1", "rd-2")
	cancel := auditEvent(ledger.Identity{}, "cancel")
	ended, err = s.UpdateRedrive(ctx, ended, &cancel)
	if err != nil || ended.State != ledger.RedriveCancelled || ended.Finished.IsZero() {
		t.Fatalf("%+v, %v", ended, err)
	}
	idle("rd-2")
	// The item that was in progress at the cancel gets its result still, once.
	inProgress := ledger.RedriveItem{RedriveID: "rd-1", Position: 2, Result: ledger.ItemRedriven}
	if err := s.SetItemResult(ctx, "holder-1", inProgress); err != nil {
		t.Errorf("the result of an item in progress at the cancel: %v", err)
	}
	if err := s.SetItemResult(ctx, "holder-1", inProgress); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a second result after the cancel: %v", err)
	}
	if running, err := s.RunningRedrives(ctx); err != nil || running != 1 {
		t.Errorf("%d running, %v", running, err)
	}
	newest, err := s.Redrives(ctx, nil, 1)
	if err != nil || len(newest) != 1 {
		t.Fatalf("%+v, %v", newest, err)
	}
	same(t, "the newest", newest[0], second)
	rest, err := s.Redrives(ctx, &ledger.RedrivePosition{Created: second.Created, ID: second.ID}, 10)
	if err != nil || len(rest) != 1 {
		t.Fatalf("%+v, %v", rest, err)
	}
	same(t, "the next", rest[0], ended)
}
