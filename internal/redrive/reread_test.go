package redrive_test

import (
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestAMalformedOneIsReadAgainAsADeliveryOfItsOwn(t *testing.T) {
	malformed := ledger.Identity{ReminderID: strings.Repeat("a", 64), Type: ledger.MalformedType, Channel: "queue"}
	asMalformed := func(e *ledger.Entry) {
		e.Class, e.Reason, e.Provider, e.Fingerprint = ledger.ClassMalformed, ledger.ReasonMalformed, "", ""
	}
	byClass := func(r *ledger.RedriveRequest) { r.Filter.Class = ledger.ClassMalformed }
	for _, lost := range []string{"", "swap " + malformed.ReminderID, "settle 1"} {
		bubble(t, func(t *testing.T, w *world) {
			w.die(malformed, asMalformed)
			w.read = func(_ ledger.Entry, raw []byte) (ledger.Identity, []string, error) {
				if string(raw) != "raw "+malformed.ReminderID {
					t.Errorf("read %q", raw)
				}
				return identity(1), nil, nil
			}
			w.ledger.after = once(lost)
			d := w.replica()
			job := w.start(d, ask("", byClass))
			w.finish(d)
			e, report := w.entry(malformed), w.show(job.ID)
			if e.State != ledger.Dropped || e.Reason != ledger.ReasonReread || w.entry(identity(1)).State != ledger.Waiting {
				t.Errorf("after %q: %s, %s", lost, e.State, e.Reason)
			}
			if report.Items[0].Became != identity(1).EntryID() || report.Tally.Pending != 1 {
				t.Errorf("after %q: %+v", lost, report)
			}
			w.sends(identity(1))
			if report := w.show(job.ID); report.Tally.Sent != 1 {
				t.Errorf("after %q: %+v", lost, report.Tally)
			}
		})
	}
	bubble(t, func(t *testing.T, w *world) {
		before := w.die(malformed, asMalformed)
		w.read = func(ledger.Entry, []byte) (ledger.Identity, []string, error) {
			return ledger.Identity{}, []string{"to is missing"}, nil
		}
		d := w.replica()
		job := w.start(d, ask("", byClass))
		w.finish(d)
		if e, tally := w.entry(malformed), w.show(job.ID).Tally; e != before || tally.Skipped[ledger.SkipMalformed] != 1 {
			t.Errorf("%+v, %+v", e, tally)
		}
	})
}
