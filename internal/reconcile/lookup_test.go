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

func TestLookup_FollowsItsSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		start := time.Now()
		h.insertUnknown(1, "lookup", lookupSchedule()[0])
		defer h.start(h.newReconciler())()
		time.Sleep(10 * time.Hour)
		synctest.Wait()
		calls := h.lookupCalls()
		if len(calls) != len(lookupSchedule()) {
			t.Fatalf("%d lookups in ten hours, want %d", len(calls), len(lookupSchedule()))
		}
		last := start
		for i, q := range calls {
			if waited := q.at.Sub(last); waited < lookupSchedule()[i] || waited > lookupSchedule()[i]+sweep*6/5 {
				t.Errorf("lookup %d after %v, want %v", i+1, waited, lookupSchedule()[i])
			}
			if q.provider != "lookup" || q.key != identity(1).SendKey() {
				t.Errorf("lookup %d at %s for %s", i+1, q.provider, q.key)
			}
			last = q.at
		}
		e := h.wantEntry(1, ledger.Unknown, ledger.ReasonNotFound)
		events := h.events(1, ledger.EventLookup)
		if len(events) != len(lookupSchedule()) || e.LookupsNotFound != len(lookupSchedule()) || !e.NextLookup.IsZero() {
			t.Errorf("%d events, %d counted, next %v", len(events), e.LookupsNotFound, e.NextLookup)
		}
		for i, event := range events {
			if event.Reason != ledger.ReasonNotFound || event.Provider != "lookup" || event.Origin != ledger.OriginReconcile ||
				!event.Started.Equal(calls[i].at.Truncate(time.Microsecond)) || event.Outcome.Status != 404 {
				t.Errorf("event %d: %+v", i+1, event)
			}
		}
	})
}

func TestLookup_FoundIsSentWithItsReceipt(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.LookupNotFound, ledger.LookupUnanswered, ledger.LookupFound)
		h.insertUnknown(1, "lookup", lookupSchedule()[0])
		defer h.start(h.newReconciler())()
		time.Sleep(time.Hour)
		synctest.Wait()
		if e := h.wantEntry(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Receipt != "found" || e.InDoubt() {
			t.Errorf("receipt %q, doubt %t", e.Receipt, e.InDoubt())
		}
		var reasons []ledger.Reason
		for _, event := range h.events(1, ledger.EventLookup) {
			reasons = append(reasons, event.Reason)
		}
		if want := []ledger.Reason{ledger.ReasonNotFound, ledger.ReasonLookupUnanswered, ledger.ReasonLateAcceptance}; !slices.Equal(reasons, want) {
			t.Errorf("recorded %v, want %v", reasons, want)
		}
		if len(h.lookupCalls()) != 3 {
			t.Errorf("%d lookups", len(h.lookupCalls()))
		}
	})
}

func TestLookup_LastNotFoundResendsIfPolicySaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.onUnknown = ledger.Resend
		h.insertUnknown(1, "lookup", lookupSchedule()[0])
		h.insertUnknown(2, "lookup", lookupSchedule()[0], func(e *ledger.Entry) { e.CancelRequested = true })
		start := time.Now()
		defer h.start(h.newReconciler())()
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		e := h.wantEntry(1, ledger.Waiting, ledger.ReasonRiskTaken)
		var whole time.Duration
		for _, wait := range lookupSchedule() {
			whole += wait
		}
		if e.Owner != ledger.OwnerLedger || e.Updated.Sub(start) < whole {
			t.Errorf("owner %q, resent after %v, and the schedule takes %v", e.Owner, e.Updated.Sub(start), whole)
		}
		h.wantEntry(2, ledger.Unknown, ledger.ReasonNotFound)
	})
}

func TestLookup_UnansweringProviderIsAskedLessOften(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.LookupUnanswered)
		h.insertUnknown(1, "lookup", lookupSchedule()[0])
		defer h.start(h.newReconciler())()
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if e := h.wantEntry(1, ledger.Unknown, ledger.ReasonUnanswered); e.LookupsNotFound != 0 || e.NextLookup.IsZero() {
			t.Errorf("%d counted, next %v", e.LookupsNotFound, e.NextLookup)
		}
		if n := len(h.lookupCalls()); n < 48 || n > 80 || len(h.events(1, ledger.EventLookup)) != n {
			t.Errorf("%d lookups in two days, %d recorded", n, len(h.events(1, ledger.EventLookup)))
		}
	})
}

func TestLookup_ConcurrentReplicasCountOneNotFound(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", 0)
		var both sync.WaitGroup
		both.Add(2)
		h.lookup = func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
			both.Done()
			both.Wait()
			return ledger.LookupNotFound, ledger.Outcome{}
		}
		var all sync.WaitGroup
		for range 2 {
			rc := h.newReconciler()
			all.Go(func() { rc.LookupDue(t.Context(), "lookup") })
		}
		all.Wait()
		if e := h.entry(1); e.LookupsNotFound != 1 || len(h.events(1, ledger.EventLookup)) != 1 || len(h.failures) != 0 {
			t.Errorf("%d counted, %d recorded, failures %v", e.LookupsNotFound, len(h.events(1, ledger.EventLookup)), h.failures)
		}
		if n := h.newReconciler().LookupDue(t.Context(), "lookup"); n != 0 {
			t.Errorf("%d lookups are due again at once", n)
		}
	})
}

// A lookup that was listed as due may have been made by another replica by the time that its entry is loaded.
func TestLookup_IsNotRepeatedAfterAnotherReplicas(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", 0)
		other := h.newReconciler()
		h.ledger.before = onFirst("load", 1, func() error { other.LookupDue(t.Context(), "lookup"); return nil })
		h.newReconciler().LookupDue(t.Context(), "lookup")
		if e := h.entry(1); e.LookupsNotFound != 1 || len(h.lookupCalls()) != 1 {
			t.Errorf("%d lookups, %d counted", len(h.lookupCalls()), e.LookupsNotFound)
		}
	})
}

func TestLookup_LostReplyIsCountedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", 0)
		h.ledger.after = onFirst("update", 1, func() error { return errLost })
		rc := h.newReconciler()
		rc.LookupDue(t.Context(), "lookup")
		rc.LookupDue(t.Context(), "lookup")
		if e := h.entry(1); e.LookupsNotFound != 1 {
			t.Errorf("%d counted", e.LookupsNotFound)
		}
	})
}

func TestLookup_HangingProviderDelaysNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.lookup = func(ctx context.Context, provider, _ string) (ledger.LookupResult, ledger.Outcome) {
			if provider == "lookup" {
				<-ctx.Done()
				return ledger.LookupUnanswered, ledger.Outcome{Cause: "timeout"}
			}
			return ledger.LookupFound, ledger.Outcome{Receipt: "found"}
		}
		for n := range 20 {
			h.insertUnknown(n, "lookup", 0)
			h.insertUnknown(100+n, "lookup2", 0)
		}
		h.insertSending(200, "idempotent", 0, lease)
		h.insertWaiting(201, "gone", 0)
		stop := h.start(h.newReconciler())
		time.Sleep(lease + 2*sweep)
		synctest.Wait()
		for n := range 20 {
			h.wantEntry(100+n, ledger.Sent, ledger.ReasonLateAcceptance)
		}
		h.wantEntry(200, ledger.Waiting, ledger.ReasonRepeatable)
		if len(h.processed) == 0 {
			t.Error("the orphan was not processed")
		}
		stop()
	})
}

func TestLookup_UnrecordableResultDoesNotStarveTheRest(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const failing = 80 // more than a batch
		for n := range failing {
			h.insertUnknown(n, "lookup", 0)
		}
		time.Sleep(time.Second) // so that they are due the longest
		h.setResults(ledger.LookupNotFound)
		for n := failing; n < failing+5; n++ {
			h.insertUnknown(n, "lookup", 0)
		}
		h.failUpdatesBelow(failing)
		stop := h.start(h.newReconciler())
		time.Sleep(10 * time.Minute)
		stop()
		for n := failing; n < failing+5; n++ {
			if e := h.entry(n); e.LookupsNotFound == 0 {
				t.Errorf("entry %d had no lookup in ten minutes", n)
			}
		}
		if len(h.failures) == 0 {
			t.Error("the failures were not reported")
		}
	})
}

// While a result cannot be recorded, neither the provider nor the ledger may be called without a pause, and the failure
// has to be reported.
func TestLookup_UnrecordableProofIsReportedAndRetriedAtSweepInterval(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		const entries = 64 // a whole batch
		for n := range entries {
			h.insertUnknown(n, "lookup", 0)
		}
		h.failUpdatesBelow(entries)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var lookups atomic.Int64
		h.lookup = func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
			if lookups.Add(1) > 30*entries {
				cancel() // otherwise the loop would never end
			}
			return ledger.LookupFound, ledger.Outcome{Receipt: "found"}
		}
		rc := h.newReconciler()
		done := make(chan struct{})
		go func() { defer close(done); rc.Run(ctx) }()
		time.Sleep(time.Minute)
		cancel()
		<-done
		if n := lookups.Load(); n > 20*entries {
			t.Errorf("%d lookups for %d entries in a minute", n, entries)
		}
		if len(h.failures) == 0 {
			t.Error("the failures were not reported")
		}
	})
}

// The entry changes during the lookup: "found" is proof over whatever it became, "not found" is not recorded.
func TestLookup_ResultForAnEntryThatChangedMeanwhile(t *testing.T) {
	resolve := func(v ledger.Verdict, receipt string) func(ledger.Entry) ledger.Change {
		return func(e ledger.Entry) ledger.Change {
			change, err := ledger.Resolve(e, ledger.Resolution{
				Verdict: v, Receipt: receipt, Version: e.Version, Audit: ledger.AuditEvent{ID: "operator", Actor: "ada"},
			}, time.Now())
			if err != nil {
				panic(err)
			}
			return change
		}
	}
	cancel := func(e ledger.Entry) ledger.Change {
		change, _, _ := ledger.Cancel(e, ledger.Trigger{Origin: ledger.OriginAPI})
		return change
	}
	claim := func(e ledger.Entry) ledger.Change {
		e.State, e.Reason, e.Holder = ledger.Sending, ledger.ReasonClaimed, "another"
		e.Due, e.Wake = ledger.Moment{}, ledger.Moment{}
		e.ClaimedAt, e.LeaseUntil = ledger.In(0), ledger.In(lease)
		return ledger.Change{Entry: e}
	}
	for name, row := range map[string]struct {
		changes []func(ledger.Entry) ledger.Change
		becomes ledger.State
		receipt string // at the end, after "found"
		late    string
	}{
		"cancelled":                     {[]func(ledger.Entry) ledger.Change{cancel}, ledger.Unknown, "found", ""},
		"resolved as abandoned":         {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictAbandoned, "")}, ledger.Dropped, "found", ""},
		"resolved as sent":              {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "")}, ledger.Sent, "found", ""},
		"resolved as unsent":            {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictNotSent, "")}, ledger.Waiting, "found", ""},
		"resolved as unsent, cancelled": {[]func(ledger.Entry) ledger.Change{cancel, resolve(ledger.VerdictNotSent, "")}, ledger.Dropped, "found", ""},
		"claimed again":                 {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictNotSent, ""), claim}, ledger.Sending, "found", ""},
		"sent, the same receipt":        {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "found")}, ledger.Sent, "found", ""},
		"sent, another receipt":         {[]func(ledger.Entry) ledger.Change{resolve(ledger.VerdictSent, "other")}, ledger.Sent, "other", "possible_second_send"},
	} {
		for _, result := range []ledger.LookupResult{ledger.LookupFound, ledger.LookupNotFound, ledger.LookupUnanswered} {
			bubble(t, func(t *testing.T, h *harness) {
				h.insertUnknown(1, "lookup", 0)
				h.lookup = func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
					for _, change := range row.changes {
						h.update(1, change)
					}
					return result, ledger.Outcome{Receipt: map[bool]string{true: "found"}[result == ledger.LookupFound]}
				}
				h.newReconciler().LookupDue(t.Context(), "lookup")
				e := h.entry(1)
				if result != ledger.LookupFound {
					if e.State != row.becomes || e.LookupsNotFound != 0 || len(h.events(1, ledger.EventLookup)) != 0 {
						t.Errorf("%s, result %d: %s, %d counted", name, result, e.State, e.LookupsNotFound)
					}
					return
				}
				if e.State != ledger.Sent || e.Receipt != row.receipt || e.InDoubt() || e.Check() != nil {
					t.Errorf("%s: %s, receipt %q, %v", name, e.State, e.Receipt, e.Check())
				}
				if row.late != "" && !slices.Contains(h.lateReasons(), row.late) {
					t.Errorf("%s: not reported as late; late: %v", name, h.lateReasons())
				}
			})
		}
	}
}

func TestLookup_BeginsOnceProviderIsConfiguredAgain(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		route := h.routes["lookup"]
		h.insertUnknown(1, "lookup", -1)
		delete(h.routes, "lookup")
		stop := h.start(h.newReconciler())
		time.Sleep(3 * time.Hour)
		stop()
		if e := h.entry(1); !e.NextLookup.IsZero() || e.Version != 1 {
			t.Fatalf("no lookup is possible, but next %v, version %d", e.NextLookup, e.Version)
		}
		h.routes["lookup"] = route
		stop = h.start(h.newReconciler())
		time.Sleep(time.Minute)
		stop()
		if e := h.entry(1); e.LookupsNotFound != 1 {
			t.Errorf("%d counted a minute after its provider came back", e.LookupsNotFound)
		}
	})
}

// Another account at the provider knows nothing of what was sent through the first.
func TestLookup_AnotherAccountIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", 0)
		h.routes["lookup"] = ledger.Route{Provider: "lookup", Fingerprint: "lookup-9", Contract: ledger.Contract{Kind: ledger.ContractLookup}}
		stop := h.start(h.newReconciler())
		time.Sleep(10 * time.Minute)
		stop()
		e := h.wantEntry(1, ledger.Unknown, ledger.ReasonProviderChange)
		if len(h.lookupCalls()) != 0 || !e.NextLookup.IsZero() || len(h.events(1, ledger.EventDecision)) != 1 {
			t.Errorf("%d lookups, next %v", len(h.lookupCalls()), e.NextLookup)
		}
	})
}

// Replicas with different configurations run side by side: the one without the provider leaves the entry unknown, after
// the one with the provider has started.
func TestLookup_UnscheduledEntryIsScheduledByAnyReplica(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		stop := h.start(h.newReconciler())
		time.Sleep(10 * time.Minute)
		h.insertUnknown(1, "lookup", 0, func(e *ledger.Entry) { e.NextLookup, e.Reason = ledger.Moment{}, ledger.ReasonProviderChange })
		time.Sleep(2*time.Minute + lookupSchedule()[0])
		stop()
		if len(h.lookupCalls()) == 0 {
			t.Error("no lookup was made")
		}
	})
}
