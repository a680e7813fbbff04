package deliver_test

import (
	"context"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestCancel_BeforeDuringAndAfterSend(t *testing.T) {
	cancel := func(t *testing.T, h *harness) ledger.Cancelled {
		t.Helper()
		all, err := h.deliverer.Cancel(t.Context(), "checkout", rem1.ReminderID, rem1.Type, rem1.Channel)
		if err != nil || len(all) != 1 {
			t.Fatalf("Cancel: %v, %v", all, err)
		}
		return all[0]
	}
	t.Run("before the first delivery: a tombstone", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			if c := cancel(t, h); !c.Tombstone || c.Result != ledger.CancelDropped {
				t.Errorf("cancel: %+v", c)
			}
			if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack || reply.Conflict || h.callCount() != 0 {
				t.Errorf("reply %+v, calls %d", reply, h.callCount())
			}
		})
	})
	t.Run("during an attempt that fails: in flight, and no later attempt", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				if c := cancel(t, h); c.Result != ledger.CancelInFlight {
					t.Errorf("cancel: %+v", c)
				}
				return ledger.Outcome{Result: ledger.ResultUnreachable}
			}
			if reply := h.push("queue", message("seat_expiring", "a@b.example")); !reply.Ack {
				t.Errorf("reply: %+v", reply)
			}
			h.wantEntry(rem1, ledger.Dropped, ledger.ReasonCancelled)
		})
	})
	t.Run("during an attempt that is accepted: sent", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			h.send = func(context.Context, ledger.Shipment) ledger.Outcome {
				cancel(t, h)
				return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
			}
			h.push("queue", message("seat_expiring", "a@b.example"))
			h.wantEntry(rem1, ledger.Sent, ledger.ReasonAccepted)
		})
	})
	t.Run("while waiting", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			h.setResults(ledger.ResultUnreachable, ledger.ResultAccepted)
			h.push("queue", message("seat_expiring", "a@b.example"))
			if c := cancel(t, h); c.Result != ledger.CancelDropped {
				t.Errorf("cancel: %+v", c)
			}
			time.Sleep(time.Minute)
			h.push("queue", message("seat_expiring", "a@b.example"))
			if h.callCount() != 1 {
				t.Error("called after a cancel")
			}
		})
	})
	t.Run("after the send", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			h.push("queue", message("seat_expiring", "a@b.example"))
			if c := cancel(t, h); c.Result != ledger.CancelTooLate {
				t.Errorf("cancel: %+v", c)
			}
		})
	})
	t.Run("all entries of a reminder, and none of an unknown reminder", func(t *testing.T) {
		bubble(t, func(t *testing.T, h *harness) {
			h.setResults(ledger.ResultUnreachable)
			h.push("queue", message("seat_expiring", "a@b.example"))
			h.push("queue", message("checked", "a@b.example"))
			all, err := h.deliverer.Cancel(t.Context(), "checkout", "rem-1", "", "")
			none, noneErr := h.deliverer.Cancel(t.Context(), "checkout", "rem-other", "", "")
			if err != nil || len(all) != 2 || noneErr != nil || len(none) != 0 {
				t.Errorf("all %v (%v), none %v (%v)", all, err, none, noneErr)
			}
		})
	})
}
