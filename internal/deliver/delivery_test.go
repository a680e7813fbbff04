package deliver_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func bubble(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t)) })
}

func TestASecondDeliveryIsAnsweredFromTheLedger(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		first := w.push("queue", message("seat_expiring", "ada@example.org"))
		second := w.push("queue", message("seat_expiring", "ada@example.org"))
		if !first.Ack || first.Outcome == nil || first.Duplicate || first.Entry.Receipt != "r-1" {
			t.Errorf("first reply: %+v", first)
		}
		if !second.Ack || second.Outcome != nil || !second.Duplicate || second.Before != ledger.Sent {
			t.Errorf("second reply: %+v", second)
		}
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Version != 2 || e.Attempts != 1 {
			t.Errorf("a happy delivery is two writes and one attempt, got version %d, attempts %d", e.Version, e.Attempts)
		}
		if n := w.callCount(); n != 1 {
			t.Errorf("calls = %d, want 1", n)
		}
	})
}

func TestTwinsCallOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(3 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		var twins sync.WaitGroup
		var mu sync.Mutex
		acks, nacks := 0, 0
		for range 64 {
			twins.Go(func() {
				reply, err := w.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")})
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
		if acks != 1 || nacks != 63 || w.callCount() != 1 {
			t.Errorf("acks %d, nacks %d, calls %d; want 1, 63, 1", acks, nacks, w.callCount())
		}
	})
}

func TestNothingIsCalledBeforeTheClaimIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(_ context.Context, s ledger.Shipment) ledger.Outcome {
			if e := w.entry(s.Identity); e.State != ledger.Sending || e.Fingerprint != "mail-1" {
				t.Errorf("at the call the ledger holds %s, fingerprint %q", e.State, e.Fingerprint)
			}
			return ledger.Outcome{Result: ledger.ResultAccepted}
		}
		w.ledger.before = func(verb string) error {
			if verb == "create" {
				return errLost
			}
			return nil
		}
		if _, err := w.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil {
			t.Error("a ledger that takes no claim must fail the delivery")
		}
		if w.callCount() != 0 {
			t.Error("called without a claim")
		}
		w.ledger.before = nil
		w.push("queue", message("seat_expiring", "a@b.example"))
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Missing != ledger.MissingUnread {
			t.Errorf("accepted without a readable receipt: missing = %q", e.Missing)
		}
	})
}

func TestAnUnreachableLedgerFailsTheDelivery(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ledger.before = func(string) error { return errLost }
		if reply, err := w.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); !errors.Is(err, errLost) || reply.Ack {
			t.Errorf("reply %+v, error %v", reply, err)
		}
	})
}

func TestALostReplyToTheClaimCostsNoSecondCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ledger.after = once("create", 1)
		if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); w.callCount() != 1 || e.Version != 2 {
			t.Errorf("calls %d, version %d", w.callCount(), e.Version)
		}
	})
}

func TestALostReplyToTheSettleIsRecordedOnce(t *testing.T) {
	for _, lost := range []int{1, 2, 5} {
		bubble(t, func(t *testing.T, w *world) {
			w.ledger.after = once("swap", lost)
			if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("reply: %+v", reply)
			}
			w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
			if lines := w.timeline(rem1); len(lines) != 1 || w.callCount() != 1 || len(w.late) != 0 {
				t.Errorf("%d lines, %d calls, late %v; want 1, 1, none", len(lines), w.callCount(), w.late)
			}
		})
	}
}

func TestAnOutcomeOutlivesALedgerThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		away := time.Now().Add(time.Hour)
		w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			away = time.Now().Add(20 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "kept"}
		}
		w.ledger.before = func(verb string) error {
			if w.callCount() > 0 && time.Now().Before(away) {
				return errLost
			}
			return nil
		}
		if _, err := w.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil {
			t.Error("while the ledger is away nothing may be acked")
		}
		if err := w.desk.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "kept" {
			t.Errorf("receipt %q", e.Receipt)
		}
	})
}

func TestABrokerThatHangsUpDoesNotCostTheRecord(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
			select {
			case <-time.After(8 * time.Second):
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			case <-ctx.Done():
				return ledger.Outcome{}
			}
		}
		ctx, hangUp := context.WithTimeout(t.Context(), 5*time.Second)
		defer hangUp()
		reply, err := w.desk.Deliver(ctx, ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")})
		if err != nil || reply.Ack || !reply.InFlight {
			t.Errorf("reply %+v, error %v", reply, err)
		}
		_ = w.desk.Wait(t.Context())
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
		for range 3 {
			if again := w.push("queue", message("seat_expiring", "a@b.example")); !again.Ack {
				t.Errorf("redelivery: %+v", again)
			}
		}
		if w.callCount() != 1 {
			t.Errorf("calls = %d", w.callCount())
		}
	})
}

func TestWherePatienceEndsFirstTheSendGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(9500 * time.Millisecond)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		begun := time.Now()
		reply := w.push("queue", message("seat_expiring", "a@b.example"))
		if took := time.Since(begun); reply.Ack || !reply.InFlight || took != 9*time.Second {
			t.Errorf("answered after %v: %+v", took, reply)
		}
		_ = w.desk.Wait(t.Context())
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestAHolderThatWakesUpTooLateDoesNotCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ledger.after = func(verb string) error {
			if verb == "create" {
				time.Sleep(28 * time.Second) // paused: past lease less margin
			}
			return nil
		}
		w.options.Sources["queue"] = deliver.Source{RetriesBy: ledger.OwnerBroker, TakeoverAfter: time.Minute, AnswerWithin: time.Hour}
		w.desk = deliver.New(w.options)
		reply := w.push("queue", message("seat_expiring", "a@b.example"))
		if e := w.wants(rem1, ledger.Waiting, ledger.ReasonNotCalled); reply.Ack || w.callCount() != 0 || e.Attempts != 0 || e.Spent != 0 || e.InDoubt() {
			t.Errorf("calls %d, entry %+v", w.callCount(), e)
		}
	})
}

func TestTheCallsDeadlineIsTheEarliestOfAll(t *testing.T) {
	deadlines := map[string]struct {
		raw  string
		want time.Duration
	}{
		"timeout":                 {`"x": 0`, 10 * time.Second},
		"the reminder's deadline": {`"deadline"`, 4 * time.Second},
	}
	for name, tc := range deadlines {
		bubble(t, func(t *testing.T, w *world) {
			var left time.Duration
			w.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				return ledger.Outcome{Result: ledger.ResultAccepted}
			}
			raw := string(message("seat_expiring", "a@b.example"))
			if strings.Contains(tc.raw, "deadline") {
				raw = strings.Replace(raw, `"type"`, `"deadline": "`+time.Now().Add(4*time.Second).UTC().Format(time.RFC3339Nano)+`", "type"`, 1)
			}
			w.push("queue", []byte(raw))
			if left != tc.want {
				t.Errorf("%s: the call had %v, want %v", name, left, tc.want)
			}
		})
	}
}

func TestALapsedClaimIsRepeatedUnderTheSameKeyOnlyWhereThatIsHarmless(t *testing.T) {
	contracts := map[string]struct {
		contract ledger.Contract
		calls    int
		state    ledger.State
		reason   ledger.Reason
	}{
		"idempotent": {ledger.Contract{Kind: ledger.Idempotent, Window: time.Hour}, 2, ledger.Sent, ledger.ReasonAccepted},
		"lookup":     {ledger.Contract{Kind: ledger.Lookup}, 1, ledger.Unknown, ledger.ReasonLapsed},
		"blind":      {ledger.Contract{}, 1, ledger.Unknown, ledger.ReasonLapsed},
	}
	for name, tc := range contracts {
		bubble(t, func(t *testing.T, w *world) {
			w.route.Contract = tc.contract
			crashed := make(chan struct{})
			w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if w.callCount() == 1 {
					<-crashed // never answers while the test looks
				}
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			}
			w.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(31 * time.Second)
			if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("%s: %+v", name, reply)
			}
			if e := w.wants(rem1, tc.state, tc.reason); w.callCount() != tc.calls || e.Lapses != 1 {
				t.Errorf("%s: calls %d, lapses %d", name, w.callCount(), e.Lapses)
			}
			if tc.calls == 2 && w.made()[0].SendKey != w.made()[1].SendKey {
				t.Errorf("%s: another key at the second attempt", name)
			}
			close(crashed)
			_ = w.desk.Wait(t.Context())
			w.wants(rem1, ledger.Sent, map[bool]ledger.Reason{true: ledger.ReasonAccepted, false: ledger.ReasonLateAcceptance}[tc.calls == 2])
		})
	}
}

func TestALateSecondReceiptIsAlertedAndTheSameReceiptIsNot(t *testing.T) {
	for receipt, kind := range map[string]ledger.Reason{"first": ledger.ReasonReplayed, "other": ledger.ReasonPossibleSecondSend} {
		bubble(t, func(t *testing.T, w *world) {
			crashed := make(chan struct{})
			w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if w.callCount() == 1 {
					<-crashed
					return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: receipt}
				}
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "first"}
			}
			w.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(31 * time.Second)
			w.push("queue", message("seat_expiring", "a@b.example"))
			close(crashed)
			_ = w.desk.Wait(t.Context())
			if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "first" || len(w.late) != 1 || w.late[0] != string(kind) {
				t.Errorf("receipt %q, late %v, want %s", e.Receipt, w.late, kind)
			}
		})
	}
}

func TestAProviderThatPanicsMayHaveSent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.route.Contract = ledger.Contract{}
		w.send = func(context.Context, ledger.Shipment) ledger.Outcome { panic("adapter") }
		w.push("queue", message("seat_expiring", "a@b.example"))
		w.wants(rem1, ledger.Unknown, ledger.ReasonUnanswered)
	})
}

func TestAPanicOfOurOwnFailsOneDeliveryAndNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ledger.before = func(string) error { panic("a bug") }
		if reply, err := w.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", Raw: message("seat_expiring", "a@b.example")}); err == nil || reply.Ack || strings.Contains(err.Error(), "a bug") {
			t.Errorf("reply %+v, error %v", reply, err)
		}
		w.ledger.before = nil
		w.push("queue", message("seat_expiring", "a@b.example"))
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestAMalformedMessageIsOneDeadLetterHoweverOftenItComes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		raw := []byte(`{"reminder_id": "rem-1", "Reminder_ID": "rem-evil"}`)
		for range 5 {
			if reply := w.push("queue", raw); !reply.Ack {
				t.Errorf("a poison message must not come back: %+v", reply)
			}
		}
		id := ledger.MalformedIdentity("queue", "m-1", raw)
		if e := w.wants(id, ledger.Dead, ledger.ReasonMalformed); e.Version != 1 || e.Class != ledger.ClassMalformed {
			t.Errorf("entry %+v", e)
		}
		payload, err := w.memory.Payload(t.Context(), id)
		if err != nil || string(payload.Raw) != string(raw) || !strings.Contains(string(payload.Metadata), "Reminder_ID") {
			t.Errorf("payload %q, why %q, %v", payload.Raw, payload.Metadata, err)
		}
		if w.callCount() != 0 || !w.entry(rem1).Absent() {
			t.Error("a malformed message reached a provider or made an entry of its own name")
		}
	})
}

func TestOtherContentIsAConflictAndTheFirstStands(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.push("queue", message("seat_expiring", "p7@example.test"))
		for range 3 {
			if reply := w.push("queue", message("seat_expiring", "q9@example.test")); !reply.Ack || !reply.Conflict {
				t.Errorf("reply: %+v", reply)
			}
		}
		story, err := w.memory.Story(t.Context(), rem1)
		if err != nil || len(story.Conflicts) != 1 || w.callCount() != 1 || w.made()[0].Recipient != "p7@example.test" {
			t.Errorf("conflicts %d, calls %+v, %v", len(story.Conflicts), w.made(), err)
		}
		if reply := w.push("queue", []byte(`{"content":{"text":"hello"},"to":"p7@example.test","channel":"email","type":"seat_expiring","reminder_id":"rem-1"}`)); reply.Conflict {
			t.Error("key order and spacing are no other content")
		}
	})
}

func TestARetrySendsTheFirstContent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
		w.push("queue", message("seat_expiring", "first@example.test"))
		time.Sleep(10 * time.Second)
		w.push("queue", message("seat_expiring", "other@example.test"))
		if w.callCount() != 2 || w.made()[1].Recipient != "first@example.test" || string(w.made()[1].Content) != string(w.made()[0].Content) {
			t.Errorf("calls: %+v", w.made())
		}
	})
}

func TestARequestThatMeetsABrokersEntryMakesItOurs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
		if reply := w.push("queue", message("seat_expiring", "a@b.example")); reply.Ack {
			t.Fatalf("the broker retries: %+v", reply)
		}
		r, err := reminder.Parse(message("seat_expiring", "a@b.example"))
		if err != nil {
			t.Fatal(err)
		}
		reply, err := w.desk.Request(t.Context(), "checkout", r, ledger.Trace{})
		if e := w.wants(rem1, ledger.Waiting, ledger.ReasonRequested); err != nil || !reply.Ack || e.Owner != ledger.OwnerLedger {
			t.Errorf("reply %+v, %v", reply, err)
		}
		if again := w.push("queue", message("seat_expiring", "a@b.example")); !again.Ack {
			t.Errorf("what is ours is acked: %+v", again)
		}
	})
}
