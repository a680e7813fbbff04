package deliver_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// capacity is a provider with so many free places.
type capacity struct{ free atomic.Int64 }

func (c *capacity) Names() []string { return []string{"mail"} }
func (c *capacity) Free(string) int { return int(c.free.Load()) }

// works runs a worker in the bubble until the returned function is called.
func (w *world) works(t *testing.T, c deliver.Capacity, agenda deliver.Agenda) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	worker := &deliver.Worker{
		Agenda: agenda, Capacity: c, Visitor: w.desk,
		Poll: time.Second,
	}
	go func() {
		defer close(done)
		worker.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestTheWorkerSendsWhatIsDueAndOurs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := &capacity{}
		c.free.Store(4)
		stop := w.works(t, c, w.memory)
		defer stop()
		for i := range 100 {
			w.push("ordered", fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, i))
		}
		time.Sleep(5 * time.Second)
		if n := w.callCount(); n != 100 {
			t.Errorf("sent %d of 100 within 5 s", n)
		}
	})
}

func TestWithoutFreeCapacityTheWorkerTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c := &capacity{}
		stop := w.works(t, c, w.memory)
		defer stop()
		w.push("ordered", message("seat_expiring", "a@b.example"))
		time.Sleep(time.Minute)
		w.wants(rem1, ledger.Waiting, ledger.ReasonLedgerRetries)
		c.free.Store(1)
		time.Sleep(2 * time.Second)
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestTheLedgerTakesOverFromASilentBroker(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
		c := &capacity{}
		c.free.Store(4)
		stop := w.works(t, c, w.memory)
		defer stop()
		w.push("queue", message("seat_expiring", "a@b.example"))
		due, _ := w.entry(rem1).Due.Fixed()
		time.Sleep(time.Until(due.Add(110 * time.Second)))
		if n := w.callCount(); n != 1 {
			t.Fatalf("taken over before its time: %d calls", n)
		}
		time.Sleep(15 * time.Second)
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Owner != ledger.OwnerLedger {
			t.Errorf("owner %s", e.Owner)
		}
		if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack || w.callCount() != 2 {
			t.Errorf("the broker's late redelivery: %+v, calls %d", reply, w.callCount())
		}
	})
}

func TestTwoWorkersSendEachReminderOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(100 * time.Millisecond)
			return ledger.Outcome{Result: ledger.ResultAccepted}
		}
		c := &capacity{}
		c.free.Store(8)
		first, second := w.works(t, c, w.memory), w.works(t, c, w.memory)
		defer first()
		defer second()
		for i := range 200 {
			w.push("ordered", fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, i))
		}
		time.Sleep(30 * time.Second)
		keys := map[string]int{}
		for _, call := range w.made() {
			keys[call.SendKey]++
		}
		if len(w.made()) != 200 || len(keys) != 200 {
			t.Errorf("%d calls for %d reminders, want 200 for 200", len(w.made()), len(keys))
		}
	})
}

// TestAVisitThatMovesNothingDoesNotSpin : a gate that closes between agenda and claim leaves the entry
// due; the worker must not hammer the ledger meanwhile.
func TestAVisitThatMovesNothingDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var asked atomic.Int64
		agenda := countingAgenda{w.memory, &asked}
		w.push("ordered", message("seat_expiring", "a@b.example"))
		w.full, w.slot = true, ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: time.Minute}
		c := &capacity{}
		c.free.Store(1)
		stop := w.works(t, c, agenda)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if n := asked.Load(); n > 100 {
			t.Errorf("the agenda was asked %d times in a minute", n)
		}
	})
}

type countingAgenda struct {
	deliver.Agenda
	asked *atomic.Int64
}

func (c countingAgenda) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	c.asked.Add(1)
	return c.Agenda.Due(ctx, provider, limit)
}
