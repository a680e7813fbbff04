package reconcile_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestASilentHolderIsTakenOnceByContract(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		providers := []string{"keyed", "blind", "desk"}
		for n := range 60 {
			w.holds(n, providers[n%3], 0, lease)
		}
		defer w.runs(w.replica(), w.replica())()
		time.Sleep(lease - time.Second)
		synctest.Wait()
		if e := w.entry(0); e.State != ledger.Sending {
			t.Fatalf("a living lease was taken: %s", e.State)
		}
		time.Sleep(time.Second + 2*sweep)
		synctest.Wait()
		for n := range 60 {
			var e ledger.Entry
			switch providers[n%3] {
			case "keyed":
				e = w.wants(n, ledger.Waiting, ledger.ReasonRepeatable)
			case "blind":
				if e = w.wants(n, ledger.Unknown, ledger.ReasonLapsed); !e.AskAt.IsZero() {
					t.Errorf("entry %d: nobody can be asked, and a question is planned", n)
				}
			default:
				if e = w.wants(n, ledger.Unknown, ledger.ReasonLapsed); e.AskAt.IsZero() {
					t.Errorf("entry %d: its provider is never asked", n)
				}
			}
			lines := w.lines(n, ledger.EventLapse)
			if e.Lapses != 1 || len(lines) != 1 || lines[0].Origin != ledger.OriginReconcile || lines[0].Holder == "" {
				t.Errorf("entry %d: %d lapses, told as %+v", n, e.Lapses, lines)
			}
		}
	})
}

// A settle lands between the sweep's reading and its write: the sweep must not restart what was finished.
func TestASettleBetweenTheSweepsReadingAndItsWriteWins(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.holds(1, "keyed", -lease, -time.Second)
		w.holds(2, "keyed", -lease, -time.Second)
		w.ledger.before = first("swap", 1, func() error { w.moves(1, settles("receipt")); return nil })
		w.replica().Round(t.Context())
		e := w.wants(1, ledger.Sent, ledger.ReasonAccepted)
		if e.Receipt != "receipt" || e.Lapses != 0 || len(w.lines(1, ledger.EventLapse)) != 0 || len(w.failures) != 0 {
			t.Errorf("receipt %q, %d lapses, failures %v", e.Receipt, e.Lapses, w.failures)
		}
		w.wants(2, ledger.Waiting, ledger.ReasonRepeatable)
	})
}

// What was listed as silent may be finished, or in other hands, by the time that it is read.
func TestWhatMovedOnSinceItWasListedIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for n := 1; n <= 2; n++ {
			w.holds(n, "keyed", -lease, -time.Second)
		}
		claimed := func(e ledger.Entry) ledger.Change {
			e.Holder, e.ClaimedAt, e.LeaseUntil = "another", ledger.In(0), ledger.In(lease)
			return ledger.Change{Entry: e}
		}
		finishes := first("load", 1, func() error { w.moves(1, settles("receipt")); return nil })
		claims := first("load", 2, func() error { w.moves(2, claimed); return nil })
		w.ledger.before = func(verb string, id ledger.Identity) error { return errors.Join(finishes(verb, id), claims(verb, id)) }
		w.replica().Round(t.Context())
		w.wants(1, ledger.Sent, ledger.ReasonAccepted)
		if e := w.wants(2, ledger.Sending, ledger.ReasonClaimed); e.Holder != "another" || e.Version != 2 {
			t.Errorf("holder %q, version %d", e.Holder, e.Version)
		}
	})
}

func TestALapseWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.holds(1, "keyed", -lease, -time.Second)
		w.ledger.after = first("swap", 1, func() error { return errLost })
		d := w.replica()
		for range 10 {
			d.Round(t.Context())
		}
		if e := w.wants(1, ledger.Waiting, ledger.ReasonRepeatable); e.Lapses != 1 {
			t.Errorf("%d lapses", e.Lapses)
		}
	})
}

func TestWhatTheSweepCannotHelpDoesNotStarveTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const poisoned = 600
		for n := range poisoned {
			w.holds(n, "keyed", -2*lease, -lease) // the longest silent
		}
		w.holds(poisoned, "keyed", -lease, -time.Second)
		healed := false
		w.ledger.before = func(verb string, id ledger.Identity) error {
			if verb == "swap" && id != identity(poisoned) && !healed {
				return errors.New("refused for ever")
			}
			return nil
		}
		d := w.replica()
		for range 4 {
			d.Round(t.Context())
		}
		w.wants(poisoned, ledger.Waiting, ledger.ReasonRepeatable)
		if len(w.failures) == 0 {
			t.Error("nobody is told of what could not be helped")
		}
		healed = true
		for range 16 {
			d.Round(t.Context())
		}
		for n := range poisoned {
			if e := w.entry(n); e.State != ledger.Waiting {
				t.Fatalf("entry %d can be helped again, and stands as %s", n, e.State)
			}
		}
	})
}

func TestTheFirstRoundFindsClaimsHoweverOld(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for n, claimed := range []time.Duration{-time.Minute, -3 * time.Hour, -72 * time.Hour, -90 * 24 * time.Hour} {
			w.holds(n, "keyed", claimed, claimed+lease)
		}
		w.replica().Round(t.Context())
		for n := range 4 {
			if e := w.entry(n); e.State == ledger.Sending {
				t.Errorf("entry %d is not found", n)
			}
		}
	})
}

func TestWhatWaitsWhereNoLaneWorksIsVisited(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.shut["blind"] = true
		w.waits(1, "gone", 0)
		w.waits(2, "blind", 0) // its gate is closed
		w.waits(3, "keyed", 0) // a lane works there
		w.waits(4, "gone", time.Hour)
		w.waits(5, "", -time.Second)
		w.replica().Round(t.Context())
		seen := map[ledger.Identity]int{}
		for _, id := range w.visited {
			seen[id]++
		}
		if len(w.visited) != 3 || seen[identity(1)] != 1 || seen[identity(2)] != 1 || seen[identity(5)] != 1 {
			t.Errorf("visited %v", w.visited)
		}
	})
}

func TestARoundGoesOnWhereOnePartOfItFails(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.holds(1, "keyed", -lease, -time.Second)
		w.waits(2, "gone", 0)
		w.ledger.before = func(verb string, id ledger.Identity) error {
			if verb == "load" && id == identity(1) {
				return errLost
			}
			return nil
		}
		w.replica().Round(t.Context())
		if len(w.visited) != 1 || len(w.failures) == 0 {
			t.Errorf("visited %v, failures %v", w.visited, w.failures)
		}
	})
}
