package blackbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// The provider accepted, its answer was lost, and the sender tried again: up to five copies.
func TestB16WhatWasAcceptedAndNotAnsweredIsRepeatedUnderItsKeyOrNotAtAll(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		d := remind("rem-b16")
		f.plays(p, map[string][]string{d.to(): {providertest.AcceptReset, providertest.OK}})
		g := serve(t, f.configure(embedded(t), p).with("100ms", "sweep"))
		if f.honours {
			g.nacked(d)
			g.acked(d, 10*time.Second)
			g.stands(d, standing{"sent", "", "accepted", 2}).tells(t, "unknown", "accepted")
			p.saw(d, 2, 1)
			return
		}
		held := standing{"unknown", "unknown", "unanswered", 1}
		g.repeated(d, 1)
		throughout(t, 1200*time.Millisecond, "ten sweeps and every delivery leave it unknown", func() bool {
			g.repeated(d, 1)
			return g.of(d).Entry.State == "unknown"
		})
		g.stands(d, held).tells(t, "unknown")
		p.saw(d, 1, 1)
	})
}

// net/http takes a request with an Idempotency-Key for safe to replay on a connection that was used
// before: one attempt in the ledger, two on the wire.
func TestB17OneAttemptIsOneRequestAlsoOnAWarmConnection(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		const pairs = 50
		p := startProvider(t)
		modes := map[string][]string{}
		lost := make([]document, pairs)
		for i := range lost {
			lost[i] = remind(fmt.Sprintf("rem-b17-%d", i))
			modes[lost[i].to()] = []string{providertest.AcceptReset, providertest.OK}
		}
		f.plays(p, modes)
		g := serve(t, f.configure(embedded(t), p))
		for i, d := range lost {
			if a := g.bring(remind(fmt.Sprintf("rem-b17-warm-%d", i))); a.status != http.StatusOK {
				t.Errorf("warming up: %s", a)
			}
			if a := g.bring(d); (a.status == http.StatusOK) == f.honours {
				t.Errorf("%s: %s", d["reminder_id"], a)
			}
		}
		// A connection that was reset is replaced; the others were used again.
		if got := p.counts().Connections; got > pairs+5 {
			t.Errorf("%d connections for %d calls: they were not warm", got, 2*pairs)
		}
		attempts, accepts := 1, 1
		for _, d := range lost {
			if f.honours {
				attempts = 2
				g.acked(d, 20*time.Second)
			}
			if s := g.of(d); s.Entry.Attempts != attempts || len(s.outcomes()) != attempts {
				t.Errorf("%s: %d attempts, %v; want %d", d["reminder_id"], s.Entry.Attempts, s.outcomes(), attempts)
			}
			if got := p.tally(d); got.Calls != attempts || got.Accepts != accepts {
				t.Errorf("%s: %d attempts in the ledger, at the provider %+v", d["reminder_id"], attempts, got)
			}
		}
		p.acceptsOnce()
	})
}

// A wrapper that retries by itself multiplies every attempt.
func TestB17AProviderThatIsUnavailableForEverIsCalledExactlyAsOftenAsConfigured(t *testing.T) {
	t.Parallel()
	const most = 4 // max_attempts
	p := startProvider(t)
	g := serve(t, configure(embedded(t), p).with("100ms", "types", "default", "backoff", "base").with("2s", "types", "default", "backoff", "cap").
		lane("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).lane("ignores", p.url(), "2s", nil).
		lane("busy", p.url(), "2s", nil))
	cases := map[string]struct {
		mode  string
		calls int
		want  standing
	}{
		// Without Retry-After a proxy may speak that had passed the request on.
		"honours": {"status:503", most, standing{"unknown", "unknown", "budget_spent", most}},
		"ignores": {"status:503", 1, standing{"unknown", "unknown", "unanswered", 1}},
		"busy":    {"busy:1", most, standing{"dead", "exhausted", "budget_spent", most}},
	}
	modes := map[string][]string{}
	for channel, test := range cases {
		modes[remind("rem-b17-"+channel).to()] = []string{test.mode}
	}
	p.told(providertest.Control{Modes: modes})
	for channel, test := range cases {
		d := remind("rem-b17-"+channel).but("channel", channel)
		g.acked(d, 20*time.Second)
		g.repeated(d, 3)
		g.stands(d, test.want)
		p.saw(d, test.calls, 0)
	}
}

// A key that is made inside of the attempt makes every retry a new operation.
func TestB18EveryAttemptHasTheSameKeyAndBytesOverRestartsAndNewContent(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		mode, outcome := "busy:1", "throttled" // proven unsent
		if f.honours {
			mode, outcome = "status:503", "unknown"
		}
		f.plays(p, map[string][]string{"": {mode, mode, providertest.OK}})
		c := f.configure(embedded(t), p)
		d := remind("rem-b18")
		tried := func(g *gateway, d document, attempts int) {
			t.Helper()
			until(t, 15*time.Second, fmt.Sprintf("attempt %d", attempts), func() bool {
				g.bring(d)
				return g.of(d).Entry.Attempts == attempts
			})
		}

		g := serve(t, c)
		tried(g, d, 1)
		g.kill()
		g = serve(t, c)
		tried(g, d, 2)
		if err := g.stop(); err != nil {
			t.Error(err)
		}
		// A new template is deployed, and the redelivery brings what it makes.
		g = serve(t, c.with("3s", "types", "default", "backoff", "base"))
		tried(g, d.but("content", map[string]any{"text": "A new template."}), 3)

		s := g.stands(d, standing{"sent", "", "accepted", 3})
		s.tells(t, outcome, outcome, "accepted")
		if len(s.Conflicts) != 1 {
			t.Errorf("conflicts: %v", s.Conflicts)
		}
		p.saw(d, 3, 1)
		if c := p.counts(); len(c.Keys) != 1 || p.tally(d).Bodies != 1 {
			t.Errorf("%d keys, %d different bodies", len(c.Keys), p.tally(d).Bodies)
		}
	})
}

// Refusals for good were retried for a day and starved others; what is broken on our side, or may be
// temporary, must not end a reminder either.
func TestB19AStatusThatProvesNothingAboutTheMessageEndsNoReminder(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		ours := []int{301, 302, 307, 308, 401, 402, 403, 404, 405, 407}
		perhaps := []int{408, 409, 425, 500, 501, 502, 503, 504}
		name := func(status int) string { return fmt.Sprintf("s%d", status) }
		p := startProvider(t)
		c, modes := configure(embedded(t), p).with(1, "types", "default", "max_attempts"), map[string][]string{}
		for _, status := range append(slices.Clone(ours), perhaps...) {
			c = c.lane(name(status), p.url(), "2s", f.contract())
			modes[remind(name(status)).to()] = []string{fmt.Sprintf("status:%d", status)}
		}
		c = c.kind("twice", map[string]any{"max_attempts": 2})
		f.plays(p, modes)
		g := serve(t, c)

		for _, status := range ours { // the budget is one attempt, and not touched
			d := remind(name(status)).but("channel", name(status))
			g.nacked(d)
			g.nacked(d)
			s := g.stands(d, standing{"waiting", "credentials", "credentials", 1})
			if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < 50*time.Second || wait > 61*time.Second {
				t.Errorf("%d: due after %v", status, wait)
			}
			p.saw(d, 1, 0)
		}
		if closed := g.gates(); len(closed) != len(ours) {
			t.Errorf("closed gates: %+v", closed)
		}
		for _, status := range perhaps {
			d := remind(name(status)).but("channel", name(status)).but("type", "twice")
			if !f.honours {
				g.repeated(d, 2)
				g.stands(d, standing{"unknown", "unknown", "unanswered", 1})
				p.saw(d, 1, 0)
				continue
			}
			g.nacked(d)
			s := g.stands(d, standing{"waiting", "unknown", "repeatable", 1})
			if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < time.Second || wait > 2*time.Second {
				t.Errorf("%d: due after %v", status, wait)
			}
			p.saw(d, 1, 0)
		}
	})
}

// 9223372037 seconds became a negative wait, and the provider was hammered. Here it is a 503 that asks.
func TestB20ARetryAfterThatIsNoWaitNeverLeadsToACallAtOnce(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"overflow": "9223372037", "largest": "9223372036854775807", "beyond": "18446744073709551617", "negative": "-5",
		"zero": "0", "fraction": "1.5", "words": "abc", "past": "Thu, 01 Jan 1970 00:00:00 GMT", "far": "Sun, 06 Sep 2099 00:00:00 GMT", "list": "5, 60",
	}
	p := startProvider(t)
	c, modes := configure(embedded(t), p), map[string][]string{}
	for name, value := range values {
		c = c.lane(name, p.url(), "2s", nil)
		modes[remind(name).to()] = []string{"busy:" + value}
	}
	p.told(providertest.Control{Modes: modes})
	g := serve(t, c)
	for name := range values {
		d := remind(name).but("channel", name)
		called := time.Now()
		g.nacked(d)
		s := g.stands(d, standing{"waiting", "throttled", "throttled", 1})
		g.bring(d)
		if calls := p.tally(d).Calls; calls != 1 && time.Since(called) < time.Second {
			t.Errorf("%s: called again within a second", name)
		}
		if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < time.Second || wait > 10*time.Minute {
			t.Errorf("%s: due after %v", name, wait)
		}
	}
}

// One of several channels fails, and what worked is sent again with it.
func TestB22AChannelThatFailsDoesNotRepeatAnotherThatWorked(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		mail := remind("rem-b22")
		text := mail.but("channel", "text").but("to", "+46700000000")
		f.plays(p, map[string][]string{"+46700000000": {"busy:1", "busy:1", providertest.OK}})
		g := serve(t, f.configure(embedded(t), p).lane("text", p.url(), "2s", f.contract()))
		until(t, 15*time.Second, "both channels are acked", func() bool {
			g.repeated(mail, 1)
			return g.bring(text).status == http.StatusOK
		})
		g.stands(mail, standing{"sent", "", "accepted", 1})
		g.stands(text, standing{"sent", "", "accepted", 3})
		p.saw(mail, 1, 1)
		p.saw(text, 3, 1)
	})
}

// Backoff without chance makes all that failed come back in one instant.
func TestB23WhatFailedTogetherDoesNotComeBackTogether(t *testing.T) {
	t.Parallel()
	const (
		reminders = 300
		rate      = 100
	)
	// wave asks for many at once, and returns how they stood when they were answered for.
	wave := func(t *testing.T, g *gateway) []entry {
		t.Helper()
		slots, waiting := make(chan struct{}, atOnce), make([]entry, reminders)
		parallel(reminders, func(i int) {
			slots <- struct{}{}
			defer func() { <-slots }()
			a, err := g.call(http.MethodPost, "/v1/reminders", producer, http.Header{"Content-Type": {"application/json"}}, []byte(remind(fmt.Sprintf("rem-b23-%d", i)).String()))
			if err != nil || a.status != http.StatusAccepted || json.Unmarshal(a.body, &waiting[i]) != nil {
				t.Errorf("rem-b23-%d: %s, %v", i, a, err)
			}
		})
		return waiting
	}
	// spread checks that spans or moments lie apart: by a fifth of the delay, and in 100 and more places.
	spread := func(t *testing.T, what string, at []time.Duration, delay time.Duration) {
		t.Helper()
		places := map[time.Duration]bool{}
		for _, d := range at {
			places[d.Truncate(time.Millisecond)] = true
		}
		if width := slices.Max(at) - slices.Min(at); width < delay/5 || len(places) < 100 {
			t.Errorf("%s: %d in %d places over %v, after a delay of %v", what, len(at), len(places), width, delay)
		}
	}
	recovers := func(t *testing.T, g *gateway) {
		t.Helper()
		until(t, time.Minute, "all are sent", func() bool { return len(g.list(map[string][]string{"state": {"sent"}})) == reminders })
		for _, e := range g.list(map[string][]string{"state": {"sent"}}) {
			if e.Attempts > 6 {
				t.Errorf("%s: %d attempts", e.ReminderID, e.Attempts)
			}
		}
	}
	configured := func(t *testing.T, p *provider) config {
		return configure(embedded(t), p).with(fmt.Sprintf("%d/s", rate), "providers", "mail", "rate").
			with(map[string]any{"max_attempts": 6, "backoff": map[string]any{"base": "4s", "cap": "10m"}}, "types", "default")
	}

	t.Run("every call is answered 500", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{Idempotent: true, Modes: map[string][]string{"": {"status:500"}}})
		g := serve(t, configured(t, p))
		var delays []time.Duration
		for _, e := range wave(t, g) {
			if e.State == "waiting" && e.Attempts == 1 {
				delays = append(delays, e.Due.Sub(e.Updated))
			}
		}
		spread(t, "delays", delays, 4*time.Second)
		p.told(providertest.Control{Idempotent: true})
		recovers(t, g)
		if c := p.counts(); c.Accepts != reminders {
			t.Errorf("%d accepted", c.Accepts)
		}
		p.acceptsOnce()
	})
	t.Run("nobody is there", func(t *testing.T) {
		t.Parallel()
		p, open := absent(t)
		g := serve(t, configured(t, p))
		first := time.Now()
		var behind []time.Duration
		for _, e := range wave(t, g) {
			if e.Reason == "gate_closed" {
				behind = append(behind, e.Due.Sub(first))
			}
		}
		spread(t, "due behind the closed gate", behind, 4*time.Second)
		// They came over seconds; what matters is the crowd at the door in the moment that it opens.
		crowds := map[time.Duration]int{}
		for _, due := range behind {
			crowds[due.Truncate(200*time.Millisecond)]++
		}
		for due, crowd := range crowds {
			if crowd > len(behind)/2 {
				t.Errorf("%d of %d behind the closed gate are due within 200 ms, after %v", crowd, len(behind), due)
			}
		}
		open()
		type look struct {
			before, after time.Time
			calls         int
		}
		var looks []look
		until(t, time.Minute, "all are accepted", func() bool {
			before, c := time.Now(), p.counts()
			looks = append(looks, look{before, time.Now(), c.Calls})
			return c.Accepts == reminders
		})
		for i, from := range looks {
			for _, to := range looks[i:] {
				// A tenth of the rate may come at once, and a little more may have been on its way.
				if calls, span := to.calls-from.calls, to.after.Sub(from.before); span <= time.Second && calls > rate*6/5 {
					t.Errorf("%d calls within %v, at a rate of %d a second", calls, span, rate)
				}
			}
		}
		recovers(t, g)
		p.acceptsOnce()
	})
}
