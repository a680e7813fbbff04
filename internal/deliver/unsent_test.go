package deliver_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestRelevance_NotWantedIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.relevance = ledger.RelevanceNotWanted
		id := ledger.Identity{ReminderID: "rem-1", Type: "checked", Channel: "email"}
		if reply := h.push("queue", message("checked", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		h.wantEntry(id, ledger.Dropped, ledger.ReasonObsolete)
		if h.callCount() != 0 {
			t.Error("called although the reminder is not wanted")
		}
	})
}

func TestRelevance_UnansweredWaitsAndUsesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.relevance = ledger.RelevanceUnanswered
		id := ledger.Identity{ReminderID: "rem-1", Type: "checked", Channel: "email"}
		if reply := h.push("queue", message("checked", "a@b.example")); reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		h.wantEntry(id, ledger.Waiting, ledger.ReasonRelevanceUnanswered)
		time.Sleep(10 * time.Second)
		h.relevance = ledger.RelevanceWanted
		h.push("queue", message("checked", "a@b.example"))
		if e := h.wantEntry(id, ledger.Sent, ledger.ReasonAccepted); e.Attempts != 1 {
			t.Errorf("attempts = %d", e.Attempts)
		}
	})
}

func TestGate_ClosedKeepsReminderWithoutAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.noSlot, h.slot = true, ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: 30 * time.Second}
		if reply := h.push("queue", message("seat_expiring", "a@b.example")); reply.Ack || reply.RetryAfter != 33*time.Second {
			t.Errorf("reply: %+v", reply)
		}
		e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonGateClosed)
		time.Sleep(34 * time.Second)
		reply := h.push("queue", message("seat_expiring", "a@b.example"))
		if again := h.entry(rem1); again.Version != e.Version || reply.Ack || !reply.Duplicate || reply.RetryAfter != 33*time.Second {
			t.Errorf("a redelivery at a closed gate must not write: version %d, reply %+v", again.Version, reply)
		}
		h.noSlot = false
		h.push("queue", message("seat_expiring", "a@b.example"))
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestDeliver_EarlyRedeliveryUsesNoAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
		h.push("queue", message("seat_expiring", "a@b.example"))
		for range 5 {
			if reply := h.push("queue", message("seat_expiring", "a@b.example")); reply.Ack || reply.RetryAfter < time.Second {
				t.Errorf("reply: %+v", reply)
			}
		}
		if e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonUnreachable); e.Attempts != 1 || h.callCount() != 1 {
			t.Errorf("attempts %d, calls %d", e.Attempts, h.callCount())
		}
	})
}

func TestDeliver_SourceWithLedgerRetriesIsAckedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		if reply := h.push("ordered", message("seat_expiring", "a@b.example")); !reply.Ack || reply.Outcome != nil {
			t.Errorf("reply: %+v", reply)
		}
		h.wantEntry(rem1, ledger.Waiting, ledger.ReasonLedgerRetries)
		if _, err := h.deliverer.Process(t.Context(), rem1); err != nil {
			t.Fatal(err)
		}
		h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
	})
}

func TestDeliver_ScheduledReminderWaitsOwnedByLedger(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		at := time.Now().Add(30 * time.Minute)
		raw := strings.Replace(string(message("seat_expiring", "a@b.example")), `"type"`, `"not_before": "`+at.UTC().Format(time.RFC3339Nano)+`", "type"`, 1)
		if reply := h.push("queue", []byte(raw)); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonScheduled)
		if due, _ := e.Due.Fixed(); due.Before(at.Truncate(time.Microsecond)) || e.Owner != ledger.OwnerLedger {
			t.Errorf("due %v before %v, owner %s", due, at, e.Owner)
		}
		_, _ = h.deliverer.Process(t.Context(), rem1)
		if h.callCount() != 0 {
			t.Error("sent before not_before")
		}
	})
}

func TestDeadline_ExpiredIsDroppedAndKeepsLastFailure(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable)
		h.push("queue", message("seat_expiring", "a@b.example"))
		time.Sleep(2 * time.Hour)
		if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		if e := h.wantEntry(rem1, ledger.Dropped, ledger.ReasonExpired); e.Class != ledger.ClassUnreachable || h.callCount() != 1 {
			t.Errorf("class %q, calls %d", e.Class, h.callCount())
		}
	})
}

func TestBudget_ExhaustedIsAnAckedDeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultUnreachable)
		var last ledger.Reply
		for range 5 {
			last = h.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(5 * time.Minute)
		}
		if e := h.wantEntry(rem1, ledger.Dead, ledger.ReasonBudgetSpent); e.Class != ledger.ClassExhausted || e.Attempts != 3 || h.callCount() != 3 || !last.Ack {
			t.Errorf("class %q, attempts %d, calls %d, reply %+v", e.Class, e.Attempts, h.callCount(), last)
		}
	})
}

func TestBudget_WrongCredentialsUseNone(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultCredentials, ledger.ResultAccepted)
		for range 5 {
			h.push("queue", message("seat_expiring", "a@b.example"))
			time.Sleep(2 * time.Minute)
		}
		if e := h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted); e.Attempts != 5 || e.BudgetUsed != 1 {
			t.Errorf("attempts %d, budget used %d", e.Attempts, e.BudgetUsed)
		}
	})
}

func TestDeliver_UnknownChannelIsADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		raw := strings.Replace(string(message("seat_expiring", "a@b.example")), `"email"`, `"pigeon"`, 1)
		if reply := h.push("queue", []byte(raw)); !reply.Ack {
			t.Errorf("reply: %+v", reply)
		}
		h.wantEntry(ledger.Identity{ReminderID: "rem-1", Type: "seat_expiring", Channel: "pigeon"}, ledger.Dead, ledger.ReasonUnroutable)
	})
}
