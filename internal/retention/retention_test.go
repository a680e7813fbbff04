package retention_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/retention"
)

const day = 24 * time.Hour

func keep() ledger.Retention {
	return ledger.Retention{Sent: 30 * day, Dead: 90 * day, Dropped: 10 * day, Entry: 400 * day}
}

// harness is one in-memory ledger and a Purger over it, inside a synctest bubble whose clock both share.
type harness struct {
	*storetest.Memory
	t      *testing.T
	purger *retention.Purger
	runs   []retention.PurgeRun
	update func(ledger.Change) error // fails a write before it happens; may be nil
}

func (h *harness) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	if h.update != nil {
		if err := h.update(c); err != nil {
			return ledger.Entry{}, err
		}
	}
	return h.Memory.Update(ctx, c)
}

func bubble(t *testing.T, f func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{Memory: storetest.NewMemory(time.Now), t: t}
		tokens := 0
		h.purger = retention.New(retention.Options{
			Ledger: h, Store: h, Keep: keep(), Every: day, PagePause: 50 * time.Millisecond, Now: time.Now,
			Token:   func() string { tokens++; return fmt.Sprint("token-", tokens) },
			OnPurge: func(done retention.PurgeRun) { h.runs = append(h.runs, done) },
			Random:  func() float64 { return 0.5 },
		})
		f(t, h)
	})
}

func (h *harness) insert(id string, state ledger.State, changes ...func(*ledger.Entry)) ledger.Entry {
	h.t.Helper()
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
	stored, err := h.Insert(h.t.Context(), ledger.Change{Entry: e, Payload: payload})
	if err != nil {
		h.t.Fatal(err)
	}
	return stored
}

func (h *harness) detail(id string) (ledger.EntryDetail, bool) {
	h.t.Helper()
	detail, err := h.EntryDetail(h.t.Context(), ledger.Identity{ReminderID: id, Type: "seat", Channel: "email"})
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		h.t.Fatal(err)
	}
	return detail, err == nil
}

func TestPurge_FinalEntriesExpireStepByStepAndNothingElse(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for _, state := range ledger.States() {
			h.insert(string(state), state)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { h.purger.Run(ctx); close(done) }()
		started := time.Now()
		// What is still stored on each day; the purge run that may remove it is a day earlier.
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
			{409, "sending waiting unknown", "sending waiting unknown sent dead dropped"}, // purging the payload was a write
			{413, "sending waiting unknown", "sending waiting unknown sent dead"},
			{433, "sending waiting unknown", "sending waiting unknown dead"},
			{493, "sending waiting unknown", "sending waiting unknown"},
		} {
			time.Sleep(time.Until(started.Add(time.Duration(row.day) * day)))
			synctest.Wait()
			var payloads, entries []string
			for _, state := range ledger.States() {
				detail, kept := h.detail(string(state))
				if kept {
					entries = append(entries, string(state))
				}
				if detail.Payload != nil {
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

func TestPurge_ReachesEveryPageAndEndsAtTheFirstYoungEntry(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for n := range 1950 {
			h.insert(fmt.Sprintf("old-%04d", n), ledger.Sent)
		}
		time.Sleep(31 * day)
		for n := range 700 {
			h.insert(fmt.Sprintf("new-%04d", n), ledger.Sent)
		}
		started := time.Now()
		done, err := h.purger.Purge(t.Context())
		if err != nil || done.Payloads != 1950 || done.Seen != 1950 || done.Entries != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if took := time.Since(started); took < 3*50*time.Millisecond {
			t.Errorf("no pause between the pages: %v", took)
		}
		if again, err := h.purger.Purge(t.Context()); err != nil || again.Payloads != 0 {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
}

func TestPurge_EntryThatChangedMeanwhileStays(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		dead := h.insert("dead", ledger.Dead)
		time.Sleep(91 * day)
		// A redrive changes the entry between the purger's load and its write.
		h.update = func(c ledger.Change) error {
			h.update = nil
			next := dead
			next.State, next.Class, next.Reason, next.Owner = ledger.Waiting, "", ledger.ReasonRedriven, ledger.OwnerLedger
			next.Due, next.Wake = ledger.In(0), ledger.In(0)
			_, err := h.Memory.Update(t.Context(), ledger.Change{Entry: next})
			return err
		}
		done, err := h.purger.Purge(t.Context())
		if err != nil || done.Moved != 1 || done.Payloads != 0 {
			t.Errorf("%+v, %v", done, err)
		}
		if detail, _ := h.detail("dead"); detail.Payload == nil || detail.Entry.State != ledger.Waiting {
			t.Errorf("%+v", detail)
		}
	})
}

func TestErase_RemovesTheUserAndKeepsTheProof(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for _, state := range ledger.States() {
			h.insert(string(state), state)
		}
		other := h.insert("other", ledger.Sent, func(e *ledger.Entry) { e.UserID = "user-8" })
		audit := ledger.AuditEvent{Actor: "ada", Role: "admin", Reason: "asked to be forgotten"}
		erased, err := h.purger.Erase(t.Context(), "user-7", audit)
		if err != nil || erased != len(ledger.States()) {
			t.Fatalf("%d, %v", erased, err)
		}
		for state, want := range map[ledger.State]ledger.State{
			ledger.Sending: ledger.Sending, ledger.Waiting: ledger.Dropped, ledger.Unknown: ledger.Unknown,
			ledger.Sent: ledger.Sent, ledger.Dead: ledger.Dropped, ledger.Dropped: ledger.Dropped,
		} {
			detail, _ := h.detail(string(state))
			e := detail.Entry
			if e.State != want || e.UserID != "" || e.ContentHash != "" || detail.Payload != nil || len(detail.Audit) != 1 {
				t.Errorf("%s: %s, user %q, hash %q, payload %v, %d audit events", state, e.State, e.UserID, e.ContentHash, detail.Payload, len(detail.Audit))
			}
			if e.State != ledger.Sent && e.State != ledger.Dropped && !e.CancelRequested {
				t.Errorf("%s may still be sent", state)
			}
			if e.State == ledger.Sent && e.Receipt == "" {
				t.Errorf("the receipt was removed")
			}
		}
		if detail, _ := h.detail("other"); detail.Entry != other || detail.Payload == nil {
			t.Errorf("another user's entry: %+v", detail.Entry)
		}
		recorded, err := h.Audit(t.Context(), ledger.AuditQuery{Limit: 100})
		if err != nil || len(recorded) != 1+len(ledger.States()) || !strings.Contains(fmt.Sprint(recorded), "erase:user") {
			t.Errorf("%d audit events, %v", len(recorded), err)
		}
		if strings.Contains(fmt.Sprint(recorded), "user-7") {
			t.Errorf("the audit names the erased user: %v", recorded)
		}
		// The second erasure finds nothing, and is recorded in the audit.
		if erased, err := h.purger.Erase(t.Context(), "user-7", audit); erased != 0 || err != nil {
			t.Errorf("again: %d, %v", erased, err)
		}
	})
}

func TestErase_ContinuesWhenRepeatedAfterAFailure(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for n := range 1200 {
			h.insert(fmt.Sprintf("r-%03d", n), ledger.Sent)
		}
		writes := 0
		h.update = func(ledger.Change) error {
			if writes++; writes == 900 {
				return errors.New("down")
			}
			return nil
		}
		audit := ledger.AuditEvent{Actor: "ada", Role: "admin", Reason: "asked"}
		first, err := h.purger.Erase(t.Context(), "user-7", audit)
		if err == nil || first != 899 {
			t.Errorf("%d, %v", first, err)
		}
		second, err := h.purger.Erase(t.Context(), "user-7", audit)
		if err != nil || first+second != 1200 {
			t.Errorf("%d and %d, %v", first, second, err)
		}
	})
}

func TestErase_DoesNotHappenWithoutAuditEvent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		e := h.insert("sent", ledger.Sent)
		blocked := retention.New(retention.Options{
			Ledger: h, Store: h, Keep: keep(), Now: time.Now, Token: func() string { return "taken" },
		})
		if err := h.RecordAudit(t.Context(), ledger.AuditEvent{ID: "taken"}); err != nil {
			t.Fatal(err)
		}
		if _, err := blocked.Erase(t.Context(), "user-7", ledger.AuditEvent{Actor: "ada"}); err == nil {
			t.Error("no error")
		}
		if detail, _ := h.detail("sent"); detail.Entry != e || detail.Payload == nil {
			t.Errorf("%+v", detail.Entry)
		}
	})
}

// The mark follows what was deleted, and not what is configured: after a long pause of all replicas it is no later than
// the last write of a deleted entry.
func TestPurge_OnlyADeletedEntryRaisesTheLowWaterMark(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		lowWater := func() time.Time {
			snapshot, err := h.Load(t.Context(), ledger.Identity{ReminderID: "absent", Type: "seat", Channel: "email"})
			if err != nil {
				t.Fatal(err)
			}
			return snapshot.LowWater
		}
		h.insert("first", ledger.Sent)
		time.Sleep(day)
		h.insert("second", ledger.Sent)
		time.Sleep(31 * day)
		if done, err := h.purger.Purge(t.Context()); err != nil || done.Payloads != 2 || !lowWater().IsZero() {
			t.Errorf("payloads were purged: %+v, %v, mark %v", done, err, lowWater())
		}
		time.Sleep(day)
		if n, err := h.purger.Erase(t.Context(), "user-7", ledger.AuditEvent{Actor: "ada", Reason: "asked"}); err != nil || n != 2 || !lowWater().IsZero() {
			t.Errorf("a user was erased: %d, %v, mark %v", n, err, lowWater())
		}
		first, _ := h.detail("first")
		second, _ := h.detail("second")
		time.Sleep(600 * day)
		young := h.insert("young", ledger.Sent)
		if done, err := h.purger.Purge(t.Context()); err != nil || done.Entries != 2 {
			t.Fatalf("%+v, %v", done, err)
		}
		if mark := lowWater(); !mark.Equal(second.Entry.Updated) || mark.Before(first.Entry.Updated) || !mark.Before(young.Updated) {
			t.Errorf("the mark is %v, want the last write of the last deleted entry, %v", mark, second.Entry.Updated)
		}
	})
}
