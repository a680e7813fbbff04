package blackbox

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestOutage_NothingIsSentOrLostWhileTheDatabaseIsDown crashes the database while nothing is in flight, and
// restarts it.
func TestOutage_NothingIsSentOrLostWhileTheDatabaseIsDown(t *testing.T) {
	t.Parallel()
	d, p := newOwnPostgres(t), startProvider(t)
	g := serve(t, configure(d.url(), p))
	before, during := newReminder("before"), newReminder("during")
	g.redeliver(before, 1)

	d.crash()
	g.waitUnready()
	for range 3 {
		for _, r := range []document{before, during} {
			a := g.pushExpectNack(r)
			if a.took > 4*time.Second {
				t.Errorf("a nack took %v", a.took)
			}
		}
		a := g.post("/v1/reminders", during.String())
		if a.status != http.StatusServiceUnavailable || a.retryAfter() < 1 {
			t.Errorf("a request: %s, Retry-After %q", a, a.header.Get("Retry-After"))
		}
		a = g.get("/v1/reminders/before")
		if a.status != http.StatusServiceUnavailable {
			t.Errorf("a read: %s", a)
		}
	}
	if c := p.counts(); c.Calls != 1 {
		t.Errorf("%d calls while no claim could be committed", c.Calls-1)
	}

	d.restart()
	g.waitReady()
	for _, r := range []document{before, during} {
		g.pushUntilAcked(r, 30*time.Second)
		g.redeliver(r, 3)
		g.checkState(r, entryState{"sent", "", "accepted", 1})
		p.checkCallCount(r, 1)
	}
}

// TestOutage_OutcomeIsRecordedAfterACrashDuringTheCall crashes the database once the provider's slow call has
// begun. The broker is nacked in time; the outcome is recorded.
func TestOutage_OutcomeIsRecordedAfterACrashDuringTheCall(t *testing.T) {
	t.Parallel()
	d, p := newOwnPostgres(t), startProvider(t)
	p.setControl(providertest.Control{LatencyMin: 1500 * time.Millisecond, LatencyMax: 1500 * time.Millisecond})
	g := serve(t, configure(d.url(), p).with("20s", "lease").
		with("4s", "providers", "mail", "timeout").with(map[string]any{"blind": true}, "providers", "mail", "contract"))
	r := newReminder("rem")
	pushed := g.pushAsync(r)
	waitUntil(t, 10*time.Second, "the call has begun", func() bool { return p.counts().Calls == 1 })
	d.crash()
	if a := <-pushed; a.status != http.StatusServiceUnavailable || a.retryAfter() < 1 || a.took > 6*time.Second {
		t.Errorf("%s after %v, Retry-After %q", a, a.took, a.header.Get("Retry-After"))
	}
	d.restart()
	g.waitReady()
	g.waitForState(r, "sent", 30*time.Second) // by its own holder: its lease has not expired, and nothing is redelivered
	g.redeliver(r, 3)
	s := g.checkState(r, entryState{"sent", "", "accepted", 1})
	s.checkOutcomes(t, "accepted")
	if s.Entry.LeaseExpirations != 0 || s.Entry.Receipt == "" {
		t.Errorf("%+v", s.Entry)
	}
	if got := p.countsFor(r); got.Calls != 1 || got.Accepts != 1 {
		t.Errorf("the provider saw %+v", got)
	}
}

// TestOutage_SilentDatabaseIsNotWaitedFor discards all packets without closing a connection.
func TestOutage_SilentDatabaseIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	d, p := newOwnPostgres(t), startProvider(t)
	g := serve(t, configure(d.url(), p))
	before, during := newReminder("before"), newReminder("during")
	g.redeliver(before, 1)
	d.setSilent(true)
	for _, r := range []document{before, during} { // at once, while the connections still look alive
		// The queue waits for 3 s; a last read of the entry must not take much longer.
		if a := g.pushExpectNack(r); a.took > 4700*time.Millisecond {
			t.Errorf("a nack took %v", a.took)
		}
	}
	g.waitUnready()
	if c := p.counts(); c.Calls != 1 {
		t.Errorf("%d calls while no claim could be committed", c.Calls-1)
	}
	d.setSilent(false)
	g.waitReady()
	for _, r := range []document{before, during} {
		g.pushUntilAcked(r, 30*time.Second)
		s := g.checkState(r, entryState{"sent", "", "accepted", 1})
		if !slices.Equal(s.outcomes(), []string{"accepted"}) {
			t.Errorf("timeline: %+v", s.Timeline)
		}
		p.checkCallCount(r, 1)
	}
}

// waitUnready waits until the gateway reports that it is not ready; it stays alive.
func (g *gateway) waitUnready() {
	g.t.Helper()
	waitUntil(g.t, 10*time.Second, "it is not ready", func() bool {
		a := g.opsGet("/readyz")
		if a.took > 2*time.Second {
			g.t.Errorf("readiness took %v", a.took)
		}
		return a.status == http.StatusServiceUnavailable
	})
	if a := g.opsGet("/livez"); a.status != http.StatusOK {
		g.t.Errorf("it is not alive: %s", a)
	}
}

// waitReady waits until the gateway reports that it is ready.
func (g *gateway) waitReady() {
	g.t.Helper()
	waitUntil(g.t, 20*time.Second, "it is ready", func() bool { return g.opsGet("/readyz").status == http.StatusOK })
}

// pushAsync delivers a reminder in the background; the channel receives the response.
func (g *gateway) pushAsync(d document) <-chan answer {
	answered := make(chan answer, 1)
	go func() {
		a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(d.String()))
		if err != nil {
			a.body = []byte(err.Error())
		}
		answered <- a
	}()
	return answered
}
