package blackbox

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestNothingIsSentOrLostWhileTheDatabaseIsAway : it crashes while all is quiet, and comes back.
func TestNothingIsSentOrLostWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	d, p := private(t), startProvider(t)
	g := serve(t, configure(d.url(), p))
	before, during := remind("before"), remind("during")
	g.repeated(before, 1)

	d.crash()
	g.unready()
	for range 3 {
		for _, r := range []document{before, during} {
			a := g.nacked(r)
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
			t.Errorf("a look: %s", a)
		}
	}
	if c := p.counts(); c.Calls != 1 {
		t.Errorf("%d calls while no claim could be committed", c.Calls-1)
	}

	d.back()
	g.ready()
	for _, r := range []document{before, during} {
		g.acked(r, 30*time.Second)
		g.repeated(r, 3)
		g.stands(r, standing{"sent", "", "accepted", 1})
		p.called(r, 1)
	}
}

// TestAnOutcomeIsRecordedThoughTheDatabaseCrashedDuringTheCall : the provider takes its time, and the
// database goes once the call has begun. The broker is nacked in its own time; the record is kept.
func TestAnOutcomeIsRecordedThoughTheDatabaseCrashedDuringTheCall(t *testing.T) {
	t.Parallel()
	d, p := private(t), startProvider(t)
	p.told(providertest.Control{LatencyMin: 1500 * time.Millisecond, LatencyMax: 1500 * time.Millisecond})
	g := serve(t, configure(d.url(), p).with("20s", "lease").
		with("4s", "providers", "mail", "timeout").with(map[string]any{"blind": true}, "providers", "mail", "contract"))
	r := remind("rem")
	pushed := g.pushes(r)
	until(t, 10*time.Second, "the call has begun", func() bool { return p.counts().Calls == 1 })
	d.crash()
	if a := <-pushed; a.status != http.StatusServiceUnavailable || a.retryAfter() < 1 || a.took > 6*time.Second {
		t.Errorf("%s after %v, Retry-After %q", a, a.took, a.header.Get("Retry-After"))
	}
	d.back()
	g.ready()
	g.comesTo(r, "sent", 30*time.Second) // by its own holder: its lease has not lapsed, and nobody redelivers
	g.repeated(r, 3)
	s := g.stands(r, standing{"sent", "", "accepted", 1})
	s.tells(t, "accepted")
	if s.Entry.Lapses != 0 || s.Entry.Receipt == "" {
		t.Errorf("%+v", s.Entry)
	}
	if got := p.tally(r); got.Calls != 1 || got.Accepts != 1 {
		t.Errorf("the provider saw %+v", got)
	}
}

// TestADatabaseThatFallsSilentIsNotWaitedFor : packets are swallowed, and no connection is closed.
func TestADatabaseThatFallsSilentIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	d, p := private(t), startProvider(t)
	g := serve(t, configure(d.url(), p))
	before, during := remind("before"), remind("during")
	g.repeated(before, 1)
	d.silence(true)
	for _, r := range []document{before, during} { // at once, while connections still look alive
		// The queue waits for 3 s; a last look at what stands must not cost it much more.
		if a := g.nacked(r); a.took > 4700*time.Millisecond {
			t.Errorf("a nack took %v", a.took)
		}
	}
	g.unready()
	if c := p.counts(); c.Calls != 1 {
		t.Errorf("%d calls while no claim could be committed", c.Calls-1)
	}
	d.silence(false)
	g.ready()
	for _, r := range []document{before, during} {
		g.acked(r, 30*time.Second)
		s := g.stands(r, standing{"sent", "", "accepted", 1})
		if !slices.Equal(s.outcomes(), []string{"accepted"}) {
			t.Errorf("timeline: %+v", s.Timeline)
		}
		p.called(r, 1)
	}
}

// unready waits until the gateway takes itself out of the balance; it stays alive.
func (g *gateway) unready() {
	g.t.Helper()
	until(g.t, 10*time.Second, "it is not ready", func() bool {
		a := g.operations("/readyz")
		if a.took > 2*time.Second {
			g.t.Errorf("readiness took %v", a.took)
		}
		return a.status == http.StatusServiceUnavailable
	})
	if a := g.operations("/livez"); a.status != http.StatusOK {
		g.t.Errorf("it is not alive: %s", a)
	}
}

// ready waits until the gateway takes requests again.
func (g *gateway) ready() {
	g.t.Helper()
	until(g.t, 20*time.Second, "it is ready", func() bool { return g.operations("/readyz").status == http.StatusOK })
}

// pushes delivers a reminder, and hands over the answer when it comes.
func (g *gateway) pushes(d document) <-chan answer {
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
