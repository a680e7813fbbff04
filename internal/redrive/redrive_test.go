package redrive_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/redrive"
)

func TestARedriveTouchesNothingButTheDeadLettersThatItWasAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		stands := func(s ledger.State, r ledger.Reason) func(*ledger.Entry) {
			return func(e *ledger.Entry) {
				e.State, e.Reason, e.Class = s, r, ""
				switch s {
				case ledger.Sent:
					e.Receipt = "r"
				case ledger.Waiting:
					e.Due, e.Wake, e.Owner = ledger.In(time.Hour), ledger.In(time.Hour), ledger.OwnerLedger
				case ledger.Sending:
					e.Holder, e.LeaseUntil, e.ClaimedAt = "h", ledger.In(time.Hour), ledger.In(0)
				case ledger.Unknown:
					e.DoubtSince = time.Now()
				}
			}
		}
		class := func(c ledger.Class) func(*ledger.Entry) { return func(e *ledger.Entry) { e.Class = c } }
		var ids []ledger.Identity
		want := map[string]string{}
		for i, row := range []struct {
			result string
			change func(*ledger.Entry)
		}{
			{ledger.ItemReopened, func(*ledger.Entry) {}},
			{ledger.ItemReopened, class(ledger.ClassRecipient)},
			{"permanent", class(ledger.ClassPermanent)},
			{"already_sent", stands(ledger.Sent, ledger.ReasonAccepted)},
			{"in_progress", stands(ledger.Waiting, ledger.ReasonUnreachable)},
			{"in_progress", stands(ledger.Sending, ledger.ReasonClaimed)},
			{"unknown", stands(ledger.Unknown, ledger.ReasonUnanswered)},
			{"not_wanted", stands(ledger.Dropped, ledger.ReasonCancelled)},
			{"parked", func(e *ledger.Entry) { e.Redrives = most }},
			{"expired", func(e *ledger.Entry) { e.Deadline = time.Now() }},
		} {
			before := w.die(identity(i), row.change)
			ids = append(ids, before.Identity)
			want[before.ReminderID] = row.result
		}
		ids = append(ids, identity(99))
		want[identity(99).ReminderID] = "gone"

		d := w.replica()
		preview, err := d.Preview(t.Context(), ask("", byName(ids...)))
		if err != nil {
			t.Fatal(err)
		}
		if n := w.reopened(identity(0)); n != 0 {
			t.Fatalf("a preview put %d to work", n)
		}
		job := w.start(d, ask("", byName(ids...)))
		w.finish(d)
		report := w.show(job.ID)
		if report.Redrive.State != ledger.RedriveDone || report.Redrive.Size != len(ids) {
			t.Errorf("%+v", report.Redrive)
		}
		for i, item := range report.Items {
			if item.Result != want[item.ReminderID] || preview.Items[i].Result != item.Result {
				t.Errorf("%s: %q, foreseen %q, want %q", item.ReminderID, item.Result, preview.Items[i].Result, want[item.ReminderID])
			}
			touched := 0
			if item.Result == ledger.ItemReopened {
				touched = 1
			}
			if n := w.reopened(item.Identity); n != touched {
				t.Errorf("%s: put to work %d times", item.ReminderID, n)
			}
		}
		wantTally := ledger.RedriveTally{Pending: 2, Skipped: map[ledger.Skip]int{
			"permanent": 1, "already_sent": 1, "in_progress": 2, "unknown": 1, "not_wanted": 1, "parked": 1, "expired": 1, "gone": 1,
		}}
		if diff := cmp.Diff(wantTally, report.Tally, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(report.Tally, preview.Tally, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("foreseen: %s", diff)
		}
	})
}

func TestTheSameBatchTwiceSendsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(5)
		d := w.replica()
		var ids []ledger.Identity
		for i := range 5 {
			ids = append(ids, identity(i))
		}
		w.start(d, ask("first", byName(ids...)))
		w.finish(d)
		w.sends(ids...)
		again := w.start(d, ask("second", byName(ids...)))
		w.finish(d)
		if tally := w.show(again.ID).Tally; tally.Skipped[ledger.SkipSent] != 5 || len(tally.Skipped) != 1 || tally.Sent+tally.Pending != 0 {
			t.Errorf("%+v", tally)
		}
		if _, err := d.Start(t.Context(), ask("third")); !errors.Is(err, ledger.ErrNothingToRedrive) {
			t.Errorf("by filter: %v", err)
		}
	})
}

func TestManyRedrivesOverTheSameDeadLettersPutEachToWorkOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const letters, jobs = 20, 50
		w.dead(letters)
		a, b, c := w.replica(), w.replica(), w.replica()
		var started []string
		for i := range jobs {
			started = append(started, w.start(a, ask(fmt.Sprint("key-", i), rate(100))).ID)
		}
		stop := w.runs(a, b, c)
		time.Sleep(10 * time.Minute)
		stop()
		for i := range letters {
			if n := w.reopened(identity(i)); n != 1 {
				t.Errorf("%d: put to work %d times", i, n)
			}
		}
		reopened := 0
		for _, id := range started {
			report := w.show(id)
			reopened += report.Tally.Pending
			for _, skip := range report.Tally.Skipped {
				reopened += skip
			}
			if report.Redrive.State != ledger.RedriveDone {
				t.Errorf("%s: %s", id, report.Redrive.State)
			}
		}
		if reopened != letters*jobs {
			t.Errorf("%d items of %d are accounted for", reopened, letters*jobs)
		}
		if n := w.turned[ledger.ItemReopened]; n != letters {
			t.Errorf("%d counted as reopened", n)
		}
	})
}

func TestAReplicaThatEndsAnywhereIsGoneOnWithWhereItStopped(t *testing.T) {
	const letters = 4
	died := errors.New("died")
	for _, at := range []string{"swap", "settle"} {
		for n := range letters {
			for _, happened := range []bool{false, true} {
				bubble(t, func(t *testing.T, w *world) {
					w.dead(letters)
					dying := w.replica(func(o *redrive.Options) { o.Poll = time.Hour })
					job := w.start(dying, ask(""))
					word := fmt.Sprintf("%s rem-%03d", at, n)
					if at == "settle" {
						word = fmt.Sprint("settle ", n+1)
					}
					gone := false
					// From then on nothing of this replica reaches the ledger.
					dies := func(what string) error {
						if gone = gone || what == word; gone {
							return died
						}
						return nil
					}
					if happened {
						w.ledger.after, w.ledger.before = dies, func(string) error {
							if gone {
								return died
							}
							return nil
						}
					} else {
						w.ledger.before = dies
					}
					stop := w.runs(dying)
					time.Sleep(20 * time.Minute)
					stop()
					if !gone {
						t.Fatalf("%s never came", word)
					}
					w.ledger.before, w.ledger.after = nil, nil
					second := w.replica()
					stop = w.runs(second)
					time.Sleep(10 * time.Minute)
					stop()
					report := w.show(job.ID)
					if report.Redrive.State != ledger.RedriveDone || report.Tally.Pending != letters {
						t.Errorf("after %s (happened: %t): %s, %+v", word, happened, report.Redrive.State, report.Tally)
					}
					for i := range letters {
						if n := w.reopened(identity(i)); n != 1 {
							t.Errorf("after %s (happened: %t): %d put to work %d times", word, happened, i, n)
						}
					}
				})
			}
		}
	}
}

func TestACancelStopsTheRestWithinASecond(t *testing.T) {
	for _, perSecond := range []float64{10, 0.1} {
		bubble(t, func(t *testing.T, w *world) {
			w.dead(200)
			d := w.replica()
			job := w.start(d, ask("", rate(perSecond)))
			stop := w.runs(d)
			defer stop()
			time.Sleep(5 * time.Second)
			if _, err := w.replica().Cancel(t.Context(), job.ID, ledger.Act{By: "ben", Role: "operator", Why: "wrong batch"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			atCancel := w.show(job.ID).Tally
			time.Sleep(time.Hour)
			report := w.show(job.ID)
			if report.Redrive.State != ledger.RedriveCancelled || report.Tally.Waiting != atCancel.Waiting || report.Tally.Waiting < 140 || report.Tally.Pending == 0 {
				t.Errorf("%v a second: %s, %+v, a second after the cancel %+v", perSecond, report.Redrive.State, report.Tally, atCancel)
			}
			if _, err := d.Cancel(t.Context(), job.ID, ledger.Act{By: "ben"}); !errors.Is(err, ledger.ErrRedriveEnded) {
				t.Errorf("twice: %v", err)
			}
			acts, err := w.memory.Audit(t.Context(), ledger.AuditQuery{Limit: 10})
			if err != nil || len(acts) != 2 || acts[0].Verb != "redrive:cancel" || acts[1].Verb != "redrive" {
				t.Errorf("%+v, %v", acts, err)
			}
		})
	}
}

func TestARedriveKeepsItsPace(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(41)
		d := w.replica()
		job := w.start(d, ask("", rate(0.5)))
		stop := w.runs(d)
		defer stop()
		for second := 0; second <= 60; second += 20 {
			synctest.Wait()
			if n, want := w.show(job.ID).Tally.Pending, second/2+1; n < want-1 || n > want+1 {
				t.Errorf("after %d s: %d, want %d", second, n, want)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

func TestAReplicaThatStallsLosesTheRedrive(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(6)
		stalled := false
		w.ledger.before = func(what string) error {
			if what == "settle 3" && !stalled {
				stalled = true
				w.ledger.mu.Unlock()
				time.Sleep(4 * lease) // longer than it may hold
				w.ledger.mu.Lock()
			}
			return nil
		}
		a, b := w.replica(), w.replica()
		job := w.start(a, ask(""))
		stop := w.runs(a, b)
		time.Sleep(10 * time.Minute)
		stop()
		if report := w.show(job.ID); report.Redrive.State != ledger.RedriveDone || report.Tally.Pending != 6 || !stalled {
			t.Errorf("%s, %+v, stalled %t", report.Redrive.State, report.Tally, stalled)
		}
		for i := range 6 {
			if n := w.reopened(identity(i)); n != 1 {
				t.Errorf("%d: put to work %d times", i, n)
			}
		}
	})
}

func TestAnItemThatFailsHoldsUpNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(3)
		w.ledger.before = func(what string) error {
			if what == "swap rem-001" {
				return errors.New("a constraint")
			}
			return nil
		}
		d := w.replica()
		job := w.start(d, ask(""))
		w.finish(d)
		report := w.show(job.ID)
		if report.Redrive.State != ledger.RedriveDone || report.Tally.Pending != 2 || report.Tally.Skipped[ledger.SkipFailed] != 1 || len(w.failures) != 1 {
			t.Errorf("%s, %+v, %v", report.Redrive.State, report.Tally, w.failures)
		}
	})
}

func TestWhatDiedAnewIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := w.die(identity(0))
		d := w.replica()
		job := w.start(d, ask(""))
		e.Reason = ledger.ReasonGone
		if _, err := w.memory.Swap(t.Context(), ledger.Change{Entry: e}); err != nil {
			t.Fatal(err)
		}
		w.finish(d)
		if tally := w.show(job.ID).Tally; tally.Skipped[ledger.SkipMoved] != 1 {
			t.Errorf("%+v", tally)
		}
	})
}

func TestADeadlineThatAPersonGrantsIsTheEntrysFromThenOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.die(identity(0), func(e *ledger.Entry) { e.Deadline = time.Now() })
		granted := time.Now().Add(time.Hour).UTC()
		d := w.replica()
		w.start(d, ask("", func(r *ledger.RedriveRequest) { r.Deadline = granted }))
		w.finish(d)
		if e := w.entry(identity(0)); e.State != ledger.Waiting || !e.Deadline.Equal(granted) {
			t.Errorf("%s until %v", e.State, e.Deadline)
		}
	})
}

func TestPermanentIsRedrivenOnlyByName(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.die(identity(0), func(e *ledger.Entry) { e.Class = ledger.ClassPermanent })
		d := w.replica()
		w.start(d, ask("", func(r *ledger.RedriveRequest) { r.Filter.Class, r.Permanent = ledger.ClassPermanent, true }))
		w.finish(d)
		if e := w.entry(identity(0)); e.State != ledger.Waiting {
			t.Errorf("%s", e.State)
		}
	})
}

func TestWhatIsPurgedIsNotSentEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := w.die(identity(0))
		if _, err := w.memory.Swap(t.Context(), ledger.Purge(e)); err != nil {
			t.Fatal(err)
		}
		d := w.replica()
		job := w.start(d, ask(""))
		w.finish(d)
		if tally := w.show(job.ID).Tally; tally.Skipped[ledger.SkipPurged] != 1 {
			t.Errorf("%+v", tally)
		}
	})
}

func TestAfterAFailoverADeadLetterComesBackInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(1)
		time.Sleep(time.Minute)
		w.failover = ledger.Failover{Noticed: time.Now(), Window: time.Hour}
		d := w.replica()
		preview, err := d.Preview(t.Context(), ask(""))
		if err != nil || preview.Items[0].Standing.State != ledger.Unknown {
			t.Errorf("foreseen: %+v, %v", preview.Items, err)
		}
		job := w.start(d, ask(""))
		w.finish(d)
		if e, tally := w.entry(identity(0)), w.show(job.ID).Tally; e.State != ledger.Unknown || !e.InDoubt() || tally.Unknown != 1 {
			t.Errorf("%s, %+v", e.State, tally)
		}
	})
}

// once fails the first time that something is written.
func once(word string) func(string) error {
	failed := false
	return func(what string) error {
		if what == word && !failed {
			failed = true
			return errors.New("the reply is lost")
		}
		return nil
	}
}

// Parked ones are the newest, and would fill one redrive after the other.
func TestWhatFitsComesBeforeWhatWouldBeSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for i := range 4 {
			w.die(identity(i))
			time.Sleep(time.Second)
		}
		for i := 4; i < 20; i++ {
			w.die(identity(i), func(e *ledger.Entry) { e.Redrives = most })
			time.Sleep(time.Second)
		}
		d := w.replica()
		job := w.start(d, ask("", func(r *ledger.RedriveRequest) { r.Limit = 5 }))
		w.finish(d)
		if tally := w.show(job.ID).Tally; tally.Pending != 4 || tally.Skipped[ledger.SkipParked] != 1 {
			t.Errorf("%+v", tally)
		}
	})
}
