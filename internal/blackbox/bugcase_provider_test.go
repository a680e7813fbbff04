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

// Bug: the provider accepted, its response was lost, and the sender tried again: up to five copies.
func TestB16_AcceptedButUnansweredIsRepeatedUnderItsKeyOrNotAtAll(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		d := newReminder("rem-b16")
		f.setModes(p, map[string][]string{d.recipient(): {providertest.AcceptReset, providertest.OK}})
		g := serve(t, f.configure(newSQLite(t), p).with("100ms", "sweep"))
		if f.honours {
			g.pushExpectNack(d)
			g.pushUntilAcked(d, 10*time.Second)
			g.checkState(d, entryState{"sent", "", "accepted", 2}).checkOutcomes(t, "unknown", "accepted")
			p.checkCalls(d, 2, 1)
			return
		}
		held := entryState{"unknown", "unknown", "unanswered", 1}
		g.redeliver(d, 1)
		checkThroughout(t, 1200*time.Millisecond, "sweeps and deliveries leave it unknown", func() bool {
			g.redeliver(d, 1)
			return g.detail(d).Entry.State == "unknown"
		})
		g.checkState(d, held).checkOutcomes(t, "unknown")
		p.checkCalls(d, 1, 1)
	})
}

// Bug: net/http considers a request with an Idempotency-Key safe to replay on a reused connection: one
// attempt in the ledger, two on the wire. Each call has a connection of its own, so there is none to reuse; package
// outbound tests that nothing is replayed on a reused one either.
func TestB17_OneAttemptIsOneRequestOnItsOwnConnection(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		const pairs = 50
		p := startProvider(t)
		modes := map[string][]string{}
		lost := make([]document, pairs)
		for i := range lost {
			lost[i] = newReminder(fmt.Sprintf("rem-b17-%d", i))
			modes[lost[i].recipient()] = []string{providertest.AcceptReset, providertest.OK}
		}
		f.setModes(p, modes)
		g := serve(t, f.configure(newSQLite(t), p))
		for i, d := range lost {
			if a := g.deliver(newReminder(fmt.Sprintf("rem-b17-between-%d", i))); a.status != http.StatusOK {
				t.Errorf("an accepted one between: %s", a)
			}
			if a := g.deliver(d); (a.status == http.StatusOK) == f.honours {
				t.Errorf("%s: %s", d["reminder_id"], a)
			}
		}
		if got := p.counts().Connections; got < 2*pairs {
			t.Errorf("%d connections for %d calls: some were reused", got, 2*pairs)
		}
		attempts, accepts := 1, 1
		for _, d := range lost {
			if f.honours {
				attempts = 2
				g.pushUntilAcked(d, 20*time.Second)
			}
			if s := g.detail(d); s.Entry.Attempts != attempts || len(s.outcomes()) != attempts {
				t.Errorf("%s: %d attempts, %v; want %d", d["reminder_id"], s.Entry.Attempts, s.outcomes(), attempts)
			}
			if got := p.countsFor(d); got.Calls != attempts || got.Accepts != accepts {
				t.Errorf("%s: %d attempts in the ledger, the provider saw %+v", d["reminder_id"], attempts, got)
			}
		}
		p.checkAcceptedOnce()
	})
}

// Bug: a wrapper that retries by itself multiplies every attempt.
func TestB17_UnavailableProviderIsCalledExactlyMaxAttemptsTimes(t *testing.T) {
	t.Parallel()
	const maxAttempts = 4 // max_attempts
	p := startProvider(t)
	g := serve(t, configure(newSQLite(t), p).with("100ms", "types", "default", "backoff", "base").with("2s", "types", "default", "backoff", "cap").
		withProvider("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).withProvider("ignores", p.url(), "2s", nil).
		withProvider("busy", p.url(), "2s", nil))
	cases := map[string]struct {
		mode  string
		calls int
		want  entryState
	}{
		// Without Retry-After the 503 may come from a proxy that had passed the request on.
		"honours": {"status:503", maxAttempts, entryState{"unknown", "unknown", "budget_spent", maxAttempts}},
		"ignores": {"status:503", 1, entryState{"unknown", "unknown", "unanswered", 1}},
		"busy":    {"busy:1", maxAttempts, entryState{"dead", "exhausted", "budget_spent", maxAttempts}},
	}
	modes := map[string][]string{}
	for channel, test := range cases {
		modes[newReminder("rem-b17-"+channel).recipient()] = []string{test.mode}
	}
	p.setControl(providertest.Control{Modes: modes})
	for channel, test := range cases {
		d := newReminder("rem-b17-"+channel).with("channel", channel)
		g.pushUntilAcked(d, 20*time.Second)
		g.redeliver(d, 3)
		g.checkState(d, test.want)
		p.checkCalls(d, test.calls, 0)
	}
}

// Bug: a key that is generated within the attempt makes every retry a new operation.
func TestB18_KeyAndBytesAreTheSameForEveryAttempt(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		mode, outcome := "busy:1", "throttled" // proven unsent
		if f.honours {
			mode, outcome = "status:503", "unknown"
		}
		f.setModes(p, map[string][]string{"": {mode, mode, providertest.OK}})
		c := f.configure(newSQLite(t), p)
		d := newReminder("rem-b18")
		attempted := func(g *gateway, d document, attempts int) {
			t.Helper()
			waitUntil(t, 15*time.Second, fmt.Sprintf("attempt %d", attempts), func() bool {
				g.deliver(d)
				return g.detail(d).Entry.Attempts == attempts
			})
		}

		g := serve(t, c)
		attempted(g, d, 1)
		g.kill()
		g = serve(t, c)
		attempted(g, d, 2)
		if err := g.stop(); err != nil {
			t.Error(err)
		}
		// A new template is deployed, and the redelivery contains what it renders.
		g = serve(t, c.with("3s", "types", "default", "backoff", "base"))
		attempted(g, d.with("content", map[string]any{"text": "A new template."}), 3)

		s := g.checkState(d, entryState{"sent", "", "accepted", 3})
		s.checkOutcomes(t, outcome, outcome, "accepted")
		if len(s.Conflicts) != 1 {
			t.Errorf("conflicts: %v", s.Conflicts)
		}
		p.checkCalls(d, 3, 1)
		if c := p.counts(); len(c.Keys) != 1 || p.countsFor(d).Bodies != 1 {
			t.Errorf("%d keys, %d different bodies", len(c.Keys), p.countsFor(d).Bodies)
		}
	})
}

// Bug: permanent refusals were retried for a day and starved other reminders; conversely, a fault on our side
// or a possibly temporary one must not end a reminder.
func TestB19_StatusThatProvesNothingEndsNoReminder(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		ourFaults := []int{301, 302, 307, 308, 401, 402, 403, 404, 405, 407}
		temporary := []int{408, 409, 425, 500, 501, 502, 503, 504}
		name := func(status int) string { return fmt.Sprintf("s%d", status) }
		p := startProvider(t)
		c, modes := configure(newSQLite(t), p).with(1, "types", "default", "max_attempts"), map[string][]string{}
		for _, status := range append(slices.Clone(ourFaults), temporary...) {
			c = c.withProvider(name(status), p.url(), "2s", f.contract())
			modes[newReminder(name(status)).recipient()] = []string{fmt.Sprintf("status:%d", status)}
		}
		c = c.withType("twice", map[string]any{"max_attempts": 2})
		f.setModes(p, modes)
		g := serve(t, c)

		for _, status := range ourFaults { // the budget is one attempt, and it is not used up
			d := newReminder(name(status)).with("channel", name(status))
			g.pushExpectNack(d)
			g.pushExpectNack(d)
			s := g.checkState(d, entryState{"waiting", "credentials", "credentials", 1})
			if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < 50*time.Second || wait > 61*time.Second {
				t.Errorf("%d: due after %v", status, wait)
			}
			p.checkCalls(d, 1, 0)
		}
		if closed := g.closedGates(); len(closed) != len(ourFaults) {
			t.Errorf("closed gates: %+v", closed)
		}
		for _, status := range temporary {
			d := newReminder(name(status)).with("channel", name(status)).with("type", "twice")
			if !f.honours {
				g.redeliver(d, 2)
				g.checkState(d, entryState{"unknown", "unknown", "unanswered", 1})
				p.checkCalls(d, 1, 0)
				continue
			}
			g.pushExpectNack(d)
			s := g.checkState(d, entryState{"waiting", "unknown", "repeatable", 1})
			if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < time.Second || wait > 2*time.Second {
				t.Errorf("%d: due after %v", status, wait)
			}
			p.checkCalls(d, 1, 0)
		}
	})
}

// Bug: 9223372037 seconds overflowed to a negative wait, and the provider was called in a tight loop. Here it
// is the Retry-After of a 503.
func TestB20_InvalidRetryAfterNeverLeadsToAnImmediateCall(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"overflow": "9223372037", "largest": "9223372036854775807", "beyond": "18446744073709551617", "negative": "-5",
		"zero": "0", "fraction": "1.5", "words": "abc", "past": "Thu, 01 Jan 1970 00:00:00 GMT", "far": "Sun, 06 Sep 2099 00:00:00 GMT", "list": "5, 60",
	}
	p := startProvider(t)
	c, modes := configure(newSQLite(t), p), map[string][]string{}
	for name, value := range values {
		c = c.withProvider(name, p.url(), "2s", nil)
		modes[newReminder(name).recipient()] = []string{"busy:" + value}
	}
	p.setControl(providertest.Control{Modes: modes})
	g := serve(t, c)
	for name := range values {
		d := newReminder(name).with("channel", name)
		called := time.Now()
		g.pushExpectNack(d)
		s := g.checkState(d, entryState{"waiting", "throttled", "throttled", 1})
		g.deliver(d)
		if calls := p.countsFor(d).Calls; calls != 1 && time.Since(called) < time.Second {
			t.Errorf("%s: called again within a second", name)
		}
		if wait := s.Entry.Due.Sub(s.Entry.Updated); wait < time.Second || wait > 10*time.Minute {
			t.Errorf("%s: due after %v", name, wait)
		}
	}
}

// Bug: one of several channels fails, and the channel that worked is sent again with it.
func TestB22_FailingChannelDoesNotRepeatAnotherThatWorked(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p := startProvider(t)
		mail := newReminder("rem-b22")
		text := mail.with("channel", "text").with("to", "+46700000000")
		f.setModes(p, map[string][]string{"+46700000000": {"busy:1", "busy:1", providertest.OK}})
		g := serve(t, f.configure(newSQLite(t), p).withProvider("text", p.url(), "2s", f.contract()))
		waitUntil(t, 15*time.Second, "both channels are acked", func() bool {
			g.redeliver(mail, 1)
			return g.deliver(text).status == http.StatusOK
		})
		g.checkState(mail, entryState{"sent", "", "accepted", 1})
		g.checkState(text, entryState{"sent", "", "accepted", 3})
		p.checkCalls(mail, 1, 1)
		p.checkCalls(text, 3, 1)
	})
}

// Bug: backoff without jitter makes everything that failed retry at the same instant.
func TestB23_RetriesAfterACommonFailureAreSpread(t *testing.T) {
	t.Parallel()
	const (
		reminders = 300
		rate      = 100
	)
	// wave requests all reminders concurrently, and returns their entries as they were when the requests were
	// answered.
	wave := func(t *testing.T, g *gateway) []entry {
		t.Helper()
		slots, waiting := make(chan struct{}, concurrentIdentities), make([]entry, reminders)
		parallel(reminders, func(i int) {
			slots <- struct{}{}
			defer func() { <-slots }()
			a, err := g.call(http.MethodPost, "/v1/reminders", producerToken, http.Header{"Content-Type": {"application/json"}}, []byte(newReminder(fmt.Sprintf("rem-b23-%d", i)).String()))
			if err != nil || a.status != http.StatusAccepted || json.Unmarshal(a.body, &waiting[i]) != nil {
				t.Errorf("rem-b23-%d: %s, %v", i, a, err)
			}
		})
		return waiting
	}
	// spread checks that durations are spread: over at least a fifth of the delay, and over at least 100
	// distinct milliseconds.
	spread := func(t *testing.T, what string, at []time.Duration, delay time.Duration) {
		t.Helper()
		distinct := map[time.Duration]bool{}
		for _, d := range at {
			distinct[d.Truncate(time.Millisecond)] = true
		}
		if width := slices.Max(at) - slices.Min(at); width < delay/5 || len(distinct) < 100 {
			t.Errorf("%s: %d at %d distinct times over %v, after a delay of %v", what, len(at), len(distinct), width, delay)
		}
	}
	recovers := func(t *testing.T, g *gateway) {
		t.Helper()
		waitUntil(t, time.Minute, "all are sent", func() bool { return len(g.list(map[string][]string{"state": {"sent"}})) == reminders })
		for _, e := range g.list(map[string][]string{"state": {"sent"}}) {
			if e.Attempts > 6 {
				t.Errorf("%s: %d attempts", e.ReminderID, e.Attempts)
			}
		}
	}
	configured := func(t *testing.T, p *provider) config {
		return configure(newSQLite(t), p).with(fmt.Sprintf("%d/s", rate), "providers", "mail", "rate").
			with(map[string]any{"max_attempts": 6, "backoff": map[string]any{"base": "4s", "cap": "10m"}}, "types", "default")
	}

	t.Run("every response is a 500", func(t *testing.T) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{Idempotent: true, Modes: map[string][]string{"": {"status:500"}}})
		g := serve(t, configured(t, p))
		var delays []time.Duration
		for _, e := range wave(t, g) {
			if e.State == "waiting" && e.Attempts == 1 {
				delays = append(delays, e.Due.Sub(e.Updated))
			}
		}
		spread(t, "delays", delays, 4*time.Second)
		p.setControl(providertest.Control{Idempotent: true})
		recovers(t, g)
		if c := p.counts(); c.Accepts != reminders {
			t.Errorf("%d accepted", c.Accepts)
		}
		p.checkAcceptedOnce()
	})
	t.Run("nothing listens", func(t *testing.T) {
		t.Parallel()
		p, open := startAbsentProvider(t)
		// Few at once: a call that has its turn may still be connecting, and arrives with later ones.
		g := serve(t, configured(t, p).with(8, "providers", "mail", "concurrency"))
		first := time.Now()
		var behind []time.Duration
		for _, e := range wave(t, g) {
			if e.Reason == "gate_closed" {
				behind = append(behind, e.Due.Sub(first))
			}
		}
		spread(t, "due behind the closed gate", behind, 4*time.Second)
		// They arrived over seconds; what matters is how many are due at the moment the gate opens.
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
		type observation struct {
			before, after time.Time
			calls         int
		}
		var observations []observation
		waitUntil(t, time.Minute, "all are accepted", func() bool {
			before, c := time.Now(), p.counts()
			observations = append(observations, observation{before, time.Now(), c.Calls})
			return c.Accepts == reminders
		})
		for i, from := range observations {
			for _, to := range observations[i:] {
				// A tenth of the rate may come as a burst, and a few more calls may have been in flight.
				if calls, span := to.calls-from.calls, to.after.Sub(from.before); span <= time.Second && calls > rate*6/5 {
					t.Errorf("%d calls within %v, at a rate of %d a second", calls, span, rate)
				}
			}
		}
		recovers(t, g)
		p.checkAcceptedOnce()
	})
}
