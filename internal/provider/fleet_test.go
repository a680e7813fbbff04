package provider_test

import (
	"context"
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
	acts   []ledger.Act
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

func (g *gates) SteerGate(ctx context.Context, gate ledger.Gate, act ledger.Act) (ledger.Gate, error) {
	stands, err := g.SwapGate(ctx, gate)
	if err == nil {
		g.acts = append(g.acts, act)
	}
	return stands, err
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
	code  string
	calls atomic.Int32
}

func (s *stub) Route() ledger.Route { return ledger.Route{Provider: s.name, Fingerprint: "f"} }

func (s *stub) Send(context.Context, ledger.Shipment) ledger.Outcome {
	s.calls.Add(1)
	return ledger.Outcome{Result: ledger.ResultAccepted, Code: s.code, RequestID: s.code}
}

// asker is a provider that finds every key, unless it is silent.
type asker struct {
	stub
	silent bool
	asked  atomic.Int32
}

func (a *asker) Ask(ctx context.Context, sendKey string) (ledger.Finding, ledger.Outcome) {
	a.asked.Add(1)
	if a.silent {
		<-ctx.Done()
		return ledger.Unanswered, ledger.Outcome{Cause: "timeout"}
	}
	return ledger.Found, ledger.Outcome{Receipt: "of " + sendKey}
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

func TestAQuestionReachesItsProviderThroughFullLanesAndClosedGates(t *testing.T) {
	a := &asker{stub: stub{name: "mail"}}
	f := fleet(t, &gates{}, provider.Lane{Provider: a, Timeout: time.Second, Concurrency: 1})
	done := held(t, f)
	for _, when := range []string{"full", "closed"} {
		finding, o := f.Ask(t.Context(), "mail", "k-1")
		if finding != ledger.Found || o != (ledger.Outcome{Receipt: "of k-1"}) {
			t.Errorf("%s: %v %+v", when, finding, o)
		}
		if when == "full" {
			if got := f.Status()[0].InFlight; got != 1 {
				t.Errorf("a question left %d slots taken", got)
			}
			done(result(ledger.ResultCredentials), 0)
			if !f.Shut("mail") {
				t.Error("the gate is open")
			}
		}
	}
	if a.calls.Load() != 0 {
		t.Error("a question sent something")
	}
}

func TestAQuestionEndsWithItsProvidersTimeoutOrWithWhoeverAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{stub: stub{name: "mail"}, silent: true}
		f := fleet(t, &gates{}, provider.Lane{Provider: a, Timeout: 10 * time.Second})
		for patience, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second, time.Second: time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			began := time.Now()
			finding, o := f.Ask(ctx, "mail", "k-1")
			if took := time.Since(began); finding != ledger.Unanswered || o.Cause != "timeout" || took != want {
				t.Errorf("%v %+v after %v, want it after %v", finding, o, took, want)
			}
			cancel()
		}
		if a.asked.Load() != 2 {
			t.Errorf("asked %d times", a.asked.Load())
		}
	})
}

func TestWhoCannotBeAskedGivesNoAnswer(t *testing.T) {
	f := fleet(t, &gates{}, provider.Lane{Timeout: time.Second})
	for name, cause := range map[string]string{"mail": "cannot_be_asked", "other": "not_configured"} {
		if finding, o := f.Ask(t.Context(), name, "k-1"); finding != ledger.Unanswered || o != (ledger.Outcome{Cause: cause}) {
			t.Errorf("%s: %v %+v", name, finding, o)
		}
	}
}
