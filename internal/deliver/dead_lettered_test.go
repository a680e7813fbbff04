package deliver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// addDeadLetterSource adds a source that delivers what the queue's broker dead-lettered.
func (h *harness) addDeadLetterSource() {
	h.options.Sources["queue-dead"] = deliver.Source{RetriesBy: ledger.OwnerBroker, AnswerWithin: 9 * time.Second, DeadLetters: true}
	h.deliverer = deliver.New(h.options)
}

func (h *harness) pushDeadLettered(raw []byte) ledger.Reply {
	h.t.Helper()
	reply, err := h.deliverer.Deliver(h.t.Context(), ledger.Delivery{
		Source: "queue-dead", MessageID: "m-dead", DeliveryCount: 5, DeadLetteredBy: "relay-push", Raw: raw,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return reply
}

func TestDeadLettered_NewEntryIsADeadLetterWithoutCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.addDeadLetterSource()
		for range 3 { // it may be forwarded more than once
			if reply := h.pushDeadLettered(message("seat_expiring", "ada@example.org")); !reply.Ack {
				t.Errorf("not acked: %+v", reply)
			}
		}
		e := h.wantEntry(rem1, ledger.Dead, ledger.ReasonDeadLettered)
		events := h.timeline(rem1)
		if e.Class != ledger.ClassBroker || len(events) != 1 || events[0].DeliveryCount != 5 || events[0].Outcome.Cause != "relay-push" || events[0].Source != "queue-dead" {
			t.Errorf("%s, %+v", e.Class, events)
		}
		if payload, err := h.memory.Payload(t.Context(), rem1); err != nil || payload.Recipient != "ada@example.org" {
			t.Errorf("the payload is lost: %+v, %v", payload, err)
		}
		h.push("queue", message("seat_expiring", "ada@example.org"))
		if h.callCount() != 0 {
			t.Errorf("%d calls", h.callCount())
		}
	})
}

func TestDeadLettered_EntryWaitingForBrokerIsTakenOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.addDeadLetterSource()
		h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
		h.push("queue", message("seat_expiring", "ada@example.org"))
		before := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonUnreachable)
		if reply := h.pushDeadLettered(message("seat_expiring", "ada@example.org")); !reply.Ack {
			t.Errorf("not acked: %+v", reply)
		}
		e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonTakenOver)
		if e.Owner != ledger.OwnerLedger || e.Due != before.Due || e.Wake != e.Due || e.BudgetUsed != before.BudgetUsed {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if _, err := h.deliverer.Process(context.Background(), rem1); err != nil {
			t.Fatal(err)
		}
		sent := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
		h.pushDeadLettered(message("seat_expiring", "ada@example.org"))
		if e := h.entry(rem1); e != sent || h.callCount() != 2 {
			t.Errorf("%d calls, %+v", h.callCount(), e)
		}
	})
}

func TestDeadLettered_UnreadableStaysMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		h.addDeadLetterSource()
		reply := h.pushDeadLettered([]byte("no JSON"))
		if e := reply.Entry; !reply.Ack || e.State != ledger.Dead || e.Class != ledger.ClassMalformed {
			t.Errorf("%+v", reply)
		}
	})
}

func TestReparse_WaitsForWorkerAndIsNotSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		dead := ledger.Entry{Source: "queue", Published: time.Now().Add(-time.Minute)}
		reparsed, faults, err := h.deliverer.Reparse(t.Context(), dead, []byte(`{"reminder_id": "rem-1"}`), "ada", "redrive-1")
		if err != nil || len(faults) == 0 || !reparsed.Absent() {
			t.Errorf("%+v, %q, %v", reparsed, faults, err)
		}
		raw := message("seat_expiring", "ada@example.org")
		for range 2 {
			reparsed, faults, err = h.deliverer.Reparse(t.Context(), dead, raw, "ada", "redrive-1")
			if err != nil || len(faults) != 0 || reparsed.Identity != rem1 || h.callCount() != 0 {
				t.Fatalf("%+v, %q, %v, %d calls", reparsed, faults, err, h.callCount())
			}
		}
		e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonRedriven)
		if e.Owner != ledger.OwnerLedger || !e.Published.Equal(dead.Published) || e.Source != "queue" {
			t.Errorf("%+v", e)
		}
		if events := h.timeline(rem1); len(events) != 1 || events[0].Origin != ledger.OriginRedrive || events[0].Source != "ada" || events[0].MessageID != "redrive-1" {
			t.Errorf("%+v", events)
		}
		if _, err := h.deliverer.Process(context.Background(), rem1); err != nil {
			t.Fatal(err)
		}
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}
