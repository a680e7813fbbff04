package provider_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestPause_StopsCallsUntilResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p, other := newPool(t, g, provider.LimitedProvider{Concurrency: 9}), newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		release := mustAcquire(t, p)
		audit := ledger.AuditEvent{Actor: "ada", Role: "operator", Reason: "requested by the provider"}
		stored, err := p.Pause(t.Context(), "mail", audit)
		if err != nil || !stored.Paused || stored.Actor != "ada" {
			t.Fatalf("%+v, %v", stored, err)
		}
		expectClosed(t, p, 15*time.Second)
		refresh(t, other)
		expectClosed(t, other, 15*time.Second)
		if p.Free("mail") != 0 || !p.Closed("mail") {
			t.Errorf("%d free, closed %t", p.Free("mail"), p.Closed("mail"))
		}
		// A call in flight settles, and its success does not open the gate.
		if closed := release(outcome(ledger.ResultAccepted), 0); closed == 0 {
			t.Error("the gate is open after a call")
		}
		time.Sleep(24 * time.Hour) // it does not open with time either
		refresh(t, p)
		expectClosed(t, p, 15*time.Second)

		if again, err := other.Pause(t.Context(), "mail", audit); err != nil || again.Version != stored.Version {
			t.Errorf("again: %+v, %v", again, err)
		}
		if resumed, err := other.Resume(t.Context(), "mail", ledger.AuditEvent{Actor: "ben", Role: "operator", Reason: "the provider works again"}); err != nil || resumed.Paused {
			t.Fatalf("%+v, %v", resumed, err)
		}
		mustAcquire(t, other)
		refresh(t, p)
		mustAcquire(t, p)
		if len(g.audit) != 2 || g.audit[0].Action != "pause:mail" || g.audit[1].Action != "resume:mail" || g.audit[0].ID == g.audit[1].ID || g.audit[0].ID == "" {
			t.Errorf("%+v", g.audit)
		}
	})
}

func TestResume_OpensGateClosedByCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		mustAcquire(t, p)(outcome(ledger.ResultCredentials), 0)
		expectClosed(t, p, time.Minute)
		if _, err := p.Resume(t.Context(), "mail", ledger.AuditEvent{Actor: "ada"}); err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, p)
		mustAcquire(t, p) // not a single probe
	})
}

func TestPause_FailedWriteChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		g.err = errors.New("down")
		if _, err := p.Pause(t.Context(), "mail", ledger.AuditEvent{Actor: "ada"}); err == nil {
			t.Error("the pause succeeded")
		}
		g.err = nil
		mustAcquire(t, p)
		if _, err := p.Pause(t.Context(), "sms", ledger.AuditEvent{Actor: "ada"}); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("a provider that is not configured: %v", err)
		}
		if len(g.audit) != 0 {
			t.Errorf("%+v", g.audit)
		}
	})
}
