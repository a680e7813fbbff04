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

func TestRedrive_TouchesOnlyTheRequestedDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		stored := func(s ledger.State, r ledger.Reason) func(*ledger.Entry) {
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
			{ledger.ItemRedriven, func(*ledger.Entry) {}},
			{ledger.ItemRedriven, class(ledger.ClassRecipient)},
			{"permanent", class(ledger.ClassPermanent)},
			{"already_sent", stored(ledger.Sent, ledger.ReasonAccepted)},
			{"in_progress", stored(ledger.Waiting, ledger.ReasonUnreachable)},
			{"in_progress", stored(ledger.Sending, ledger.ReasonClaimed)},
			{"unknown", stored(ledger.Unknown, ledger.ReasonUnanswered)},
			{"not_wanted", stored(ledger.Dropped, ledger.ReasonCancelled)},
			{"parked", func(e *ledger.Entry) { e.Redrives = maxRedrives }},
			{"expired", func(e *ledger.Entry) { e.Deadline = time.Now() }},
		} {
			before := h.insertDead(identity(i), row.change)
			ids = append(ids, before.Identity)
			want[before.ReminderID] = row.result
		}
		ids = append(ids, identity(99))
		want[identity(99).ReminderID] = "gone"

		rd := h.newRedriver()
		preview, err := rd.Preview(t.Context(), request("", byName(ids...)))
		if err != nil {
			t.Fatal(err)
		}
		if n := h.redriven(identity(0)); n != 0 {
			t.Fatalf("a preview redrove %d entries", n)
		}
		job := h.start(rd, request("", byName(ids...)))
		h.finish(rd)
		report := h.show(job.ID)
		if report.Redrive.State != ledger.RedriveDone || report.Redrive.Size != len(ids) {
			t.Errorf("%+v", report.Redrive)
		}
		for i, item := range report.Items {
			if item.Result != want[item.ReminderID] || preview.Items[i].Result != item.Result {
				t.Errorf("%s: %q, previewed %q, want %q", item.ReminderID, item.Result, preview.Items[i].Result, want[item.ReminderID])
			}
			touched := 0
			if item.Result == ledger.ItemRedriven {
				touched = 1
			}
			if n := h.redriven(item.Identity); n != touched {
				t.Errorf("%s: redriven %d times", item.ReminderID, n)
			}
		}
		wantCounts := ledger.RedriveCounts{Pending: 2, Skipped: map[ledger.SkipReason]int{
			"permanent": 1, "already_sent": 1, "in_progress": 2, "unknown": 1, "not_wanted": 1, "parked": 1, "expired": 1, "gone": 1,
		}}
		if diff := cmp.Diff(wantCounts, report.Counts, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(report.Counts, preview.Counts, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("preview: %s", diff)
		}
	})
}

func TestRedrive_SameBatchTwiceSendsNothingTwice(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(5)
		rd := h.newRedriver()
		var ids []ledger.Identity
		for i := range 5 {
			ids = append(ids, identity(i))
		}
		h.start(rd, request("first", byName(ids...)))
		h.finish(rd)
		h.send(ids...)
		again := h.start(rd, request("second", byName(ids...)))
		h.finish(rd)
		if counts := h.show(again.ID).Counts; counts.Skipped[ledger.SkipSent] != 5 || len(counts.Skipped) != 1 || counts.Sent+counts.Pending != 0 {
			t.Errorf("%+v", counts)
		}
		if _, err := rd.Start(t.Context(), request("third")); !errors.Is(err, ledger.ErrNothingToRedrive) {
			t.Errorf("third redrive, by filter: %v", err)
		}
	})
}

func TestRedrive_ManyOverTheSameDeadLettersRedriveEachOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const deadLetters, jobs = 20, 50
		h.insertDeadLetters(deadLetters)
		a, b, c := h.newRedriver(), h.newRedriver(), h.newRedriver()
		var started []string
		for i := range jobs {
			started = append(started, h.start(a, request(fmt.Sprint("key-", i), rate(100))).ID)
		}
		stop := h.run(a, b, c)
		time.Sleep(10 * time.Minute)
		stop()
		for i := range deadLetters {
			if n := h.redriven(identity(i)); n != 1 {
				t.Errorf("%d: redriven %d times", i, n)
			}
		}
		accounted := 0
		for _, id := range started {
			report := h.show(id)
			accounted += report.Counts.Pending
			for _, skip := range report.Counts.Skipped {
				accounted += skip
			}
			if report.Redrive.State != ledger.RedriveDone {
				t.Errorf("%s: %s", id, report.Redrive.State)
			}
		}
		if accounted != deadLetters*jobs {
			t.Errorf("%d items of %d are accounted for", accounted, deadLetters*jobs)
		}
		if n := h.results[ledger.ItemRedriven]; n != deadLetters {
			t.Errorf("%d items reported as redriven", n)
		}
	})
}

func TestRedrive_KilledMidBatchContinuesWhereItStopped(t *testing.T) {
	const deadLetters = 4
	died := errors.New("died")
	for _, at := range []string{"update", "set_result"} {
		for n := range deadLetters {
			for _, happened := range []bool{false, true} {
				bubble(t, func(t *testing.T, h *harness) {
					h.insertDeadLetters(deadLetters)
					dying := h.newRedriver(func(o *redrive.Options) { o.Poll = time.Hour })
					job := h.start(dying, request(""))
					last := fmt.Sprintf("%s rem-%03d", at, n)
					if at == "set_result" {
						last = fmt.Sprint("set_result ", n+1)
					}
					gone := false
					// From then on no write of this replica reaches the ledger.
					dies := func(op string) error {
						if gone = gone || op == last; gone {
							return died
						}
						return nil
					}
					if happened {
						h.ledger.after, h.ledger.before = dies, func(string) error {
							if gone {
								return died
							}
							return nil
						}
					} else {
						h.ledger.before = dies
					}
					stop := h.run(dying)
					time.Sleep(20 * time.Minute)
					stop()
					if !gone {
						t.Fatalf("operation %s never happened", last)
					}
					h.ledger.before, h.ledger.after = nil, nil
					second := h.newRedriver()
					stop = h.run(second)
					time.Sleep(10 * time.Minute)
					stop()
					report := h.show(job.ID)
					if report.Redrive.State != ledger.RedriveDone || report.Counts.Pending != deadLetters {
						t.Errorf("after %s (happened: %t): %s, %+v", last, happened, report.Redrive.State, report.Counts)
					}
					for i := range deadLetters {
						if n := h.redriven(identity(i)); n != 1 {
							t.Errorf("after %s (happened: %t): %d redriven %d times", last, happened, i, n)
						}
					}
				})
			}
		}
	}
}

func TestCancel_StopsTheRestWithinASecond(t *testing.T) {
	for _, perSecond := range []float64{10, 0.1} {
		bubble(t, func(t *testing.T, h *harness) {
			h.insertDeadLetters(200)
			rd := h.newRedriver()
			job := h.start(rd, request("", rate(perSecond)))
			stop := h.run(rd)
			defer stop()
			time.Sleep(5 * time.Second)
			if _, err := h.newRedriver().Cancel(t.Context(), job.ID, ledger.AuditEvent{Actor: "ben", Role: "operator", Reason: "wrong batch"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			atCancel := h.show(job.ID).Counts
			time.Sleep(time.Hour)
			report := h.show(job.ID)
			if report.Redrive.State != ledger.RedriveCancelled || report.Counts.Waiting != atCancel.Waiting || report.Counts.Waiting < 140 || report.Counts.Pending == 0 {
				t.Errorf("%v a second: %s, %+v, a second after the cancel %+v", perSecond, report.Redrive.State, report.Counts, atCancel)
			}
			// The ledger is asked too: what the report leaves out must not have been redriven.
			left, err := h.memory.List(t.Context(), ledger.Query{State: ledger.Dead, Limit: 200})
			if err != nil || len(left) != report.Counts.Waiting {
				t.Errorf("%v a second: %d entries are still dead letters, and %d items wait: %v", perSecond, len(left), report.Counts.Waiting, err)
			}
			if _, err := rd.Cancel(t.Context(), job.ID, ledger.AuditEvent{Actor: "ben"}); !errors.Is(err, ledger.ErrRedriveEnded) {
				t.Errorf("twice: %v", err)
			}
			audit, err := h.memory.Audit(t.Context(), ledger.AuditQuery{Limit: 10})
			if err != nil || len(audit) != 2 || audit[0].Action != "redrive:cancel" || audit[1].Action != "redrive" {
				t.Errorf("%+v, %v", audit, err)
			}
		})
	}
}

func TestRedrive_KeepsItsPace(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(41)
		rd := h.newRedriver()
		job := h.start(rd, request("", rate(0.5)))
		stop := h.run(rd)
		defer stop()
		for second := 0; second <= 60; second += 20 {
			synctest.Wait()
			if n, want := h.show(job.ID).Counts.Pending, second/2+1; n < want-1 || n > want+1 {
				t.Errorf("after %d s: %d, want %d", second, n, want)
			}
			time.Sleep(20 * time.Second)
		}
	})
}

func TestRedrive_StalledReplicaLosesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(6)
		stalled := false
		h.ledger.before = func(op string) error {
			if op == "set_result 3" && !stalled {
				stalled = true
				h.ledger.mu.Unlock()
				time.Sleep(4 * lease) // longer than the lease
				h.ledger.mu.Lock()
			}
			return nil
		}
		a, b := h.newRedriver(), h.newRedriver()
		job := h.start(a, request(""))
		stop := h.run(a, b)
		time.Sleep(10 * time.Minute)
		stop()
		if report := h.show(job.ID); report.Redrive.State != ledger.RedriveDone || report.Counts.Pending != 6 || !stalled {
			t.Errorf("%s, %+v, stalled %t", report.Redrive.State, report.Counts, stalled)
		}
		for i := range 6 {
			if n := h.redriven(identity(i)); n != 1 {
				t.Errorf("%d: redriven %d times", i, n)
			}
		}
	})
}

func TestRedrive_FailingItemBlocksNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(3)
		h.ledger.before = func(op string) error {
			if op == "update rem-001" {
				return errors.New("a constraint")
			}
			return nil
		}
		rd := h.newRedriver()
		job := h.start(rd, request(""))
		h.finish(rd)
		report := h.show(job.ID)
		if report.Redrive.State != ledger.RedriveDone || report.Counts.Pending != 2 || report.Counts.Skipped[ledger.SkipFailed] != 1 || len(h.failures) != 1 {
			t.Errorf("%s, %+v, %v", report.Redrive.State, report.Counts, h.failures)
		}
	})
}

func TestRedrive_EntryThatChangedIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		e := h.insertDead(identity(0))
		rd := h.newRedriver()
		job := h.start(rd, request(""))
		e.Reason = ledger.ReasonGone
		if _, err := h.memory.Update(t.Context(), ledger.Change{Entry: e}); err != nil {
			t.Fatal(err)
		}
		h.finish(rd)
		if counts := h.show(job.ID).Counts; counts.Skipped[ledger.SkipMoved] != 1 {
			t.Errorf("%+v", counts)
		}
	})
}

func TestRedrive_GrantedDeadlineBecomesTheEntrys(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDead(identity(0), func(e *ledger.Entry) { e.Deadline = time.Now() })
		granted := time.Now().Add(time.Hour).UTC()
		rd := h.newRedriver()
		h.start(rd, request("", func(r *ledger.RedriveRequest) { r.Deadline = granted }))
		h.finish(rd)
		if e := h.entry(identity(0)); e.State != ledger.Waiting || !e.Deadline.Equal(granted) {
			t.Errorf("%s until %v", e.State, e.Deadline)
		}
	})
}

func TestRedrive_PermanentIsRedrivenOnRequest(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDead(identity(0), func(e *ledger.Entry) { e.Class = ledger.ClassPermanent })
		rd := h.newRedriver()
		h.start(rd, request("", func(r *ledger.RedriveRequest) { r.Filter.Class, r.Permanent = ledger.ClassPermanent, true }))
		h.finish(rd)
		if e := h.entry(identity(0)); e.State != ledger.Waiting {
			t.Errorf("%s", e.State)
		}
	})
}

func TestRedrive_PurgedIsSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		e := h.insertDead(identity(0))
		if _, err := h.memory.Update(t.Context(), ledger.Purge(e)); err != nil {
			t.Fatal(err)
		}
		rd := h.newRedriver()
		job := h.start(rd, request(""))
		h.finish(rd)
		if counts := h.show(job.ID).Counts; counts.Skipped[ledger.SkipPurged] != 1 {
			t.Errorf("%+v", counts)
		}
	})
}

func TestRedrive_AfterAFailoverIsInDoubt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(1)
		time.Sleep(time.Minute)
		h.failover = ledger.Failover{Noticed: time.Now(), Window: time.Hour}
		rd := h.newRedriver()
		preview, err := rd.Preview(t.Context(), request(""))
		if err != nil || preview.Items[0].Current.State != ledger.Unknown {
			t.Errorf("preview: %+v, %v", preview.Items, err)
		}
		job := h.start(rd, request(""))
		h.finish(rd)
		if e, counts := h.entry(identity(0)), h.show(job.ID).Counts; e.State != ledger.Unknown || !e.InDoubt() || counts.Unknown != 1 {
			t.Errorf("%s, %+v", e.State, counts)
		}
	})
}

// once returns a hook that fails an operation the first time.
func once(target string) func(string) error {
	failed := false
	return func(op string) error {
		if op == target && !failed {
			failed = true
			return errors.New("the reply is lost")
		}
		return nil
	}
}

// The parked dead letters are the newest, and would fill one redrive after another.
func TestRedrive_SelectsEligibleBeforeSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		for i := range 4 {
			h.insertDead(identity(i))
			time.Sleep(time.Second)
		}
		for i := 4; i < 20; i++ {
			h.insertDead(identity(i), func(e *ledger.Entry) { e.Redrives = maxRedrives })
			time.Sleep(time.Second)
		}
		rd := h.newRedriver()
		job := h.start(rd, request("", func(r *ledger.RedriveRequest) { r.Limit = 5 }))
		h.finish(rd)
		if counts := h.show(job.ID).Counts; counts.Pending != 4 || counts.Skipped[ledger.SkipParked] != 1 {
			t.Errorf("%+v", counts)
		}
	})
}
