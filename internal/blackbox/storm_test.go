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
	identities           = 1000
	identicalDeliveries  = 64 // concurrent deliveries of each reminder
	concurrentIdentities = 16 // reminders at a time
)

// TestStorm_IdenticalDeliveriesAreOneSendEach checks the main promise: 64 concurrent identical deliveries of
// each of 1,000 reminders are 1,000 sends and 1,000 calls, by one gateway on either store and by two on one
// PostgreSQL. A provider in another process takes 20 to 200 ms.
func TestStorm_IdenticalDeliveriesAreOneSendEach(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			p := startProvider(t)
			p.setControl(providertest.Control{LatencyMin: 20 * time.Millisecond, LatencyMax: 200 * time.Millisecond})
			gateways := s.start(t, p)
			runStorm(t, gateways)
			checkSent(t, gateways[0], 1)
			if c := p.counts(); c.Accepts != identities || c.Calls != identities || len(c.Keys) != identities {
				t.Errorf("%d accepted, %d calls, %d keys; want %d of each", c.Accepts, c.Calls, len(c.Keys), identities)
			}
		})
	}
}

// TestStorm_HalfOfTheAnswersAreLost accepts half of the calls and then resets the connection. The provider
// honours its key, so they are repeated under it, and accepted sends stay 1,000.
func TestStorm_HalfOfTheAnswersAreLost(t *testing.T) {
	for _, s := range setups() {
		t.Run(s.name, func(t *testing.T) {
			p := startProvider(t)
			modes := map[string][]string{}
			for i := range identities / 2 {
				modes[recipient(2*i)] = []string{providertest.AcceptReset, providertest.OK}
			}
			p.setControl(providertest.Control{
				LatencyMin: 20 * time.Millisecond, LatencyMax: 200 * time.Millisecond, Idempotent: true, Modes: modes,
			})
			gateways := s.start(t, p)
			runStorm(t, gateways)
			checkSent(t, gateways[0], 2)
			if c := p.counts(); c.Accepts != identities || len(c.Keys) != identities || c.Calls != identities+identities/2 {
				t.Errorf("%d accepted of %d keys in %d calls; want %d, %d, %d", c.Accepts, len(c.Keys), c.Calls, identities, identities, identities+identities/2)
			}
			for key, keyCounts := range p.counts().Keys {
				if keyCounts.Accepts != 1 || keyCounts.Bodies != 1 {
					t.Errorf("key %s: %d accepted, %d different bodies", key, keyCounts.Accepts, keyCounts.Bodies)
				}
			}
		})
	}
}

type setup struct {
	name  string
	start func(t *testing.T, p *provider) []*gateway
}

// setups returns the gateways of a storm, with the timeouts of a production gateway: the load itself must not
// make a holder outlive its lease, however slow the machine.
func setups() []setup {
	production := func(database string, p *provider) config {
		return configure(database, p).with("30s", "lease").with("25s", "grace").with("20s", "providers", "mail", "timeout")
	}
	return []setup{
		{"sqlite", func(t *testing.T, p *provider) []*gateway { return []*gateway{serve(t, production(newSQLite(t), p))} }},
		{"postgres", func(t *testing.T, p *provider) []*gateway { return []*gateway{serve(t, production(newPostgres(t), p))} }},
		{"two replicas", func(t *testing.T, p *provider) []*gateway {
			c := production(newPostgres(t), p)
			return []*gateway{serve(t, c), serve(t, c)}
		}},
	}
}

func recipient(i int) string { return fmt.Sprintf("p%d@example.test", i) }

func stormDocument(i int) []byte {
	return fmt.Appendf(nil, `{"reminder_id": "rem-%d", "type": "seat_expiring", "channel": "email", "to": %q, "content": {"subject": "s", "text": "t"}}`, i, recipient(i))
}

// runStorm delivers every reminder many times concurrently, and redelivers what was nacked, as a queue does,
// until everything is acked.
func runStorm(t *testing.T, gateways []*gateway) {
	t.Helper()
	var acked, nacked atomic.Int64
	slots := make(chan struct{}, concurrentIdentities)
	var all sync.WaitGroup
	for i := range identities {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			document := stormDocument(i)
			var copies sync.WaitGroup
			for range identicalDeliveries {
				copies.Go(func() {
					if deliverOnce(t, gateways, document) {
						acked.Add(1)
					} else {
						nacked.Add(1)
					}
				})
			}
			copies.Wait()
		})
	}
	all.Wait()
	if acked.Load()+nacked.Load() != identities*identicalDeliveries {
		t.Errorf("%d acks and %d nacks of %d deliveries", acked.Load(), nacked.Load(), identities*identicalDeliveries)
	}
	for i := range identities {
		document := stormDocument(i)
		waitUntil(t, time.Minute, fmt.Sprintf("rem-%d is acked", i), func() bool { return deliverOnce(t, gateways, document) })
	}
	t.Logf("%d acks, %d nacks in the storm", acked.Load(), nacked.Load())
}

// deliverOnce delivers to one of the gateways and reports whether it was acked; a nack must have a valid
// Retry-After.
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

// checkSent checks that every entry is sent, with at most the given number of attempts, and that it has a
// timeline.
func checkSent(t *testing.T, g *gateway, most int) {
	t.Helper()
	var entries []entry
	waitUntil(t, time.Minute, "every entry is sent", func() bool { // an entry that the ledger has taken over is acked while it is in flight
		entries = g.list(url.Values{"state": {"sent"}})
		return len(entries) == identities
	})
	for _, e := range entries {
		if e.Attempts < 1 || e.Attempts > most {
			t.Errorf("%s: %d attempts", e.ReminderID, e.Attempts)
		}
	}
	var s entryDetail
	if a := g.get("/v1/admin/entries/" + entries[0].ID); json.Unmarshal(a.body, &s) != nil || len(s.Timeline) < 1 {
		t.Errorf("detail: %s", a)
	}
}
