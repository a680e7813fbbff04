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

func TestCall_HolderPastItsDeadlineDoesNotCall(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.ledger.after = func(op string) error {
			if op == "insert" {
				time.Sleep(28 * time.Second) // longer than the lease less the margin
			}
			return nil
		}
		h.options.Sources["queue"] = deliver.Source{RetriesBy: ledger.OwnerBroker, TakeoverAfter: time.Minute, AnswerWithin: time.Hour}
		h.deliverer = deliver.New(h.options)
		reply := h.push("queue", message("seat_expiring", "a@b.example"))
		if e := h.wantEntry(rem1, ledger.Waiting, ledger.ReasonNotCalled); reply.Ack || h.callCount() != 0 || e.Attempts != 0 || e.BudgetUsed != 0 || e.InDoubt() {
			t.Errorf("calls %d, entry %+v", h.callCount(), e)
		}
	})
}

func TestCall_DeadlineIsTheEarliestOfAll(t *testing.T) {
	deadlines := map[string]struct {
		raw  string
		want time.Duration
	}{
		"timeout":                 {`"x": 0`, 10 * time.Second},
		"the reminder's deadline": {`"deadline"`, 4 * time.Second},
	}
	for name, tc := range deadlines {
		bubble(t, func(t *testing.T, h *harness) {
			var left time.Duration
			h.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
				deadline, _ := ctx.Deadline()
				left = time.Until(deadline)
				return ledger.Outcome{Result: ledger.ResultAccepted}
			}
			raw := string(message("seat_expiring", "a@b.example"))
			if strings.Contains(tc.raw, "deadline") {
				raw = strings.Replace(raw, `"type"`, `"deadline": "`+time.Now().Add(4*time.Second).UTC().Format(time.RFC3339Nano)+`", "type"`, 1)
			}
			h.push("queue", []byte(raw))
			if left != tc.want {
				t.Errorf("%s: the call had %v, want %v", name, left, tc.want)
			}
		})
	}
}

func TestCall_PanicOfSenderIsUnknownOutcome(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.route.Contract = ledger.Contract{}
		h.send = func(context.Context, ledger.Shipment) ledger.Outcome { panic("adapter") }
		h.push("queue", message("seat_expiring", "a@b.example"))
		h.wantEntry(rem1, ledger.Unknown, ledger.ReasonUnanswered)
	})
}

// slowLedger is a ledger whose Load returns late.
type slowLedger struct {
	deliver.Ledger
	delay time.Duration
}

func (s slowLedger) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	snap, err := s.Ledger.Load(ctx, id)
	time.Sleep(s.delay)
	return snap, err
}

// The local time that a deadline counts from is taken before the load: how long the load takes is added to no budget.
func TestCall_TimeOfLoadIsNotAddedToDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.options.Ledger = slowLedger{h.ledger, 2 * time.Second}
		h.deliverer = deliver.New(h.options)
		ends := time.Now().Add(6 * time.Second)
		var deadline time.Time
		h.send = func(ctx context.Context, _ ledger.Shipment) ledger.Outcome {
			deadline, _ = ctx.Deadline()
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}
		h.push("queue", fmt.Appendf(nil, `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "a@b.example", "content": {"text": "x"}, "deadline": %q}`, ends.Format(time.RFC3339Nano)))
		if deadline.IsZero() || deadline.After(ends) {
			t.Errorf("the call's deadline is %v, past the reminder's deadline %v", deadline, ends)
		}
	})
}
