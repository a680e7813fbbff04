package redrive_test

import (
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestRedrive_MalformedIsReparsedAsItsOwnDelivery(t *testing.T) {
	malformed := ledger.Identity{ReminderID: strings.Repeat("a", 64), Type: ledger.MalformedType, Channel: "queue"}
	asMalformed := func(e *ledger.Entry) {
		e.Class, e.Reason, e.Provider, e.Fingerprint = ledger.ClassMalformed, ledger.ReasonMalformed, "", ""
	}
	byClass := func(r *ledger.RedriveRequest) { r.Filter.Class = ledger.ClassMalformed }
	for _, lost := range []string{"", "update " + malformed.ReminderID, "set_result 1"} {
		bubble(t, func(t *testing.T, h *harness) {
			h.insertDead(malformed, asMalformed)
			h.reparse = func(_ ledger.Entry, raw []byte) (ledger.Identity, []string, error) {
				if string(raw) != "raw "+malformed.ReminderID {
					t.Errorf("reparsed %q", raw)
				}
				return identity(1), nil, nil
			}
			h.ledger.after = once(lost)
			rd := h.newRedriver()
			job := h.start(rd, request("", byClass))
			h.finish(rd)
			e, report := h.entry(malformed), h.show(job.ID)
			if e.State != ledger.Dropped || e.Reason != ledger.ReasonReparsed || h.entry(identity(1)).State != ledger.Waiting {
				t.Errorf("after %q: %s, %s", lost, e.State, e.Reason)
			}
			if report.Items[0].ReparsedAs != identity(1).EntryID() || report.Counts.Pending != 1 {
				t.Errorf("after %q: %+v", lost, report)
			}
			h.send(identity(1))
			if report := h.show(job.ID); report.Counts.Sent != 1 {
				t.Errorf("after %q: %+v", lost, report.Counts)
			}
		})
	}
	bubble(t, func(t *testing.T, h *harness) {
		before := h.insertDead(malformed, asMalformed)
		h.reparse = func(ledger.Entry, []byte) (ledger.Identity, []string, error) {
			return ledger.Identity{}, []string{"to is missing"}, nil
		}
		rd := h.newRedriver()
		job := h.start(rd, request("", byClass))
		h.finish(rd)
		if e, counts := h.entry(malformed), h.show(job.ID).Counts; e != before || counts.Skipped[ledger.SkipMalformed] != 1 {
			t.Errorf("%+v, %+v", e, counts)
		}
	})
}
