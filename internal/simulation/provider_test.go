package simulation_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// simProvider is one account at a provider, and records what it really accepted. A changed fingerprint is another
// account.
type simProvider struct {
	sim      *simulation
	route    ledger.Route
	rnd      *randSource
	lag      time.Duration // how long lookups do not find a message that it accepted
	mu       sync.Mutex
	accepted map[string]acceptance
}

type acceptance struct {
	at      time.Time
	receipt string
}

// accept accepts a shipment, or recognises a repeat where the contract says so. A key's age is judged by when its
// request arrived.
func (p *simProvider) accept(s ledger.Shipment, received time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, ok := p.accepted[s.SendKey]
	if ok && p.route.Contract.Kind == ledger.ContractIdempotent && received.Sub(known.at) < p.route.Contract.Window {
		return known.receipt
	}
	n := p.sim.recordSend(s.Identity, p.route.Fingerprint)
	got := acceptance{time.Now(), fmt.Sprintf("%s-%s-%d", p.route.Fingerprint, s.ReminderID, n)}
	p.accepted[s.SendKey] = got
	p.sim.background.Go(func() { p.sendStatusEvents(s.Identity, got.receipt, n) })
	return got.receipt
}

// behavior is what a provider does with one call.
type behavior int

// The behaviors. Those before refuses are delayed.
const (
	accepts behavior = iota
	acceptsResponseLost
	acceptsNeverResponds
	acceptsLater
	acceptsWithoutReceipt
	neverResponds
	refuses
	recipientGone
	throttles
	badCredentials
	panics
	acceptsAndPanics
	closesConnection
	unreachable
	defers
	behaviors
)

func (b behavior) fault() fault {
	return fault("a provider " + []string{
		"accepts", "accepts, and its response is lost", "accepts, and never responds", "accepts after the call has ended",
		"accepts, and its receipt cannot be read", "accepts nothing, and never responds", "refuses the content",
		"refuses the recipient", "throttles", "refuses the credentials", "panics before the call", "accepts, and the adapter panics",
		"accepts nothing, and closes the connection", "is unreachable", "defers it",
	}[b])
}

// callPlan is what happens to one call.
type callPlan struct {
	behavior
	delay     time.Duration // before the provider acts
	late      time.Duration // how long a message stays in the provider's queue, or the Retry-After
	cancelled bool          // somebody cancels the reminder during the call
}

// planCall draws what happens to one call. Once no more faults are injected, every call is accepted.
func (sim *simulation) planCall(rnd *randSource, id ledger.Identity) (t callPlan) {
	if !sim.faulty.Load() {
		return callPlan{}
	}
	total := 0
	for _, weight := range sim.weights {
		total += weight
	}
	roll := rnd.intN(total)
	for roll >= sim.weights[t.behavior] {
		roll -= sim.weights[t.behavior]
		t.behavior++
	}
	sim.record(t.fault(), id.ReminderID)
	if t.behavior < refuses {
		t.delay = rnd.upTo([]time.Duration{2, 2_000, 27_000}[rnd.intN(3)] * time.Millisecond)
	}
	t.late = rnd.upTo(30 * time.Second)
	t.cancelled = rnd.intN(8) == 0
	return t
}

// Route implements [provider.Provider].
func (p *simProvider) Route() ledger.Route { return p.route }

// Send implements [provider.Provider].
func (p *simProvider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	rnd, received := p.sim.rndOf[s.Identity], time.Now()
	t := p.sim.planCall(rnd, s.Identity)
	p.sim.checkCall(s, p.route)
	if t.cancelled {
		p.sim.background.Go(func() { p.sim.cancel(s.Identity, p.sim.pickReplica(rnd)) })
	}
	if t.delay > 0 {
		select {
		case <-time.After(t.delay):
		case <-ctx.Done():
			return ledger.Outcome{Cause: "timeout"} // nothing was accepted, but the caller cannot know
		}
	}
	switch t.behavior {
	case accepts:
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: p.accept(s, received)}
	case acceptsResponseLost:
		p.accept(s, received)
		return ledger.Outcome{Cause: "reset"}
	case acceptsNeverResponds:
		p.accept(s, received)
		<-ctx.Done()
		return ledger.Outcome{Cause: "timeout"}
	case acceptsLater: // it stays in the provider's queue past the deadline
		<-ctx.Done()
		p.sim.background.Go(func() { time.Sleep(t.late); p.accept(s, received) })
		return ledger.Outcome{Cause: "timeout"}
	case acceptsWithoutReceipt:
		p.accept(s, received)
		return ledger.Outcome{Result: ledger.ResultAccepted}
	case neverResponds:
		<-ctx.Done()
		return ledger.Outcome{Cause: "timeout"}
	case refuses:
		return ledger.Outcome{Result: ledger.ResultRefused}
	case recipientGone:
		return ledger.Outcome{Result: ledger.ResultGone}
	case throttles:
		return ledger.Outcome{Result: ledger.ResultThrottled, RetryAfter: t.late}
	case badCredentials:
		return ledger.Outcome{Result: ledger.ResultCredentials}
	case panics:
		panic("adapter")
	case acceptsAndPanics:
		p.accept(s, received)
		panic("adapter, after the call")
	case closesConnection:
		return ledger.Outcome{Cause: "eof"}
	case defers:
		return ledger.Outcome{Result: ledger.ResultDeferred}
	default:
		return ledger.Outcome{Result: ledger.ResultUnreachable}
	}
}

// Lookup implements [provider.Looker]. By its contract a provider never answers "found" for a message that it did
// not accept. For one that it accepted it may answer "not found", or not answer.
func (p *simProvider) Lookup(ctx context.Context, key string) (ledger.LookupResult, ledger.Outcome) {
	p.sim.count(lookups, 1)
	faulty := p.sim.faulty.Load()
	if faulty {
		time.Sleep(p.rnd.upTo([]time.Duration{time.Second, 12 * time.Second}[p.rnd.intN(2)]))
	}
	p.mu.Lock()
	known, took := p.accepted[key]
	p.mu.Unlock()
	fresh := took && time.Since(known.at) < p.lag
	switch {
	case ctx.Err() != nil, faulty && p.rnd.intN(6) == 0:
		p.sim.record(lookupUnanswered, p.route.Fingerprint)
		return ledger.LookupUnanswered, ledger.Outcome{Cause: "timeout"}
	case fresh, took && faulty && p.rnd.intN(8) == 0:
		p.sim.record(lookupDenied, p.route.Fingerprint)
		return ledger.LookupNotFound, ledger.Outcome{Cause: "status", Status: 404}
	case !took:
		return ledger.LookupNotFound, ledger.Outcome{Cause: "status", Status: 404}
	case p.rnd.intN(8) == 0:
		return ledger.LookupFound, ledger.Outcome{Status: 200} // without a receipt
	default:
		return ledger.LookupFound, ledger.Outcome{Status: 200, Receipt: known.receipt}
	}
}

// sendStatusEvents sends status events about a reminder, if this provider sends any: that it was accepted, and what
// happened to it later. Some are sent twice, and each until a replica has recorded it.
func (p *simProvider) sendStatusEvents(id ledger.Identity, receipt string, n int) {
	rnd := p.sim.rand(statusActor + 100*n + int(id.SendKey()[0]) + 256*int(id.SendKey()[1]))
	if rnd.intN(3) > 0 {
		return
	}
	time.Sleep(rnd.upTo(90 * time.Second))
	kinds := []ledger.StatusKind{ledger.StatusAccepted, ledger.StatusKinds()[1+rnd.intN(4)]}
	for _, kind := range kinds[rnd.intN(2):] {
		report := ledger.StatusEvent{
			Identity: id, Kind: kind, Provider: p.route.Provider, MessageID: fmt.Sprintf("%s-%s", receipt, kind),
			Receipt: receipt, At: time.Now(),
		}
		for tries := 6; tries > 0; tries-- {
			if p.sim.reported(rnd, report) && rnd.intN(4) > 0 {
				break
			}
			p.sim.record(eventRepeated, id.ReminderID)
			time.Sleep(time.Second + rnd.upTo(15*time.Second))
		}
		time.Sleep(rnd.upTo(30 * time.Second))
	}
}

// reported sends a status event to a replica, and reports whether it was taken.
func (sim *simulation) reported(rnd *randSource, report ledger.StatusEvent) (taken bool) {
	r := sim.pickReplica(rnd)
	sim.withTimeout(r, func() {
		recorded, err := r.reconciler.RecordStatus(context.Background(), report)
		if err != nil || r.crashed.Load() {
			return
		}
		taken = true
		proof := report.Kind == ledger.StatusAccepted || report.Kind == ledger.StatusDelivered
		if recorded {
			sim.record(map[bool]fault{true: reportedAccepted, false: reportedFailed}[proof], report.ReminderID)
		}
		sim.mu.Lock()
		defer sim.mu.Unlock()
		sim.reportedSent[report.Identity] = (sim.reportedSent[report.Identity] || proof) && !sim.lostCommits[report.Identity]
	})
	return taken
}
