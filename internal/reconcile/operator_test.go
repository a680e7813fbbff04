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

func (h *harness) resolution(v ledger.Verdict, version int64) ledger.Resolution {
	return ledger.Resolution{Verdict: v, Version: version, Audit: ledger.AuditEvent{Actor: "ada", Role: "operator", Reason: "asked the provider"}}
}

func TestResolve_DecisionIsStoredWithItsAuditEvent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		rc := h.newReconciler()
		for n, v := range ledger.Verdicts() {
			snap := h.insertUnknown(n, "blind", -1)
			stored, err := rc.Resolve(t.Context(), identity(n), h.resolution(v, snap.Version))
			if err != nil || stored != h.entry(n) {
				t.Errorf("%s: %v, %+v", v, err, stored)
			}
			audit := h.detail(n).Audit
			if len(audit) != 1 || audit[0].Action != "resolve:"+string(v) || audit[0].ID == "" || audit[0].Actor != "ada" || audit[0].At.IsZero() {
				t.Errorf("%s: the audit says %+v", v, audit)
			}
		}
	})
}

func TestResolve_DecisionOnAnUnseenVersionIsRejected(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		rc := h.newReconciler()
		snap := h.insertUnknown(1, "blind", -1)
		h.insert(func() ledger.Entry {
			e := h.newEntry(2, "blind")
			e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "r"
			return e
		}())
		for name, row := range map[string]struct {
			id      ledger.Identity
			version int64
			want    error
		}{
			"an older version": {identity(1), snap.Version - 1, ledger.ErrStale},
			"a newer version":  {identity(1), snap.Version + 1, ledger.ErrStale},
			"not in doubt":     {identity(2), 1, ledger.ErrNotInDoubt},
			"no entry":         {identity(3), 1, ledger.ErrNotFound},
		} {
			if _, err := rc.Resolve(t.Context(), row.id, h.resolution(ledger.VerdictSent, row.version)); !errors.Is(err, row.want) {
				t.Errorf("%s: %v, want %v", name, err, row.want)
			}
		}
		// A provider's status event is recorded between the load and the write.
		h.ledger.before = onFirst("update", 1, func() error {
			h.update(1, func(e ledger.Entry) ledger.Change {
				change, _ := ledger.RecordStatus(e, h.statusEvent(1, ledger.StatusAccepted, "reported"))
				return change
			})
			return nil
		})
		if _, err := rc.Resolve(t.Context(), identity(1), h.resolution(ledger.VerdictNotSent, snap.Version)); !errors.Is(err, ledger.ErrStale) {
			t.Errorf("after a status event: %v", err)
		}
		if e := h.wantEntry(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Receipt != "reported" || len(h.detail(1).Audit)+len(h.detail(2).Audit) != 0 {
			t.Errorf("receipt %q, audit %+v", e.Receipt, h.detail(1).Audit)
		}
	})
}

func TestResolve_OneOfTwoOperatorsDecides(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		snap := h.insertUnknown(1, "blind", -1)
		var won, stale atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			rc := h.newReconciler()
			all.Go(func() {
				switch _, err := rc.Resolve(t.Context(), identity(1), h.resolution(ledger.VerdictNotSent, snap.Version)); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, ledger.ErrStale):
					stale.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 || stale.Load() != 1 || len(h.detail(1).Audit) != 1 {
			t.Errorf("%d decided, %d stale, %d audit events", won.Load(), stale.Load(), len(h.detail(1).Audit))
		}
	})
}

func TestResolve_LostReplyIsKnownByAuditEvent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		rc := h.newReconciler()
		h.insertUnknown(1, "blind", -1)
		h.insertUnknown(2, "blind", -1)
		h.ledger.after = onFirst("update", 1, func() error { return errLost })
		h.ledger.before = onFirst("update", 2, func() error { return errLost })
		stored, err := rc.Resolve(t.Context(), identity(1), h.resolution(ledger.VerdictSent, 1))
		if err != nil || stored.State != ledger.Sent || stored.Version != 2 {
			t.Errorf("committed, but returned %v, %+v", err, stored)
		}
		if _, err := rc.Resolve(t.Context(), identity(2), h.resolution(ledger.VerdictSent, 1)); !errors.Is(err, errLost) {
			t.Errorf("not committed, but returned %v", err)
		}
		if e := h.entry(2); e.State != ledger.Unknown || len(h.detail(2).Audit) != 0 {
			t.Errorf("%s, audit %+v", e.State, h.detail(2).Audit)
		}
	})
}

func (h *harness) statusEvent(n int, kind ledger.StatusKind, receipt string) ledger.StatusEvent {
	return ledger.StatusEvent{
		Identity: identity(n), Kind: kind, Provider: "lookup", MessageID: "evt-1", Receipt: receipt, At: time.Now(),
	}
}

func TestRecordStatus_RepeatedEventIsRecordedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", -1)
		h.insert(func() ledger.Entry {
			e := h.newEntry(2, "lookup")
			e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "r"
			return e
		}())
		var recordings atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			rc := h.newReconciler()
			for range 5 {
				all.Go(func() {
					for n, kind := range map[int]ledger.StatusKind{1: ledger.StatusAccepted, 2: ledger.StatusBounced} {
						recorded, err := rc.RecordStatus(t.Context(), h.statusEvent(n, kind, "reported"))
						if err != nil {
							t.Errorf("%s: %v", kind, err)
						}
						if recorded {
							recordings.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if recordings.Load() != 2 || len(h.events(1, ledger.EventStatus)) != 1 || len(h.events(2, ledger.EventStatus)) != 1 {
			t.Errorf("%d recorded, %d and %d events", recordings.Load(), len(h.events(1, ledger.EventStatus)), len(h.events(2, ledger.EventStatus)))
		}
		if late := h.lateReasons(); len(late) != 1 || late[0] != "late_acceptance" {
			t.Errorf("late %v", late)
		}
		h.wantEntry(1, ledger.Sent, ledger.ReasonLateAcceptance)
		h.wantEntry(2, ledger.Sent, ledger.ReasonAccepted)
		// Another status event is recorded too.
		other := h.statusEvent(2, ledger.StatusBounced, "reported")
		other.MessageID = "evt-2"
		if recorded, err := h.newReconciler().RecordStatus(t.Context(), other); !recorded || err != nil {
			t.Errorf("another event: %t, %v", recorded, err)
		}
	})
}

func TestRecordStatus_LostReplyIsRecordedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", -1)
		rc := h.newReconciler()
		h.ledger.after = onFirst("update", 1, func() error { return errLost })
		if _, err := rc.RecordStatus(t.Context(), h.statusEvent(1, ledger.StatusDelivered, "reported")); !errors.Is(err, errLost) {
			t.Errorf("the provider must deliver it again: %v", err)
		}
		if recorded, err := rc.RecordStatus(t.Context(), h.statusEvent(1, ledger.StatusDelivered, "reported")); recorded || err != nil {
			t.Errorf("the repeat: %t, %v", recorded, err)
		}
		if len(h.events(1, ledger.EventStatus)) != 1 {
			t.Errorf("%d events", len(h.events(1, ledger.EventStatus)))
		}
	})
}

func TestRecordStatus_IsRecordedBesideAConcurrentSettle(t *testing.T) {
	for receipt, want := range map[string]struct {
		recorded bool
		late     string
	}{"receipt": {false, ""}, "other": {true, "possible_second_send"}} {
		bubble(t, func(t *testing.T, h *harness) {
			h.insertSending(1, "lookup", 0, lease)
			h.ledger.before = onFirst("update", 1, func() error { h.update(1, settleAccepted("receipt")); return nil })
			recorded, err := h.newReconciler().RecordStatus(t.Context(), h.statusEvent(1, ledger.StatusAccepted, receipt))
			if err != nil || recorded != want.recorded {
				t.Errorf("receipt %q: recorded %t, %v", receipt, recorded, err)
			}
			if e := h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted); e.Receipt != "receipt" {
				t.Errorf("the first receipt was replaced: %q", e.Receipt)
			}
			if late := h.lateReasons(); want.late != "" && (len(late) != 1 || late[0] != want.late) || want.late == "" && len(late) != 0 {
				t.Errorf("receipt %q: late %v", receipt, late)
			}
		})
	}
}

func TestRecordStatus_EventOfALostEntryCreatesItOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		event := h.statusEvent(1, ledger.StatusAccepted, "reported")
		if recorded, err := h.newReconciler().RecordStatus(t.Context(), event); recorded || err != nil || !h.entry(1).Absent() {
			t.Errorf("from a provider that the channel does not lead to: %t, %v", recorded, err)
		}
		event.Provider = "idempotent"
		h.ledger.before = onFirst("insert", 1, func() error { // another replica records it too
			_, err := h.newReconciler().RecordStatus(context.Background(), event)
			return err
		})
		recorded, err := h.newReconciler().RecordStatus(t.Context(), event)
		if err != nil || recorded {
			t.Errorf("%t, %v", recorded, err)
		}
		if e := h.wantEntry(1, ledger.Sent, ledger.ReasonLateAcceptance); e.Version != 1 || e.Receipt != "reported" {
			t.Errorf("version %d, receipt %q", e.Version, e.Receipt)
		}
		if recorded, err := h.newReconciler().RecordStatus(t.Context(), h.statusEvent(2, ledger.StatusBounced, "reported")); recorded || err != nil || !h.entry(2).Absent() {
			t.Errorf("a bounce without an entry: %t, %v", recorded, err)
		}
	})
}

// The secret of one provider must not be enough to settle what another one sent.
func TestRecordStatus_EventOfAnotherProviderProvesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", -1)
		other := h.statusEvent(1, ledger.StatusAccepted, "reported")
		other.Provider = "idempotent"
		if recorded, err := h.newReconciler().RecordStatus(t.Context(), other); recorded || err != nil {
			t.Errorf("%t, %v", recorded, err)
		}
		h.wantEntry(1, ledger.Unknown, ledger.ReasonUnanswered)
		h.update(1, func(e ledger.Entry) ledger.Change {
			return ledger.Change{Entry: e, Event: &ledger.TimelineEvent{Kind: ledger.EventAttempt, State: e.State, Reason: e.Reason, Provider: "idempotent"}}
		})
		if recorded, err := h.newReconciler().RecordStatus(t.Context(), other); !recorded || err != nil {
			t.Errorf("the provider was called for the entry before: %t, %v", recorded, err)
		}
		h.wantEntry(1, ledger.Sent, ledger.ReasonLateAcceptance)
	})
}

func TestUnresolved_ListsEntriesWithTimeline(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertSending(1, "blind", -lease, -time.Second)
		time.Sleep(time.Second)
		h.insertUnknown(2, "lookup", -1)
		h.insertWaiting(3, "idempotent", 0)
		rc := h.newReconciler()
		rc.SweepOnce(t.Context())
		page, err := rc.Unresolved(t.Context(), ledger.DoubtPosition{}, 1)
		if err != nil || len(page) != 1 || page[0].Entry.Identity != identity(1) || len(page[0].Timeline) != 1 || page[0].Timeline[0].Kind != ledger.EventLeaseExpired {
			t.Fatalf("%v: %+v", err, page)
		}
		last := page[0].Entry
		page, err = rc.Unresolved(t.Context(), ledger.DoubtPosition{Since: last.DoubtSince, Identity: last.Identity}, 10)
		if err != nil || len(page) != 1 || page[0].Entry.Identity != identity(2) {
			t.Errorf("%v: %+v", err, page)
		}
	})
}

func TestStartSweep_LooksUpBeforeDue(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.setResults(ledger.LookupFound)
		for n := range 300 { // more than a page
			h.insertUnknown(n, "lookup", time.Hour)
		}
		h.insertUnknown(300, "blind", -1)
		h.insertUnknown(301, "lookup", time.Hour)
		h.ledger.before = func(op string, id ledger.Identity) error {
			if op == "update" && id == identity(7) {
				return errors.New("rejected for ever")
			}
			return nil
		}
		rc := h.newReconciler()
		if !rc.LastRun().Started.IsZero() {
			t.Error("LastRun before the first run")
		}
		defer h.start(rc)()
		run, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "ada", Role: "operator", Reason: "the provider is back"})
		if err != nil || run.Actor != "ada" || run.Started.IsZero() {
			t.Fatalf("%+v, %v", run, err)
		}
		synctest.Wait()
		last := rc.LastRun()
		if last.Finished.IsZero() || last.Unknown != 302 || last.Lookups != 301 || last.Failed != 1 {
			t.Errorf("%+v", last)
		}
		h.wantEntry(301, ledger.Sent, ledger.ReasonLateAcceptance)
		h.wantEntry(300, ledger.Unknown, ledger.ReasonUnanswered)
		if _, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "ada"}); err != nil {
			t.Errorf("after the first has ended: %v", err)
		}
	})
}

func TestStartSweep_OneAtATimeAndNoneWithoutAuditEvent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertUnknown(1, "lookup", time.Hour)
		release := make(chan struct{})
		h.lookup = func(context.Context, string, string) (ledger.LookupResult, ledger.Outcome) {
			<-release
			return ledger.LookupNotFound, ledger.Outcome{}
		}
		rc := h.newReconciler()
		defer h.start(rc)()
		h.ledger.record = errLost
		if _, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "ada"}); !errors.Is(err, errLost) {
			t.Errorf("without its audit event: %v", err)
		}
		synctest.Wait()
		if len(h.lookupCalls()) != 0 || !rc.LastRun().Started.IsZero() {
			t.Error("a sweep started without its audit event")
		}
		h.ledger.record = nil
		if _, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "ada"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if last := rc.LastRun(); !last.Finished.IsZero() || len(h.lookupCalls()) != 1 {
			t.Errorf("%+v after %d lookups", last, len(h.lookupCalls()))
		}
		if run, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "bob"}); !errors.Is(err, ledger.ErrSweepRunning) || run.Actor != "ada" {
			t.Errorf("a second: %+v, %v", run, err)
		}
		close(release)
		synctest.Wait()
		if rc.LastRun().Finished.IsZero() {
			t.Error("the run never ends")
		}
	})
}

// The waits between lookups give a provider time to find what it was sent: manual sweeps must not use them up, and
// so cause a second send.
func TestStartSweep_RepeatedRunsDoNotReplaceTheSchedule(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.onUnknown = ledger.Resend
		h.insertUnknown(1, "lookup", lookupSchedule()[0])
		rc := h.newReconciler()
		defer h.start(rc)()
		for range 2 * len(lookupSchedule()) {
			if _, err := rc.StartSweep(t.Context(), ledger.AuditEvent{Actor: "ada"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if e := h.entry(1); e.State != ledger.Unknown {
			t.Errorf("%s, %s, ten seconds after it became unknown", e.State, e.Reason)
		}
	})
}
