package deliver_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// deadLetters gives the desk a source that brings what the queue gave up on.
func (w *world) deadLetters() {
	w.options.Sources["queue-dead"] = deliver.Source{RetriesBy: ledger.OwnerBroker, AnswerWithin: 9 * time.Second, DeadLetters: true}
	w.desk = deliver.New(w.options)
}

func (w *world) giveUp(raw []byte) ledger.Reply {
	w.t.Helper()
	reply, err := w.desk.Deliver(w.t.Context(), ledger.Delivery{
		Source: "queue-dead", MessageID: "m-dead", Count: 5, GaveUpBy: "relay-push", Raw: raw,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}

func TestWhatABrokerGaveUpOnIsADeadLetterAndCallsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deadLetters()
		for range 3 { // it may be forwarded more than once
			if reply := w.giveUp(message("seat_expiring", "ada@example.org")); !reply.Ack {
				t.Errorf("not acked: %+v", reply)
			}
		}
		e := w.wants(rem1, ledger.Dead, ledger.ReasonGivenUp)
		line := w.timeline(rem1)
		if e.Class != ledger.ClassBroker || len(line) != 1 || line[0].Count != 5 || line[0].Outcome.Cause != "relay-push" || line[0].Source != "queue-dead" {
			t.Errorf("%s, %+v", e.Class, line)
		}
		if payload, err := w.memory.Payload(t.Context(), rem1); err != nil || payload.Recipient != "ada@example.org" {
			t.Errorf("what it said is lost: %+v, %v", payload, err)
		}
		w.push("queue", message("seat_expiring", "ada@example.org"))
		if w.callCount() != 0 {
			t.Errorf("%d calls", w.callCount())
		}
	})
}

func TestWhatABrokerGaveUpOnIsTakenOverWhereItWaitsForThatBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deadLetters()
		w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
		w.push("queue", message("seat_expiring", "ada@example.org"))
		before := w.wants(rem1, ledger.Waiting, ledger.ReasonUnreachable)
		if reply := w.giveUp(message("seat_expiring", "ada@example.org")); !reply.Ack {
			t.Errorf("not acked: %+v", reply)
		}
		e := w.wants(rem1, ledger.Waiting, ledger.ReasonTakenOver)
		if e.Owner != ledger.OwnerLedger || e.Due != before.Due || e.Wake != e.Due || e.Spent != before.Spent {
			t.Errorf("%+v", e)
		}
		time.Sleep(time.Minute)
		if _, err := w.desk.Visit(context.Background(), rem1); err != nil {
			t.Fatal(err)
		}
		sent := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
		w.giveUp(message("seat_expiring", "ada@example.org"))
		if e := w.entry(rem1); e != sent || w.callCount() != 2 {
			t.Errorf("%d calls, %+v", w.callCount(), e)
		}
	})
}

func TestADeadLetterNobodyCanReadStaysMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.deadLetters()
		reply := w.giveUp([]byte("no JSON"))
		if e := reply.Entry; !reply.Ack || e.State != ledger.Dead || e.Class != ledger.ClassMalformed {
			t.Errorf("%+v", reply)
		}
	})
}

func TestWhatCouldNotBeReadIsReadAgainForTheWorkerAndNotSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		dead := ledger.Entry{Source: "queue", Published: time.Now().Add(-time.Minute)}
		became, faults, err := w.desk.Reread(t.Context(), dead, []byte(`{"reminder_id": "rem-1"}`), "ada", "redrive-1")
		if err != nil || len(faults) == 0 || !became.Absent() {
			t.Errorf("%+v, %q, %v", became, faults, err)
		}
		raw := message("seat_expiring", "ada@example.org")
		for range 2 {
			became, faults, err = w.desk.Reread(t.Context(), dead, raw, "ada", "redrive-1")
			if err != nil || len(faults) != 0 || became.Identity != rem1 || w.callCount() != 0 {
				t.Fatalf("%+v, %q, %v, %d calls", became, faults, err, w.callCount())
			}
		}
		e := w.wants(rem1, ledger.Waiting, ledger.ReasonRedriven)
		if e.Owner != ledger.OwnerLedger || !e.Published.Equal(dead.Published) || e.Source != "queue" {
			t.Errorf("%+v", e)
		}
		if line := w.timeline(rem1); len(line) != 1 || line[0].Origin != ledger.OriginRedrive || line[0].Source != "ada" || line[0].Message != "redrive-1" {
			t.Errorf("%+v", line)
		}
		if _, err := w.desk.Visit(context.Background(), rem1); err != nil {
			t.Fatal(err)
		}
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}
