package simulation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestALaneDoesNotStarveBehindEntriesThatItCannotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		a, b := &outlet{name: "a"}, &outlet{name: "b"}
		before := newQuiet(t, m, map[string]string{"email": "a", "sms": "a"}, 2, a, b)
		for i := range 8 {
			before.push("ordered", plain(i, "email")) // ours; its worker never ran
		}
		closeGate(m, "b", outcome, 15*time.Minute, 5)
		q := newQuiet(t, m, map[string]string{"email": "b", "sms": "a"}, 2, a, b)
		defer q.works()()
		time.Sleep(2 * time.Second)
		q.push("ordered", plain(100, "sms"))
		time.Sleep(10 * time.Second)
		if e := q.entry(plain(100, "sms")); e.State != ledger.Sent {
			t.Errorf("its provider is open and idle, and it is %s after 10 s; %d calls", e.State, a.calls.Load())
		}
	})
}

func TestWhatIsReroutedLeavesTheBrokenProviderAtOnceAndKeepsOnlyItsOwnWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		a, b := &outlet{name: "a", send: always(ledger.ResultCredentials)}, &outlet{name: "b"}
		before := newQuiet(t, m, map[string]string{"email": "a"}, 4, a, b)
		for i := range 20 {
			before.push("ordered", plain(i, "email"))
		}
		stop := before.works()
		time.Sleep(10 * time.Minute) // the gate of a closes for longer and longer
		stop()
		q := newQuiet(t, m, map[string]string{"email": "b"}, 4, a, b)
		defer q.works()()
		time.Sleep(time.Minute)
		for i := range 20 {
			e := q.entry(plain(i, "email"))
			if ownWait := e.State == ledger.Waiting && e.Reason == ledger.ReasonCredentials; e.State != ledger.Sent && !ownWait {
				t.Errorf("a minute after the reroute %s is %s, %s", e.ReminderID, e.State, e.Reason)
			}
		}
		if n := q.count(ledger.Waiting); n > 4 {
			t.Errorf("%d of 20 wait; no more than 4 can have been tried last", n)
		}
		time.Sleep(15 * time.Minute)
		if n := q.count(ledger.Sent); n != 20 {
			t.Errorf("%d of 20 are sent when the longest wait is over", n)
		}
	})
}

func TestOneSlowCallDoesNotHoldUpItsLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &outlet{name: "a", send: func(ctx context.Context, s ledger.Shipment) ledger.Outcome {
			if s.ReminderID == "h-0" {
				<-ctx.Done()
				return ledger.Outcome{}
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}}
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 10, a)
		defer q.works()()
		q.push("ordered", plain(0, "email"))
		time.Sleep(2 * time.Second)
		if a.calls.Load() != 1 {
			t.Fatal("the slow one is not in flight")
		}
		for i := 1; i < 9; i++ {
			q.push("ordered", plain(i, "email"))
		}
		time.Sleep(5 * time.Second)
		if n := q.count(ledger.Sent); n != 8 {
			t.Errorf("9 places are free, and %d of 8 due reminders are sent after 5 s", n)
		}
	})
}

func TestTheBacklogOfARenamedProviderKeepsTheNewOneBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 3000
		m := dbtest.NewMemory(time.Now)
		before := newQuiet(t, m, map[string]string{"email": "a"}, 4, &outlet{name: "a"})
		for i := range backlog {
			before.push("ordered", plain(i, "email"))
		}
		q := newQuiet(t, m, map[string]string{"email": "b"}, 50, &outlet{name: "b"})
		defer q.works()()
		time.Sleep(45 * time.Second)
		if n := q.count(ledger.Sent); n != backlog {
			t.Errorf("an idle provider was given %d of %d in 45 s", n, backlog)
		}
	})
}

func TestBehindAGateThatAPersonKeepsClosedDeadlinesStillEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		closeGate(m, "a", ops, 24*time.Hour, 0)
		q := newQuiet(t, m, map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		defer q.works()()
		time.Sleep(2 * time.Second)
		q.push("ordered", aReminder)
		time.Sleep(time.Hour + 2*lease)
		if e := q.entry(aReminder); e.State != ledger.Dropped || e.Reason != ledger.ReasonExpired {
			t.Errorf("past its deadline it is %s, %s", e.State, e.Reason)
		}
		if n := q.lines(aReminder); n > 10 {
			t.Errorf("its hour of waiting is told in %d lines", n)
		}
	})
}

func TestASilentHolderIsFoundHoweverLongNobodyLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		q.abandon(aReminder, errors.New("away"))
		time.Sleep(31 * 24 * time.Hour)
		stop := q.works()
		time.Sleep(time.Minute)
		stop()
		if e := q.entry(aReminder); e.State != ledger.Unknown {
			t.Errorf("it is %s, %s", e.State, e.Reason)
		}
	})
}
