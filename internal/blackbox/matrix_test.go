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

// TestAThrottledReminderWaitsForItsTimeWhateverTheProviderDemands : each case has a lane of its own, since
// being throttled closes a lane for everybody.
func TestAThrottledReminderWaitsForItsTimeWhateverTheProviderDemands(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		const most = 10 * time.Minute // the configured cap
		const slack = time.Second     // for a machine that is slow to write and to look
		cases := []struct {
			name, mode string
			low, high  time.Duration
		}{
			{"seconds", "throttle:2", 2 * time.Second, 2400 * time.Millisecond},
			{"minutes", "throttle:120", 2 * time.Minute, 144 * time.Second},
			{"date", "", 28 * time.Second, 36 * time.Second}, // half a minute ahead when it is said
			{"absent", "status:429", time.Second, 1200 * time.Millisecond},
			{"overflow", "throttle:9223372037", most * 5 / 6, most},
			{"huge", "throttle:99999999999999999999999", most * 5 / 6, most},
			{"negative", "throttle:-5", time.Second, 1200 * time.Millisecond},
			{"zero", "throttle:0", time.Second, 1200 * time.Millisecond},
			{"fraction", "throttle:1.5", time.Second, 1200 * time.Millisecond},
			{"words", "throttle:abc", time.Second, 1200 * time.Millisecond},
			{"past", "throttle:Thu, 01 Jan 1970 00:00:00 GMT", time.Second, 1200 * time.Millisecond},
			{"far", "throttle:Sun, 06 Sep 2099 00:00:00 GMT", most * 5 / 6, most},
			{"list", "throttle:5, 60", time.Second, 1200 * time.Millisecond},
			{"busy", "busy:2", 2 * time.Second, 2400 * time.Millisecond},
		}
		p := startProvider(t)
		c := configure(database, p)
		for _, test := range cases {
			c = c.lane(test.name, p.url(), "2s", nil)
		}
		g := serve(t, c)
		for _, test := range cases {
			if test.mode == "" {
				test.mode = "throttle:" + time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat)
			}
			p.plays(test.mode, providertest.OK)
			d := remind(test.name).but("channel", test.name)
			pushed := time.Now()
			first := g.nacked(d)
			answered := time.Now()
			s := g.stands(d, standing{"waiting", "throttled", "throttled", 1})
			due := s.Entry.Due
			if due.Before(pushed.Add(test.low)) || due.After(answered.Add(test.high+slack)) { // to the jitter, package policy is held
				t.Errorf("%s: due %v after it was pushed, %v after the answer; want %v to %v",
					test.name, due.Sub(pushed), due.Sub(answered), test.low, test.high)
			}
			if told := time.Duration(first.retryAfter()-1) * time.Second; told > test.high {
				t.Errorf("%s: the broker is told to stay away for more than %v", test.name, told)
			}
			if status := s.Timeline[0].Status; status != http.StatusTooManyRequests && test.name != "busy" {
				t.Errorf("%s: the timeline says %d", test.name, status)
			}
			if test.low > 2*time.Second {
				g.nacked(d)
				other := remind("behind-"+test.name).but("channel", test.name)
				g.nacked(other)
				g.stands(other, standing{"waiting", "", "gate_closed", 0})
				p.called(other, 0)
				p.called(d, 1)
				continue
			}
			g.acked(d, 30*time.Second)
			if early := time.Until(due); early > 0 {
				t.Errorf("%s: called again %v before it was due", test.name, early)
			}
			g.stands(d, standing{"sent", "", "accepted", 2}).tells(t, "throttled", "accepted")
			p.called(d, 2)
		}
	})
}

// TestATimeoutIsRepeatedOnlyAsFarAsTheContractAllows : the provider takes the message and falls silent.
func TestATimeoutIsRepeatedOnlyAsFarAsTheContractAllows(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		// Nobody is asked within the test: what stays unknown is what the call alone leaves.
		g := serve(t, configure(database, p).with([]string{"1h"}, "asks").
			lane("honours", p.url(), "2s", map[string]any{"idempotent": "24h"}).
			lane("remembers", p.url(), "2s", map[string]any{"lookup": p.url()}).
			lane("blind", p.url(), "2s", nil).
			kind("assume", map[string]any{"on_unknown": "assume_sent"}).
			kind("resend", map[string]any{"on_unknown": "resend", "max_attempts": 2, "backoff": map[string]any{"base": "1s"}}).
			kind("twice", map[string]any{"max_attempts": 2, "backoff": map[string]any{"base": "1s"}}))

		cases := []struct {
			name, channel, typ string
			always             bool // silent, else once
			outcomes           []string
			want               standing
			missing            string
		}{
			{"harmless", "honours", "seat", false, []string{"unknown", "accepted"}, standing{"sent", "", "accepted", 2}, ""},
			{"spent", "honours", "twice", true, []string{"unknown", "unknown"}, standing{"unknown", "unknown", "budget_spent", 2}, ""},
			{"asked-later", "remembers", "seat", false, []string{"unknown"}, standing{"unknown", "unknown", "unanswered", 1}, ""},
			{"held", "blind", "seat", false, []string{"unknown"}, standing{"unknown", "unknown", "unanswered", 1}, ""},
			{"assumed", "blind", "assume", false, []string{"unknown"}, standing{"sent", "", "assumed", 1}, "assumed"},
			{"risked", "blind", "resend", false, []string{"unknown", "accepted"}, standing{"sent", "", "accepted", 2}, ""},
			{"risk-spent", "blind", "resend", true, []string{"unknown", "unknown"}, standing{"unknown", "unknown", "unanswered", 2}, ""},
		}
		modes, reminders := map[string][]string{}, map[string]document{}
		for _, test := range cases {
			d := remind(test.name).but("channel", test.channel).but("type", test.typ)
			modes[d.to()] = []string{providertest.AcceptStall, providertest.OK}
			if test.always {
				modes[d.to()] = []string{providertest.AcceptStall}
			}
			reminders[test.name] = d
		}
		p.told(providertest.Control{Idempotent: true, Modes: modes})
		for _, d := range reminders {
			g.push(d.String())
		}
		for _, d := range reminders {
			g.acked(d, 30*time.Second)
			g.repeated(d, 10)
		}
		// By the time that the worker has sent what came due later, it has looked at the lane.
		for _, lane := range []string{"honours", "remembers", "blind"} {
			later := remind("later").but("channel", lane).but("not_before", time.Now().Add(time.Second).UTC())
			g.repeated(later, 1)
			g.comesTo(later, "sent", 20*time.Second)
		}
		for _, test := range cases {
			d := reminders[test.name]
			g.repeated(d, 1)
			s := g.stands(d, test.want)
			s.tells(t, test.outcomes...)
			if s.Entry.ReceiptMissing != test.missing {
				t.Errorf("%s: the receipt is missing because of %q, want %q", test.name, s.Entry.ReceiptMissing, test.missing)
			}
			want := providertest.Tally{Calls: len(test.outcomes), Accepts: 1, Bodies: 1}
			if diff := cmp.Diff(want, p.tally(d), cmpopts.IgnoreUnexported(want)); diff != "" {
				t.Errorf("%s: what the provider saw:\n%s", test.name, diff)
			}
		}
		if reasons := g.of(reminders["risked"]).reasons(); !slices.Contains(reasons, "risk_taken") {
			t.Errorf("nobody says that the risk was taken: %v", reasons)
		}
	})
}

// TestABacklogOutlivesAProviderThatIsAway : nobody listens at its address, then somebody does.
func TestABacklogOutlivesAProviderThatIsAway(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p, open := absent(t)
		g := serve(t, configure(database, p).takeover("1s").
			with(map[string]any{"base": "8s", "cap": "10m"}, "types", "default", "backoff"))
		var tried, behind []document
		for _, id := range []string{"a1", "a2", "a3", "a4", "a5"} {
			d := remind(id)
			tried = append(tried, d)
			if got := g.nacked(d).retryAfter(); got < 4 {
				t.Errorf("%s: the broker may come back after %d s, before the backoff ends", id, got)
			}
			g.nacked(d) // early: it uses no attempt
			s := g.stands(d, standing{"waiting", "unreachable", "unreachable", 1})
			s.tells(t, "unreachable")
		}
		for _, id := range []string{"b1", "b2", "b3"} { // five in a row have closed the gate
			d := remind(id)
			behind = append(behind, d)
			g.nacked(d)
			g.nacked(d)
			g.stands(d, standing{"waiting", "", "gate_closed", 0}).tells(t)
		}
		if got := g.gates(); got["mail"].Class != "unreachable" {
			t.Errorf("closed gates: %+v", got)
		}
		g.shows(`sendonce_gate_closed{provider="mail"}`, "1")
		if got := g.metric(`sendonce_attempts_total{outcome="unreachable",provider="mail"}`); got != "5" {
			t.Errorf("%s unreachable attempts are counted", got)
		}
		open()
		for _, d := range append(tried, behind...) {
			g.comesTo(d, "sent", 40*time.Second)
			g.repeated(d, 1)
			if got := p.tally(d); got.Calls != 1 || got.Accepts != 1 {
				t.Errorf("%s: %+v", d["reminder_id"], got)
			}
		}
		g.shows(`sendonce_gate_closed{provider="mail"}`, "0")
		if got := g.gates(); len(got) != 0 {
			t.Errorf("closed gates: %+v", got)
		}
	})
}

// TestWhatTheProviderRefusesForGoodIsADeadLetterAndAcked : and no redelivery calls again.
func TestWhatTheProviderRefusesForGoodIsADeadLetterAndAcked(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		nobody, _ := absent(t)
		thrice := map[string]any{"max_attempts": 3, "backoff": map[string]any{"base": "1s"}}
		g := serve(t, configure(database, p).
			lane("throttling", p.url(), "2s", nil).lane("away", nobody.url(), "2s", nil).kind("thrice", thrice))
		cases := []struct {
			name, channel, mode string
			want                standing
			outcomes            []string
			calls               int
		}{
			{"bad", "email", "status:400", standing{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"large", "email", "status:413", standing{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"kind", "email", "status:415", standing{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"entity", "email", "status:422", standing{"dead", "permanent", "refused", 1}, []string{"refused"}, 1},
			{"gone", "email", "status:410", standing{"dead", "recipient", "gone", 1}, []string{"gone"}, 1},
			{"tired", "throttling", "throttle:1", standing{"dead", "exhausted", "budget_spent", 3}, []string{"throttled", "throttled", "throttled"}, 3},
			{"lost", "away", "", standing{"dead", "exhausted", "budget_spent", 3}, []string{"unreachable", "unreachable", "unreachable"}, 0},
			{"nowhere", "carrier-pigeon", "", standing{"dead", "unroutable", "unroutable", 0}, nil, 0},
		}
		modes := map[string][]string{}
		for _, test := range cases {
			modes[remind(test.name).to()] = []string{test.mode}
		}
		p.told(providertest.Control{Modes: modes})
		dead := map[string]int{}
		for _, test := range cases {
			d := remind(test.name).but("channel", test.channel)
			if test.want.attempts == 3 {
				d = d.but("type", "thrice")
			}
			g.acked(d, 30*time.Second)
			g.repeated(d, 20)
			g.stands(d, test.want).tells(t, test.outcomes...)
			p.called(d, test.calls)
			dead[test.want.class]++
		}
		for class, want := range dead {
			if got := g.list(url.Values{"state": {"dead"}, "class": {class}}); len(got) != want {
				t.Errorf("%d dead letters of class %s, want %d", len(got), class, want)
			}
			g.shows(`sendonce_dead{class="`+class+`"}`, strconv.Itoa(want))
		}
	})
}

// TestWrongCredentialsHarmNoReminder : the gate closes for a minute; two lanes are shown over it, one
// whose credentials are mended meanwhile, and one where they are not. max_attempts is 1, and is not used.
func TestWrongCredentialsHarmNoReminder(t *testing.T) {
	t.Parallel()
	broken, mended := startProvider(t), startProvider(t)
	broken.plays("status:401")
	mended.plays("status:401")
	g := serve(t, configure(shared(t), mended).takeover("1s").
		lane("broken", broken.url(), "2s", nil).lane("mended", mended.url(), "2s", nil).
		with(1, "types", "default", "max_attempts"))
	closed := time.Now()
	reminders := map[string][]document{}
	for _, channel := range []string{"broken", "mended"} {
		for _, id := range []string{"-1", "-2", "-3", "-4", "-5", "-6"} {
			d := remind(channel+id).but("channel", channel)
			reminders[channel] = append(reminders[channel], d)
			g.nacked(d)
			g.nacked(d)
		}
		g.stands(reminders[channel][0], standing{"waiting", "credentials", "credentials", 1}).tells(t, "credentials")
		for _, d := range reminders[channel][1:] {
			g.stands(d, standing{"waiting", "", "gate_closed", 0})
		}
		gate := g.gates()[channel]
		if wait := gate.ClosedUntil.Sub(closed); gate.Class != "credentials" || wait < 55*time.Second || wait > 65*time.Second {
			t.Errorf("%s: closed for %v, %+v", channel, wait, gate)
		}
		g.shows(`sendonce_gate_closed{provider="`+channel+`"}`, "1")
	}
	mended.plays(providertest.OK)
	for _, d := range reminders["mended"] {
		g.comesTo(d, "sent", 80*time.Second)
		if got := mended.tally(d); got.Accepts != 1 {
			t.Errorf("%s: %+v", d["reminder_id"], got)
		}
	}
	if opened := time.Since(closed); opened < 55*time.Second {
		t.Errorf("it was sent %v after the gate closed for a minute", opened)
	}
	if c := mended.counts(); c.Calls != 7 || c.Accepts != 6 {
		t.Errorf("the mended provider saw %+v", c)
	}
	// One delivery tried the other lane, and it closed for twice as long.
	until(t, 10*time.Second, "the broken lane has closed again", func() bool {
		return g.gates()["broken"].ClosedUntil.Sub(closed) > 170*time.Second
	})
	if c := broken.counts(); c.Calls != 2 || c.Accepts != 0 {
		t.Errorf("the broken provider saw %+v", c)
	}
	for _, d := range reminders["broken"] {
		if s := g.of(d); s.Entry.State != "waiting" {
			t.Errorf("%s: %+v", d["reminder_id"], s.Entry)
		}
	}
}

// TestAPoisonMessageIsOneDeadLetterHoweverOftenItComes : it is acked, or it would come back for ever.
func TestAPoisonMessageIsOneDeadLetterHoweverOftenItComes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		g := serve(t, configure(database, p).with("4KiB", "sources", "queue", "limit"))
		good := remind("good")
		oversize := good.but("content", map[string]any{"text": strings.Repeat("x", 5<<10)}).String()
		poison := map[string]string{
			"nothing":         "",
			"no JSON":         "seat 7",
			"binary":          "\x00\x01\xff\xfe",
			"null":            "null",
			"a list":          "[" + good.String() + "]",
			"two":             good.String() + good.String(),
			"an empty object": "{}",
			"no recipient":    good.but("to", "").String(),
			"no content":      good.but("content", nil).String(),
			"a wrong type":    good.but("reminder_id", 7).String(),
			"a wrong channel": good.but("channel", "E-Mail").String(),
			"a wrong date":    good.but("deadline", "tomorrow").String(),
			"names by case":   strings.Replace(good.String(), `"to"`, `"TO"`, 1),
			"names twice":     strings.Replace(good.String(), `{`, `{"to": "eve@example.test",`, 1),
			"a lone half":     strings.Replace(good.String(), `good@`, `\ud800@`, 1),
			"no UTF-8":        strings.Replace(good.String(), `good@`, "\xff@", 1),
			"a NUL":           strings.Replace(good.String(), `good@`, `\u0000@`, 1),
			"too deep":        good.but("content", json.RawMessage(strings.Repeat(`{"a":`, 500)+"1"+strings.Repeat("}", 500))).String(),
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
			t.Errorf("beyond the raw cap: %s, %v", a, err)
		}
		for _, token := range []string{"", "queue-token-012345678", producer} {
			if a, err := g.call(http.MethodPost, "/v1/push/queue", token, nil, []byte(good.String())); err != nil || a.status != http.StatusUnauthorized {
				t.Errorf("token %q: %s, %v", token, a, err)
			}
		}
		entries := g.list(url.Values{})
		if len(entries) != len(poison) {
			t.Errorf("%d rows of %d poison messages", len(entries), len(poison))
		}
		for _, e := range entries {
			if diff := cmp.Diff(standing{"dead", "malformed", "malformed", 0}, standing{e.State, e.Class, e.Reason, e.Attempts}, cmp.AllowUnexported(standing{})); diff != "" {
				t.Errorf("%s:\n%s", e.ReminderID, diff)
			}
		}
		if c := p.counts(); c.Calls != 0 {
			t.Errorf("%d calls", c.Calls)
		}
		g.repeated(good, 1) // the road is clear
		g.stands(good, standing{"sent", "", "accepted", 1})
	})
}
