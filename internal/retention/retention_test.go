package retention_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/retention"
)

const day = 24 * time.Hour

func keep() ledger.Retention {
	return ledger.Retention{Sent: 30 * day, Dead: 90 * day, Dropped: 10 * day, Entry: 400 * day}
}

// world is one ledger in memory and a desk over it, inside a bubble whose clock both share.
type world struct {
	*dbtest.Memory
	t      *testing.T
	desk   *retention.Desk
	walked []retention.Walk
	swap   func(ledger.Change) error // fails a write before it happens; may be nil
}

func (w *world) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if w.swap != nil {
		if err := w.swap(c); err != nil {
			return ledger.Entry{}, err
		}
	}
	return w.Memory.Swap(ctx, c)
}

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Memory: dbtest.NewMemory(time.Now), t: t}
		tokens := 0
		w.desk = retention.New(retention.Options{
			Ledger: w, Shelves: w, Keep: keep(), Every: day, Breath: 50 * time.Millisecond, Now: time.Now,
			Token:  func() string { tokens++; return fmt.Sprint("token-", tokens) },
			Walked: func(done retention.Walk) { w.walked = append(w.walked, done) },
			Draw:   func() float64 { return 0.5 },
		})
		f(t, w)
	})
}

func (w *world) put(id string, state ledger.State, changes ...func(*ledger.Entry)) ledger.Entry {
	w.t.Helper()
	e := ledger.Entry{
		Identity: ledger.Identity{ReminderID: id, Type: "seat", Channel: "email"}, ContentHash: "hash", State: state,
		Reason: ledger.ReasonAccepted, Provider: "mail", UserID: "user-7", Published: time.Now(),
	}
	e.SendKey = e.Identity.SendKey()
	switch state {
	case ledger.Sent:
		e.Receipt = "receipt-" + id
	case ledger.Dead:
		e.Class, e.Reason = ledger.ClassExhausted, ledger.ReasonBudgetSpent
	case ledger.Waiting:
		e.Due, e.Wake, e.Owner, e.Reason = ledger.In(1000*day), ledger.In(1000*day), ledger.OwnerLedger, ledger.ReasonScheduled
	case ledger.Unknown:
		e.DoubtSince, e.Reason = time.Now(), ledger.ReasonUnanswered
	case ledger.Sending:
		e.Holder, e.LeaseUntil, e.ClaimedAt, e.Reason = "h", ledger.In(time.Hour), ledger.In(0), ledger.ReasonClaimed
	case ledger.Dropped:
		e.Reason = ledger.ReasonExpired
	}
	for _, change := range changes {
		change(&e)
	}
	payload := &ledger.Payload{Recipient: "ada@example.org", Content: []byte(`{"text":"hello"}`), Metadata: []byte(`{"course":"algebra"}`)}
	stands, err := w.Create(w.t.Context(), ledger.Change{Entry: e, Payload: payload})
	if err != nil {
		w.t.Fatal(err)
	}
	return stands
}

func (w *world) story(id string) (ledger.Story, bool) {
	w.t.Helper()
	story, err := w.Story(w.t.Context(), ledger.Identity{ReminderID: id, Type: "seat", Channel: "email"})
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		w.t.Fatal(err)
	}
	return story, err == nil
}

func TestWhatCameToRestIsForgottenPieceByPieceAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, state := range ledger.States() {
			w.put(string(state), state)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { w.desk.Run(ctx); close(done) }()
		born := time.Now()
		// Day by day: what is still kept, a day after the walk that may take it.
		for _, row := range []struct {
			day      int
			payloads string
			entries  string
		}{
			{9, "sending waiting unknown sent dead dropped", "sending waiting unknown sent dead dropped"},
			{12, "sending waiting unknown sent dead", "sending waiting unknown sent dead dropped"},
			{29, "sending waiting unknown sent dead", "sending waiting unknown sent dead dropped"},
			{32, "sending waiting unknown dead", "sending waiting unknown sent dead dropped"},
			{89, "sending waiting unknown dead", "sending waiting unknown sent dead dropped"},
			{92, "sending waiting unknown", "sending waiting unknown sent dead dropped"},
			{409, "sending waiting unknown", "sending waiting unknown sent dead dropped"}, // the purge was a write
			{413, "sending waiting unknown", "sending waiting unknown sent dead"},
			{433, "sending waiting unknown", "sending waiting unknown dead"},
			{493, "sending waiting unknown", "sending waiting unknown"},
		} {
			time.Sleep(time.Until(born.Add(time.Duration(row.day) * day)))
			synctest.Wait()
			var payloads, entries []string
			for _, state := range ledger.States() {
				story, kept := w.story(string(state))
				if kept {
					entries = append(entries, string(state))
				}
				if story.Payload != nil {
					payloads = append(payloads, string(state))
				}
			}
			if strings.Join(payloads, " ") != row.payloads || strings.Join(entries, " ") != row.entries {
				t.Errorf("day %d: payloads of %v, entries %v", row.day, payloads, entries)
			}
		}
		cancel()
		<-done
	})
}

func TestAWalkReachesEveryPageAndEndsWhereNothingIsOldEnough(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for n := range 1950 {
			w.put(fmt.Sprintf("old-%04d", n), ledger.Sent)
		}
		time.Sleep(31 * day)
		for n := range 700 {
			w.put(fmt.Sprintf("new-%04d", n), ledger.Sent)
		}
		begun := time.Now()
		done, err := w.desk.Walk(t.Context())
		if err != nil || done.Payloads != 1950 || done.Seen != 1950 || done.Entries != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if took := time.Since(begun); took < 3*50*time.Millisecond {
			t.Errorf("it left others no breath: %v", took)
		}
		if again, err := w.desk.Walk(t.Context()); err != nil || again.Payloads != 0 {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
}

func TestWhatMovesMeanwhileStays(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		dead := w.put("dead", ledger.Dead)
		time.Sleep(91 * day)
		// A redrive puts it to work between the walk's reading and its write.
		w.swap = func(c ledger.Change) error {
			w.swap = nil
			next := dead
			next.State, next.Class, next.Reason, next.Owner = ledger.Waiting, "", ledger.ReasonRedriven, ledger.OwnerLedger
			next.Due, next.Wake = ledger.In(0), ledger.In(0)
			_, err := w.Memory.Swap(t.Context(), ledger.Change{Entry: next})
			return err
		}
		done, err := w.desk.Walk(t.Context())
		if err != nil || done.Moved != 1 || done.Payloads != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if story, _ := w.story("dead"); story.Payload == nil || story.Entry.State != ledger.Waiting {
			t.Errorf("%+v", story)
		}
	})
}

func TestAnErasureTakesThePersonAndKeepsTheProof(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, state := range ledger.States() {
			w.put(string(state), state)
		}
		other := w.put("other", ledger.Sent, func(e *ledger.Entry) { e.UserID = "user-8" })
		act := ledger.Act{By: "ada", Role: "admin", Why: "asked to be forgotten"}
		erased, err := w.desk.Erase(t.Context(), "user-7", act)
		if err != nil || erased != len(ledger.States()) {
			t.Fatalf("%d, %v", erased, err)
		}
		for state, want := range map[ledger.State]ledger.State{
			ledger.Sending: ledger.Sending, ledger.Waiting: ledger.Dropped, ledger.Unknown: ledger.Unknown,
			ledger.Sent: ledger.Sent, ledger.Dead: ledger.Dropped, ledger.Dropped: ledger.Dropped,
		} {
			story, _ := w.story(string(state))
			e := story.Entry
			if e.State != want || e.UserID != "" || e.ContentHash != "" || story.Payload != nil || len(story.Acts) != 1 {
				t.Errorf("%s: %s, user %q, hash %q, payload %v, %d acts", state, e.State, e.UserID, e.ContentHash, story.Payload, len(story.Acts))
			}
			if e.State != ledger.Sent && e.State != ledger.Dropped && !e.CancelAsked {
				t.Errorf("%s may still be sent", state)
			}
			if e.State == ledger.Sent && e.Receipt == "" {
				t.Errorf("the proof is gone")
			}
		}
		if story, _ := w.story("other"); story.Entry != other || story.Payload == nil {
			t.Errorf("somebody else's: %+v", story.Entry)
		}
		acts, err := w.Audit(t.Context(), ledger.AuditQuery{Limit: 100})
		if err != nil || len(acts) != 1+len(ledger.States()) || !strings.Contains(fmt.Sprint(acts), "erase:user") {
			t.Errorf("%d acts, %v", len(acts), err)
		}
		if strings.Contains(fmt.Sprint(acts), "user-7") {
			t.Errorf("the audit names whom it was about: %v", acts)
		}
		// Again there is nothing left to do, and it is recorded that it was asked for.
		if erased, err := w.desk.Erase(t.Context(), "user-7", act); erased != 0 || err != nil {
			t.Errorf("again: %d, %v", erased, err)
		}
	})
}

func TestAnErasureThatFailsHalfWayGoesOnWhenRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for n := range 1200 {
			w.put(fmt.Sprintf("r-%03d", n), ledger.Sent)
		}
		writes := 0
		w.swap = func(ledger.Change) error {
			if writes++; writes == 900 {
				return errors.New("down")
			}
			return nil
		}
		act := ledger.Act{By: "ada", Role: "admin", Why: "asked"}
		first, err := w.desk.Erase(t.Context(), "user-7", act)
		if err == nil || first != 899 {
			t.Errorf("%d, %v", first, err)
		}
		second, err := w.desk.Erase(t.Context(), "user-7", act)
		if err != nil || first+second != 1200 {
			t.Errorf("%d and %d, %v", first, second, err)
		}
	})
}

func TestAnErasureThatCannotBeRecordedDoesNotHappen(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := w.put("sent", ledger.Sent)
		blocked := retention.New(retention.Options{
			Ledger: w, Shelves: w, Keep: keep(), Now: time.Now, Token: func() string { return "taken" },
		})
		if err := w.Record(t.Context(), ledger.Act{ID: "taken"}); err != nil {
			t.Fatal(err)
		}
		if _, err := blocked.Erase(t.Context(), "user-7", ledger.Act{By: "ada"}); err == nil {
			t.Error("no error")
		}
		if story, _ := w.story("sent"); story.Entry != e || story.Payload == nil {
			t.Errorf("%+v", story.Entry)
		}
	})
}
