package blackbox

import (
	"strconv"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/blackbox/testbed"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestAClockOfTheDatabaseThatJumpsSendsNothingTwice : the ledger's own clock is the only one that judges
// leases and dues, so it jumps by ten minutes and back, while calls are in flight and reminders wait. What is
// due comes early or late, and once.
func TestAClockOfTheDatabaseThatJumpsSendsNothingTwice(t *testing.T) {
	t.Parallel()
	t.Run("ahead and back while it runs", func(t *testing.T) {
		t.Parallel()
		b := startTimeBed(t)
		first := b.round()
		b.clock.Move(10 * time.Minute)
		b.redelivered(first)
		for _, d := range first.called {
			if s := b.replicas[1].of(d); s.Entry.Lapses != 1 {
				t.Errorf("its lease of seconds has not lapsed within ten minutes: %+v", s)
			}
		}
		for _, d := range first.waiting {
			b.replicas[1].comesTo(d, "sent", 20*time.Second)
		}
		second := b.round()
		b.clock.Move(0)
		b.redelivered(second)
		b.stillWaiting(second)
		b.clock.Move(10 * time.Minute)
		b.check(first, second)
	})
	t.Run("behind and back while it is down", func(t *testing.T) {
		t.Parallel()
		b := startTimeBed(t)
		first := b.round()
		b.restarted(-10 * time.Minute)
		b.redelivered(first)
		b.stillWaiting(first)
		second := b.round()
		b.restarted(0)
		b.redelivered(second)
		b.check(first, second)
	})
}

// timeBed is two replicas on a database with a clock of its own, and a provider of either kind.
type timeBed struct {
	t        *testing.T
	server   *testbed.Server
	clock    *testbed.Clock
	front    *database
	replicas []*gateway
	lanes    map[string]*provider
}

// round is what was under way when the clock jumped, on both lanes.
type round struct{ called, waiting []document }

func startTimeBed(t *testing.T) *timeBed {
	t.Helper()
	b := &timeBed{t: t, front: relay(t), lanes: map[string]*provider{"blind": startProvider(t), "honours": startProvider(t)}}
	b.server, b.clock = testbed.OnOwnClock(t)
	b.front.leadTo(b.server.Address())
	c := configure(b.front.url(), b.lanes["blind"]).with("6s", "lease").takeover("1s").
		lane("blind", b.lanes["blind"].url(), "4s", map[string]any{"blind": true}).
		lane("honours", b.lanes["honours"].url(), "4s", map[string]any{"idempotent": "24h"})
	if out, code := run(t, nil, "migrate", "-config", c.file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	for lane, p := range b.lanes {
		p.told(providertest.Control{LatencyMin: 2 * time.Second, Idempotent: lane == "honours"})
	}
	b.replicas = []*gateway{serve(t, c), serve(t, c)}
	return b
}

// round brings, on each lane, a reminder that is being called for, and one that will be due.
func (b *timeBed) round() round {
	b.t.Helper()
	var r round
	for lane, p := range b.lanes {
		id := lane + strconv.Itoa(len(p.counts().Keys))
		waits := remind(id+"-waits").but("channel", lane).but("not_before", b.now().Add(3*time.Second))
		called := remind(id+"-called").but("channel", lane)
		b.replicas[0].repeated(waits, 1)
		b.replicas[0].pushes(called)
		until(b.t, 20*time.Second, "the call has begun", func() bool { return p.tally(called).Calls == 1 })
		r.called, r.waiting = append(r.called, called), append(r.waiting, waits)
	}
	return r
}

// now is the time by the database.
func (b *timeBed) now() time.Time {
	b.t.Helper()
	now, err := time.Parse(time.RFC3339, b.server.Query(`SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`))
	if err != nil {
		b.t.Fatal(err)
	}
	return now
}

// restarted moves the clock while the server is down.
func (b *timeBed) restarted(to time.Duration) {
	b.t.Helper()
	b.front.leadTo("")
	b.server.Kill()
	b.clock.Move(to)
	b.server.Start()
	b.front.leadTo(b.server.Address())
	b.replicas[1].ready()
}

// redelivered brings what is in flight to the other replica, which finds it in a time that is not its holder's.
func (b *timeBed) redelivered(r round) {
	b.t.Helper()
	for _, d := range r.called {
		for range 3 {
			if a := b.replicas[1].push(d.String()); !isAck(a) && !isNack(a) {
				b.t.Errorf("%s: %s", d["reminder_id"], a)
			}
		}
	}
}

// stillWaiting checks, once all calls of a round are settled, that what was due in seconds is now due in ten
// minutes.
func (b *timeBed) stillWaiting(r round) {
	b.t.Helper()
	for _, d := range r.called {
		b.replicas[1].comesTo(d, "sent", 30*time.Second)
	}
	for _, d := range r.waiting {
		if s := b.replicas[1].of(d); s.Entry.State != "waiting" {
			b.t.Errorf("it was due before ten minutes were over again: %+v", s)
		}
	}
}

// check : each was accepted once, and called for again only under a contract that makes that harmless.
func (b *timeBed) check(rounds ...round) {
	b.t.Helper()
	for _, r := range rounds {
		for _, d := range append(r.called, r.waiting...) {
			s := b.replicas[1].comesTo(d, "sent", 40*time.Second)
			b.replicas[0].repeated(d, 2)
			lane := d["channel"].(string)
			got := b.lanes[lane].tally(d)
			if got.Accepts != 1 || got.Bodies != 1 || got.Calls > 2 || got.Calls > 1 && lane == "blind" {
				b.t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s)
			}
		}
	}
}
