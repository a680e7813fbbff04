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

// withLookup is an unknown entry whose next lookup is due after a time.
func withLookup(id ledger.Identity, in time.Duration) ledger.Entry {
	e := unknown(id)
	e.NextLookup, e.LookupsNotFound = ledger.In(in), 3
	return e
}

func testDueLookups(t *testing.T, s Store) {
	ctx := context.Background()
	for n, in := range []time.Duration{-2 * time.Hour, -3 * time.Hour, -time.Hour, time.Hour} {
		created := mustInsert(t, s, withLookup(identity(n), in))
		same(t, "created", created, asStored(t, withLookup(identity(n), in), created))
		same(t, "loaded", mustLoad(t, s, identity(n)), created)
	}
	elsewhere := withLookup(identity(10), -time.Hour)
	elsewhere.Provider = "texter"
	mustInsert(t, s, elsewhere)
	mustInsert(t, s, unknown(identity(11))) // it has no lookup
	mustInsert(t, s, waiting(identity(12), -time.Hour))
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
		got, err := s.DueLookups(ctx, test.provider, test.limit)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("DueLookups %s %d: %v, %v; want %v", test.provider, test.limit, got, err, test.want)
		}
	}
	// A lookup result postpones the next lookup and is counted; proof ends the lookups.
	next := mustLoad(t, s, identity(1))
	next.NextLookup, next.LookupsNotFound = ledger.In(time.Hour), 4
	if stored := mustUpdate(t, s, next, nil); stored.LookupsNotFound != 4 || mustLoad(t, s, identity(1)).LookupsNotFound != 4 {
		t.Errorf("%d lookups not found, want 4", stored.LookupsNotFound)
	}
	proven := mustLoad(t, s, identity(0))
	proven.State, proven.Reason, proven.Receipt = ledger.Sent, ledger.ReasonLateAcceptance, "receipt"
	proven.NextLookup, proven.DoubtSince, proven.Class = ledger.Moment{}, time.Time{}, ""
	mustUpdate(t, s, proven, nil)
	if got, err := s.DueLookups(ctx, "mailer", 10); err != nil || !slices.Equal(got, []ledger.Identity{identity(2)}) {
		t.Errorf("DueLookups: %v, %v; want what is left", got, err)
	}
}

func testUnknown(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.Entry
	for n := range 23 {
		e := unknown(ledger.Identity{ReminderID: fmt.Sprint("r-", n%4), Type: fmt.Sprint("t-", n%3), Channel: fmt.Sprintf("c-%02d", n)})
		e.DoubtSince = someTime().Add(time.Duration(n%5) * time.Microsecond) // many in one instant
		want = append(want, mustInsert(t, s, e))
	}
	inDoubt := waiting(identity(100), time.Hour)
	inDoubt.DoubtSince = someTime().Add(-time.Hour)
	mustInsert(t, s, inDoubt)
	holding := sending(identity(101))
	holding.DoubtSince = someTime().Add(-time.Hour)
	mustInsert(t, s, holding)
	abandoned := dropped(identity(102))
	abandoned.DoubtSince, abandoned.Reason = someTime().Add(-time.Hour), ledger.ReasonAbandoned
	mustInsert(t, s, abandoned)
	slices.SortFunc(want, func(a, b ledger.Entry) int {
		if byDoubt := a.DoubtSince.Compare(b.DoubtSince); byDoubt != 0 {
			return byDoubt
		}
		return compareIdentity(a, b)
	})
	for _, limit := range []int{1, 4, 23, 100} {
		var got []ledger.Entry
		for position := (ledger.DoubtPosition{}); ; {
			page, err := s.Unknown(ctx, position, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 || len(got) > len(want) {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1]
			position = ledger.DoubtPosition{Since: last.DoubtSince, Identity: last.Identity}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, want)
	}
	// A position stays valid after its entry has left the list.
	position := ledger.DoubtPosition{Since: want[5].DoubtSince, Identity: want[5].Identity}
	settledMeanwhile := want[5]
	settledMeanwhile.State, settledMeanwhile.Reason, settledMeanwhile.Receipt = ledger.Sent, ledger.ReasonResolved, "r"
	settledMeanwhile.DoubtSince = time.Time{}
	mustUpdate(t, s, settledMeanwhile, nil)
	got, err := s.Unknown(ctx, position, 100)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "after an entry that was settled", got, want[6:])
}

func auditEvent(id ledger.Identity, word string) ledger.AuditEvent {
	return ledger.AuditEvent{
		Identity: id, ID: "audit-" + word, Actor: word, Role: word, Action: "resolve:sent", Reason: word,
		Before: `{"state":"unknown"}`, After: `{"state":"sent"}`,
	}
}

// resolved is an unknown entry after an operator resolved it as sent.
func resolved(e ledger.Entry, audit ledger.AuditEvent) ledger.Change {
	e.State, e.Reason, e.ReceiptMissing = ledger.Sent, ledger.ReasonResolved, ledger.MissingResolved
	e.DoubtSince, e.NextLookup = time.Time{}, ledger.Moment{}
	return ledger.Change{Entry: e, Event: decided(ledger.ReasonResolved), Audit: &audit}
}

func testAuditEvents(t *testing.T, s Store) {
	ctx := context.Background()
	for n, word := range hostile() {
		e := mustInsert(t, s, unknown(identity(n)))
		audit := auditEvent(e.Identity, word)
		stored, err := s.Update(ctx, resolved(e, audit))
		if err != nil {
			t.Fatalf("Update with %q: %v", word, err)
		}
		detail, err := s.EntryDetail(ctx, e.Identity)
		if err != nil || len(detail.Audit) != 1 || len(detail.Timeline) != 1 {
			t.Fatalf("EntryDetail %q: %d audit events, %d timeline events, %v", word, len(detail.Audit), len(detail.Timeline), err)
		}
		if at := detail.Audit[0].At; at.Sub(stored.Updated).Abs() > slack || at.Location() != time.UTC {
			t.Errorf("%q: at %v, the entry %v", word, at, stored.Updated)
		}
		audit.At = detail.Audit[0].At
		same(t, fmt.Sprintf("audit event of %q", word), detail.Audit[0], audit)
	}
	// An audit event without an entry belongs to no entry detail.
	if err := s.RecordAudit(ctx, auditEvent(ledger.Identity{}, "sweep")); err != nil {
		t.Errorf("RecordAudit: %v", err)
	}
	if detail, err := s.EntryDetail(ctx, identity(0)); err != nil || len(detail.Audit) != 1 {
		t.Errorf("EntryDetail: %d audit events, %v", len(detail.Audit), err)
	}
}

// The decision of an operator is committed together with its audit event, or not at all.
func testAuditEventIsAtomic(t *testing.T, s Store) {
	ctx := context.Background()
	e := mustInsert(t, s, unknown(identity(1)))
	stale := resolved(e, auditEvent(e.Identity, "stale"))
	stale.Entry.Version++
	if _, err := s.Update(ctx, stale); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a stale update: %v, want ErrStale", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := s.Update(ended, resolved(e, auditEvent(e.Identity, "ended"))); err == nil {
		t.Error("an ended context wrote")
	}
	spoilt := resolved(e, auditEvent(e.Identity, "spoilt"))
	spoilt.Entry.ReceiptMissing = ""
	if _, err := s.Update(ctx, spoilt); err == nil {
		t.Error("an entry that violates a constraint was written")
	}
	used := auditEvent(e.Identity, "used")
	if err := s.RecordAudit(ctx, used); err != nil {
		t.Fatal(err)
	}
	switch _, err := s.Update(ctx, resolved(e, used)); {
	case err == nil:
		t.Error("one audit id was written twice")
	case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrExists), errors.Is(err, ledger.ErrNotFound):
		t.Errorf("a failed audit event is returned as an error of the entry: %v", err)
	}
	detail, err := s.EntryDetail(ctx, e.Identity)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the entry", detail.Entry, e)
	if len(detail.Audit) != 1 || len(detail.Timeline) != 0 {
		t.Errorf("%d audit events, %d timeline events; want only the audit event that was written before", len(detail.Audit), len(detail.Timeline))
	}
	// Audit events are returned in order.
	for n := range 3 {
		audit := auditEvent(e.Identity, fmt.Sprint(3-n))
		if e, err = s.Update(ctx, ledger.Change{Entry: e, Event: decided(ledger.ReasonUnanswered), Audit: &audit}); err != nil {
			t.Fatal(err)
		}
	}
	if detail, err = s.EntryDetail(ctx, e.Identity); err != nil || len(detail.Audit) != 4 {
		t.Fatalf("%d audit events, %v", len(detail.Audit), err)
	}
	for i := 1; i < len(detail.Audit); i++ {
		if detail.Audit[i].At.Before(detail.Audit[i-1].At) {
			t.Errorf("audit event %d is out of order", i)
		}
	}
}

// A decision and its repeat with the same audit event are written once, so that after a lost reply the repeat shows
// whether the first was written.
func testConcurrentResolutions(t *testing.T, s Store) {
	read := mustInsert(t, s, unknown(identity(1)))
	race(t, ledger.ErrStale, func(n int) error {
		_, err := s.Update(context.Background(), resolved(read, auditEvent(read.Identity, fmt.Sprint(n))))
		return err
	})
	detail, err := s.EntryDetail(context.Background(), identity(1))
	if err != nil || len(detail.Audit) != 1 || len(detail.Timeline) != 1 {
		t.Errorf("%d audit events, %d timeline events, %v; want only those of the update that succeeded", len(detail.Audit), len(detail.Timeline), err)
	}
}

func testEpoch(t *testing.T, s Store) {
	ctx := context.Background()
	epoch, err := s.Epoch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mustInsert(t, s, sending(identity(1)))
	for range 3 {
		again, err := s.Epoch(ctx)
		seen, loadErr := s.Load(ctx, identity(1))
		if err != nil || loadErr != nil || again != epoch || seen.Epoch != epoch {
			t.Errorf("epoch %q, then %q, in a snapshot %q; %v, %v", epoch, again, seen.Epoch, err, loadErr)
		}
	}
	if absent, err := s.Load(ctx, identity(2)); err != nil || absent.Epoch != epoch {
		t.Errorf("a snapshot of an absent entry: epoch %q, %v", absent.Epoch, err)
	}
	for range 2 { // the epoch on which the ledger was created has no time
		if noticed, err := s.RecordEpoch(ctx, epoch, false); err != nil || !noticed.IsZero() {
			t.Errorf("RecordEpoch: %v, %v; want never", noticed, err)
		}
	}
}

// RunEpochChanges tests a store whose database can be replaced, for example by a promoted standby. Each call of open
// returns an empty, migrated store.
func RunEpochChanges(t *testing.T, open func(t *testing.T) Store) {
	ctx := context.Background()
	notice := func(t *testing.T, s Store, epoch string, again bool) time.Time {
		t.Helper()
		noticed, err := s.RecordEpoch(ctx, epoch, again)
		if err != nil {
			t.Fatalf("RecordEpoch %s: %v", epoch, err)
		}
		return noticed
	}
	t.Run("each change is noticed once", func(t *testing.T) {
		s := open(t)
		if at := notice(t, s, "one", false); !at.IsZero() {
			t.Errorf("the first: %v", at)
		}
		two := notice(t, s, "two", true)
		if seen, err := s.Load(ctx, identity(1)); err != nil || seen.Now.Sub(two).Abs() > slack || two.Location() != time.UTC {
			t.Errorf("the second: noticed %v at %v, %v", two, seen.Now, err)
		}
		for range 2 { // by replicas that start later
			if at := notice(t, s, "two", false); !at.Equal(two) {
				t.Errorf("the second again: %v, want %v", at, two)
			}
			if at := notice(t, s, "one", false); !at.IsZero() {
				t.Errorf("the first again: %v", at)
			}
		}
		if at := notice(t, s, "two", true); at.Before(two) {
			t.Errorf("a replica that lived on another since: %v, before %v", at, two)
		}
		back := notice(t, s, "one", true)
		if back.IsZero() || back.Before(two) {
			t.Errorf("back on the first: %v", back)
		}
		if at := notice(t, s, "one", false); !at.Equal(back) {
			t.Errorf("back on the first, for one that starts: %v, want %v", at, back)
		}
		for _, word := range hostile() {
			if at := notice(t, s, word, false); at.IsZero() || !notice(t, s, word, false).Equal(at) {
				t.Errorf("%q: %v", word, at)
			}
		}
	})
	t.Run("concurrent notices of one change", func(t *testing.T) {
		s := open(t)
		notice(t, s, "one", false)
		results := make(chan time.Time, 16)
		for range cap(results) {
			go func() {
				at, err := s.RecordEpoch(ctx, "two", false)
				if err != nil {
					t.Errorf("RecordEpoch: %v", err)
				}
				results <- at
			}()
		}
		first := <-results
		for range cap(results) - 1 {
			if at := <-results; at.IsZero() || !at.Equal(first) {
				t.Errorf("noticed %v and %v", first, at)
			}
		}
	})
}
