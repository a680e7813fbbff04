package provider_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestGate_ConcurrentCredentialFailuresCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		replicas := []*provider.Pool{
			newPool(t, g, provider.LimitedProvider{Concurrency: 10}), newPool(t, g, provider.LimitedProvider{Concurrency: 10}),
		}
		var releases []release
		for i := range 20 {
			releases = append(releases, mustAcquire(t, replicas[i%2]))
		}
		var wg sync.WaitGroup
		for _, done := range releases {
			wg.Go(func() {
				if closed := done(outcome(ledger.ResultCredentials), 0); closed != time.Minute {
					t.Errorf("closed for %v, want 1 min", closed)
				}
			})
		}
		wg.Wait()
		if got := g.stored["mail"]; got.Failures != 1 || g.writes != 1 || got.Class != ledger.ClassCredentials {
			t.Errorf("%d writes, gate %+v", g.writes, got)
		}
	})
}

func TestGate_ClosedOnAllReplicasAndProbedByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		a, b := newPool(t, g, provider.LimitedProvider{Concurrency: 9}), newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		if closed := mustAcquire(t, a)(outcome(ledger.ResultCredentials), 0); closed != time.Minute {
			t.Fatalf("closed for %v", closed)
		}
		expectClosed(t, a, time.Minute)
		mustAcquire(t, b)(outcome(ledger.ResultNotCalled), 0) // b has not refreshed yet
		refresh(t, b)
		expectClosed(t, b, time.Minute)
		if a.Free("mail")+b.Free("mail") != 0 || a.Status()[0].GateStatus.Open {
			t.Error("a closed gate has free capacity")
		}

		wait := time.Minute
		for opening := range 3 {
			time.Sleep(wait)
			if a.Free("mail") != 1 || b.Free("mail") != 1 {
				t.Error("a gate that waits for a probe does not have exactly one free slot")
			}
			probes := make(chan release, 20)
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					if _, done := acquire([]*provider.Pool{a, b}[i%2]); done != nil {
						probes <- done
					}
				})
			}
			wg.Wait()
			if len(probes) != 1 {
				t.Fatalf("opening %d: %d probes", opening, len(probes))
			}
			wait = min(wait*2, 15*time.Minute)
			if closed := (<-probes)(outcome(ledger.ResultCredentials), 0); closed != wait {
				t.Fatalf("opening %d: closed for %v, want %v", opening, closed, wait)
			}
			refresh(t, a)
			refresh(t, b)
		}

		time.Sleep(wait)
		if closed := mustAcquire(t, a)(outcome(ledger.ResultAccepted), 0); closed != 0 {
			t.Errorf("closed for %v after the probe was accepted", closed)
		}
		refresh(t, b)
		for range 2 {
			mustAcquire(t, a)
			mustAcquire(t, b)
		}
	})
}

func TestGate_ProbeWithoutCallLetsNextProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Concurrency: 9})
		mustAcquire(t, p)(outcome(ledger.ResultCredentials), 0)
		time.Sleep(time.Minute)
		probe := mustAcquire(t, p)
		if slot, _ := acquire(p); slot.Held || slot.Wait != 30*time.Second {
			t.Errorf("during the probe: %+v", slot)
		}
		if closed := probe(outcome(ledger.ResultNotCalled), 0); closed != 0 {
			t.Errorf("closed for %v", closed)
		}
		mustAcquire(t, p)
		if slot, _ := acquire(p); slot.Held {
			t.Error("two probes at once")
		}
	})
}

func TestGate_UnansweredProbeIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Concurrency: 9})
		mustAcquire(t, p)(outcome(ledger.ResultCredentials), 0)
		time.Sleep(time.Minute)
		if closed := mustAcquire(t, p)(outcome(ledger.ResultUnknown), 0); closed != 30*time.Second {
			t.Errorf("closed for %v, want the probe's duration", closed)
		}
		time.Sleep(30 * time.Second)
		mustAcquire(t, p)
	})
}

func TestGate_ThrottlingClosesForThePolicysWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		a, b := newPool(t, g, provider.LimitedProvider{Concurrency: 9}), newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		one, two := mustAcquire(t, a), mustAcquire(t, a)
		if closed := one(outcome(ledger.ResultThrottled), 7*time.Second); closed != 7*time.Second {
			t.Errorf("closed for %v", closed)
		}
		if closed := two(outcome(ledger.ResultThrottled), 20*time.Second); closed != 20*time.Second {
			t.Errorf("closed for %v, want the longer wait", closed)
		}
		refresh(t, b)
		expectClosed(t, b, 20*time.Second)
		time.Sleep(20 * time.Second)
		for range 3 { // no probe is needed: the provider gave the time
			mustAcquire(t, b)
		}
	})
}

func TestGate_ClosesAfterFiveConsecutiveUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Concurrency: 9})
		for range 4 {
			if closed := mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0); closed != 0 {
				t.Fatal("closed too early")
			}
		}
		mustAcquire(t, p)(outcome(ledger.ResultAccepted), 0) // a response resets the count
		for range 4 {
			mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0)
		}
		mustAcquire(t, p)(outcome(ledger.ResultUnknown), 0) // no response does not
		if closed := mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0); closed != 5*time.Second {
			t.Errorf("closed for %v, want 5 s", closed)
		}
	})
}

// A server that takes the mail of other recipients at once answers 4xx for some: the others must not wait for them.
func TestGate_DeferralsCloseNothingAndOpenAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Concurrency: 9})
		for range 40 {
			if closed := mustAcquire(t, p)(outcome(ledger.ResultDeferred), time.Minute); closed != 0 {
				t.Fatalf("closed for %v", closed)
			}
		}
		for range 4 {
			mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0)
		}
		mustAcquire(t, p)(outcome(ledger.ResultDeferred), 0) // an answer resets the count
		for range 4 {
			mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0)
		}
		if closed := mustAcquire(t, p)(outcome(ledger.ResultUnreachable), 0); closed != 5*time.Second {
			t.Fatalf("closed for %v, want 5 s", closed)
		}
		time.Sleep(5 * time.Second)
		if closed := mustAcquire(t, p)(outcome(ledger.ResultDeferred), time.Minute); closed != 0 {
			t.Errorf("after a deferred probe it is closed for %v", closed)
		}
		mustAcquire(t, p)
		mustAcquire(t, p) // not a single probe
	})
}

func TestGate_FailedWriteClosesLocally(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		other := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		first := mustAcquire(t, p)
		g.err = errors.New("down")
		if closed := first(outcome(ledger.ResultCredentials), 0); closed != time.Minute {
			t.Errorf("closed for %v", closed)
		}
		expectClosed(t, p, time.Minute)
		g.err = nil
		refresh(t, p) // the store does not have the change
		expectClosed(t, p, time.Minute)
		mustAcquire(t, other)

		time.Sleep(time.Minute)
		g.err = errors.New("down")
		tries := g.tries
		expectClosed(t, p, time.Second) // a probe must be written first
		expectClosed(t, p, time.Second)
		if g.tries != tries+1 {
			t.Errorf("%d writes attempted while the store is down, want 1", g.tries-tries)
		}
		time.Sleep(time.Second)
		g.err = nil
		mustAcquire(t, p)
		if slot, _ := acquire(p); slot.Held {
			t.Error("two probes at once")
		}
		if g.stored["mail"].Failures != 1 {
			t.Errorf("stored %+v", g.stored["mail"])
		}
	})
}

func TestGate_LocallyClosedIsOpenedByOperatorNotByRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		mustAcquire(t, p)(outcome(ledger.ResultThrottled), time.Second) // now the store has the gate
		time.Sleep(time.Second)
		first := mustAcquire(t, p)
		g.err = errors.New("down")
		first(outcome(ledger.ResultCredentials), 0)
		g.err = nil
		refresh(t, p) // returns the open gate from before
		expectClosed(t, p, time.Minute)
		resumed := g.stored["mail"]
		resumed.ClosedUntil, resumed.Actor = ledger.Moment{}, "ada"
		if _, err := g.UpdateGate(t.Context(), resumed); err != nil {
			t.Fatal(err)
		}
		refresh(t, p)
		mustAcquire(t, p)
	})
}

func TestGate_OperatorChangeIsSeenWithinRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { p.Run(ctx) })
		synctest.Wait()
		paused := ledger.Gate{Provider: "mail", ClosedUntil: ledger.In(time.Hour), Actor: "ada"}
		if _, err := g.UpdateGate(ctx, paused); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expectClosed(t, p, time.Hour-time.Second)
		resumed := g.stored["mail"]
		resumed.ClosedUntil = ledger.Moment{}
		if _, err := g.UpdateGate(ctx, resumed); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		mustAcquire(t, p)
		cancel()
		running.Wait()
	})
}

func TestGate_RestoredStoreIsAdoptedAfterStaleWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 9})
		mustAcquire(t, p)(outcome(ledger.ResultThrottled), time.Second)
		time.Sleep(time.Second)
		g.stored = nil
		if closed := mustAcquire(t, p)(outcome(ledger.ResultCredentials), 0); closed != time.Minute || g.stored["mail"].Failures != 1 {
			t.Errorf("closed for %v, stored %+v", closed, g.stored["mail"])
		}
	})
}

func TestGate_ClosedUntilStoredGatesAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &memoryGates{stored: map[string]ledger.Gate{
			"mail": {Provider: "mail", Version: 3, Failures: 1, ClosedUntil: ledger.At(time.Now().Add(clockAhead + time.Minute))},
		}, err: errors.New("the database is down")}
		p := newPool(t, g, provider.LimitedProvider{Concurrency: 4})
		if free := p.Free("mail"); free != 0 {
			t.Errorf("%d free before the gates were read", free)
		}
		expectClosed(t, p, time.Second)
		g.mu.Lock()
		g.err = nil
		g.mu.Unlock()
		expectClosed(t, p, time.Minute) // it refreshes on its own and finds the gate closed by others
	})
}

func TestGate_ChangeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []bool
		p, err := provider.NewPool(&memoryGates{}, provider.Options{
			Rules:        ledger.DefaultGateRules(30 * time.Second),
			OnGateChange: func(g ledger.Gate) { changes = append(changes, !g.ClosedUntil.IsZero()) },
		}, provider.LimitedProvider{Provider: &stub{name: "mail"}, Concurrency: 4})
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, p)(ledger.Outcome{Result: ledger.ResultAccepted}, 0)
		mustAcquire(t, p)(ledger.Outcome{Result: ledger.ResultCredentials}, 0)
		time.Sleep(61 * time.Second)
		mustAcquire(t, p)(ledger.Outcome{Result: ledger.ResultAccepted}, 0)
		if diff := cmp.Diff([]bool{true, false}, changes); diff != "" {
			t.Errorf("closed (-want +got):\n%s", diff)
		}
	})
}
