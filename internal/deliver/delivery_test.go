package deliver_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reminder"
)

func bubble(t *testing.T, f func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newHarness(t)) })
}

func TestDeliver_SecondDeliveryIsAnsweredFromLedger(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		first := h.push("queue", message("seat_expiring", "ada@example.org"))
		second := h.push("queue", message("seat_expiring", "ada@example.org"))
		if !first.Ack || first.Outcome == nil || first.Duplicate || first.Entry.Receipt != "r-1" {
			t.Errorf("first reply: %+v", first)
		}
		if !second.Ack || second.Outcome != nil || !second.Duplicate || second.Before != ledger.Sent {
			t.Errorf("second reply: %+v", second)
		}
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.Version != 2 || e.Attempts != 1 {
			t.Errorf("version %d, attempts %d; a delivery without failures is two writes and one attempt", e.Version, e.Attempts)
		}
		if n := h.callCount(); n != 1 {
			t.Errorf("calls = %d, want 1", n)
		}
	})
}

func TestDeliver_ConcurrentDuplicatesCallOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(3 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		var twins sync.WaitGroup
		var mu sync.Mutex
		acks, nacks := 0, 0
		for range 64 {
			twins.Go(func() {
				reply, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err != nil:
					t.Error(err)
				case reply.Ack:
					acks++
				case reply.RetryAfter < time.Second || reply.RetryAfter > 10*time.Minute:
					t.Errorf("nack with Retry-After %v", reply.RetryAfter)
				default:
					nacks++
				}
			})
		}
		twins.Wait()
		if acks != 1 || nacks != 63 || h.callCount() != 1 {
			t.Errorf("acks %d, nacks %d, calls %d; want 1, 63, 1", acks, nacks, h.callCount())
		}
	})
}

func TestClaim_NothingIsCalledBeforeItIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.send = func(_ context.Context, s ledger.Shipment) ledger.Outcome {
			if e := h.entry(s.Identity); e.State != ledger.Sending || e.Fingerprint != "mail-1" {
				t.Errorf("at the call the stored entry is %s, fingerprint %q", e.State, e.Fingerprint)
			}
			return ledger.Outcome{Result: ledger.ResultAccepted}
		}
		h.ledger.before = func(op string) error {
			if op == "insert" {
				return errLost
			}
			return nil
		}
		if _, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil {
			t.Error("a claim that cannot be stored must fail the delivery")
		}
		if h.callCount() != 0 {
			t.Error("called without a claim")
		}
		h.ledger.before = nil
		h.push("queue", message("seat_expiring", "a@b.example"))
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.ReceiptMissing != ledger.MissingUnreadable {
			t.Errorf("accepted without a readable receipt: missing = %q", e.ReceiptMissing)
		}
	})
}

func TestDeliver_UnreachableLedgerFailsDelivery(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.ledger.before = func(string) error { return errLost }
		if reply, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); !errors.Is(err, errLost) || reply.Ack {
			t.Errorf("reply %+v, error %v", reply, err)
		}
	})
}

func TestClaim_LostReplyCausesNoSecondCall(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.ledger.after = once("insert", 1)
		if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); h.callCount() != 1 || e.Version != 2 {
			t.Errorf("calls %d, version %d", h.callCount(), e.Version)
		}
	})
}

func TestSettle_LostReplyIsRecordedOnce(t *testing.T) {
	for _, lost := range []int{1, 2, 5} {
		bubble(t, func(t *testing.T, h *harness) {
			h.ledger.after = once("update", lost)
			if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("reply: %+v", reply)
			}
			h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
			if events := h.timeline(rem1); len(events) != 1 || h.callCount() != 1 || len(h.late) != 0 {
				t.Errorf("%d events, %d calls, late %v; want 1, 1, none", len(events), h.callCount(), h.late)
			}
		})
	}
}

func TestSettle_OutcomeOutlivesUnreachableLedger(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		away := time.Now().Add(time.Hour)
		h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			away = time.Now().Add(20 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "kept"}
		}
		h.ledger.before = func(op string) error {
			if h.callCount() > 0 && time.Now().Before(away) {
				return errLost
			}
			return nil
		}
		if _, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil {
			t.Error("nothing may be acked while the ledger is unreachable")
		}
		if err := h.deliverer.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "kept" {
			t.Errorf("receipt %q", e.Receipt)
		}
	})
}

func TestDeliver_BrokerHangUpKeepsTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
			select {
			case <-time.After(8 * time.Second):
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			case <-ctx.Done():
				return ledger.Outcome{}
			}
		}
		ctx, hangUp := context.WithTimeout(t.Context(), 5*time.Second)
		defer hangUp()
		reply, err := h.deliverer.Deliver(ctx, ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")})
		if err != nil || reply.Ack || !reply.InFlight {
			t.Errorf("reply %+v, error %v", reply, err)
		}
		_ = h.deliverer.Wait(t.Context())
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
		for range 3 {
			if again := h.push("queue", message("seat_expiring", "a@b.example")); !again.Ack {
				t.Errorf("redelivery: %+v", again)
			}
		}
		if h.callCount() != 1 {
			t.Errorf("calls = %d", h.callCount())
		}
	})
}

func TestDeliver_SendContinuesAfterAnswerTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(9500 * time.Millisecond)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		started := time.Now()
		reply := h.push("queue", message("seat_expiring", "a@b.example"))
		if took := time.Since(started); reply.Ack || !reply.InFlight || took != 9*time.Second {
			t.Errorf("replied after %v: %+v", took, reply)
		}
		_ = h.deliverer.Wait(t.Context())
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestClaim_ExpiredLeaseIsRepeatedOnlyUnderIdempotentContract(t *testing.T) {
	contracts := map[string]struct {
		contract ledger.Contract
		calls    int
		state    ledger.State
		reason   ledger.Reason
	}{
		"idempotent": {ledger.Contract{Kind: ledger.ContractIdempotent, Window: time.Hour}, 2, ledger.Sent, ledger.ReasonAccepted},
		"lookup":     {ledger.Contract{Kind: ledger.ContractLookup}, 1, ledger.Unknown, ledger.ReasonLeaseExpired},
		"blind":      {ledger.Contract{}, 1, ledger.Unknown, ledger.ReasonLeaseExpired},
	}
	for name, tc := range contracts {
		bubble(t, func(t *testing.T, h *harness) {
			h.route.Contract = tc.contract
			crashed := make(chan struct{})
			h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if h.callCount() == 1 {
					<-crashed // does not return until the test ends
				}
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			}
			h.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(31 * time.Second)
			if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("%s: %+v", name, reply)
			}
			if e := h.wantEntry(rem1, tc.state, tc.reason); h.callCount() != tc.calls || e.LeaseExpirations != 1 {
				t.Errorf("%s: calls %d, lease expirations %d", name, h.callCount(), e.LeaseExpirations)
			}
			if tc.calls == 2 && h.shipments()[0].SendKey != h.shipments()[1].SendKey {
				t.Errorf("%s: the second attempt used another send key", name)
			}
			close(crashed)
			_ = h.deliverer.Wait(t.Context())
			h.wantEntry(rem1, ledger.Sent, map[bool]ledger.Reason{true: ledger.ReasonAccepted, false: ledger.ReasonLateAcceptance}[tc.calls == 2])
		})
	}
}

func TestSettle_LateSecondReceiptIsReportedAndSameReceiptIsNot(t *testing.T) {
	for receipt, kind := range map[string]ledger.Reason{"first": ledger.ReasonReplayed, "other": ledger.ReasonPossibleSecondSend} {
		bubble(t, func(t *testing.T, h *harness) {
			crashed := make(chan struct{})
			h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if h.callCount() == 1 {
					<-crashed
					return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: receipt}
				}
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "first"}
			}
			h.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(31 * time.Second)
			h.push("queue", message("seat_expiring", "a@b.example"))
			close(crashed)
			_ = h.deliverer.Wait(t.Context())
			if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "first" || len(h.late) != 1 || h.late[0] != string(kind) {
				t.Errorf("receipt %q, late %v, want %s", e.Receipt, h.late, kind)
			}
		})
	}
}

func TestDeliver_OwnPanicFailsOneDeliveryOnly(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.ledger.before = func(string) error { panic("a bug") }
		if reply, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil || reply.Ack || strings.Contains(err.Error(), "a bug") {
			t.Errorf("reply %+v, error %v", reply, err)
		}
		h.ledger.before = nil
		h.push("queue", message("seat_expiring", "a@b.example"))
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestDeliver_MalformedMessageIsOneDeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		raw := []byte(`{"reminder_id": "rem-1", "Reminder_ID": "rem-evil"}`)
		for range 5 {
			if reply := h.push("queue", raw); !reply.Ack {
				t.Errorf("a malformed message must be acked: %+v", reply)
			}
		}
		id := ledger.MalformedIdentity("queue", "m-1", raw)
		if e := h.wantEntry(id, ledger.Dead, ledger.ReasonMalformed); e.Version != 1 || e.Class != ledger.ClassMalformed {
			t.Errorf("entry %+v", e)
		}
		payload, err := h.memory.Payload(t.Context(), id)
		if err != nil || string(payload.Raw) != string(raw) || !strings.Contains(string(payload.Metadata), "Reminder_ID") {
			t.Errorf("payload %q, faults %q, %v", payload.Raw, payload.Metadata, err)
		}
		if h.callCount() != 0 || !h.entry(rem1).Absent() {
			t.Error("a malformed message was sent, or created an entry under the identity that it names")
		}
	})
}

func TestDeliver_OtherContentIsAConflictAndFirstIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.push("queue", message("seat_expiring", "p7@example.test"))
		for range 3 {
			if reply := h.push("queue", message("seat_expiring", "q9@example.test")); !reply.Ack || !reply.Conflict {
				t.Errorf("reply: %+v", reply)
			}
		}
		detail, err := h.memory.EntryDetail(t.Context(), rem1)
		if err != nil || len(detail.Conflicts) != 1 || h.callCount() != 1 || h.shipments()[0].Recipient != "p7@example.test" {
			t.Errorf("conflicts %d, calls %+v, %v", len(detail.Conflicts), h.shipments(), err)
		}
		if reply := h.push("queue", []byte(`{"content":{"text":"hello"},"to":"p7@example.test","channel":"email","type":"seat_expiring","reminder_id":"rem-1"}`)); reply.Conflict {
			t.Error("key order and spacing must not make a conflict")
		}
	})
}

func TestDeliver_RetrySendsFirstContent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
		h.push("queue", message("seat_expiring", "first@example.test"))
		time.Sleep(10 * time.Second)
		h.push("queue", message("seat_expiring", "other@example.test"))
		if h.callCount() != 2 || h.shipments()[1].Recipient != "first@example.test" || string(h.shipments()[1].Content) != string(h.shipments()[0].Content) {
			t.Errorf("calls: %+v", h.shipments())
		}
	})
}

func TestRequest_TakesOverBrokerOwnedEntry(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
		if reply := h.push("queue", message("seat_expiring", "a@b.example")); reply.Ack {
			t.Fatalf("acked although the broker retries: %+v", reply)
		}
		r, err := reminder.Parse(message("seat_expiring", "a@b.example"))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := h.deliverer.Request(t.Context(), "checkout", r, ledger.Trace{})
		if e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonRequested); err != nil || !reply.Ack || e.Owner != ledger.OwnerLedger {
			t.Errorf("reply %+v, %v", reply, err)
		}
		if again := h.push("queue", message("seat_expiring", "a@b.example")); !again.Ack {
			t.Errorf("not acked although the ledger owns the entry: %+v", again)
		}
	})
}

// Symptom: a reminder was sent again whose entry had been deleted under a memory of 40 days, after the memory was raised
// to 400: its age was within the memory as configured, of which the ledger had lost most.
func TestDeliver_DeletedUnderAShorterMemoryIsNotSentUnderALongerOne(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const day = 24 * time.Hour
		kind := h.options.Types["default"]
		kind.Deadline = 60 * day
		h.options.Types = map[string]policy.Type{"default": kind}
		h.options.Sources["buried"] = deliver.Source{RetriesBy: ledger.OwnerBroker, TakeoverAfter: 2 * time.Minute, AnswerWithin: 9 * time.Second, DeadLetters: true}
		h.options.Memory.Span = 40 * day
		h.deliverer = deliver.New(h.options)
		deliverFrom := func(source, id string, published time.Time) ledger.Entry {
			raw := bytes.ReplaceAll(message("seat_expiring", "ada@example.org"), []byte("rem-1"), []byte(id))
			reply, err := h.deliverer.Deliver(t.Context(), ledger.Delivery{Source: source, MessageID: id, Raw: raw, Published: published})
			if err != nil || !reply.Ack {
				t.Fatalf("Deliver: %+v, %v", reply, err)
			}
			return reply.Entry
		}
		published := time.Now()
		time.Sleep(time.Second)
		sent := deliverFrom("queue", "rem-1", published)
		copied := sent.Updated.Add(-time.Millisecond) // the producer published it twice
		time.Sleep(41 * day)
		keep := ledger.Retention{Entry: 40 * day}
		if e := h.entry(rem1); keep.Expiry(ledger.RetentionCandidate{Entry: e}, time.Now()) != ledger.ExpireEntry || h.memory.Delete(t.Context(), e) != nil {
			t.Fatalf("the entry was not deleted: %+v", e)
		}

		h.options.Memory.Span = 400 * day
		h.deliverer = deliver.New(h.options)
		for _, row := range []struct {
			source, id string
			published  time.Time
			refused    bool
		}{
			{"queue", "rem-1", published, true},
			{"buried", "rem-1-by-dead-letter-queue", published, true},
			{"queue", "rem-1-copy", copied, true},
			{"queue", "rem-2", sent.Updated, true},
			{"queue", "rem-3", sent.Updated.Add(time.Second), false},
		} {
			e := deliverFrom(row.source, row.id, row.published)
			if refused := e.State == ledger.Dropped && e.Reason == ledger.ReasonBeforeMemory; refused != row.refused {
				t.Errorf("%s from %s is %s, %s", row.id, row.source, e.State, e.Reason)
			}
		}
		if n := h.callCount(); n != 2 {
			t.Errorf("calls = %d, want one before the deletion and one for what was published after it", n)
		}
	})
}
