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

// askable is an unknown entry whose provider is asked in so long.
func askable(id ledger.Identity, in time.Duration) ledger.Entry {
	e := unknown(id)
	e.AskAt, e.Asked = ledger.In(in), 3
	return e
}

func testAsks(t *testing.T, s Store) {
	ctx := context.Background()
	for n, in := range []time.Duration{-2 * time.Hour, -3 * time.Hour, -time.Hour, time.Hour} {
		created := mustCreate(t, s, askable(identity(n), in))
		same(t, "created", created, asStored(t, askable(identity(n), in), created))
		same(t, "loaded", mustLoad(t, s, identity(n)), created)
	}
	elsewhere := askable(identity(10), -time.Hour)
	elsewhere.Provider = "texter"
	mustCreate(t, s, elsewhere)
	mustCreate(t, s, unknown(identity(11))) // nobody is asked about it
	mustCreate(t, s, waiting(identity(12), -time.Hour))
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
		got, err := s.Asks(ctx, test.provider, test.limit)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("Asks %s %d: %v, %v; want %v", test.provider, test.limit, got, err, test.want)
		}
	}
	// An answer puts it off, and counts; proof ends it.
	next := mustLoad(t, s, identity(1))
	next.AskAt, next.Asked = ledger.In(time.Hour), 4
	if stands := mustSwap(t, s, next, nil); stands.Asked != 4 || mustLoad(t, s, identity(1)).Asked != 4 {
		t.Errorf("asked %d times, want 4", stands.Asked)
	}
	proven := mustLoad(t, s, identity(0))
	proven.State, proven.Reason, proven.Receipt = ledger.Sent, ledger.ReasonLateAcceptance, "receipt"
	proven.AskAt, proven.DoubtSince, proven.Class = ledger.Moment{}, time.Time{}, ""
	mustSwap(t, s, proven, nil)
	if got, err := s.Asks(ctx, "mailer", 10); err != nil || !slices.Equal(got, []ledger.Identity{identity(2)}) {
		t.Errorf("Asks: %v, %v; want what is left", got, err)
	}
}

func testUnknown(t *testing.T, s Store) {
	ctx := context.Background()
	var want []ledger.Entry
	for n := range 23 {
		e := unknown(ledger.Identity{ReminderID: fmt.Sprint("r-", n%4), Type: fmt.Sprint("t-", n%3), Channel: fmt.Sprintf("c-%02d", n)})
		e.DoubtSince = aTime().Add(time.Duration(n%5) * time.Microsecond) // many in one instant
		want = append(want, mustCreate(t, s, e))
	}
	inDoubt := waiting(identity(100), time.Hour)
	inDoubt.DoubtSince = aTime().Add(-time.Hour)
	mustCreate(t, s, inDoubt)
	holding := sending(identity(101))
	holding.DoubtSince = aTime().Add(-time.Hour)
	mustCreate(t, s, holding)
	abandoned := dropped(identity(102))
	abandoned.DoubtSince, abandoned.Reason = aTime().Add(-time.Hour), ledger.ReasonAbandoned
	mustCreate(t, s, abandoned)
	slices.SortFunc(want, func(a, b ledger.Entry) int {
		if byDoubt := a.DoubtSince.Compare(b.DoubtSince); byDoubt != 0 {
			return byDoubt
		}
		return compareIdentity(a, b)
	})
	for _, limit := range []int{1, 4, 23, 100} {
		var got []ledger.Entry
		for place := (ledger.Doubt{}); ; {
			page, err := s.Unknown(ctx, place, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("a page of %d: %d, %v", limit, len(page), err)
			}
			if len(page) == 0 || len(got) > len(want) {
				break
			}
			got = append(got, page...)
			last := page[len(page)-1]
			place = ledger.Doubt{Since: last.DoubtSince, Identity: last.Identity}
		}
		same(t, fmt.Sprint("by pages of ", limit), got, want)
	}
	// A place is a place also where its entry is gone meanwhile.
	place := ledger.Doubt{Since: want[5].DoubtSince, Identity: want[5].Identity}
	settledMeanwhile := want[5]
	settledMeanwhile.State, settledMeanwhile.Reason, settledMeanwhile.Receipt = ledger.Sent, ledger.ReasonResolved, "r"
	settledMeanwhile.DoubtSince = time.Time{}
	mustSwap(t, s, settledMeanwhile, nil)
	got, err := s.Unknown(ctx, place, 100)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "behind one that is gone", got, want[6:])
}

func anAct(id ledger.Identity, word string) ledger.Act {
	return ledger.Act{
		Identity: id, ID: "act-" + word, By: word, Role: word, Verb: "resolve:sent", Why: word,
		Before: `{"state":"unknown"}`, After: `{"state":"sent"}`,
	}
}

// resolvedBy is an unknown entry after a person said that it was sent.
func resolvedBy(e ledger.Entry, act ledger.Act) ledger.Change {
	e.State, e.Reason, e.Missing = ledger.Sent, ledger.ReasonResolved, ledger.MissingResolved
	e.DoubtSince, e.AskAt = time.Time{}, ledger.Moment{}
	return ledger.Change{Entry: e, Event: decided(ledger.ReasonResolved), Act: &act}
}

func testActs(t *testing.T, s Store) {
	ctx := context.Background()
	for n, word := range hostile() {
		e := mustCreate(t, s, unknown(identity(n)))
		act := anAct(e.Identity, word)
		stands, err := s.Swap(ctx, resolvedBy(e, act))
		if err != nil {
			t.Fatalf("Swap with %q: %v", word, err)
		}
		story, err := s.Story(ctx, e.Identity)
		if err != nil || len(story.Acts) != 1 || len(story.Timeline) != 1 {
			t.Fatalf("Story %q: %d acts, %d lines, %v", word, len(story.Acts), len(story.Timeline), err)
		}
		if at := story.Acts[0].At; at.Sub(stands.Updated).Abs() > slack || at.Location() != time.UTC {
			t.Errorf("%q: at %v, the entry %v", word, at, stands.Updated)
		}
		act.At = story.Acts[0].At
		same(t, fmt.Sprintf("the act of %q", word), story.Acts[0], act)
	}
	// An act on no entry is nobody's story.
	if err := s.Record(ctx, anAct(ledger.Identity{}, "sweep")); err != nil {
		t.Errorf("Record: %v", err)
	}
	if story, err := s.Story(ctx, identity(0)); err != nil || len(story.Acts) != 1 {
		t.Errorf("Story: %d acts, %v", len(story.Acts), err)
	}
}

// What a person decides is committed together with its line in the audit, or not at all.
func testActOrNothing(t *testing.T, s Store) {
	ctx := context.Background()
	e := mustCreate(t, s, unknown(identity(1)))
	stale := resolvedBy(e, anAct(e.Identity, "stale"))
	stale.Entry.Version++
	if _, err := s.Swap(ctx, stale); !errors.Is(err, ledger.ErrStale) {
		t.Errorf("a stale one: %v, want ErrStale", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := s.Swap(ended, resolvedBy(e, anAct(e.Identity, "ended"))); err == nil {
		t.Error("an ended context wrote")
	}
	spoilt := resolvedBy(e, anAct(e.Identity, "spoilt"))
	spoilt.Entry.Missing = ""
	if _, err := s.Swap(ctx, spoilt); err == nil {
		t.Error("what breaks an invariant was written")
	}
	used := anAct(e.Identity, "used")
	if err := s.Record(ctx, used); err != nil {
		t.Fatal(err)
	}
	switch _, err := s.Swap(ctx, resolvedBy(e, used)); {
	case err == nil:
		t.Error("the audit took one id twice")
	case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrExists), errors.Is(err, ledger.ErrNotFound):
		t.Errorf("an act that failed reads like a refusal of the entry: %v", err)
	}
	story, err := s.Story(ctx, e.Identity)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the entry", story.Entry, e)
	if len(story.Acts) != 1 || len(story.Timeline) != 0 {
		t.Errorf("%d acts, %d lines; want the one that was recorded before", len(story.Acts), len(story.Timeline))
	}
	// In order, however many.
	for n := range 3 {
		act := anAct(e.Identity, fmt.Sprint(3-n))
		if e, err = s.Swap(ctx, ledger.Change{Entry: e, Event: decided(ledger.ReasonUnanswered), Act: &act}); err != nil {
			t.Fatal(err)
		}
	}
	if story, err = s.Story(ctx, e.Identity); err != nil || len(story.Acts) != 4 {
		t.Fatalf("%d acts, %v", len(story.Acts), err)
	}
	for i := 1; i < len(story.Acts); i++ {
		if story.Acts[i].At.Before(story.Acts[i-1].At) {
			t.Errorf("act %d is out of order", i)
		}
	}
}

// Of a decision and its repeat with the same act one happens, so that a lost reply can be told from a loss.
func testManyDeciders(t *testing.T, s Store) {
	read := mustCreate(t, s, unknown(identity(1)))
	race(t, ledger.ErrStale, func(n int) error {
		_, err := s.Swap(context.Background(), resolvedBy(read, anAct(read.Identity, fmt.Sprint(n))))
		return err
	})
	story, err := s.Story(context.Background(), identity(1))
	if err != nil || len(story.Acts) != 1 || len(story.Timeline) != 1 {
		t.Errorf("%d acts, %d lines, %v; want the winner's alone", len(story.Acts), len(story.Timeline), err)
	}
}

func testEpoch(t *testing.T, s Store) {
	ctx := context.Background()
	epoch, err := s.Epoch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, s, sending(identity(1)))
	for range 3 {
		again, err := s.Epoch(ctx)
		seen, loadErr := s.Load(ctx, identity(1))
		if err != nil || loadErr != nil || again != epoch || seen.Epoch != epoch {
			t.Errorf("epoch %q, then %q, a reading's %q; %v, %v", epoch, again, seen.Epoch, err, loadErr)
		}
	}
	if absent, err := s.Load(ctx, identity(2)); err != nil || absent.Epoch != epoch {
		t.Errorf("a reading of nothing: epoch %q, %v", absent.Epoch, err)
	}
	for range 2 { // the one that the ledger was born on has always been there
		if noticed, err := s.Notice(ctx, epoch, false); err != nil || !noticed.IsZero() {
			t.Errorf("Notice: %v, %v; want never", noticed, err)
		}
	}
}

// RunNotices holds the stores that open gives to what one must do whose database can change under it. Each
// call of open gives an empty, migrated store.
func RunNotices(t *testing.T, open func(t *testing.T) Store) {
	ctx := context.Background()
	notice := func(t *testing.T, s Store, epoch string, again bool) time.Time {
		t.Helper()
		noticed, err := s.Notice(ctx, epoch, again)
		if err != nil {
			t.Fatalf("Notice %s: %v", epoch, err)
		}
		return noticed
	}
	t.Run("a change is noticed once, and a change back anew", func(t *testing.T) {
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
	t.Run("many notice one change", func(t *testing.T) {
		s := open(t)
		notice(t, s, "one", false)
		results := make(chan time.Time, 16)
		for range cap(results) {
			go func() {
				at, err := s.Notice(ctx, "two", false)
				if err != nil {
					t.Errorf("Notice: %v", err)
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
