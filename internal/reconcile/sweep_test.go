package reconcile_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestSweep_ExpiredLeaseIsExpiredOnceByContract(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		providers := []string{"idempotent", "blind", "lookup"}
		for n := range 60 {
			h.insertSending(n, providers[n%3], 0, lease)
		}
		defer h.start(h.newReconciler(), h.newReconciler())()
		time.Sleep(lease - time.Second)
		synctest.Wait()
		if e := h.entry(0); e.State != ledger.Sending {
			t.Fatalf("a lease was expired too early: %s", e.State)
		}
		time.Sleep(time.Second + 2*sweep)
		synctest.Wait()
		for n := range 60 {
			var e ledger.Entry
			switch providers[n%3] {
			case "idempotent":
				e = h.wantEntry(n, ledger.Waiting, ledger.ReasonRepeatable)
			case "blind":
				if e = h.wantEntry(n, ledger.Unknown, ledger.ReasonLeaseExpired); !e.NextLookup.IsZero() {
					t.Errorf("entry %d: a lookup is scheduled although none is possible", n)
				}
			default:
				if e = h.wantEntry(n, ledger.Unknown, ledger.ReasonLeaseExpired); e.NextLookup.IsZero() {
					t.Errorf("entry %d: no lookup is scheduled", n)
				}
			}
			events := h.events(n, ledger.EventLeaseExpired)
			if e.LeaseExpirations != 1 || len(events) != 1 || events[0].Origin != ledger.OriginReconcile || events[0].Holder == "" {
				t.Errorf("entry %d: %d lease expirations, events %+v", n, e.LeaseExpirations, events)
			}
		}
	})
}

// The holder settles between the sweep's load and its write: the sweep must not restart what is finished.
func TestSweep_SettleBetweenLoadAndWriteWins(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertSending(1, "idempotent", -lease, -time.Second)
		h.insertSending(2, "idempotent", -lease, -time.Second)
		h.ledger.before = onFirst("update", 1, func() error { h.update(1, settleAccepted("receipt")); return nil })
		h.newReconciler().SweepOnce(t.Context())
		e := h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted)
		if e.Receipt != "receipt" || e.LeaseExpirations != 0 || len(h.events(1, ledger.EventLeaseExpired)) != 0 || len(h.failures) != 0 {
			t.Errorf("receipt %q, %d lease expirations, failures %v", e.Receipt, e.LeaseExpirations, h.failures)
		}
		h.wantEntry(2, ledger.Waiting, ledger.ReasonRepeatable)
	})
}

// An entry that was listed with an expired lease may be finished, or claimed again, by the time that it is loaded.
func TestSweep_EntryChangedSinceListingIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for n := 1; n <= 2; n++ {
			h.insertSending(n, "idempotent", -lease, -time.Second)
		}
		claimed := func(e ledger.Entry) ledger.Change {
			e.Holder, e.ClaimedAt, e.LeaseUntil = "another", ledger.In(0), ledger.In(lease)
			return ledger.Change{Entry: e}
		}
		finishes := onFirst("load", 1, func() error { h.update(1, settleAccepted("receipt")); return nil })
		claims := onFirst("load", 2, func() error { h.update(2, claimed); return nil })
		h.ledger.before = func(op string, id ledger.Identity) error { return errors.Join(finishes(op, id), claims(op, id)) }
		h.newReconciler().SweepOnce(t.Context())
		h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted)
		if e := h.wantEntry(2, ledger.Sending, ledger.ReasonClaimed); e.Holder != "another" || e.Version != 2 {
			t.Errorf("holder %q, version %d", e.Holder, e.Version)
		}
	})
}

func TestSweep_LostReplyCountsOneLeaseExpiration(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertSending(1, "idempotent", -lease, -time.Second)
		h.ledger.after = onFirst("update", 1, func() error { return errLost })
		rc := h.newReconciler()
		for range 10 {
			rc.SweepOnce(t.Context())
		}
		if e := h.wantEntry(1, ledger.Waiting, ledger.ReasonRepeatable); e.LeaseExpirations != 1 {
			t.Errorf("%d lease expirations", e.LeaseExpirations)
		}
	})
}

func TestSweep_FailingEntriesDoNotStarveTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const failing = 600
		for n := range failing {
			h.insertSending(n, "idempotent", -2*lease, -lease) // the longest expired
		}
		h.insertSending(failing, "idempotent", -lease, -time.Second)
		accepted := false
		h.ledger.before = func(op string, id ledger.Identity) error {
			if op == "update" && id != identity(failing) && !accepted {
				return errors.New("rejected for ever")
			}
			return nil
		}
		rc := h.newReconciler()
		for range 4 {
			rc.SweepOnce(t.Context())
		}
		h.wantEntry(failing, ledger.Waiting, ledger.ReasonRepeatable)
		if len(h.failures) == 0 {
			t.Error("the failures were not reported")
		}
		accepted = true
		for range 16 {
			rc.SweepOnce(t.Context())
		}
		for n := range failing {
			if e := h.entry(n); e.State != ledger.Waiting {
				t.Fatalf("entry %d is still %s after the ledger accepts its update again", n, e.State)
			}
		}
	})
}

func TestSweep_FirstFindsClaimsOfAnyAge(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for n, claimed := range []time.Duration{-time.Minute, -3 * time.Hour, -72 * time.Hour, -90 * 24 * time.Hour} {
			h.insertSending(n, "idempotent", claimed, claimed+lease)
		}
		h.newReconciler().SweepOnce(t.Context())
		for n := range 4 {
			if e := h.entry(n); e.State == ledger.Sending {
				t.Errorf("entry %d was not found", n)
			}
		}
	})
}

func TestSweep_ProcessesOrphans(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.closed["blind"] = true
		h.insertWaiting(1, "gone", 0)
		h.insertWaiting(2, "blind", 0)      // its gate is closed
		h.insertWaiting(3, "idempotent", 0) // a worker serves it
		h.insertWaiting(4, "gone", time.Hour)
		h.insertWaiting(5, "", -time.Second)
		h.newReconciler().SweepOnce(t.Context())
		snap := map[ledger.Identity]int{}
		for _, id := range h.processed {
			snap[id]++
		}
		if len(h.processed) != 3 || snap[identity(1)] != 1 || snap[identity(2)] != 1 || snap[identity(5)] != 1 {
			t.Errorf("processed %v", h.processed)
		}
	})
}

func TestSweep_ContinuesAfterOnePartFails(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertSending(1, "idempotent", -lease, -time.Second)
		h.insertWaiting(2, "gone", 0)
		h.ledger.before = func(op string, id ledger.Identity) error {
			if op == "load" && id == identity(1) {
				return errLost
			}
			return nil
		}
		h.newReconciler().SweepOnce(t.Context())
		if len(h.processed) != 1 || len(h.failures) == 0 {
			t.Errorf("processed %v, failures %v", h.processed, h.failures)
		}
	})
}
