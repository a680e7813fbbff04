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

// capacity is one provider with a set number of free slots.
type capacity struct{ free atomic.Int64 }

func (c *capacity) Names() []string { return []string{"mail"} }
func (c *capacity) Free(string) int { return int(c.free.Load()) }

// startWorker runs a worker until the returned function is called.
func (h *harness) startWorker(t *testing.T, c deliver.Capacity, due deliver.DueLister) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	worker := &deliver.Worker{
		Due: due, Capacity: c, Processor: h.deliverer,
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

func TestWorker_SendsDueEntriesOfLedger(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		c := &capacity{}
		c.free.Store(4)
		stop := h.startWorker(t, c, h.memory)
		defer stop()
		for i := range 100 {
			h.push("ordered", fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, i))
		}
		time.Sleep(5 * time.Second)
		if n := h.callCount(); n != 100 {
			t.Errorf("sent %d of 100 within 5 s", n)
		}
	})
}

func TestWorker_TakesNothingWithoutCapacity(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		c := &capacity{}
		stop := h.startWorker(t, c, h.memory)
		defer stop()
		h.push("ordered", message("seat_expiring", "a@b.example"))
		time.Sleep(time.Minute)
		h.wantEntry(rem1, ledger.Waiting, ledger.ReasonLedgerRetries)
		c.free.Store(1)
		time.Sleep(2 * time.Second)
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestWorker_TakesOverFromSilentBroker(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
		c := &capacity{}
		c.free.Store(4)
		stop := h.startWorker(t, c, h.memory)
		defer stop()
		h.push("queue", message("seat_expiring", "a@b.example"))
		due, _ := h.entry(rem1).Due.Fixed()
		time.Sleep(time.Until(due.Add(110 * time.Second)))
		if n := h.callCount(); n != 1 {
			t.Fatalf("taken over too early: %d calls", n)
		}
		time.Sleep(15 * time.Second)
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.Owner != ledger.OwnerLedger {
			t.Errorf("owner %s", e.Owner)
		}
		if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack || h.callCount() != 2 {
			t.Errorf("the broker's late redelivery: %+v, calls %d", reply, h.callCount())
		}
	})
}

func TestWorker_TwoWorkersSendEachReminderOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(100 * time.Millisecond)
			return ledger.Outcome{Result: ledger.ResultAccepted}
		}
		c := &capacity{}
		c.free.Store(8)
		stopFirst, stopSecond := h.startWorker(t, c, h.memory), h.startWorker(t, c, h.memory)
		defer stopFirst()
		defer stopSecond()
		for i := range 200 {
			h.push("ordered", fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, i))
		}
		time.Sleep(30 * time.Second)
		keys := map[string]int{}
		for _, call := range h.shipments() {
			keys[call.SendKey]++
		}
		if len(h.shipments()) != 200 || len(keys) != 200 {
			t.Errorf("%d calls for %d reminders, want 200 for 200", len(h.shipments()), len(keys))
		}
	})
}

// TestWorker_TaskWithoutProgressDoesNotSpin tests a gate that closes between the listing and the claim. The entry stays
// due, and the worker must not list it again without a pause.
func TestWorker_TaskWithoutProgressDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		var listings atomic.Int64
		due := countingLister{h.memory, &listings}
		h.push("ordered", message("seat_expiring", "a@b.example"))
		h.noSlot, h.slot = true, ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: time.Minute}
		c := &capacity{}
		c.free.Store(1)
		stop := h.startWorker(t, c, due)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if n := listings.Load(); n > 100 {
			t.Errorf("due entries were listed %d times in a minute", n)
		}
	})
}

type countingLister struct {
	deliver.DueLister
	listings *atomic.Int64
}

func (c countingLister) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	c.listings.Add(1)
	return c.DueLister.Due(ctx, provider, limit)
}
