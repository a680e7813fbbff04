package blackbox

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestCrash_KilledAnywhereDuplicatesAndLosesNothing kills the gateway with SIGKILL at each point, with each
// result of the call, on both stores, with and without redelivery, under each contract.
func TestCrash_KilledAnywhereDuplicatesAndLosesNothing(t *testing.T) {
	t.Parallel()
	cases := crashCases()
	if !*wholeMatrix {
		cases = pairwise(cases)
	}
	w := newCrashSuite(t, cases)
	w.runAll(t, cases, func(t *testing.T, c crashCase) {
		g, p, d := w.killAndRestart(t, c)
		c.checkFinalState(t, g, p, d)
	})
}

// crashSlots bounds the cases that run at the same time, over all tests. They mostly wait for leases.
var crashSlots = make(chan struct{}, 12)

// crashSuite holds what the cases share.
type crashSuite struct {
	providers providers
}

// providers are keyed by whether they honour the send key, and whether they are slow.
type providers map[[2]bool]*provider

func newCrashSuite(t *testing.T, cases []crashCase) *crashSuite {
	t.Helper()
	modes := map[string][]string{}
	for _, c := range cases {
		modes[c.reminder().recipient()] = c.modes()
	}
	w := &crashSuite{providers: providers{}}
	for _, honours := range []bool{true, false} {
		for slow, latency := range map[bool]time.Duration{false: 0, true: 600 * time.Millisecond} {
			p := startProvider(t)
			p.setControl(providertest.Control{Idempotent: honours, Modes: modes, LatencyMin: latency, LatencyMax: latency})
			w.providers[[2]bool{honours, slow}] = p
		}
	}
	return w
}

// runAll runs the cases, up to the capacity of crashSlots at the same time.
func (w *crashSuite) runAll(t *testing.T, cases []crashCase, run func(t *testing.T, c crashCase)) {
	t.Helper()
	if _, err := crashpointBinary(); err != nil { // before any case measures its time
		t.Fatal(err)
	}
	var all sync.WaitGroup
	begun := time.Now()
	for _, c := range cases {
		crashSlots <- struct{}{}
		all.Go(func() {
			defer func() { <-crashSlots }()
			t.Run(c.String(), func(t *testing.T) { run(t, c) })
		})
	}
	all.Wait()
	t.Logf("%d cases in %v", len(cases), time.Since(begun).Round(time.Second))
}

// forCase returns the provider of a case, and a function that makes it reachable.
func (all providers) forCase(t *testing.T, c crashCase) (_ *provider, open func()) {
	t.Helper()
	if c.outcome == "unreachable" {
		p, open := startAbsentProvider(t)
		return p, func() {
			open()
			p.setControl(providertest.Control{Idempotent: c.contract == "idempotent"})
		}
	}
	shared := all[[2]bool{c.contract == "idempotent", c.outcome == "late"}]
	return &provider{t: t, address: shared.address}, func() {}
}

// killAndRestart lets a case's gateway kill itself, and starts the next one, whose clock is right.
func (w *crashSuite) killAndRestart(t *testing.T, c crashCase) (*gateway, *provider, document) {
	t.Helper()
	p, open := w.providers.forCase(t, c)
	cfg, clock := c.config(newLedger(t, c.store), p), crashClocks[c.clock]
	first, second, again := strings.Cut(c.at, "+")
	g := serveWithOrders(t, cfg, clock.orders+first+":kill", clock.env...)
	d := c.reminder()
	g.waitKilled(first, d)
	if again {
		spawnWithOrders(t, cfg, second+":kill", clock.env...).waitKilled(second, nil)
	}
	open()
	return serve(t, cfg), p, d
}

// checkFinalState waits for the expected final state, and checks that it stays so and that the timeline
// explains it.
func (c crashCase) checkFinalState(t *testing.T, g *gateway, p *provider, d document) {
	t.Helper()
	want := c.expected()
	var got finalState
	matches := func() bool {
		e, seen := g.detail(d).Entry, p.countsFor(d)
		got = finalState{e.State, e.Class, seen.Calls, seen.Accepts, e.Attempts, e.LeaseExpirations}
		return got == want
	}
	if !eventually(25*time.Second, func() bool {
		if c.redelivered {
			g.push(d.String())
		}
		return matches()
	}) {
		t.Errorf("final state\n%+v, want\n%+v\n%s", got, want, g.detail(d).text())
		return
	}
	if stays := time.Now().Add(500 * time.Millisecond); eventually(time.Second, func() bool { return !matches() || time.Now().After(stays) }) && got != want {
		t.Errorf("the final state changed to\n%+v, want\n%+v", got, want)
	}
	if want.state == "" {
		return
	}
	if want.accepts > 1 || p.countsFor(d).Bodies > 1 {
		t.Errorf("the provider accepted %d, with %d different bodies", want.accepts, p.countsFor(d).Bodies)
	}
	g.detail(d).checkTimeline(t)
}

// checkTimeline checks that the timeline has all attempts and expired leases that the entry counts, and ends
// in the entry's state.
func (d entryDetail) checkTimeline(t *testing.T) {
	t.Helper()
	attempts, expirations := 0, 0
	for _, l := range d.Timeline {
		switch l.Kind {
		case "attempt":
			if attempts++; l.Attempt != attempts {
				t.Errorf("attempt %d is recorded as number %d", attempts, l.Attempt)
			}
		case "lease_expired":
			if expirations++; l.Outcome != "unknown" {
				t.Errorf("the outcome of an expired lease is %q", l.Outcome)
			}
		}
		if l.Text == "" || l.Reason == "" {
			t.Errorf("a timeline event without text or reason: %+v", l)
		}
	}
	if attempts != d.Entry.Attempts || expirations != d.Entry.LeaseExpirations || len(d.Timeline) == 0 {
		t.Errorf("the timeline has %d attempts and %d expired leases, the entry %d and %d", attempts, expirations, d.Entry.Attempts, d.Entry.LeaseExpirations)
	} else if last := d.Timeline[len(d.Timeline)-1]; last.State != d.Entry.State {
		t.Errorf("the timeline ends in state %s, the entry is in state %s", last.State, d.Entry.State)
	}
}

// text returns the timeline in readable form, one event a line.
func (d entryDetail) text() string {
	var lines []string
	for _, l := range d.Timeline {
		lines = append(lines, l.Kind+": "+l.Text)
	}
	return strings.Join(slices.Compact(lines), "\n")
}
