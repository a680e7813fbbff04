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

// document is a reminder in the making.
type document map[string]any

// remind is a whole reminder for the channel email, to a recipient of its own.
func remind(id string) document {
	return document{
		"reminder_id": id, "type": "seat_expiring", "channel": "email", "to": id + "@example.test",
		"content": map[string]any{"subject": "Seat", "text": "It is held until 09:10."},
	}
}

// but is a copy with another value.
func (d document) but(field string, value any) document {
	changed := maps.Clone(d)
	changed[field] = value
	return changed
}

func (d document) String() string {
	raw, err := json.Marshal(d)
	if err != nil {
		panic(err) // a test's own words
	}
	return string(raw)
}

func (d document) identity() ledger.Identity {
	text := func(field string) string { s, _ := d[field].(string); return s }
	return ledger.Identity{ReminderID: text("reminder_id"), Type: text("type"), Channel: text("channel")}
}

func (d document) to() string { return d["to"].(string) }

// lane adds a webhook provider, and a channel of the same name that leads to it.
func (c config) lane(name, url, timeout string, contract map[string]any) config {
	return c.with(map[string]any{"provider": name}, "channels", name).with(map[string]any{
		"kind": "webhook", "url": url, "timeout": timeout, "contract": contract, "concurrency": 8,
	}, "providers", name)
}

// kind adds a type that differs from the default in the settings named.
func (c config) kind(name string, settings map[string]any) config {
	return c.with(settings, "types", name)
}

// takeover sets how long the queue is waited for.
func (c config) takeover(after string) config {
	return c.with(after, "sources", "queue", "takeover_after")
}

// tally is what the provider saw of one reminder.
func (p *provider) tally(d document) providertest.Tally {
	p.t.Helper()
	return p.counts().Keys[d.identity().SendKey()]
}

// called checks how often the provider was called for a reminder.
func (p *provider) called(d document, times int) {
	p.t.Helper()
	if got := p.tally(d); got.Calls != times {
		p.t.Errorf("%s: %d calls, want %d", d["reminder_id"], got.Calls, times)
	}
}

// of is the story of a reminder.
func (g *gateway) of(d document) story {
	g.t.Helper()
	id := d.identity()
	return g.story(id.ReminderID, id.Type, id.Channel)
}

// acked delivers a reminder as a queue does, again and again until it is acked.
func (g *gateway) acked(d document, within time.Duration) answer {
	g.t.Helper()
	var a answer
	until(g.t, within, d.identity().ReminderID+" is acked", func() bool {
		a = g.push(d.String())
		return a.status == http.StatusOK
	})
	return a
}

// nacked delivers a reminder, and checks that its broker is asked to come back.
func (g *gateway) nacked(d document) answer {
	g.t.Helper()
	a := g.push(d.String())
	if a.status != http.StatusServiceUnavailable || a.retryAfter() < 1 || a.retryAfter() > 600 {
		g.t.Errorf("%s is not nacked: %s, Retry-After %q", d["reminder_id"], a, a.header.Get("Retry-After"))
	}
	return a
}

// repeated delivers a reminder again, so many times; each must be answered with an ack.
func (g *gateway) repeated(d document, times int) {
	g.t.Helper()
	for range times {
		if a := g.push(d.String()); a.status != http.StatusOK {
			g.t.Fatalf("%s is not acked: %s", d["reminder_id"], a)
		}
	}
}

// standing is where an entry stands; an empty class or reason is one that it must not have.
type standing struct {
	state, class, reason string
	attempts             int
}

// stands checks where a reminder stands.
func (g *gateway) stands(d document, want standing) story {
	g.t.Helper()
	s := g.of(d)
	e := s.Entry
	if got := (standing{e.State, e.Class, e.Reason, e.Attempts}); got != want {
		g.t.Errorf("%s stands at %+v, want %+v", d["reminder_id"], got, want)
	}
	return s
}

// comesTo waits until a reminder is in a state.
func (g *gateway) comesTo(d document, state string, within time.Duration) story {
	g.t.Helper()
	var s story
	until(g.t, within, d.identity().ReminderID+" is "+state, func() bool {
		s = g.of(d)
		return s.Entry.State == state
	})
	return s
}

// outcomes are those of the calls in a timeline, in order.
func (s story) outcomes() []string {
	var all []string
	for _, l := range s.Timeline {
		if l.Kind == "attempt" {
			all = append(all, l.Outcome)
		}
	}
	return all
}

// reasons are those of every line in a timeline, in order.
func (s story) reasons() []string {
	var all []string
	for _, l := range s.Timeline {
		all = append(all, l.Reason)
	}
	return all
}

// tells checks a timeline's calls by their outcomes.
func (s story) tells(t *testing.T, outcomes ...string) {
	t.Helper()
	if got := s.outcomes(); !slices.Equal(got, outcomes) {
		t.Errorf("%s: its timeline tells of calls that were %v, want %v", s.Entry.ReminderID, got, outcomes)
	}
}

// operations asks the operations listener.
func (g *gateway) operations(path string) answer {
	g.t.Helper()
	asked := &gateway{t: g.t, url: g.ops}
	a, err := asked.call(http.MethodGet, path, "", nil, nil)
	if err != nil {
		g.t.Fatalf("GET %s: %v", path, err)
	}
	return a
}

// metric is the value of one series as it is scraped; empty when it is not there.
func (g *gateway) metric(series string) string {
	g.t.Helper()
	for line := range bytes.Lines(g.operations("/metrics").body) {
		if value, found := strings.CutPrefix(string(line), series+" "); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// shows waits until a series has a value.
func (g *gateway) shows(series, value string) {
	g.t.Helper()
	until(g.t, 20*time.Second, series+" is "+value, func() bool { return g.metric(series) == value })
}

// swept waits until the gateway has looked for silent holders once.
func (g *gateway) swept() {
	g.t.Helper()
	until(g.t, 20*time.Second, "it has swept", func() bool {
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

// gates are the closed gates that readiness shows, which they must not fail.
func (g *gateway) gates() map[string]gate {
	g.t.Helper()
	a := g.operations("/readyz")
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
