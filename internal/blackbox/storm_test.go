package blackbox

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

const (
	identities = 1000
	twins      = 64 // identical deliveries of each, at once
	atOnce     = 16 // identities at a time
)

// TestStormOfTwins is the promise: 64 identical deliveries at once of each of 1,000 reminders are 1,000
// sends and 1,000 calls, by one gateway on either store and by two on one PostgreSQL. A provider in
// another process takes 20 to 200 ms.
func TestStormOfTwins(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			p := startProvider(t)
			p.told(providertest.Control{LatencyMin: 20 * time.Millisecond, LatencyMax: 200 * time.Millisecond})
			gateways := s.start(t, p)
			storm(t, gateways)
			explained(t, gateways[0], 1)
			if c := p.counts(); c.Accepts != identities || c.Calls != identities || len(c.Keys) != identities {
				t.Errorf("%d accepted, %d calls, %d keys; want %d of each", c.Accepts, c.Calls, len(c.Keys), identities)
			}
		})
	}
}

// TestStormOfTwinsWhereHalfOfTheAnswersAreLost : half of the calls are accepted and then reset. The
// provider honours its key, so they are repeated under it, and accepted sends stay 1,000.
func TestStormOfTwinsWhereHalfOfTheAnswersAreLost(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			p := startProvider(t)
			modes := map[string][]string{}
			for i := range identities / 2 {
				modes[recipient(2*i)] = []string{providertest.AcceptReset, providertest.OK}
			}
			p.told(providertest.Control{
				LatencyMin: 20 * time.Millisecond, LatencyMax: 200 * time.Millisecond, Idempotent: true, Modes: modes,
			})
			gateways := s.start(t, p)
			storm(t, gateways)
			explained(t, gateways[0], 2)
			if c := p.counts(); c.Accepts != identities || len(c.Keys) != identities || c.Calls != identities+identities/2 {
				t.Errorf("%d accepted of %d keys in %d calls; want %d, %d, %d", c.Accepts, len(c.Keys), c.Calls, identities, identities, identities+identities/2)
			}
			for key, tally := range p.counts().Keys {
				if tally.Accepts != 1 || tally.Bodies != 1 {
					t.Errorf("key %s: %d accepted, %d different bodies", key, tally.Accepts, tally.Bodies)
				}
			}
		})
	}
}

type setup struct {
	name  string
	start func(t *testing.T, p *provider) []*gateway
}

// setups are the gateways that a storm meets, with the spans that a gateway has in life: the storm itself
// must not make a holder outlive its lease, however slow the machine.
func setups() []setup {
	calm := func(database string, p *provider) config {
		return configure(database, p).with("30s", "lease").with("25s", "grace").with("20s", "providers", "mail", "timeout")
	}
	return []setup{
		{"sqlite", func(t *testing.T, p *provider) []*gateway { return []*gateway{serve(t, calm(embedded(t), p))} }},
		{"postgres", func(t *testing.T, p *provider) []*gateway { return []*gateway{serve(t, calm(shared(t), p))} }},
		{"two replicas", func(t *testing.T, p *provider) []*gateway {
			c := calm(shared(t), p)
			return []*gateway{serve(t, c), serve(t, c)}
		}},
	}
}

func recipient(i int) string { return fmt.Sprintf("p%d@example.test", i) }

func stormDocument(i int) []byte {
	return fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": %q, "content": {"subject": "s", "text": "t"}}`, i, recipient(i))
}

// storm delivers every identity by twins at once, and redelivers what was nacked, as a queue does, until
// everything is acked.
func storm(t *testing.T, gateways []*gateway) {
	t.Helper()
	var acked, nacked atomic.Int64
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for i := range identities {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			document := stormDocument(i)
			var twin sync.WaitGroup
			for range twins {
				twin.Go(func() {
					if deliverOnce(t, gateways, document) {
						acked.Add(1)
					} else {
						nacked.Add(1)
					}
				})
			}
			twin.Wait()
		})
	}
	all.Wait()
	if acked.Load()+nacked.Load() != identities*twins {
		t.Errorf("%d acks and %d nacks of %d deliveries", acked.Load(), nacked.Load(), identities*twins)
	}
	for i := range identities {
		document := stormDocument(i)
		until(t, time.Minute, fmt.Sprintf("rem-%d is acked", i), func() bool { return deliverOnce(t, gateways, document) })
	}
	t.Logf("%d acks, %d nacks in the storm", acked.Load(), nacked.Load())
}

// deliverOnce delivers to one of the gateways and tells whether it was acked; a nack says when to come back.
func deliverOnce(t *testing.T, gateways []*gateway, document []byte) bool {
	a, err := gateways[rand.IntN(len(gateways))].call(http.MethodPost, "/v1/push/queue", queueToken, nil, document)
	switch {
	case err != nil:
		t.Errorf("a delivery: %v", err)
		return false
	case a.status == http.StatusOK:
		return true
	case a.status != http.StatusServiceUnavailable, a.retryAfter() < 1, a.retryAfter() > 600:
		t.Errorf("a delivery: %s, Retry-After %q", a, a.header.Get("Retry-After"))
	}
	return false
}

// explained checks that every entry is sent, and that its timeline holds its attempts.
func explained(t *testing.T, g *gateway, most int) {
	t.Helper()
	var entries []entry
	until(t, time.Minute, "every entry is sent", func() bool { // what the ledger took over is acked while it is in flight
		entries = g.list(url.Values{"state": {"sent"}})
		return len(entries) == identities
	})
	for _, e := range entries {
		if e.Attempts < 1 || e.Attempts > most {
			t.Errorf("%s: %d attempts", e.ReminderID, e.Attempts)
		}
	}
	var s story
	if a := g.get("/v1/admin/entries/" + entries[0].ID); json.Unmarshal(a.body, &s) != nil || len(s.Timeline) < 1 {
		t.Errorf("story: %s", a)
	}
}
