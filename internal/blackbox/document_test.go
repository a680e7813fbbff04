package blackbox

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// document is the body of a reminder.
type document map[string]any

// newReminder returns a complete reminder for the channel email, to a recipient of its own.
func newReminder(id string) document {
	return document{
		"reminder_id": id, "type": "seat_expiring", "channel": "email", "to": id + "@example.test",
		"content": map[string]any{"subject": "Seat", "text": "It is held until 09:10."},
	}
}

// with returns a copy with another value.
func (d document) with(field string, value any) document {
	changed := maps.Clone(d)
	changed[field] = value
	return changed
}

func (d document) String() string {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err) // the test's own values
	}
	return string(raw)
}

func (d document) identity() ledger.Identity {
	text := func(field string) string { s, _ := d[field].(string); return s }
	return ledger.Identity{ReminderID: text("reminder_id"), Type: text("type"), Channel: text("channel")}
}

func (d document) recipient() string { return d["to"].(string) }

// withProvider adds a webhook provider, and a channel of the same name that leads to it.
func (c config) withProvider(name, url, timeout string, contract map[string]any) config {
	return c.with(map[string]any{"provider": name}, "channels", name).with(map[string]any{
		"kind": "webhook", "url": url, "timeout": timeout, "contract": contract, "concurrency": 8,
	}, "providers", name)
}

// withType adds a type that differs from the default in the settings named.
func (c config) withType(name string, settings map[string]any) config {
	return c.with(settings, "types", name)
}

// withTakeover sets the takeover_after of the queue: how long the ledger waits for its redelivery.
func (c config) withTakeover(after string) config {
	return c.with(after, "sources", "queue", "takeover_after")
}

// countsFor returns what the provider saw of one reminder.
func (p *provider) countsFor(d document) providertest.KeyCounts {
	p.t.Helper()
	return p.counts().Keys[d.identity().SendKey()]
}

// checkCallCount checks how often the provider was called for a reminder.
func (p *provider) checkCallCount(d document, times int) {
	p.t.Helper()
	if got := p.countsFor(d); got.Calls != times {
		p.t.Errorf("%s: %d calls, want %d", d["reminder_id"], got.Calls, times)
	}
}

// detail returns the detail of a reminder's entry.
func (g *gateway) detail(d document) entryDetail {
	g.t.Helper()
	id := d.identity()
	return g.entryDetail(id.ReminderID, id.Type, id.Channel)
}

// pushUntilAcked delivers a reminder as a queue does, again and again until it is acked.
func (g *gateway) pushUntilAcked(d document, within time.Duration) answer {
	g.t.Helper()
	var a answer
	waitUntil(g.t, within, d.identity().ReminderID+" is acked", func() bool {
		a = g.push(d.String())
		return a.status == http.StatusOK
	})
	return a
}

// pushExpectNack delivers a reminder, and checks that it is nacked.
func (g *gateway) pushExpectNack(d document) answer {
	g.t.Helper()
	a := g.push(d.String())
	if a.status != http.StatusServiceUnavailable || a.retryAfter() < 1 || a.retryAfter() > 600 {
		g.t.Errorf("%s is not nacked: %s, Retry-After %q", d["reminder_id"], a, a.header.Get("Retry-After"))
	}
	return a
}

// redeliver delivers a reminder a number of times; each must be acked.
func (g *gateway) redeliver(d document, times int) {
	g.t.Helper()
	for range times {
		if a := g.push(d.String()); a.status != http.StatusOK {
			g.t.Fatalf("%s is not acked: %s", d["reminder_id"], a)
		}
	}
}

// entryState is the state of an entry; an empty class or reason is one that it must not have.
type entryState struct {
	state, class, reason string
	attempts             int
}

// checkState checks the state of a reminder's entry.
func (g *gateway) checkState(d document, want entryState) entryDetail {
	g.t.Helper()
	s := g.detail(d)
	e := s.Entry
	if got := (entryState{e.State, e.Class, e.Reason, e.Attempts}); got != want {
		g.t.Errorf("%s is in state %+v, want %+v", d["reminder_id"], got, want)
	}
	return s
}

// waitForState waits until a reminder's entry is in a state.
func (g *gateway) waitForState(d document, state string, within time.Duration) entryDetail {
	g.t.Helper()
	var s entryDetail
	waitUntil(g.t, within, d.identity().ReminderID+" is "+state, func() bool {
		s = g.detail(d)
		return s.Entry.State == state
	})
	return s
}

// outcomes returns the outcomes of the calls in the timeline, in order.
func (d entryDetail) outcomes() []string {
	var all []string
	for _, l := range d.Timeline {
		if l.Kind == "attempt" {
			all = append(all, l.Outcome)
		}
	}
	return all
}

// reasons returns the reasons of all events in the timeline, in order.
func (d entryDetail) reasons() []string {
	var all []string
	for _, l := range d.Timeline {
		all = append(all, l.Reason)
	}
	return all
}

// checkOutcomes checks the outcomes of the calls in the timeline.
func (d entryDetail) checkOutcomes(t *testing.T, outcomes ...string) {
	t.Helper()
	if got := d.outcomes(); !slices.Equal(got, outcomes) {
		t.Errorf("%s: outcomes in its timeline are %v, want %v", d.Entry.ReminderID, got, outcomes)
	}
}

// opsGet sends a request to the operations listener.
func (g *gateway) opsGet(path string) answer {
	g.t.Helper()
	ops := &gateway{t: g.t, url: g.opsURL}
	a, err := ops.call(http.MethodGet, path, "", nil, nil)
	if err != nil {
		g.t.Fatalf("GET %s: %v", path, err)
	}
	return a
}

// metric returns the value of one series as it is scraped; empty when it does not exist.
func (g *gateway) metric(series string) string {
	g.t.Helper()
	for line := range bytes.Lines(g.opsGet("/metrics").body) {
		if value, found := strings.CutPrefix(string(line), series+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// waitForMetric waits until a series has a value.
func (g *gateway) waitForMetric(series, value string) {
	g.t.Helper()
	waitUntil(g.t, 20*time.Second, series+" is "+value, func() bool { return g.metric(series) == value })
}

// waitForSweep waits until the gateway has finished a sweep for expired leases.
func (g *gateway) waitForSweep() {
	g.t.Helper()
	waitUntil(g.t, 20*time.Second, "a sweep has finished", func() bool {
		n := g.metric("sendonce_sweeps_total")
		return n != "" && n != "0"
	})
}

// gate is a closed gate as readiness shows it.
type gate struct {
	Provider    string    `json:"provider"`
	ClosedUntil time.Time `json:"closed_until"`
	Class       string    `json:"class"`
}

// closedGates returns the closed gates that readiness shows; they must not make it fail.
func (g *gateway) closedGates() map[string]gate {
	g.t.Helper()
	a := g.opsGet("/readyz")
	var body struct {
		Gates []gate `json:"gates"`
	}
	if err := json.Unmarshal(a.body, &body); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("readiness: %s, %v", a, err)
	}
	closed := map[string]gate{}
	for _, shown := range body.Gates {
		closed[shown.Provider] = shown
	}
	return closed
}
