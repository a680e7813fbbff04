package reconcile_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func (w *world) says(v ledger.Verdict, version int64) ledger.Resolution {
	return ledger.Resolution{Verdict: v, Version: version, Act: ledger.Act{By: "ada", Role: "operator", Why: "asked them"}}
}

func TestAPersonsDecisionStandsWithItsLineInTheAudit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		d := w.replica()
		for n, v := range ledger.Verdicts() {
			seen := w.doubts(n, "blind", -1)
			stands, err := d.Resolve(t.Context(), identity(n), w.says(v, seen.Version))
			if err != nil || stands != w.entry(n) {
				t.Errorf("%s: %v, %+v", v, err, stands)
			}
			acts := w.story(n).Acts
			if len(acts) != 1 || acts[0].Verb != "resolve:"+string(v) || acts[0].ID == "" || acts[0].By != "ada" || acts[0].At.IsZero() {
				t.Errorf("%s: the audit says %+v", v, acts)
			}
		}
	})
}

func TestADecisionOverWhatThePersonDidNotSeeIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		d := w.replica()
		seen := w.doubts(1, "blind", -1)
		w.create(func() ledger.Entry {
			e := w.base(2, "blind")
			e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "r"
			return e
		}())
		for name, row := range map[string]struct {
			id      ledger.Identity
			version int64
			want    error
		}{
			"an older version": {identity(1), seen.Version - 1, ledger.ErrStale},
			"a newer version":  {identity(1), seen.Version + 1, ledger.ErrStale},
			"not in doubt":     {identity(2), 1, ledger.ErrNotInDoubt},
			"not there":        {identity(3), 1, ledger.ErrNotFound},
		} {
			if _, err := d.Resolve(t.Context(), row.id, w.says(ledger.VerdictSent, row.version)); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", name, err, row.want)
			}
		}
		// A provider's event comes between the reading and the write.
		w.ledger.before = first("swap", 1, func() error {
			w.moves(1, func(e ledger.Entry) ledger.Change {
				change, _ := ledger.Heard(e, w.report(1, ledger.ReportAccepted, "told"))
				return change
			})
			return nil
		})
		if _, err := d.Resolve(t.Context(), identity(1), w.says(ledger.VerdictNotSent, seen.Version)); !errors.Is(err, ledger.ErrStale) {
			t.Errorf("over an event: %v", err)
		}
		if e := w.wants(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Receipt != "told" || len(w.story(1).Acts)+len(w.story(2).Acts) != 0 {
			t.Errorf("receipt %q, acts %+v", e.Receipt, w.story(1).Acts)
		}
	})
}

func TestOfTwoPeopleOneDecides(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		seen := w.doubts(1, "blind", -1)
		var won, stale atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			d := w.replica()
			all.Go(func() {
				switch _, err := d.Resolve(t.Context(), identity(1), w.says(ledger.VerdictNotSent, seen.Version)); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ledger.ErrStale):
					stale.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || stale.Load() != 1 || len(w.story(1).Acts) != 1 {
			t.Errorf("%d decided, %d were too late, %d acts", won.Load(), stale.Load(), len(w.story(1).Acts))
		}
	})
}

func TestADecisionWhoseReplyIsLostIsKnownByItsAct(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		d := w.replica()
		w.doubts(1, "blind", -1)
		w.doubts(2, "blind", -1)
		w.ledger.after = first("swap", 1, func() error { return errLost })
		w.ledger.before = first("swap", 2, func() error { return errLost })
		stands, err := d.Resolve(t.Context(), identity(1), w.says(ledger.VerdictSent, 1))
		if err != nil || stands.State != ledger.Sent || stands.Version != 2 {
			t.Errorf("it stands, and is told as %v, %+v", err, stands)
		}
		if _, err := d.Resolve(t.Context(), identity(2), w.says(ledger.VerdictSent, 1)); !errors.Is(err, errLost) {
			t.Errorf("it does not stand, and is told as %v", err)
		}
		if e := w.entry(2); e.State != ledger.Unknown || len(w.story(2).Acts) != 0 {
			t.Errorf("%s, acts %+v", e.State, w.story(2).Acts)
		}
	})
}

func (w *world) report(n int, kind ledger.ReportKind, receipt string) ledger.Report {
	return ledger.Report{
		Identity: identity(n), Kind: kind, Provider: "desk", Message: "evt-1", Receipt: receipt, At: time.Now(),
	}
}

func TestAReportIsRecordedOnceHoweverOftenItComes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", -1)
		w.create(func() ledger.Entry {
			e := w.base(2, "desk")
			e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "r"
			return e
		}())
		desks := []int{0, 1}
		var news atomic.Int64
		var all sync.WaitGroup
		for range desks {
			d := w.replica()
			for range 5 {
				all.Go(func() {
					for n, kind := range map[int]ledger.ReportKind{1: ledger.ReportAccepted, 2: ledger.ReportBounced} {
						recorded, err := d.Hear(t.Context(), w.report(n, kind, "told"))
						if err != nil {
							t.Errorf("%s: %v", kind, err)
						}
						if recorded {
							news.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if news.Load() != 2 || len(w.lines(1, ledger.EventReport)) != 1 || len(w.lines(2, ledger.EventReport)) != 1 {
			t.Errorf("%d were news, %d and %d lines", news.Load(), len(w.lines(1, ledger.EventReport)), len(w.lines(2, ledger.EventReport)))
		}
		if late := w.told(); len(late) != 1 || late[0] != "late_acceptance" {
			t.Errorf("told %v", late)
		}
		w.wants(1, ledger.Sent, ledger.ReasonLateAcceptance)
		w.wants(2, ledger.Sent, ledger.ReasonAccepted)
		// Another report is another line.
		other := w.report(2, ledger.ReportBounced, "told")
		other.Message = "evt-2"
		if recorded, err := w.replica().Hear(t.Context(), other); !recorded || err != nil {
			t.Errorf("another report: %t, %v", recorded, err)
		}
	})
}

func TestAReportWhoseReplyIsLostIsRecordedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", -1)
		d := w.replica()
		w.ledger.after = first("swap", 1, func() error { return errLost })
		if _, err := d.Hear(t.Context(), w.report(1, ledger.ReportDelivered, "told")); !errors.Is(err, errLost) {
			t.Errorf("its sender must repeat it: %v", err)
		}
		if recorded, err := d.Hear(t.Context(), w.report(1, ledger.ReportDelivered, "told")); recorded || err != nil {
			t.Errorf("the repeat: %t, %v", recorded, err)
		}
		if len(w.lines(1, ledger.EventReport)) != 1 {
			t.Errorf("%d lines", len(w.lines(1, ledger.EventReport)))
		}
	})
}

func TestAReportThatMeetsItsHolderIsHeardAllTheSame(t *testing.T) {
	for receipt, want := range map[string]struct {
		recorded bool
		late     string
	}{"receipt": {false, ""}, "other": {true, "possible_second_send"}} {
		bubble(t, func(t *testing.T, w *world) {
			w.holds(1, "desk", 0, lease)
			w.ledger.before = first("swap", 1, func() error { w.moves(1, settles("receipt")); return nil })
			recorded, err := w.replica().Hear(t.Context(), w.report(1, ledger.ReportAccepted, receipt))
			if err != nil || recorded != want.recorded {
				t.Errorf("receipt %q: recorded %t, %v", receipt, recorded, err)
			}
			if e := w.wants(1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "receipt" {
				t.Errorf("the first receipt does not stand: %q", e.Receipt)
			}
			if late := w.told(); want.late != "" && (len(late) != 1 || late[0] != want.late) || want.late == "" && len(late) != 0 {
				t.Errorf("receipt %q: told %v", receipt, late)
			}
		})
	}
}

func TestAReportOfWhatTheLedgerForgotBearsItOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		told := w.report(1, ledger.ReportAccepted, "told")
		if recorded, err := w.replica().Hear(t.Context(), told); recorded || err != nil || !w.entry(1).Absent() {
			t.Errorf("by a provider that its channel does not lead to: %t, %v", recorded, err)
		}
		told.Provider = "keyed"
		w.ledger.before = first("create", 1, func() error { // another replica hears it too
			_, err := w.replica().Hear(context.Background(), told)
			return err
		})
		recorded, err := w.replica().Hear(t.Context(), told)
		if err != nil || recorded {
			t.Errorf("%t, %v", recorded, err)
		}
		if e := w.wants(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Version != 1 || e.Receipt != "told" {
			t.Errorf("version %d, receipt %q", e.Version, e.Receipt)
		}
		if recorded, err := w.replica().Hear(t.Context(), w.report(2, ledger.ReportBounced, "told")); recorded || err != nil || !w.entry(2).Absent() {
			t.Errorf("a bounce of nothing: %t, %v", recorded, err)
		}
	})
}

// Whoever has one provider's secret must not settle what another one sends.
func TestOneProvidersWordProvesNothingAboutAnothersSends(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", -1)
		stranger := w.report(1, ledger.ReportAccepted, "told")
		stranger.Provider = "keyed"
		if recorded, err := w.replica().Hear(t.Context(), stranger); recorded || err != nil {
			t.Errorf("%t, %v", recorded, err)
		}
		w.wants(1, ledger.Unknown, ledger.ReasonUnanswered)
		w.moves(1, func(e ledger.Entry) ledger.Change {
			return ledger.Change{Entry: e, Event: &ledger.Event{Kind: ledger.EventAttempt, State: e.State, Reason: e.Reason, Provider: "keyed"}}
		})
		if recorded, err := w.replica().Hear(t.Context(), stranger); !recorded || err != nil {
			t.Errorf("it was called for it once: %t, %v", recorded, err)
		}
		w.wants(1, ledger.Sent, ledger.ReasonLateAcceptance)
	})
}

func TestWhatWaitsIsListedWithItsEvidence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.holds(1, "blind", -lease, -time.Second)
		time.Sleep(time.Second)
		w.doubts(2, "desk", -1)
		w.waits(3, "keyed", 0)
		d := w.replica()
		d.Round(t.Context())
		page, err := d.Waiting(t.Context(), ledger.Doubt{}, 1)
		if err != nil || len(page) != 1 || page[0].Entry.Identity != identity(1) || len(page[0].Timeline) != 1 || page[0].Timeline[0].Kind != ledger.EventLapse {
			t.Fatalf("%v: %+v", err, page)
		}
		last := page[0].Entry
		page, err = d.Waiting(t.Context(), ledger.Doubt{Since: last.DoubtSince, Identity: last.Identity}, 10)
		if err != nil || len(page) != 1 || page[0].Entry.Identity != identity(2) {
			t.Errorf("%v: %+v", err, page)
		}
	})
}

func TestARunThatAPersonStartsAsksWhatIsNotDueYet(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.Found)
		for n := range 300 { // more than a page
			w.doubts(n, "desk", time.Hour)
		}
		w.doubts(300, "blind", -1)
		w.doubts(301, "desk", time.Hour)
		w.ledger.before = func(verb string, id ledger.Identity) error {
			if verb == "swap" && id == identity(7) {
				return errors.New("refused for ever")
			}
			return nil
		}
		d := w.replica()
		if !d.LastRun().Started.IsZero() {
			t.Error("a run before the first")
		}
		defer w.runs(d)()
		run, err := d.Start(t.Context(), ledger.Act{By: "ada", Role: "operator", Why: "the provider is back"})
		if err != nil || run.By != "ada" || run.Started.IsZero() {
			t.Fatalf("%+v, %v", run, err)
		}
		synctest.Wait()
		last := d.LastRun()
		if last.Finished.IsZero() || last.Unknown != 302 || last.Asked != 301 || last.Failed != 1 {
			t.Errorf("%+v", last)
		}
		w.wants(301, ledger.Sent, ledger.ReasonLateAcceptance)
		w.wants(300, ledger.Unknown, ledger.ReasonUnanswered)
		if _, err := d.Start(t.Context(), ledger.Act{By: "ada"}); err != nil {
			t.Errorf("after it has ended: %v", err)
		}
	})
}

func TestOneRunIsUnderWayAtATimeAndNoneWithoutItsActInTheAudit(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", time.Hour)
		let := make(chan struct{})
		w.answer = func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
			<-let
			return ledger.NotFound, ledger.Outcome{}
		}
		d := w.replica()
		defer w.runs(d)()
		w.ledger.record = errLost
		if _, err := d.Start(t.Context(), ledger.Act{By: "ada"}); !errors.Is(err, errLost) {
			t.Errorf("without its act: %v", err)
		}
		synctest.Wait()
		if len(w.questions()) != 0 || !d.LastRun().Started.IsZero() {
			t.Error("it runs, and the audit does not say so")
		}
		w.ledger.record = nil
		if _, err := d.Start(t.Context(), ledger.Act{By: "ada"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if last := d.LastRun(); !last.Finished.IsZero() || len(w.questions()) != 1 {
			t.Errorf("%+v after %d questions", last, len(w.questions()))
		}
		if run, err := d.Start(t.Context(), ledger.Act{By: "bob"}); !errors.Is(err, ledger.ErrRunning) || run.By != "ada" {
			t.Errorf("a second: %+v, %v", run, err)
		}
		close(let)
		synctest.Wait()
		if d.LastRun().Finished.IsZero() {
			t.Error("it never ends")
		}
	})
}

// The waits between the questions are what gives a provider time to know: a person who is impatient must not
// use them up, and cause a second send.
func TestImpatienceDoesNotStandInForTheSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.onUnknown = ledger.Resend
		w.doubts(1, "desk", asks()[0])
		d := w.replica()
		defer w.runs(d)()
		for range 2 * len(asks()) {
			if _, err := d.Start(t.Context(), ledger.Act{By: "ada"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if e := w.entry(1); e.State != ledger.Unknown {
			t.Errorf("%s, %s, ten seconds after the doubt", e.State, e.Reason)
		}
	})
}
