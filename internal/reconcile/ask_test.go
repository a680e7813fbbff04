package reconcile_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestALookupProviderIsAskedOnItsSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		start := time.Now()
		w.doubts(1, "desk", asks()[0])
		defer w.runs(w.replica())()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		questions := w.questions()
		if len(questions) != len(asks()) {
			t.Fatalf("asked %d times in ten hours, want %d", len(questions), len(asks()))
		}
		last := start
		for i, q := range questions {
			if waited := q.at.Sub(last); waited < asks()[i] || waited > asks()[i]+sweep*6/5 {
				t.Errorf("question %d after %v, want %v", i+1, waited, asks()[i])
			}
			if q.provider != "desk" || q.key != identity(1).SendKey() {
				t.Errorf("question %d to %s about %s", i+1, q.provider, q.key)
			}
			last = q.at
		}
		e := w.wants(1, ledger.Unknown, ledger.ReasonNotFound)
		lines := w.lines(1, ledger.EventLookup)
		if len(lines) != len(asks()) || e.Asked != len(asks()) || !e.AskAt.IsZero() {
			t.Errorf("%d lines, %d counted, next %v", len(lines), e.Asked, e.AskAt)
		}
		for i, line := range lines {
			if line.Reason != ledger.ReasonNotFound || line.Provider != "desk" || line.Origin != ledger.OriginReconcile ||
				!line.Started.Equal(questions[i].at.Truncate(time.Microsecond)) || line.Outcome.Status != 404 {
				t.Errorf("line %d: %+v", i+1, line)
			}
		}
	})
}

func TestWhatItsProviderFoundIsSentWithItsReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.NotFound, ledger.Unanswered, ledger.Found)
		w.doubts(1, "desk", asks()[0])
		defer w.runs(w.replica())()
		time.Sleep(time.Hour)
		synctest.Wait()
		if e := w.wants(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Receipt != "found" || e.InDoubt() {
			t.Errorf("receipt %q, doubt %t", e.Receipt, e.InDoubt())
		}
		var reasons []ledger.Reason
		for _, line := range w.lines(1, ledger.EventLookup) {
			reasons = append(reasons, line.Reason)
		}
		if want := []ledger.Reason{ledger.ReasonNotFound, ledger.ReasonUnansweredYet, ledger.ReasonLateAcceptance}; !slices.Equal(reasons, want) {
			t.Errorf("told %v, want %v", reasons, want)
		}
		if len(w.questions()) != 3 {
			t.Errorf("asked %d times", len(w.questions()))
		}
	})
}

func TestTheLastNotFoundResendsWhereThePolicySaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.onUnknown = ledger.Resend
		w.doubts(1, "desk", asks()[0])
		w.doubts(2, "desk", asks()[0], func(e *ledger.Entry) { e.CancelAsked = true })
		start := time.Now()
		defer w.runs(w.replica())()
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		e := w.wants(1, ledger.Waiting, ledger.ReasonRiskTaken)
		var whole time.Duration
		for _, wait := range asks() {
			whole += wait
		}
		if e.Owner != ledger.OwnerLedger || e.Updated.Sub(start) < whole {
			t.Errorf("owner %q, resent after %v, and the schedule takes %v", e.Owner, e.Updated.Sub(start), whole)
		}
		w.wants(2, ledger.Unknown, ledger.ReasonNotFound)
	})
}

func TestASilentProviderIsAskedLessAndLess(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answers(ledger.Unanswered)
		w.doubts(1, "desk", asks()[0])
		defer w.runs(w.replica())()
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if e := w.wants(1, ledger.Unknown, ledger.ReasonUnanswered); e.Asked != 0 || e.AskAt.IsZero() {
			t.Errorf("%d counted, next %v", e.Asked, e.AskAt)
		}
		if n := len(w.questions()); n < 48 || n > 80 || len(w.lines(1, ledger.EventLookup)) != n {
			t.Errorf("asked %d times in two days, %d told", n, len(w.lines(1, ledger.EventLookup)))
		}
	})
}

func TestTwoReplicasThatAskAtOnceCountOneNotFound(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", 0)
		var both sync.WaitGroup
		both.Add(2)
		w.answer = func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
			both.Done()
			both.Wait()
			return ledger.NotFound, ledger.Outcome{}
		}
		var all sync.WaitGroup
		for range 2 {
			d := w.replica()
			all.Go(func() { d.Questions(t.Context(), "desk") })
		}
		all.Wait()
		if e := w.entry(1); e.Asked != 1 || len(w.lines(1, ledger.EventLookup)) != 1 || len(w.failures) != 0 {
			t.Errorf("%d counted, %d told, failures %v", e.Asked, len(w.lines(1, ledger.EventLookup)), w.failures)
		}
		if n := w.replica().Questions(t.Context(), "desk"); n != 0 {
			t.Errorf("%d questions are due again at once", n)
		}
	})
}

// What was listed as due may have been asked by another replica by the time that it is read.
func TestAQuestionThatAnotherReplicaPutMeanwhileIsNotPutAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", 0)
		other := w.replica()
		w.ledger.before = first("load", 1, func() error { other.Questions(t.Context(), "desk"); return nil })
		w.replica().Questions(t.Context(), "desk")
		if e := w.entry(1); e.Asked != 1 || len(w.questions()) != 1 {
			t.Errorf("asked %d times, %d counted", len(w.questions()), e.Asked)
		}
	})
}

func TestAnAnswerWhoseReplyIsLostIsCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", 0)
		w.ledger.after = first("swap", 1, func() error { return errLost })
		d := w.replica()
		d.Questions(t.Context(), "desk")
		d.Questions(t.Context(), "desk")
		if e := w.entry(1); e.Asked != 1 {
			t.Errorf("%d counted", e.Asked)
		}
	})
}

func TestAProviderThatHangsHoldsUpNobodyElse(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.answer = func(ctx context.Context, provider, _ string) (ledger.Finding, ledger.Outcome) {
			if provider == "desk" {
				<-ctx.Done()
				return ledger.Unanswered, ledger.Outcome{Cause: "timeout"}
			}
			return ledger.Found, ledger.Outcome{Receipt: "found"}
		}
		for n := range 20 {
			w.doubts(n, "desk", 0)
			w.doubts(100+n, "desk2", 0)
		}
		w.holds(200, "keyed", 0, lease)
		w.waits(201, "gone", 0)
		stop := w.runs(w.replica())
		time.Sleep(lease + 2*sweep)
		synctest.Wait()
		for n := range 20 {
			w.wants(100+n, ledger.Sent, ledger.ReasonLateAcceptance)
		}
		w.wants(200, ledger.Waiting, ledger.ReasonRepeatable)
		if len(w.visited) == 0 {
			t.Error("what waits at nobody's is not visited")
		}
		stop()
	})
}

func TestAnAnswerThatCannotBeRecordedDoesNotStarveTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const poisoned = 80 // more than a batch
		for n := range poisoned {
			w.doubts(n, "desk", 0)
		}
		time.Sleep(time.Second) // so that they are due the longest
		w.answers(ledger.NotFound)
		for n := poisoned; n < poisoned+5; n++ {
			w.doubts(n, "desk", 0)
		}
		w.refuses(poisoned)
		stop := w.runs(w.replica())
		time.Sleep(10 * time.Minute)
		stop()
		for n := poisoned; n < poisoned+5; n++ {
			if e := w.entry(n); e.Asked == 0 {
				t.Errorf("entry %d was not asked about in ten minutes", n)
			}
		}
		if len(w.failures) == 0 {
			t.Error("nobody is told of what cannot be recorded")
		}
	})
}

// Its provider and the ledger must not be asked without a pause for what cannot be recorded, and somebody
// has to be told.
func TestProofThatCannotBeRecordedIsToldAndTriedAgainAtThePaceOfTheSweep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		const entries = 64 // a whole batch
		for n := range entries {
			w.doubts(n, "desk", 0)
		}
		w.refuses(entries)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var asked atomic.Int64
		w.answer = func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
			if asked.Add(1) > 30*entries {
				cancel() // it would go on for ever
			}
			return ledger.Found, ledger.Outcome{Receipt: "found"}
		}
		d := w.replica()
		done := make(chan struct{})
		go func() { defer close(done); d.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		<-done
		if n := asked.Load(); n > 20*entries {
			t.Errorf("asked %d times about %d entries in a minute", n, entries)
		}
		if len(w.failures) == 0 {
			t.Error("nobody is told of what cannot be recorded")
		}
	})
}

// While its provider looks, the entry moves: what is found is proof over whatever it became, what is not
// found is nothing.
func TestAnAnswerOverAnEntryThatMovedOn(t *testing.T) {
	resolve := func(v ledger.Verdict, receipt string) func(ledger.Entry) ledger.Change {
		return func(e ledger.Entry) ledger.Change {
			change, err := ledger.Resolve(e, ledger.Resolution{
				Verdict: v, Receipt: receipt, Version: e.Version, Act: ledger.Act{ID: "person", By: "ada"},
			}, time.Now())
			if err != nil {
				panic(err)
			}
			return change
		}
	}
	cancel := func(e ledger.Entry) ledger.Change {
		change, _, _ := ledger.Cancel(e, ledger.Visit{Origin: ledger.OriginAPI})
		return change
	}
	claim := func(e ledger.Entry) ledger.Change {
		e.State, e.Reason, e.Holder = ledger.Sending, ledger.ReasonClaimed, "another"
		e.Due, e.Wake = ledger.Moment{}, ledger.Moment{}
		e.ClaimedAt, e.LeaseUntil = ledger.In(0), ledger.In(lease)
		return ledger.Change{Entry: e}
	}
	for name, row := range map[string]struct {
		moves   []func(ledger.Entry) ledger.Change
		becomes ledger.State
		receipt string // in the end, once it is found
		late    string
	}{
		"cancelled":              {[]func(ledger.Entry) ledger.Change{cancel}, ledger.Unknown, "found", ""},
		"abandoned":              {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictAbandoned, "")}, ledger.Dropped, "found", ""},
		"called sent":            {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "")}, ledger.Sent, "found", ""},
		"called unsent":          {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictNotSent, "")}, ledger.Waiting, "found", ""},
		"called unsent, dropped": {[]func(ledger.Entry) ledger.Change{cancel, resolve(ledger.VerdictNotSent, "")}, ledger.Dropped, "found", ""},
		"claimed again":          {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictNotSent, ""), claim}, ledger.Sending, "found", ""},
		"sent, the same receipt": {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "found")}, ledger.Sent, "found", ""},
		"sent, another receipt":  {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "other")}, ledger.Sent, "other", "possible_second_send"},
	} {
		for _, finding := range []ledger.Finding{ledger.Found, ledger.NotFound, ledger.Unanswered} {
			bubble(t, func(t *testing.T, w *world) {
				w.doubts(1, "desk", 0)
				w.answer = func(context.Context, string, string) (ledger.Finding, ledger.Outcome) {
					for _, move := range row.moves {
						w.moves(1, move)
					}
					return finding, ledger.Outcome{Receipt: map[bool]string{true: "found"}[finding == ledger.Found]}
				}
				w.replica().Questions(t.Context(), "desk")
				e := w.entry(1)
				if finding != ledger.Found {
					if e.State != row.becomes || e.Asked != 0 || len(w.lines(1, ledger.EventLookup)) != 0 {
						t.Errorf("%s, finding %d: %s, %d counted", name, finding, e.State, e.Asked)
					}
					return
				}
				if e.State != ledger.Sent || e.Receipt != row.receipt || e.InDoubt() || e.Check() != nil {
					t.Errorf("%s: %s, receipt %q, %v", name, e.State, e.Receipt, e.Check())
				}
				if row.late != "" && !slices.Contains(w.told(), row.late) {
					t.Errorf("%s: nobody is told; late: %v", name, w.told())
				}
			})
		}
	}
}

func TestQuestionsBeginOnceTheirProviderIsConfiguredAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		desk := w.routes["desk"]
		w.doubts(1, "desk", -1)
		delete(w.routes, "desk")
		stop := w.runs(w.replica())
		time.Sleep(3 * time.Hour)
		stop()
		if e := w.entry(1); !e.AskAt.IsZero() || e.Version != 1 {
			t.Fatalf("nobody can be asked: next %v, version %d", e.AskAt, e.Version)
		}
		w.routes["desk"] = desk
		stop = w.runs(w.replica())
		time.Sleep(time.Minute)
		stop()
		if e := w.entry(1); e.Asked != 1 {
			t.Errorf("%d counted a minute after its provider came back", e.Asked)
		}
	})
}

// Another account knows nothing of what went to the first.
func TestAnotherAccountIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.doubts(1, "desk", 0)
		w.routes["desk"] = ledger.Route{Provider: "desk", Fingerprint: "desk-9", Contract: ledger.Contract{Kind: ledger.Lookup}}
		stop := w.runs(w.replica())
		time.Sleep(10 * time.Minute)
		stop()
		e := w.wants(1, ledger.Unknown, ledger.ReasonProviderChange)
		if len(w.questions()) != 0 || !e.AskAt.IsZero() || len(w.lines(1, ledger.EventDecision)) != 1 {
			t.Errorf("asked %d times, next %v", len(w.questions()), e.AskAt)
		}
	})
}

// Replicas with two configurations ran side by side: the one that could not ask left it unknown after the other had
// started.
func TestWhatNobodyAsksAboutIsAskedAboutSoonByWhoeverCan(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		stop := w.runs(w.replica())
		time.Sleep(10 * time.Minute)
		w.doubts(1, "desk", 0, func(e *ledger.Entry) { e.AskAt, e.Reason = ledger.Moment{}, ledger.ReasonProviderChange })
		time.Sleep(2*time.Minute + asks()[0])
		stop()
		if len(w.questions()) == 0 {
			t.Error("nobody has asked")
		}
	})
}
