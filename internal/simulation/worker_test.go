package simulation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestWorker_OrphansDoNotStarveOtherEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		a, b := &fakeProvider{name: "a"}, &fakeProvider{name: "b"}
		before := newHarness(t, m, map[string]string{"email": "a", "sms": "a"}, 2, a, b)
		for i := range 8 {
			before.push("ordered", plainReminder(i, "email")) // owned by the ledger; this replica's worker never ran
		}
		closeGate(m, "b", outcome, 15*time.Minute, 5)
		h := newHarness(t, m, map[string]string{"email": "b", "sms": "a"}, 2, a, b)
		defer h.start()()
		time.Sleep(2 * time.Second)
		h.push("ordered", plainReminder(100, "sms"))
		time.Sleep(10 * time.Second)
		if e := h.entry(plainReminder(100, "sms")); e.State != ledger.Sent {
			t.Errorf("it is %s after 10 s although its provider is open and idle; %d calls", e.State, a.calls.Load())
		}
	})
}

func TestWorker_ReroutedEntriesLeaveABrokenProviderAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		a, b := &fakeProvider{name: "a", send: alwaysReturn(ledger.ResultCredentials)}, &fakeProvider{name: "b"}
		before := newHarness(t, m, map[string]string{"email": "a"}, 4, a, b)
		for i := range 20 {
			before.push("ordered", plainReminder(i, "email"))
		}
		stop := before.start()
		time.Sleep(10 * time.Minute) // the gate of a closes for longer and longer
		stop()
		h := newHarness(t, m, map[string]string{"email": "b"}, 4, a, b)
		defer h.start()()
		time.Sleep(time.Minute)
		for i := range 20 {
			e := h.entry(plainReminder(i, "email"))
			if ownWait := e.State == ledger.Waiting && e.Reason == ledger.ReasonCredentials; e.State != ledger.Sent && !ownWait {
				t.Errorf("a minute after the reroute %s is %s, %s", e.ReminderID, e.State, e.Reason)
			}
		}
		if n := h.count(ledger.Waiting); n > 4 {
			t.Errorf("%d of 20 wait, want at most 4 that were in flight", n)
		}
		time.Sleep(15 * time.Minute)
		if n := h.count(ledger.Sent); n != 20 {
			t.Errorf("%d of 20 are sent after the longest wait", n)
		}
	})
}

func TestWorker_SlowCallDoesNotBlockItsProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeProvider{name: "a", send: func(ctx context.Context, s ledger.Shipment) ledger.Outcome {
			if s.ReminderID == "h-0" {
				<-ctx.Done()
				return ledger.Outcome{}
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}}
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 10, a)
		defer h.start()()
		h.push("ordered", plainReminder(0, "email"))
		time.Sleep(2 * time.Second)
		if a.calls.Load() != 1 {
			t.Fatal("the slow call is not in flight")
		}
		for i := 1; i < 9; i++ {
			h.push("ordered", plainReminder(i, "email"))
		}
		time.Sleep(5 * time.Second)
		if n := h.count(ledger.Sent); n != 8 {
			t.Errorf("with 9 free slots %d of 8 due reminders are sent after 5 s", n)
		}
	})
}

func TestWorker_DrainsTheBacklogOfARenamedProvider(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 3000
		m := storetest.NewMemory(time.Now)
		before := newHarness(t, m, map[string]string{"email": "a"}, 4, &fakeProvider{name: "a"})
		for i := range backlog {
			before.push("ordered", plainReminder(i, "email"))
		}
		h := newHarness(t, m, map[string]string{"email": "b"}, 50, &fakeProvider{name: "b"})
		defer h.start()()
		time.Sleep(45 * time.Second)
		if n := h.count(ledger.Sent); n != backlog {
			t.Errorf("an idle provider was sent %d of %d in 45 s", n, backlog)
		}
	})
}

func TestWorker_DeadlineEndsTheWaitBehindAClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		closeGate(m, "a", ops, 24*time.Hour, 0)
		h := newHarness(t, m, map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		defer h.start()()
		time.Sleep(2 * time.Second)
		h.push("ordered", reminder1)
		time.Sleep(time.Hour + 2*lease)
		if e := h.entry(reminder1); e.State != ledger.Dropped || e.Reason != ledger.ReasonExpired {
			t.Errorf("past its deadline it is %s, %s", e.State, e.Reason)
		}
		if n := h.events(reminder1); n > 10 {
			t.Errorf("its hour of waiting has %d events", n)
		}
	})
}

func TestSweep_FindsAnExpiredLeaseHoweverOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		h.abandon(reminder1, errors.New("unavailable"))
		time.Sleep(31 * 24 * time.Hour)
		stop := h.start()
		time.Sleep(time.Minute)
		stop()
		if e := h.entry(reminder1); e.State != ledger.Unknown {
			t.Errorf("it is %s, %s", e.State, e.Reason)
		}
	})
}

// A server defers forty recipients, as one does that greylists, and accepts every other: those with a minute left
// are sent at once.
func TestWorker_DeferredRecipientsDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeProvider{name: "a", send: func(_ context.Context, s ledger.Shipment) ledger.Outcome {
			if s.Recipient == "deferred@example.org" {
				return ledger.Outcome{Result: ledger.ResultDeferred, Status: 450, Code: "4.2.0"}
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}}
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 4, a)
		defer h.start()()
		for i := range 40 {
			h.pushTo("ordered", plainReminder(i, "email"), "deferred@example.org")
		}
		time.Sleep(10 * time.Second)
		for i := 40; i < 46; i++ {
			h.pushTo("ordered", plainReminder(i, "email"), "ada@example.org")
		}
		time.Sleep(5 * time.Second)
		if n := h.count(ledger.Sent); n != 6 {
			t.Errorf("%d of 6 are sent after 5 s", n)
		}
		time.Sleep(time.Hour)
		for i := range 40 {
			e := h.entry(plainReminder(i, "email"))
			if e.State != ledger.Dead || e.Class != ledger.ClassExhausted || e.Code != "4.2.0" {
				t.Fatalf("deferred until its budget is spent, %s is %s, %s, %s", e.ReminderID, e.State, e.Class, e.Code)
			}
		}
	})
}
