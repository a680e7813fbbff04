package blackbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/blackbox/testbed"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestDatabaseClock_JumpsSendNothingTwice moves the database's clock, the only one that decides leases and
// due times, by ten minutes and back, while calls are in flight and reminders wait. What is due is sent early
// or late, and once.
func TestDatabaseClock_JumpsSendNothingTwice(t *testing.T) {
	t.Parallel()
	t.Run("ahead and back while it runs", func(t *testing.T) {
		t.Parallel()
		h := newClockHarness(t)
		first := h.startBatch()
		h.clock.Move(10 * time.Minute)
		h.redeliver(first)
		for _, d := range first.inFlight {
			if s := h.replicas[1].detail(d); s.Entry.LeaseExpirations != 1 {
				t.Errorf("its lease of seconds has not expired after ten minutes: %+v", s)
			}
		}
		for _, d := range first.waiting {
			h.replicas[1].waitForState(d, "sent", 20*time.Second)
		}
		second := h.startBatch()
		h.clock.Move(0)
		h.redeliver(second)
		h.checkStillWaiting(second)
		h.clock.Move(10 * time.Minute)
		h.checkSentOnce(first, second)
	})
	t.Run("behind and back while it is down", func(t *testing.T) {
		t.Parallel()
		h := newClockHarness(t)
		first := h.startBatch()
		h.restartWithClock(-10 * time.Minute)
		h.redeliver(first)
		h.checkStillWaiting(first)
		second := h.startBatch()
		h.restartWithClock(0)
		h.redeliver(second)
		h.checkSentOnce(first, second)
	})
}

// clockHarness is two replicas on a database with a clock of its own, and a provider for either contract.
type clockHarness struct {
	t         *testing.T
	server    *testbed.Server
	clock     *testbed.Clock
	front     *ownPostgres
	replicas  []*gateway
	providers map[string]*provider
}

// batch is the reminders that were in flight or waiting when the clock jumped, at both providers.
type batch struct{ inFlight, waiting []document }

func newClockHarness(t *testing.T) *clockHarness {
	t.Helper()
	h := &clockHarness{t: t, front: newRelay(t), providers: map[string]*provider{"blind": startProvider(t), "honours": startProvider(t)}}
	h.server, h.clock = testbed.PostgresWithClock(t)
	h.front.setTarget(h.server.Address())
	c := configure(h.front.url(), h.providers["blind"]).with("6s", "lease").withTakeover("1s").
		withProvider("blind", h.providers["blind"].url(), "4s", map[string]any{"blind": true}).
		withProvider("honours", h.providers["honours"].url(), "4s", map[string]any{"idempotent": "24h"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	for channel, p := range h.providers {
		p.setControl(providertest.Control{LatencyMin: 2 * time.Second, Idempotent: channel == "honours"})
	}
	h.replicas = []*gateway{serve(t, c), serve(t, c)}
	return h
}

// startBatch delivers, for each provider, a reminder whose call is in flight and one that will be due.
func (h *clockHarness) startBatch() batch {
	h.t.Helper()
	var r batch
	for channel, p := range h.providers {
		id := channel + strconv.Itoa(len(p.counts().Keys))
		waits := newReminder(id+"-waits").with("channel", channel).with("not_before", h.databaseTime().Add(3*time.Second))
		called := newReminder(id+"-called").with("channel", channel)
		h.replicas[0].redeliver(waits, 1)
		h.replicas[0].pushAsync(called)
		waitUntil(h.t, 20*time.Second, "the call has begun", func() bool { return p.countsFor(called).Calls == 1 })
		r.inFlight, r.waiting = append(r.inFlight, called), append(r.waiting, waits)
	}
	return r
}

// databaseTime returns the time by the database's clock.
func (h *clockHarness) databaseTime() time.Time {
	h.t.Helper()
	now, err := time.Parse(time.RFC3339, h.server.Query(`SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`))
	if err != nil {
		h.t.Fatal(err)
	}
	return now
}

// restartWithClock moves the clock while the server is down.
func (h *clockHarness) restartWithClock(to time.Duration) {
	h.t.Helper()
	h.front.setTarget("")
	h.server.Kill()
	h.clock.Move(to)
	h.server.Start()
	h.front.setTarget(h.server.Address())
	h.replicas[1].waitReady()
}

// redeliver delivers what is in flight to the other replica, after the clock has moved away from its holder's
// claim.
func (h *clockHarness) redeliver(r batch) {
	h.t.Helper()
	for _, d := range r.inFlight {
		for range 3 {
			if a := h.replicas[1].push(d.String()); !isAck(a) && !isNack(a) {
				h.t.Errorf("%s: %s", d["reminder_id"], a)
			}
		}
	}
}

// checkStillWaiting checks, once all calls of a batch are settled, that what was due in seconds is now due in
// ten minutes.
func (h *clockHarness) checkStillWaiting(r batch) {
	h.t.Helper()
	for _, d := range r.inFlight {
		h.replicas[1].waitForState(d, "sent", 30*time.Second)
	}
	for _, d := range r.waiting {
		if s := h.replicas[1].detail(d); s.Entry.State != "waiting" {
			h.t.Errorf("it was due before ten minutes had passed: %+v", s)
		}
	}
}

// checkSentOnce checks that each reminder was accepted once, and called for again only under a contract that
// makes that harmless.
func (h *clockHarness) checkSentOnce(rounds ...batch) {
	h.t.Helper()
	for _, r := range rounds {
		for _, d := range append(r.inFlight, r.waiting...) {
			s := h.replicas[1].waitForState(d, "sent", 40*time.Second)
			h.replicas[0].redeliver(d, 2)
			channel := d["channel"].(string)
			got := h.providers[channel].countsFor(d)
			if got.Accepts != 1 || got.Bodies != 1 || got.Calls > 2 || got.Calls > 1 && channel == "blind" {
				h.t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s)
			}
		}
	}
}
