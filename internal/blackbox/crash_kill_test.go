package blackbox

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestAGatewayThatIsKilledAnywhereDoublesAndLosesNothing : kill -9 at each point, whatever the provider makes
// of the call, on both stores, with the message brought again or not, under each contract.
func TestAGatewayThatIsKilledAnywhereDoublesAndLosesNothing(t *testing.T) {
	t.Parallel()
	cases := crashCases()
	if !*wholeMatrix {
		cases = selected(cases)
	}
	w := newCrashWorld(t, cases)
	w.together(t, cases, func(t *testing.T, c crashCase) {
		g, p, d := w.kill(t, c)
		c.comesToRest(t, g, p, d)
	})
}

// crashSlots bounds the cases that are under way, over all tests. They wait for leases, mostly.
var crashSlots = make(chan struct{}, 12)

// crashWorld is what the cases share.
type crashWorld struct {
	providers providers
}

// providers are told apart by whether they honour the send key, and take their time.
type providers map[[2]bool]*provider

func newCrashWorld(t *testing.T, cases []crashCase) *crashWorld {
	t.Helper()
	modes := map[string][]string{}
	for _, c := range cases {
		modes[c.reminder().to()] = c.modes()
	}
	w := &crashWorld{providers: providers{}}
	for _, honours := range []bool{true, false} {
		for slow, latency := range map[bool]time.Duration{false: 0, true: 600 * time.Millisecond} {
			p := startProvider(t)
			p.told(providertest.Control{Idempotent: honours, Modes: modes, LatencyMin: latency, LatencyMax: latency})
			w.providers[[2]bool{honours, slow}] = p
		}
	}
	return w
}

// together runs the cases, many at once.
func (w *crashWorld) together(t *testing.T, cases []crashCase, run func(t *testing.T, c crashCase)) {
	t.Helper()
	if _, err := crashing(); err != nil { // before any of them counts its time
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

// of is the provider of a case, and what makes it reachable.
func (all providers) of(t *testing.T, c crashCase) (_ *provider, open func()) {
	t.Helper()
	if c.outcome == "unreachable" {
		p, open := absent(t)
		return p, func() {
			open()
			p.told(providertest.Control{Idempotent: c.contract == "idempotent"})
		}
	}
	shared := all[[2]bool{c.contract == "idempotent", c.outcome == "late"}]
	return &provider{t: t, address: shared.address}, func() {}
}

// kill lets a case's gateway kill itself, and starts the next one, whose clock is right.
func (w *crashWorld) kill(t *testing.T, c crashCase) (*gateway, *provider, document) {
	t.Helper()
	p, open := w.providers.of(t, c)
	cfg, clock := c.config(on(t, c.store), p), crashClocks[c.clock]
	first, second, again := strings.Cut(c.at, "+")
	g := serveRigged(t, cfg, clock.orders+first+":kill", clock.env...)
	d := c.reminder()
	g.killed(first, d)
	if again {
		spawnRigged(t, cfg, second+":kill", clock.env...).killed(second, nil)
	}
	open()
	return serve(t, cfg), p, d
}

// comesToRest waits until everything is as it must be, and checks that it stays so and is explained.
func (c crashCase) comesToRest(t *testing.T, g *gateway, p *provider, d document) {
	t.Helper()
	want := c.expected()
	var got after
	look := func() bool {
		e, seen := g.of(d).Entry, p.tally(d)
		got = after{e.State, e.Class, seen.Calls, seen.Accepts, e.Attempts, e.Lapses}
		return got == want
	}
	if !awaited(25*time.Second, func() bool {
		if c.redelivered {
			g.push(d.String())
		}
		return look()
	}) {
		t.Errorf("it came to\n%+v, want\n%+v\n%s", got, want, g.of(d).told())
		return
	}
	if stays := time.Now().Add(500 * time.Millisecond); awaited(time.Second, func() bool { return !look() || time.Now().After(stays) }) && got != want {
		t.Errorf("it did not stay: it came to\n%+v, want\n%+v", got, want)
	}
	if want.state == "" {
		return
	}
	if want.accepts > 1 || p.tally(d).Bodies > 1 {
		t.Errorf("the provider took %d, of %d different contents", want.accepts, p.tally(d).Bodies)
	}
	g.of(d).explains(t)
}

// explains checks that the timeline tells of all that the entry counts, and ends where the entry stands.
func (s story) explains(t *testing.T) {
	t.Helper()
	attempts, lapses := 0, 0
	for _, l := range s.Timeline {
		switch l.Kind {
		case "attempt":
			if attempts++; l.Number != attempts {
				t.Errorf("attempt %d is told as number %d", attempts, l.Number)
			}
		case "lapse":
			if lapses++; l.Outcome != "unknown" {
				t.Errorf("a lapse is told as %q", l.Outcome)
			}
		}
		if l.Text == "" || l.Reason == "" {
			t.Errorf("a line without words: %+v", l)
		}
	}
	if attempts != s.Entry.Attempts || lapses != s.Entry.Lapses || len(s.Timeline) == 0 {
		t.Errorf("the timeline tells of %d attempts and %d lapses, the entry of %d and %d", attempts, lapses, s.Entry.Attempts, s.Entry.Lapses)
	} else if last := s.Timeline[len(s.Timeline)-1]; last.State != s.Entry.State {
		t.Errorf("the timeline ends at %s, the entry stands at %s", last.State, s.Entry.State)
	}
}

// told is a timeline as people read it.
func (s story) told() string {
	var lines []string
	for _, l := range s.Timeline {
		lines = append(lines, l.Kind+": "+l.Text)
	}
	return strings.Join(slices.Compact(lines), "\n")
}
