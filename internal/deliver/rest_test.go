package deliver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestWhatIsNotWantedAnyMoreIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ask = ledger.NotWanted
		id := ledger.Identity{ReminderID: "rem-1", Type: "asked", Channel: "email"}
		if reply := w.push("queue", message("asked", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		w.wants(id, ledger.Dropped, ledger.ReasonObsolete)
		if w.callCount() != 0 {
			t.Error("called all the same")
		}
	})
}

func TestAQuestionWithoutAnAnswerWaitsAndUsesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.ask = ledger.NoAnswer
		id := ledger.Identity{ReminderID: "rem-1", Type: "asked", Channel: "email"}
		if reply := w.push("queue", message("asked", "a@b.example")); reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		w.wants(id, ledger.Waiting, ledger.ReasonRelevanceUnanswered)
		time.Sleep(10 * time.Second)
		w.ask = ledger.StillWanted
		w.push("queue", message("asked", "a@b.example"))
		if e := w.wants(id, ledger.Sent, ledger.ReasonAccepted); e.Attempts != 1 {
			t.Errorf("attempts = %d", e.Attempts)
		}
	})
}

func TestAClosedGateKeepsTheReminderWithoutAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.full, w.slot = true, ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: 30 * time.Second}
		if reply := w.push("queue", message("seat_expiring", "a@b.example")); reply.Ack || reply.RetryAfter != 33*time.Second {
			t.Errorf("reply: %+v", reply)
		}
		e := w.wants(rem1, ledger.Waiting, ledger.ReasonGateClosed)
		time.Sleep(34 * time.Second)
		reply := w.push("queue", message("seat_expiring", "a@b.example"))
		if again := w.entry(rem1); again.Version != e.Version || reply.Ack || !reply.Duplicate || reply.RetryAfter != 33*time.Second {
			t.Errorf("a closed gate costs a redelivery a write: version %d, reply %+v", again.Version, reply)
		}
		w.full = false
		w.push("queue", message("seat_expiring", "a@b.example"))
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestAnEarlyRedeliveryUsesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
		w.push("queue", message("seat_expiring", "a@b.example"))
		for range 5 {
			if reply := w.push("queue", message("seat_expiring", "a@b.example")); reply.Ack || reply.RetryAfter < time.Second {
				t.Errorf("reply: %+v", reply)
			}
		}
		if e := w.wants(rem1, ledger.Waiting, ledger.ReasonUnreachable); e.Attempts != 1 || w.callCount() != 1 {
			t.Errorf("attempts %d, calls %d", e.Attempts, w.callCount())
		}
	})
}

func TestASourceThatLeavesRetriesToUsIsAckedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		if reply := w.push("ordered", message("seat_expiring", "a@b.example")); !reply.Ack || reply.Outcome != nil {
			t.Errorf("reply: %+v", reply)
		}
		w.wants(rem1, ledger.Waiting, ledger.ReasonLedgerRetries)
		if _, err := w.desk.Visit(t.Context(), rem1); err != nil {
			t.Fatal(err)
		}
		w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestWhatIsScheduledWaitsForItsTimeAndIsOurs(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		at := time.Now().Add(30 * time.Minute)
		raw := strings.Replace(string(message("seat_expiring", "a@b.example")), `"type"`, `"not_before": "`+at.UTC().Format(time.RFC3339Nano)+`", "type"`, 1)
		if reply := w.push("queue", []byte(raw)); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		e := w.wants(rem1, ledger.Waiting, ledger.ReasonScheduled)
		if due, _ := e.Due.Fixed(); due.Before(at.Truncate(time.Microsecond)) || e.Owner != ledger.OwnerLedger {
			t.Errorf("due %v before %v, owner %s", due, at, e.Owner)
		}
		_, _ = w.desk.Visit(t.Context(), rem1)
		if w.callCount() != 0 {
			t.Error("sent before its time")
		}
	})
}

func TestACancelBeforeDuringAndAfter(t *testing.T) {
	cancel := func(t *testing.T, w *world) ledger.Cancelled {
		t.Helper()
		all, err := w.desk.Cancel(t.Context(), "checkout", rem1.ReminderID, rem1.Type, rem1.Channel)
		if err != nil || len(all) != 1 {
			t.Fatalf("Cancel: %v, %v", all, err)
		}
		return all[0]
	}
	t.Run("before: a tombstone", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			if c := cancel(t, w); !c.Tombstone || c.Result != ledger.CancelDropped {
				t.Errorf("cancel: %+v", c)
			}
			if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack || reply.Conflict || w.callCount() != 0 {
				t.Errorf("reply %+v, calls %d", reply, w.callCount())
			}
		})
	})
	t.Run("during: the answer is in flight, and no later attempt is made", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if c := cancel(t, w); c.Result != ledger.CancelInFlight {
					t.Errorf("cancel: %+v", c)
				}
				return ledger.Outcome{Result: ledger.ResultUnreachable}
			}
			if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("reply: %+v", reply)
			}
			w.wants(rem1, ledger.Dropped, ledger.ReasonCancelled)
		})
	})
	t.Run("during an attempt that is accepted: it was sent", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				cancel(t, w)
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			}
			w.push("queue", message("seat_expiring", "a@b.example"))
			w.wants(rem1, ledger.Sent, ledger.ReasonAccepted)
		})
	})
	t.Run("while it waits", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.answers(ledger.ResultUnreachable, ledger.ResultAccepted)
			w.push("queue", message("seat_expiring", "a@b.example"))
			if c := cancel(t, w); c.Result != ledger.CancelDropped {
				t.Errorf("cancel: %+v", c)
			}
			time.Sleep(time.Minute)
			w.push("queue", message("seat_expiring", "a@b.example"))
			if w.callCount() != 1 {
				t.Error("called after a cancel")
			}
		})
	})
	t.Run("after", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.push("queue", message("seat_expiring", "a@b.example"))
			if c := cancel(t, w); c.Result != ledger.CancelTooLate {
				t.Errorf("cancel: %+v", c)
			}
		})
	})
	t.Run("all of a reminder, and nothing where there is nothing", func(t *testing.T) {
		bubble(t, func(t *testing.T, w *world) {
			w.answers(ledger.ResultUnreachable)
			w.push("queue", message("seat_expiring", "a@b.example"))
			w.push("queue", message("asked", "a@b.example"))
			all, err := w.desk.Cancel(t.Context(), "checkout", "rem-1", "", "")
			none, noneErr := w.desk.Cancel(t.Context(), "checkout", "rem-other", "", "")
			if err != nil || len(all) != 2 || noneErr != nil || len(none) != 0 {
				t.Errorf("all %v (%v), none %v (%v)", all, err, none, noneErr)
			}
		})
	})
}

func TestAfterItsDeadlineItIsDroppedAndTheLastFailureKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable)
		w.push("queue", message("seat_expiring", "a@b.example"))
		time.Sleep(2 * time.Hour)
		if reply := w.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		if e := w.wants(rem1, ledger.Dropped, ledger.ReasonExpired); e.Class != ledger.ClassUnreachable || w.callCount() != 1 {
			t.Errorf("class %q, calls %d", e.Class, w.callCount())
		}
	})
}

func TestAnExhaustedBudgetIsADeadLetterThatIsAcked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultUnreachable)
		var last ledger.Reply
		for range 5 {
			last = w.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(5 * time.Minute)
		}
		if e := w.wants(rem1, ledger.Dead, ledger.ReasonBudgetSpent); e.Class != ledger.ClassExhausted || e.Attempts != 3 || w.callCount() != 3 || !last.Ack {
			t.Errorf("class %q, attempts %d, calls %d, reply %+v", e.Class, e.Attempts, w.callCount(), last)
		}
	})
}

func TestWrongCredentialsCostNoBudget(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultAccepted)
		for range 5 {
			w.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(2 * time.Minute)
		}
		if e := w.wants(rem1, ledger.Sent, ledger.ReasonAccepted); e.Attempts != 5 || e.Spent != 1 {
			t.Errorf("attempts %d, spent %d", e.Attempts, e.Spent)
		}
	})
}

func TestAnUnknownChannelIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		raw := strings.Replace(string(message("seat_expiring", "a@b.example")), `"email"`, `"pigeon"`, 1)
		if reply := w.push("queue", []byte(raw)); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		w.wants(ledger.Identity{ReminderID: "rem-1", Type: "seat_expiring", Channel: "pigeon"}, ledger.Dead, ledger.ReasonUnroutable)
	})
}

// slow is a ledger whose answers to readings take their time.
type slow struct {
	deliver.Ledger
	reply time.Duration
}

func (s slow) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	seen, err := s.Ledger.Load(ctx, id)
	time.Sleep(s.reply)
	return seen, err
}

// What the ledger's now is compared with is read when it is asked: the time that its answer takes is nobody's.
func TestTheTimeThatAReadingTookIsNotAddedToTheCall(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.options.Ledger = slow{w.ledger, 2 * time.Second}
		w.desk = deliver.New(w.options)
		ends := time.Now().Add(6 * time.Second)
		var deadline time.Time
		w.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
			deadline, _ = ctx.Deadline()
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		w.push("queue", fmt.Appendf(nil, `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}, "deadline": %q}`, ends.Format(time.RFC3339Nano)))
		if deadline.IsZero() || deadline.After(ends) {
			t.Errorf("the call may go on until %v, and the reminder's deadline is %v", deadline, ends)
		}
	})
}
