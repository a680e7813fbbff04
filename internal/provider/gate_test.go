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

func TestTwentyRejectionsOfOurCredentialsStrikeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		replicas := []*provider.Fleet{
			fleet(t, g, provider.Lane{Concurrency: 10}), fleet(t, g, provider.Lane{Concurrency: 10}),
		}
		var releases []release
		for i := range 20 {
			releases = append(releases, held(t, replicas[i%2]))
		}
		var group sync.WaitGroup
		for _, done := range releases {
			group.Go(func() {
				if closed := done(result(ledger.ResultCredentials), 0); closed != time.Minute {
					t.Errorf("closed for %v, want 1 min", closed)
				}
			})
		}
		group.Wait()
		if got := g.kept["mail"]; got.Strikes != 1 || g.writes != 1 || got.Class != ledger.ClassCredentials {
			t.Errorf("%d writes, gate %+v", g.writes, got)
		}
	})
}

func TestAClosedGateIsSeenByTheOtherReplicaAndOpensForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		a, b := fleet(t, g, provider.Lane{Concurrency: 9}), fleet(t, g, provider.Lane{Concurrency: 9})
		if closed := held(t, a)(result(ledger.ResultCredentials), 0); closed != time.Minute {
			t.Fatalf("closed for %v", closed)
		}
		shut(t, a, time.Minute)
		held(t, b)(result(ledger.ResultNotCalled), 0) // b has not looked yet
		look(t, b)
		shut(t, b, time.Minute)
		if a.Free("mail")+b.Free("mail") != 0 || a.Status()[0].View.Open {
			t.Error("a closed gate shows capacity")
		}

		wait := time.Minute
		for opening := range 3 {
			time.Sleep(wait)
			if a.Free("mail") != 1 || b.Free("mail") != 1 {
				t.Error("a gate that waits for one shows more, or nothing")
			}
			probes := make(chan release, 20)
			var group sync.WaitGroup
			for i := range 20 {
				group.Go(func() {
					if _, done := take([]*provider.Fleet{a, b}[i%2]); done != nil {
						probes <- done
					}
				})
			}
			group.Wait()
			if len(probes) != 1 {
				t.Fatalf("opening %d: %d tried the gate", opening, len(probes))
			}
			wait = min(wait*2, 15*time.Minute)
			if closed := (<-probes)(result(ledger.ResultCredentials), 0); closed != wait {
				t.Fatalf("opening %d: closed for %v, want %v", opening, closed, wait)
			}
			look(t, a)
			look(t, b)
		}

		time.Sleep(wait)
		if closed := held(t, a)(result(ledger.ResultAccepted), 0); closed != 0 {
			t.Errorf("closed for %v after the probe was accepted", closed)
		}
		look(t, b)
		for range 2 {
			held(t, a)
			held(t, b)
		}
	})
}

func TestAProbeThatCalledNobodyLeavesTheGateToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Concurrency: 9})
		held(t, f)(result(ledger.ResultCredentials), 0)
		time.Sleep(time.Minute)
		probe := held(t, f)
		if slot, _ := take(f); slot.Held || slot.Wait != 30*time.Second {
			t.Errorf("beside the probe: %+v", slot)
		}
		if closed := probe(result(ledger.ResultNotCalled), 0); closed != 0 {
			t.Errorf("closed for %v", closed)
		}
		held(t, f)
		if slot, _ := take(f); slot.Held {
			t.Error("two at once")
		}
	})
}

func TestAProbeThatStaysSilentIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Concurrency: 9})
		held(t, f)(result(ledger.ResultCredentials), 0)
		time.Sleep(time.Minute)
		if closed := held(t, f)(result(ledger.ResultUnknown), 0); closed != 30*time.Second {
			t.Errorf("closed for %v, want the probe's time", closed)
		}
		time.Sleep(30 * time.Second)
		held(t, f)
	})
}

func TestThrottlingClosesForAsLongAsThePolicyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		a, b := fleet(t, g, provider.Lane{Concurrency: 9}), fleet(t, g, provider.Lane{Concurrency: 9})
		one, two := held(t, a), held(t, a)
		if closed := one(result(ledger.ResultThrottled), 7*time.Second); closed != 7*time.Second {
			t.Errorf("closed for %v", closed)
		}
		if closed := two(result(ledger.ResultThrottled), 20*time.Second); closed != 20*time.Second {
			t.Errorf("the longer wait counts: %v", closed)
		}
		look(t, b)
		shut(t, b, 20*time.Second)
		time.Sleep(20 * time.Second)
		for range 3 { // nobody has to try: it said when
			held(t, b)
		}
	})
}

func TestAnOutageClosesAfterFiveInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Concurrency: 9})
		for range 4 {
			if closed := held(t, f)(result(ledger.ResultUnreachable), 0); closed != 0 {
				t.Fatal("closed too early")
			}
		}
		held(t, f)(result(ledger.ResultAccepted), 0) // an answer ends the row
		for range 4 {
			held(t, f)(result(ledger.ResultUnreachable), 0)
		}
		held(t, f)(result(ledger.ResultUnknown), 0) // silence does not
		if closed := held(t, f)(result(ledger.ResultUnreachable), 0); closed != 5*time.Second {
			t.Errorf("closed for %v, want 5 s", closed)
		}
	})
}

func TestAGateThatCannotBeWrittenClosesHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		other := fleet(t, g, provider.Lane{Concurrency: 9})
		first := held(t, f)
		g.fails = errors.New("down")
		if closed := first(result(ledger.ResultCredentials), 0); closed != time.Minute {
			t.Errorf("closed for %v", closed)
		}
		shut(t, f, time.Minute)
		g.fails = nil
		look(t, f) // the store knows nothing of it
		shut(t, f, time.Minute)
		held(t, other)

		time.Sleep(time.Minute)
		g.fails = errors.New("down")
		tries := g.tries
		shut(t, f, time.Second) // who tries must be able to say so
		shut(t, f, time.Second)
		if g.tries != tries+1 {
			t.Errorf("%d tries of a store that is down", g.tries-tries)
		}
		time.Sleep(time.Second)
		g.fails = nil
		held(t, f)
		if slot, _ := take(f); slot.Held {
			t.Error("two at once")
		}
		if g.kept["mail"].Strikes != 1 {
			t.Errorf("kept %+v", g.kept["mail"])
		}
	})
}

func TestALookDoesNotOpenWhatClosedHereButAPersonDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		held(t, f)(result(ledger.ResultThrottled), time.Second) // now the store knows a gate
		time.Sleep(time.Second)
		first := held(t, f)
		g.fails = errors.New("down")
		first(result(ledger.ResultCredentials), 0)
		g.fails = nil
		look(t, f) // shows the open gate of before
		shut(t, f, time.Minute)
		resumed := g.kept["mail"]
		resumed.ClosedUntil, resumed.By = ledger.Moment{}, "ada"
		if _, err := g.SwapGate(t.Context(), resumed); err != nil {
			t.Fatal(err)
		}
		look(t, f)
		held(t, f)
	})
}

func TestAPersonsWordIsSeenWithinTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		synctest.Wait()
		paused := ledger.Gate{Provider: "mail", ClosedUntil: ledger.In(time.Hour), By: "ada"}
		if _, err := g.SwapGate(ctx, paused); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		shut(t, f, time.Hour-time.Second)
		resumed := g.kept["mail"]
		resumed.ClosedUntil = ledger.Moment{}
		if _, err := g.SwapGate(ctx, resumed); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		held(t, f)
		cancel()
		running.Wait()
	})
}

func TestARestoredStoreIsBelievedAfterAWriteThatItCallsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{}
		f := fleet(t, g, provider.Lane{Concurrency: 9})
		held(t, f)(result(ledger.ResultThrottled), time.Second)
		time.Sleep(time.Second)
		g.kept = nil
		if closed := held(t, f)(result(ledger.ResultCredentials), 0); closed != time.Minute || g.kept["mail"].Strikes != 1 {
			t.Errorf("closed for %v, kept %+v", closed, g.kept["mail"])
		}
	})
}

func TestAReplicaThatHasNotReadTheGatesCallsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gates{kept: map[string]ledger.Gate{
			"mail": {Provider: "mail", Version: 3, Strikes: 1, ClosedUntil: ledger.At(time.Now().Add(ahead + time.Minute))},
		}, fails: errors.New("the database is away")}
		f := fleet(t, g, provider.Lane{Concurrency: 4})
		if free := f.Free("mail"); free != 0 {
			t.Errorf("%d free before the gates were read", free)
		}
		shut(t, f, time.Second)
		g.mu.Lock()
		g.fails = nil
		g.mu.Unlock()
		shut(t, f, time.Minute) // it looks by itself, and finds what others closed
	})
}

func TestAMovedGateIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		f, err := provider.NewFleet(&gates{}, provider.Options{
			Rules: ledger.DefaultGateRules(30 * time.Second),
			Moved: func(g ledger.Gate) { told = append(told, !g.ClosedUntil.IsZero()) },
		}, provider.Lane{Provider: &stub{name: "mail"}, Concurrency: 4})
		if err != nil {
			t.Fatal(err)
		}
		held(t, f)(ledger.Outcome{Result: ledger.ResultAccepted}, 0)
		held(t, f)(ledger.Outcome{Result: ledger.ResultCredentials}, 0)
		time.Sleep(61 * time.Second)
		held(t, f)(ledger.Outcome{Result: ledger.ResultAccepted}, 0)
		if diff := cmp.Diff([]bool{true, false}, told); diff != "" {
			t.Errorf("closed (-want +got):\n%s", diff)
		}
	})
}
