package provider_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

// gates is a ledger's gates, on a clock that is an hour ahead of this host's.
type gates struct {
	mu     sync.Mutex
	kept   map[string]ledger.Gate
	writes int
	tries  int
	fails  error
}

const ahead = time.Hour

func (g *gates) Gates(context.Context) ([]ledger.Gate, time.Time, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []ledger.Gate
	for _, gate := range g.kept {
		all = append(all, gate)
	}
	return all, time.Now().Add(ahead), g.fails
}

func (g *gates) SwapGate(_ context.Context, gate ledger.Gate) (ledger.Gate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tries++
	if g.fails != nil {
		return ledger.Gate{}, g.fails
	}
	if g.kept[gate.Provider].Version != gate.Version {
		return ledger.Gate{}, ledger.ErrStale
	}
	gate.ClosedUntil = ledger.At(gate.ClosedUntil.On(time.Now().Add(ahead)))
	gate.Version++
	if g.kept == nil {
		g.kept = map[string]ledger.Gate{}
	}
	g.kept[gate.Provider] = gate
	g.writes++
	return gate, nil
}

// stub is a provider that says what it is told.
type stub struct {
	name  string
	calls atomic.Int32
}

func (s *stub) Route() ledger.Route { return ledger.Route{Provider: s.name, Fingerprint: "f"} }

func (s *stub) Send(context.Context, ledger.Shipment) ledger.Outcome {
	s.calls.Add(1)
	return ledger.Outcome{Result: ledger.ResultAccepted}
}

func fleet(t *testing.T, g *gates, lane provider.Lane) *provider.Fleet {
	t.Helper()
	if lane.Provider == nil {
		lane.Provider = &stub{name: "mail"}
	}
	rules := ledger.DefaultGateRules(30 * time.Second)
	f, err := provider.NewFleet(g, provider.Options{Rules: rules}, lane)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Look(t.Context()); err != nil && g.fails == nil {
		t.Fatal(err)
	}
	return f
}

type release = func(ledger.Outcome, time.Duration) time.Duration

// take asks with a patience of 100 ms.
func take(f *provider.Fleet) (ledger.Slot, release) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	return f.Take(ctx, "mail")
}

func held(t *testing.T, f *provider.Fleet) release {
	t.Helper()
	slot, done := take(f)
	if !slot.Held || done == nil || slot.Provider != "mail" {
		t.Fatalf("no slot: %+v", slot)
	}
	return done
}

func shut(t *testing.T, f *provider.Fleet, wait time.Duration) {
	t.Helper()
	slot, done := take(f)
	want := ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: wait}
	if diff := cmp.Diff(want, slot); diff != "" || done != nil {
		t.Fatalf("not shut: %s", diff)
	}
}

func result(r ledger.Result) ledger.Outcome { return ledger.Outcome{Result: r} }

func look(t *testing.T, f *provider.Fleet) {
	t.Helper()
	if err := f.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAFleetNeedsNamesThatTellItsProvidersApart(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "a"}} {
		var lanes []provider.Lane
		for _, name := range names {
			lanes = append(lanes, provider.Lane{Provider: &stub{name: name}})
		}
		if _, err := provider.NewFleet(&gates{}, provider.Options{}, lanes...); err == nil {
			t.Errorf("%q: accepted", names)
		}
	}
}

func TestAProviderThatIsNotConfiguredIsNeverCalled(t *testing.T) {
	f := fleet(t, &gates{}, provider.Lane{Timeout: time.Second})
	if f.Route("other") != (ledger.Route{}) || f.Timeout("other") != 0 || f.Free("other") != 0 {
		t.Error("it is known")
	}
	if slot, done := f.Take(t.Context(), "other"); slot.Held || done != nil || slot.Wait <= 0 {
		t.Errorf("a slot: %+v", slot)
	}
	if o := f.Send(t.Context(), "other", ledger.Shipment{}); o.Result != ledger.ResultNotCalled {
		t.Errorf("got %+v", o)
	}
	if f.Timeout("mail") != time.Second || f.Route("mail").Fingerprint != "f" || !cmp.Equal(f.Names(), []string{"mail"}) {
		t.Error("the one that is configured is not known")
	}
}

func TestACallWhoseTimeIsOverIsNotMade(t *testing.T) {
	s := &stub{name: "mail"}
	f := fleet(t, &gates{}, provider.Lane{Provider: s})
	ctx, cancel := context.WithCancel(t.Context())
	if o := f.Send(ctx, "mail", ledger.Shipment{}); o.Result != ledger.ResultAccepted {
		t.Errorf("in time: %+v", o)
	}
	cancel()
	if o := f.Send(ctx, "mail", ledger.Shipment{}); o.Result != ledger.ResultNotCalled || s.calls.Load() != 1 {
		t.Errorf("too late: %+v after %d calls", o, s.calls.Load())
	}
}

func TestNoMoreCallsAreInFlightThanTheLaneTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Concurrency: 2})
		first, second := held(t, f), held(t, f)
		if got := f.Status()[0]; f.Free("mail") != 0 || got.InFlight != 2 || got.Capacity != 2 || !got.View.Open {
			t.Errorf("free %d, status %+v", f.Free("mail"), got)
		}
		began := time.Now()
		slot, done := take(f)
		if slot.Held || slot.Reason != ledger.ReasonNoCapacity || slot.Wait < time.Second || done != nil {
			t.Errorf("a third: %+v", slot)
		}
		if waited := time.Since(began); waited != 100*time.Millisecond {
			t.Errorf("it waited %v, not its patience", waited)
		}
		go func() {
			time.Sleep(50 * time.Millisecond) // the bubble's clock
			first(result(ledger.ResultAccepted), 0)
			first(result(ledger.ResultAccepted), 0) // a second release frees nothing
		}()
		held(t, f)
		if slot, _ := take(f); slot.Held {
			t.Error("a release that was called twice freed two places")
		}
		second(result(ledger.ResultNotCalled), 0)
		if f.Free("mail") != 1 {
			t.Error("a release without a call frees nothing")
		}
	})
}

func TestCallsBeginNoFasterThanTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Rate: 50, Concurrency: 1000})
		began := time.Now()
		var starts []time.Duration
		for time.Since(began) < 4*time.Second {
			if slot, done := take(f); slot.Held {
				starts = append(starts, time.Since(began))
				done(result(ledger.ResultAccepted), 0)
			}
		}
		if len(starts) < 200 {
			t.Errorf("%d starts in 4 s at 50/s", len(starts))
		}
		for i := range starts {
			if i >= 55 && starts[i]-starts[i-55] < time.Second {
				t.Fatalf("56 starts within %v", starts[i]-starts[i-55])
			}
		}
	})
}

func TestWhoIsLessPatientThanTheRateIsToldWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fleet(t, &gates{}, provider.Lane{Rate: 0.1, Concurrency: 5})
		held(t, f)
		began := time.Now()
		slot, _ := take(f)
		if slot.Held || slot.Reason != ledger.ReasonNoCapacity || slot.Wait != 10*time.Second || time.Since(began) != 0 {
			t.Errorf("%+v after %v", slot, time.Since(began))
		}
		if free := f.Free("mail"); free != 0 {
			t.Errorf("%d free", free)
		}
		time.Sleep(10 * time.Second)
		held(t, f)
	})
}

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
