package provider_test

import (
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

// memoryGates implements provider.Gates in memory. Its clock is an hour ahead of this host's.
type memoryGates struct {
	mu     sync.Mutex
	audit  []ledger.AuditEvent
	stored map[string]ledger.Gate
	writes int
	tries  int
	err    error // returned by every call, if not nil
}

const clockAhead = time.Hour

func (g *memoryGates) Gates(context.Context) ([]ledger.Gate, time.Time, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []ledger.Gate
	for _, gate := range g.stored {
		all = append(all, gate)
	}
	return all, time.Now().Add(clockAhead), g.err
}

func (g *memoryGates) UpdateGateByOperator(ctx context.Context, gate ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error) {
	stored, err := g.UpdateGate(ctx, gate)
	if err == nil {
		g.audit = append(g.audit, audit)
	}
	return stored, err
}

func (g *memoryGates) UpdateGate(_ context.Context, gate ledger.Gate) (ledger.Gate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tries++
	if g.err != nil {
		return ledger.Gate{}, g.err
	}
	if g.stored[gate.Provider].Version != gate.Version {
		return ledger.Gate{}, ledger.ErrStale
	}
	gate.ClosedUntil = ledger.At(gate.ClosedUntil.On(time.Now().Add(clockAhead)))
	gate.Version++
	if g.stored == nil {
		g.stored = map[string]ledger.Gate{}
	}
	g.stored[gate.Provider] = gate
	g.writes++
	return gate, nil
}

// stub is a provider that accepts everything and returns a fixed code.
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

// lookupStub is a provider whose lookup finds every key, or never responds.
type lookupStub struct {
	stub
	silent  bool
	lookups atomic.Int32
}

func (s *lookupStub) Lookup(ctx context.Context, sendKey string) (ledger.LookupResult, ledger.Outcome) {
	s.lookups.Add(1)
	if s.silent {
		<-ctx.Done()
		return ledger.LookupUnanswered, ledger.Outcome{Cause: "timeout"}
	}
	return ledger.LookupFound, ledger.Outcome{Receipt: "of " + sendKey}
}

func newPool(t *testing.T, g *memoryGates, limits provider.LimitedProvider) *provider.Pool {
	t.Helper()
	if limits.Provider == nil {
		limits.Provider = &stub{name: "mail"}
	}
	rules := ledger.DefaultGateRules(30 * time.Second)
	p, err := provider.NewPool(g, provider.Options{Rules: rules}, limits)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Refresh(t.Context()); err != nil && g.err == nil {
		t.Fatal(err)
	}
	return p
}

type release = func(ledger.Outcome, time.Duration) time.Duration

// acquire requests a slot and waits at most 100 ms for it.
func acquire(p *provider.Pool) (ledger.Slot, release) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	return p.Acquire(ctx, "mail")
}

func mustAcquire(t *testing.T, p *provider.Pool) release {
	t.Helper()
	slot, done := acquire(p)
	if !slot.Held || done == nil || slot.Provider != "mail" {
		t.Fatalf("no slot: %+v", slot)
	}
	return done
}

func expectClosed(t *testing.T, p *provider.Pool, wait time.Duration) {
	t.Helper()
	slot, done := acquire(p)
	want := ledger.Slot{Provider: "mail", Reason: ledger.ReasonGateClosed, Wait: wait}
	if diff := cmp.Diff(want, slot); diff != "" || done != nil {
		t.Fatalf("the gate is not closed: %s", diff)
	}
}

func outcome(r ledger.Result) ledger.Outcome { return ledger.Outcome{Result: r} }

func refresh(t *testing.T, p *provider.Pool) {
	t.Helper()
	if err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNewPool_NamesMustBeUniqueAndNotEmpty(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "a"}} {
		var limits []provider.LimitedProvider
		for _, name := range names {
			limits = append(limits, provider.LimitedProvider{Provider: &stub{name: name}})
		}
		if _, err := provider.NewPool(&memoryGates{}, provider.Options{}, limits...); err == nil {
			t.Errorf("%q: accepted", names)
		}
	}
}

func TestPool_UnconfiguredProviderIsNeverCalled(t *testing.T) {
	p := newPool(t, &memoryGates{}, provider.LimitedProvider{Timeout: time.Second})
	if p.Route("other") != (ledger.Route{}) || p.Timeout("other") != 0 || p.Free("other") != 0 {
		t.Error("an unconfigured provider is known")
	}
	if slot, done := p.Acquire(t.Context(), "other"); slot.Held || done != nil || slot.Wait <= 0 {
		t.Errorf("got a slot: %+v", slot)
	}
	if o := p.Send(t.Context(), "other", ledger.Shipment{}); o.Result != ledger.ResultNotCalled {
		t.Errorf("got %+v", o)
	}
	if p.Timeout("mail") != time.Second || p.Route("mail").Fingerprint != "f" || !cmp.Equal(p.Names(), []string{"mail"}) {
		t.Error("the configured provider is not known")
	}
}

func TestPoolSend_ExpiredContextMakesNoCall(t *testing.T) {
	s := &stub{name: "mail"}
	p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: s})
	ctx, cancel := context.WithCancel(t.Context())
	if o := p.Send(ctx, "mail", ledger.Shipment{}); o.Result != ledger.ResultAccepted {
		t.Errorf("before the context ended: %+v", o)
	}
	cancel()
	if o := p.Send(ctx, "mail", ledger.Shipment{}); o.Result != ledger.ResultNotCalled || s.calls.Load() != 1 {
		t.Errorf("after the context ended: %+v after %d calls", o, s.calls.Load())
	}
}

func TestPoolSend_CodeContainingRecipientIsDropped(t *testing.T) {
	for code, want := range map[string]string{
		"no such user: Ada@Example.org": "", "550 5.1.1": "550 5.1.1", "": "",
	} {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: &stub{name: "mail", code: code}, Concurrency: 1})
		o := p.Send(t.Context(), "mail", ledger.Shipment{Recipient: "ada@example.org"})
		if o.Code != want || o.RequestID != want || o.Result != ledger.ResultAccepted {
			t.Errorf("%q: %+v", code, o)
		}
		if o := p.Send(t.Context(), "mail", ledger.Shipment{}); o.Code != code {
			t.Errorf("%q without a recipient: %+v", code, o)
		}
	}
}

func TestPoolSend_CodeContainingEncodedRecipientIsDropped(t *testing.T) {
	const recipient = "ada+seat@example.org"
	encoded := map[string]string{
		"percent":            "ada%2Bseat%40example.org",
		"percent lower case": "to=ADA%2bseat%40Example%2eorg!",
		"percent twice":      "ada%252Bseat%2540example.org",
		"every byte":         "%61%64%61%2B%73%65%61%74%40%65%78%61%6D%70%6C%65%2E%6F%72%67",
		"plus as a space":    "ada seat@example.org",
		"quoted printable":   "ada=2Bseat=40example.org",
		"JSON escape":        `ada\u002bseat\u0040example.org`,
		"HTML":               "ada&#43;seat&#64;example.org",
		"xtext":              "rfc822;ada+2Bseat@example.org",
		"cut":                "no mailbox: ada+seat@exampl",
		"quoted local part":  `<"ada+seat"@example.org>`,
	}
	for name, e := range map[string]*base64.Encoding{
		"std": base64.StdEncoding, "raw std": base64.RawStdEncoding, "URL": base64.URLEncoding, "raw URL": base64.RawURLEncoding,
	} {
		for _, before := range []string{"", "x", "to:", "<<??>>", "user=\xff\xfe"} {
			text := e.EncodeToString([]byte(before + recipient + "?>"))
			encoded[name+" after "+before] = text
			encoded[name+" within a word after "+before] = "err_" + text + "z"
			encoded[name+" percent after "+before] = "id=" + url.QueryEscape(text)
			encoded[name+" capitals after "+before] = e.EncodeToString([]byte(before + strings.ToUpper(recipient)))
		}
	}
	for name, code := range encoded {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: &stub{name: "mail", code: code}, Concurrency: 1})
		if o := p.Send(t.Context(), "mail", ledger.Shipment{Recipient: recipient}); o.Code != "" || o.RequestID != "" {
			t.Errorf("%s: code %q, request id %q", name, o.Code, o.RequestID)
		}
	}
	for _, code := range []string{
		"550 5.1.1", "100%", "%zz%4", "YWRh", "invalid_recipient", "req-0af7651916cd43dd8448eb211c80319c", "====", "_-_-_",
		base64.StdEncoding.EncodeToString([]byte("grace@example.org")),
	} {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: &stub{name: "mail", code: code}, Concurrency: 1})
		if o := p.Send(t.Context(), "mail", ledger.Shipment{Recipient: recipient}); o.Code != code || o.RequestID != code {
			t.Errorf("%q: code %q, request id %q", code, o.Code, o.RequestID)
		}
	}
}

func TestPoolAcquire_CallsInFlightStayWithinConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Concurrency: 2})
		first, second := mustAcquire(t, p), mustAcquire(t, p)
		if got := p.Status()[0]; p.Free("mail") != 0 || got.InFlight != 2 || got.Capacity != 2 || !got.GateStatus.Open {
			t.Errorf("free %d, status %+v", p.Free("mail"), got)
		}
		start := time.Now()
		slot, done := acquire(p)
		if slot.Held || slot.Reason != ledger.ReasonNoCapacity || slot.Wait < time.Second || done != nil {
			t.Errorf("third slot: %+v", slot)
		}
		if waited := time.Since(start); waited != 100*time.Millisecond {
			t.Errorf("waited %v, want 100ms", waited)
		}
		go func() {
			time.Sleep(50 * time.Millisecond) // the bubble's clock
			first(outcome(ledger.ResultAccepted), 0)
			first(outcome(ledger.ResultAccepted), 0) // a second release frees nothing
		}()
		mustAcquire(t, p)
		if slot, _ := acquire(p); slot.Held {
			t.Error("a release called twice freed two slots")
		}
		second(outcome(ledger.ResultNotCalled), 0)
		if p.Free("mail") != 1 {
			t.Error("a release without a call did not free its slot")
		}
	})
}

func TestPoolAcquire_CallsStartWithinRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Rate: 50, Concurrency: 1000})
		start := time.Now()
		var starts []time.Duration
		for time.Since(start) < 4*time.Second {
			if slot, done := acquire(p); slot.Held {
				starts = append(starts, time.Since(start))
				done(outcome(ledger.ResultAccepted), 0)
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

func TestPoolAcquire_ReturnsWaitForNextToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Rate: 0.1, Concurrency: 5})
		mustAcquire(t, p)
		start := time.Now()
		slot, _ := acquire(p)
		if slot.Held || slot.Reason != ledger.ReasonNoCapacity || slot.Wait != 10*time.Second || time.Since(start) != 0 {
			t.Errorf("%+v after %v", slot, time.Since(start))
		}
		if free := p.Free("mail"); free != 0 {
			t.Errorf("%d free", free)
		}
		time.Sleep(10 * time.Second)
		mustAcquire(t, p)
	})
}

func TestPoolLookup_IgnoresConcurrencyAndGate(t *testing.T) {
	s := &lookupStub{stub: stub{name: "mail"}}
	p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: s, Timeout: time.Second, Concurrency: 1})
	done := mustAcquire(t, p)
	for _, when := range []string{"full", "closed"} {
		result, o := p.Lookup(t.Context(), "mail", "k-1")
		if result != ledger.LookupFound || o != (ledger.Outcome{Receipt: "of k-1"}) {
			t.Errorf("%s: %v %+v", when, result, o)
		}
		if when == "full" {
			if got := p.Status()[0].InFlight; got != 1 {
				t.Errorf("%d slots are in use after a lookup, want 1", got)
			}
			done(outcome(ledger.ResultCredentials), 0)
			if !p.Closed("mail") {
				t.Error("the gate is open")
			}
		}
	}
	if s.calls.Load() != 0 {
		t.Error("a lookup sent a message")
	}
}

func TestPoolLookup_EndsWithTimeoutOrContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &lookupStub{stub: stub{name: "mail"}, silent: true}
		p := newPool(t, &memoryGates{}, provider.LimitedProvider{Provider: s, Timeout: 10 * time.Second})
		for limit, want := range map[time.Duration]time.Duration{time.Minute: 10 * time.Second, time.Second: time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			start := time.Now()
			result, o := p.Lookup(ctx, "mail", "k-1")
			if took := time.Since(start); result != ledger.LookupUnanswered || o.Cause != "timeout" || took != want {
				t.Errorf("%v %+v after %v, want %v", result, o, took, want)
			}
			cancel()
		}
		if s.lookups.Load() != 2 {
			t.Errorf("%d lookups, want 2", s.lookups.Load())
		}
	})
}

func TestPoolLookup_UnsupportedIsUnanswered(t *testing.T) {
	p := newPool(t, &memoryGates{}, provider.LimitedProvider{Timeout: time.Second})
	for name, cause := range map[string]string{"mail": "lookup_unsupported", "other": "not_configured"} {
		if result, o := p.Lookup(t.Context(), name, "k-1"); result != ledger.LookupUnanswered || o != (ledger.Outcome{Cause: cause}) {
			t.Errorf("%s: %v %+v", name, result, o)
		}
	}
}
