package blackbox

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestThrottled_WaitsForItsDueTimeWhateverTheProviderDemands gives each case a provider of its own, since
// being throttled closes the provider's gate for all entries.
func TestThrottled_WaitsForItsDueTimeWhateverTheProviderDemands(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		const maxWait = 10 * time.Minute // the configured cap
		const slack = time.Second        // for a machine that is slow to write and to read
		cases := []struct {
			name, mode string
			low, high  time.Duration
		}{
			{"seconds", "throttle:2", 2 * time.Second, 2400 * time.Millisecond},
			{"minutes", "throttle:120", 2 * time.Minute, 144 * time.Second},
			{"date", "", 28 * time.Second, 36 * time.Second}, // half a minute ahead when it is sent
			{"absent", "status:429", time.Second, 1200 * time.Millisecond},
			{"overflow", "throttle:9223372037", maxWait * 5 / 6, maxWait},
			{"huge", "throttle:99999999999999999999999", maxWait * 5 / 6, maxWait},
			{"negative", "throttle:-5", time.Second, 1200 * time.Millisecond},
			{"zero", "throttle:0", time.Second, 1200 * time.Millisecond},
			{"fraction", "throttle:1.5", time.Second, 1200 * time.Millisecond},
			{"words", "throttle:abc", time.Second, 1200 * time.Millisecond},
			{"past", "throttle:Thu, 01 Jan 1970 00:00:00 GMT", time.Second, 1200 * time.Millisecond},
			{"far", "throttle:Sun, 06 Sep 2099 00:00:00 GMT", maxWait * 5 / 6, maxWait},
			{"list", "throttle:5, 60", time.Second, 1200 * time.Millisecond},
			{"busy", "busy:2", 2 * time.Second, 2400 * time.Millisecond},
		}
		p := startProvider(t)
		c := configure(database, p)
		for _, test := range cases {
			c = c.withProvider(test.name, p.url(), "2s", nil)
		}
		g := serve(t, c)
		for _, test := range cases {
			if test.mode == "" {
				test.mode = "throttle:" + time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat)
			}
			p.setModes(test.mode, providertest.OK)
			d := newReminder(test.name).with("channel", test.name)
			pushed := time.Now()
			first := g.pushExpectNack(d)
			answered := time.Now()
			s := g.checkState(d, entryState{"waiting", "throttled", "throttled", 1})
			due := s.Entry.Due
			if due.Before(pushed.Add(test.low)) || due.After(answered.Add(test.high+slack)) { // up to the jitter, the due time follows package policy
				t.Errorf("%s: due %v after it was pushed, %v after the answer; want %v to %v",
					test.name, due.Sub(pushed), due.Sub(answered), test.low, test.high)
			}
			if retryAfter := time.Duration(first.retryAfter()-1) * time.Second; retryAfter > test.high {
				t.Errorf("%s: the broker's Retry-After is more than %v", test.name, retryAfter)
			}
			if status := s.Timeline[0].Status; status != http.StatusTooManyRequests && test.name != "busy" {
				t.Errorf("%s: the timeline has status %d", test.name, status)
			}
			if test.low > 2*time.Second {
				g.pushExpectNack(d)
				other := newReminder("behind-"+test.name).with("channel", test.name)
				g.pushExpectNack(other)
				g.checkState(other, entryState{"waiting", "", "gate_closed", 0})
				p.checkCallCount(other, 0)
				p.checkCallCount(d, 1)
				continue
			}
			g.pushUntilAcked(d, 30*time.Second)
			if early := time.Until(due); early > 0 {
				t.Errorf("%s: called again %v before it was due", test.name, early)
			}
			g.checkState(d, entryState{"sent", "", "accepted", 2}).checkOutcomes(t, "throttled", "accepted")
			p.checkCallCount(d, 2)
		}
	})
}

// TestTimeout_RepeatedOnlyAsTheContractAllows uses a provider that accepts the message and does not respond.
func TestTimeout_RepeatedOnlyAsTheContractAllows(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		// No lookup is due within the test: what stays unknown is the result of the call alone.
		g := serve(t, configure(database, p).with([]string{"1h"}, "lookup_schedule").
			withProvider("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).
			withProvider("remembers", p.url(), "2s", map[string]any{"lookup": p.url()}).
			withProvider("blind", p.url(), "2s", nil).
			withType("assume", map[string]any{"on_unknown": "assume_sent"}).
			withType("resend", map[string]any{"on_unknown": "resend", "max_attempts": 2, "backoff": map[string]any{"base": "1s"}}).
			withType("twice", map[string]any{"max_attempts": 2, "backoff": map[string]any{"base": "1s"}}))

		cases := []struct {
			name, channel, typ string
			always             bool // no response to any call, otherwise to the first only
			outcomes           []string
			want               entryState
			missing            string
		}{
			{"harmless", "honours", "seat", false, []string{"unknown", "accepted"}, entryState{"sent", "", "accepted", 2}, ""},
			{"spent", "honours", "twice", true, []string{"unknown", "unknown"}, entryState{"unknown", "unknown", "budget_spent", 2}, ""},
			{"looked-up", "remembers", "seat", false, []string{"unknown"}, entryState{"unknown", "unknown", "unanswered", 1}, ""},
			{"held", "blind", "seat", false, []string{"unknown"}, entryState{"unknown", "unknown", "unanswered", 1}, ""},
			{"assumed", "blind", "assume", false, []string{"unknown"}, entryState{"sent", "", "assumed", 1}, "assumed"},
			{"risked", "blind", "resend", false, []string{"unknown", "accepted"}, entryState{"sent", "", "accepted", 2}, ""},
			{"risk-spent", "blind", "resend", true, []string{"unknown", "unknown"}, entryState{"unknown", "unknown", "unanswered", 2}, ""},
		}
		modes, reminders := map[string][]string{}, map[string]document{}
		for _, test := range cases {
			d := newReminder(test.name).with("channel", test.channel).with("type", test.typ)
			modes[d.recipient()] = []string{providertest.AcceptStall, providertest.OK}
			if test.always {
				modes[d.recipient()] = []string{providertest.AcceptStall}
			}
			reminders[test.name] = d
		}
		p.setControl(providertest.Control{Idempotent: true, Modes: modes})
		for _, d := range reminders {
			g.push(d.String())
		}
		for _, d := range reminders {
			g.pushUntilAcked(d, 30*time.Second)
			g.redeliver(d, 10)
		}
		// Once the worker has sent an entry that came due later, it has also checked this provider's earlier
		// entries.
		for _, channel := range []string{"honours", "remembers", "blind"} {
			later := newReminder("later").with("channel", channel).with("not_before", time.Now().Add(time.Second).UTC())
			g.redeliver(later, 1)
			g.waitForState(later, "sent", 20*time.Second)
		}
		for _, test := range cases {
			d := reminders[test.name]
			g.redeliver(d, 1)
			s := g.checkState(d, test.want)
			s.checkOutcomes(t, test.outcomes...)
			if s.Entry.ReceiptMissing != test.missing {
				t.Errorf("%s: receipt_missing is %q, want %q", test.name, s.Entry.ReceiptMissing, test.missing)
			}
			want := providertest.KeyCounts{Calls: len(test.outcomes), Accepts: 1, Bodies: 1}
			if diff := cmp.Diff(want, p.countsFor(d), cmpopts.IgnoreUnexported(want)); diff != "" {
				t.Errorf("%s: what the provider saw:\n%s", test.name, diff)
			}
		}
		if reasons := g.detail(reminders["risked"]).reasons(); !slices.Contains(reasons, "risk_taken") {
			t.Errorf("the risk taken is not recorded: %v", reasons)
		}
	})
}

// TestUnreachable_BacklogOutlivesTheOutage starts with nothing listening at the provider's address, then
// opens it.
func TestUnreachable_BacklogOutlivesTheOutage(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p, open := startAbsentProvider(t)
		g := serve(t, configure(database, p).withTakeover("1s").
			with(map[string]any{"base": "8s", "cap": "10m"}, "types", "default", "backoff"))
		var tried, behind []document
		for _, id := range []string{"a1", "a2", "a3", "a4", "a5"} {
			d := newReminder(id)
			tried = append(tried, d)
			if got := g.pushExpectNack(d).retryAfter(); got < 4 {
				t.Errorf("%s: the broker may come back after %d s, before the backoff ends", id, got)
			}
			g.pushExpectNack(d) // early: it uses no attempt
			s := g.checkState(d, entryState{"waiting", "unreachable", "unreachable", 1})
			s.checkOutcomes(t, "unreachable")
		}
		for _, id := range []string{"b1", "b2", "b3"} { // five failures in a row have closed the gate
			d := newReminder(id)
			behind = append(behind, d)
			g.pushExpectNack(d)
			g.pushExpectNack(d)
			g.checkState(d, entryState{"waiting", "", "gate_closed", 0}).checkOutcomes(t)
		}
		if got := g.closedGates(); got["mail"].Class != "unreachable" {
			t.Errorf("closed gates: %+v", got)
		}
		g.waitForMetric(`sendonce_gate_closed{provider="mail"}`, "1")
		if got := g.metric(`sendonce_attempts_total{outcome="unreachable",provider="mail"}`); got != "5" {
			t.Errorf("%s unreachable attempts are counted", got)
		}
		open()
		for _, d := range append(tried, behind...) {
			g.waitForState(d, "sent", 40*time.Second)
			g.redeliver(d, 1)
			if got := p.countsFor(d); got.Calls != 1 || got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
		g.waitForMetric(`sendonce_gate_closed{provider="mail"}`, "0")
		if got := g.closedGates(); len(got) != 0 {
			t.Errorf("closed gates: %+v", got)
		}
	})
}

// TestRefused_IsADeadLetterAndAcked checks that a refused entry is a dead letter and no redelivery calls
// again.
func TestRefused_IsADeadLetterAndAcked(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		absent, _ := startAbsentProvider(t)
		thrice := map[string]any{"max_attempts": 3, "backoff": map[string]any{"base": "1s"}}
		g := serve(t, configure(database, p).
			withProvider("throttling", p.url(), "2s", nil).withProvider("away", absent.url(), "2s", nil).withType("thrice", thrice))
		cases := []struct {
			name, channel, mode string
			want                entryState
			outcomes            []string
			calls               int
		}{
			{"bad", "email", "status:400", entryState{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"large", "email", "status:413", entryState{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"kind", "email", "status:415", entryState{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"entity", "email", "status:422", entryState{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"gone", "email", "status:410", entryState{"dead", "recipient", "gone", 1}, []string{"gone"}, 1},
			{"tired", "throttling", "throttle:1", entryState{"dead", "exhausted", "budget_spent", 3}, []string{"throttled", "throttled", "throttled"}, 3},
			{"lost", "away", "", entryState{"dead", "exhausted", "budget_spent", 3}, []string{"unreachable", "unreachable", "unreachable"}, 0},
			{"nowhere", "carrier-pigeon", "", entryState{"dead", "unroutable", "unroutable", 0}, nil, 0},
		}
		modes := map[string][]string{}
		for _, test := range cases {
			modes[newReminder(test.name).recipient()] = []string{test.mode}
		}
		p.setControl(providertest.Control{Modes: modes})
		dead := map[string]int{}
		for _, test := range cases {
			d := newReminder(test.name).with("channel", test.channel)
			if test.want.attempts == 3 {
				d = d.with("type", "thrice")
			}
			g.pushUntilAcked(d, 30*time.Second)
			g.redeliver(d, 20)
			g.checkState(d, test.want).checkOutcomes(t, test.outcomes...)
			p.checkCallCount(d, test.calls)
			dead[test.want.class]++
		}
		for class, want := range dead {
			if got := g.list(url.Values{"state": {"dead"}, "class": {class}}); len(got) != want {
				t.Errorf("%d dead letters of class %s, want %d", len(got), class, want)
			}
			g.waitForMetric(`sendonce_dead{class="`+class+`"}`, strconv.Itoa(want))
		}
	})
}

// TestCredentials_WrongOnesHarmNoReminder closes the gates of two providers for a minute: one gets valid
// credentials meanwhile, and one does not. max_attempts is 1, and is not used up.
func TestCredentials_WrongOnesHarmNoReminder(t *testing.T) {
	t.Parallel()
	broken, fixed := startProvider(t), startProvider(t)
	broken.setModes("status:401")
	fixed.setModes("status:401")
	g := serve(t, configure(newPostgres(t), fixed).withTakeover("1s").
		withProvider("broken", broken.url(), "2s", nil).withProvider("mended", fixed.url(), "2s", nil).
		with(1, "types", "default", "max_attempts"))
	closed := time.Now()
	reminders := map[string][]document{}
	for _, channel := range []string{"broken", "mended"} {
		for _, id := range []string{"-1", "-2", "-3", "-4", "-5", "-6"} {
			d := newReminder(channel+id).with("channel", channel)
			reminders[channel] = append(reminders[channel], d)
			g.pushExpectNack(d)
			g.pushExpectNack(d)
		}
		g.checkState(reminders[channel][0], entryState{"waiting", "credentials", "credentials", 1}).checkOutcomes(t, "credentials")
		for _, d := range reminders[channel][1:] {
			g.checkState(d, entryState{"waiting", "", "gate_closed", 0})
		}
		gate := g.closedGates()[channel]
		if wait := gate.ClosedUntil.Sub(closed); gate.Class != "credentials" || wait < 55*time.Second || wait > 65*time.Second {
			t.Errorf("%s: closed for %v, %+v", channel, wait, gate)
		}
		g.waitForMetric(`sendonce_gate_closed{provider="`+channel+`"}`, "1")
	}
	fixed.setModes(providertest.OK)
	for _, d := range reminders["mended"] {
		g.waitForState(d, "sent", 80*time.Second)
		if got := fixed.countsFor(d); got.Accepts != 1 {
			t.Errorf("%s: %+v", d["reminder_id"], got)
		}
	}
	if opened := time.Since(closed); opened < 55*time.Second {
		t.Errorf("it was sent %v after the gate closed for a minute", opened)
	}
	if c := fixed.counts(); c.Calls != 7 || c.Accepts != 6 {
		t.Errorf("the fixed provider saw %+v", c)
	}
	// One delivery tried the other provider, and its gate closed for twice as long.
	waitUntil(t, 10*time.Second, "the broken provider's gate has closed again", func() bool {
		return g.closedGates()["broken"].ClosedUntil.Sub(closed) > 170*time.Second
	})
	if c := broken.counts(); c.Calls != 2 || c.Accepts != 0 {
		t.Errorf("the broken provider saw %+v", c)
	}
	for _, d := range reminders["broken"] {
		if s := g.detail(d); s.Entry.State != "waiting" {
			t.Errorf("%s: %+v", d["reminder_id"], s.Entry)
		}
	}
}

// TestMalformed_OneDeadLetterHoweverOftenItComes checks that a malformed message is acked, since it would be
// redelivered for ever otherwise.
func TestMalformed_OneDeadLetterHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		g := serve(t, configure(database, p).with("4KiB", "sources", "queue", "limit"))
		good := newReminder("good")
		oversize := good.with("content", map[string]any{"text": strings.Repeat("x", 5<<10)}).String()
		poison := map[string]string{
			"nothing":         "",
			"no JSON":         "seat 7",
			"binary":          "\x00\x01\xff\xfe",
			"null":            "null",
			"a list":          "[" + good.String() + "]",
			"two":             good.String() + good.String(),
			"an empty object": "{}",
			"no recipient":    good.with("to", "").String(),
			"no content":      good.with("content", nil).String(),
			"a wrong type":    good.with("reminder_id", 7).String(),
			"a wrong channel": good.with("channel", "E-Mail").String(),
			"a wrong date":    good.with("deadline", "tomorrow").String(),
			"names by case":   strings.Replace(good.String(), `"to"`, `"TO"`, 1),
			"names twice":     strings.Replace(good.String(), `{`, `{"to": "eve@example.test",`, 1),
			"a lone half":     strings.Replace(good.String(), `good@`, `\ud800@`, 1),
			"no UTF-8":        strings.Replace(good.String(), `good@`, "\xff@", 1),
			"a NUL":           strings.Replace(good.String(), `good@`, `\u0000@`, 1),
			"too deep":        good.with("content", json.RawMessage(strings.Repeat(`{"a":`, 500)+"1"+strings.Repeat("}", 500))).String(),
			"cut off":         good.String()[:40],
			"too large":       oversize,
		}
		for name, raw := range poison {
			for range 5 {
				a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, http.Header{"Message-Id": {"m-" + strings.ReplaceAll(name, " ", "-")}}, []byte(raw))
				if err != nil || a.status != http.StatusOK {
					t.Fatalf("%s: %s, %v", name, a, err)
				}
			}
		}
		if a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, make([]byte, 40<<10)); err != nil || a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("over the maximum request size: %s, %v", a, err)
		}
		for _, token := range []string{"", "queue-token-012345678", producerToken} {
			if a, err := g.call(http.MethodPost, "/v1/push/queue", token, nil, []byte(good.String())); err != nil || a.status != http.StatusUnauthorized {
				t.Errorf("token %q: %s, %v", token, a, err)
			}
		}
		entries := g.list(url.Values{})
		if len(entries) != len(poison) {
			t.Errorf("%d rows of %d poison messages", len(entries), len(poison))
		}
		for _, e := range entries {
			if diff := cmp.Diff(entryState{"dead", "malformed", "malformed", 0}, entryState{e.State, e.Class, e.Reason, e.Attempts}, cmp.AllowUnexported(entryState{})); diff != "" {
				t.Errorf("%s:\n%s", e.ReminderID, diff)
			}
		}
		if c := p.counts(); c.Calls != 0 {
			t.Errorf("%d calls", c.Calls)
		}
		g.redeliver(good, 1) // a valid message still gets through
		g.checkState(good, entryState{"sent", "", "accepted", 1})
	})
}
