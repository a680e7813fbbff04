package blackbox

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestAReminderIsSentInItsTimeOrNotAtAll : deadlines that have passed and that pass, and a time ahead.
func TestAReminderIsSentInItsTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{Modes: map[string][]string{
			"first@example.test": {"throttle:600"}, "ahead@example.test": {"throttle:6", providertest.OK},
		}})
		g := serve(t, configure(database, p).lane("shut", p.url(), "2s", nil).lane("shut-briefly", p.url(), "2s", nil))
		ahead := func(d time.Duration) time.Time { return time.Now().Add(d).UTC() }

		over := remind("over").but("deadline", ahead(-time.Second))
		g.repeated(over, 3)
		g.stands(over, standing{"dropped", "", "expired", 0})

		early := remind("early").but("not_before", ahead(3*time.Second))
		g.repeated(early, 3) // acked: it is ours to finish
		g.stands(early, standing{"waiting", "", "scheduled", 0})
		p.called(early, 0)

		// The wait that the provider demands would end too late.
		first := remind("first").but("channel", "shut").but("deadline", ahead(20*time.Second))
		g.repeated(first, 1)
		g.stands(first, standing{"dropped", "throttled", "expired", 1}).tells(t, "throttled")

		// Its deadline passes behind the gate: its broker brings it back, or nobody does.
		limit := ahead(3 * time.Second)
		back := remind("back").but("channel", "shut").but("deadline", limit)
		g.nacked(back)
		g.nacked(remind("ahead").but("channel", "shut-briefly"))
		left := remind("left").but("channel", "shut-briefly").but("deadline", limit)
		g.nacked(left)
		g.acked(back, 20*time.Second)
		// The shortest wait is a second, give or take its jitter: one that would end too late is not begun.
		if early := time.Until(limit); early > 1300*time.Millisecond {
			t.Errorf("it was dropped %v before its deadline", early)
		}
		g.comesTo(left, "dropped", 20*time.Second)
		for _, d := range []document{back, left} {
			g.stands(d, standing{"dropped", "", "expired", 0})
		}

		s := g.comesTo(early, "sent", 20*time.Second)
		s.tells(t, "accepted")
		due := early["not_before"].(time.Time)
		if last := s.Timeline[len(s.Timeline)-1]; last.Finished.Before(due) || last.Finished.After(due.Add(5*time.Second)) {
			t.Errorf("it was sent %v after its time", last.Finished.Sub(due))
		}
		for _, d := range []document{over, back, left, first, early} {
			g.repeated(d, 5)
			p.called(d, g.of(d).Entry.Attempts)
		}
	})
}

// TestACancelDropsWhatIsNotSentAndSaysWhatItCameTooLateFor : before, while it waits, during the call, and after.
func TestACancelDropsWhatIsNotSentAndSaysWhatItCameTooLateFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p, slow := startProvider(t), startProvider(t)
		slow.told(providertest.Control{
			LatencyMin: time.Second, LatencyMax: time.Second,
			Modes: map[string][]string{"unsent@example.test": {"throttle:1"}, "silent@example.test": {providertest.AcceptStall}},
		})
		g := serve(t, configure(database, p).lane("slow", slow.url(), "2s", map[string]any{"idempotent": "24h"}).
			lane("throttled", slow.url(), "2s", nil))

		before := remind("before")
		g.cancelled(before, "dropped", true)
		g.cancelled(before, "already_dropped", true)
		g.repeated(before, 3)
		g.stands(before, standing{"dropped", "", "cancelled", 0})
		p.called(before, 0)

		waiting := remind("waiting").but("not_before", time.Now().Add(time.Hour).UTC())
		g.repeated(waiting, 1)
		g.cancelled(waiting, "dropped", false)
		g.repeated(waiting, 3)
		g.stands(waiting, standing{"dropped", "", "cancelled", 0})

		after := remind("after")
		g.repeated(after, 1)
		g.cancelled(after, "sent", false)
		g.stands(after, standing{"sent", "", "accepted", 1})
		p.called(after, 1)

		for _, during := range []struct {
			id, channel string
			want        standing
		}{
			{"taken", "slow", standing{"sent", "", "accepted", 1}},
			{"silent", "slow", standing{"unknown", "unknown", "cancelled", 1}},
			{"unsent", "throttled", standing{"dropped", "throttled", "cancelled", 1}},
		} {
			d := remind(during.id).but("channel", during.channel)
			pushed := g.pushes(d)
			until(t, 10*time.Second, during.id+" is called", func() bool { return slow.tally(d).Calls == 1 })
			g.cancelled(d, "in_flight", false)
			if a := <-pushed; a.status != http.StatusOK {
				t.Errorf("%s, cancelled during its call: %s", during.id, a)
			}
			g.repeated(d, 5)
			g.stands(d, during.want)
			slow.called(d, 1)
		}
		if a := g.post("/v1/reminders/nobody/cancel", ""); a.status != http.StatusNotFound {
			t.Errorf("cancel of what does not exist: %s", a)
		}
	})
}

// cancelled cancels one type and channel of a reminder, and checks what the gateway says about it.
func (g *gateway) cancelled(d document, result string, tombstone bool) {
	g.t.Helper()
	id := d.identity()
	a := g.post("/v1/reminders/"+id.ReminderID+"/cancel", fmt.Sprintf(`{"type": %q, "channel": %q}`, id.Type, id.Channel))
	var said struct {
		Items []struct {
			Result    string `json:"result"`
			Tombstone bool   `json:"tombstone"`
		} `json:"items"`
	}
	if err := json.Unmarshal(a.body, &said); err != nil || a.status != http.StatusOK || len(said.Items) != 1 ||
		said.Items[0].Result != result || said.Items[0].Tombstone != tombstone {
		g.t.Errorf("cancel of %s: %s, want %s", id.ReminderID, a, result)
	}
}

// TestACallerIsToldTheOutcomeAndMayRepeatAtWill : the REST side of a reminder.
func TestACallerIsToldTheOutcomeAndMayRepeatAtWill(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{Modes: map[string][]string{
			"pending@example.test": {"throttle:1", providertest.OK}, "mixed@example.test": {"throttle:1", providertest.OK},
		}})
		g := serve(t, configure(database, p).lane("throttling", p.url(), "2s", nil).lane("mixing", p.url(), "2s", nil))

		final := remind("final")
		for range 3 {
			if a := g.post("/v1/reminders", final.String()); a.status != http.StatusOK || a.state() != "sent" {
				t.Errorf("a request: %s", a)
			}
		}
		p.called(final, 1)

		pending := remind("pending").but("channel", "throttling")
		a := g.post("/v1/reminders", pending.String())
		if a.status != http.StatusAccepted || a.state() != "waiting" || a.retryAfter() < 1 || a.header.Get("Location") != "/v1/reminders/pending" {
			t.Fatalf("a request that has to wait: %s, %v", a, a.header)
		}
		until(t, 20*time.Second, "it is sent without anybody's help", func() bool {
			looked := g.get(a.header.Get("Location"))
			var list struct{ Items []entry }
			return json.Unmarshal(looked.body, &list) == nil && len(list.Items) == 1 && list.Items[0].State == "sent"
		})
		if a := g.post("/v1/reminders", pending.String()); a.status != http.StatusOK {
			t.Errorf("repeated: %s", a)
		}
		p.called(pending, 2)

		// A broker's entry becomes ours when a caller asks for it: nobody has to redeliver.
		mixed := remind("mixed").but("channel", "mixing")
		g.nacked(mixed)
		if a := g.post("/v1/reminders", mixed.String()); a.status != http.StatusAccepted && a.status != http.StatusOK {
			t.Errorf("asked for while its broker had it: %s", a)
		}
		g.comesTo(mixed, "sent", 20*time.Second)
		g.repeated(mixed, 1)
		p.called(mixed, 2)

		for _, other := range []document{final.but("to", "eve@example.test"), final.but("content", map[string]any{"text": "other"})} {
			if a := g.post("/v1/reminders", other.String()); a.status != http.StatusConflict || a.code() != "conflict" {
				t.Errorf("other content: %s", a)
			}
		}
		if s := g.stands(final, standing{"sent", "", "accepted", 1}); len(s.Conflicts) != 2 {
			t.Errorf("%d conflicts are kept", len(s.Conflicts))
		}
		p.called(final, 1)

		a = g.post("/v1/reminders", `{"type": "Seat", "channel": 7, "deadline": "soon", "content": []}`)
		for _, field := range []string{`"type"`, `"channel"`, `"to"`, `"deadline"`, `"content"`, `"reminder_id"`} {
			if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), `"field":`+field) {
				t.Errorf("nothing is said of %s: %s", field, a)
			}
		}
		g.roles(final)
	})
}

// roles checks who may do what.
func (g *gateway) roles(d document) {
	g.t.Helper()
	id := d.identity().EntryID()
	for _, test := range []struct {
		method, path, token, body string
		status                    int
	}{
		{http.MethodPost, "/v1/reminders", "", d.String(), http.StatusUnauthorized},
		{http.MethodPost, "/v1/reminders", queueToken, d.String(), http.StatusUnauthorized},
		{http.MethodPost, "/v1/reminders", supporter, d.String(), http.StatusForbidden},
		{http.MethodPost, "/v1/reminders/" + d.identity().ReminderID + "/cancel", supporter, "", http.StatusForbidden},
		{http.MethodGet, "/v1/reminders/" + d.identity().ReminderID, producer, "", http.StatusOK},
		{http.MethodGet, "/v1/reminders/" + d.identity().ReminderID, supporter, "", http.StatusOK},
		{http.MethodGet, "/v1/reminders/nobody", producer, "", http.StatusNotFound},
		{http.MethodGet, "/v1/admin/entries", producer, "", http.StatusForbidden},
		{http.MethodGet, "/v1/admin/entries", "", "", http.StatusUnauthorized},
		{http.MethodGet, "/v1/admin/entries/" + id, producer, "", http.StatusForbidden},
		{http.MethodGet, "/v1/admin/entries/" + id, supporter, "", http.StatusOK},
	} {
		a, err := g.call(test.method, test.path, test.token, http.Header{"Content-Type": {"application/json"}}, []byte(test.body))
		if err != nil || a.status != test.status {
			g.t.Errorf("%s %s as %q: %s, %v; want %d", test.method, test.path, test.token, a, err, test.status)
		}
	}
}

func (a answer) state() string { return a.word("state") }
func (a answer) code() string  { return a.word("code") }

// word is a text at the top of the answer.
func (a answer) word(name string) string {
	var body map[string]any
	_ = json.Unmarshal(a.body, &body) // no JSON holds no word
	text, _ := body[name].(string)
	return text
}

// TestWhatItsBrokerDropsTheLedgerFinishes : the broker is nacked once and never comes back.
func TestWhatItsBrokerDropsTheLedgerFinishes(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.plays("throttle:1", providertest.OK)
		g := serve(t, configure(database, p).takeover("2s"))
		d := remind("dropped")
		g.nacked(d)
		due := g.of(d).Entry.Due
		s := g.comesTo(d, "sent", 20*time.Second)
		s.tells(t, "throttled", "accepted")
		if !slices.Contains(s.reasons(), "taken_over") || s.Entry.Owner != "ledger" {
			t.Errorf("nothing says that the ledger took it over: %+v", s)
		}
		if sent := time.Now(); sent.Before(due.Add(2 * time.Second)) {
			t.Errorf("it was taken over %v before its broker's time was up", due.Add(2*time.Second).Sub(sent))
		}
		g.repeated(d, 3)
		p.called(d, 2)
	})
}

// TestAKilledGatewayLeavesNothingInFlightForGood : it is killed when the provider has taken the message
// and has not said so; one reminder of each kind is brought back, and one is not.
func TestAKilledGatewayLeavesNothingInFlightForGood(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		modes := map[string][]string{}
		all := []document{
			remind("harmless-back").but("channel", "honours"), remind("harmless-gone").but("channel", "honours"),
			remind("blind-back").but("channel", "blind"), remind("blind-gone").but("channel", "blind"),
		}
		for _, d := range all {
			modes[d.to()] = []string{providertest.AcceptStall, providertest.OK}
		}
		p.told(providertest.Control{Idempotent: true, Modes: modes})
		c := configure(database, p).takeover("1s").
			lane("honours", p.url(), "2500ms", map[string]any{"idempotent": "24h"}).lane("blind", p.url(), "2500ms", nil)
		g := serve(t, c)
		for _, d := range all {
			g.pushes(d)
		}
		until(t, 10*time.Second, "all are called", func() bool { return p.counts().Calls == len(all) })
		g.kill()

		g = serve(t, c)
		g.acked(all[0], 30*time.Second)
		g.acked(all[2], 30*time.Second)
		for _, d := range all[:2] {
			s := g.comesTo(d, "sent", 40*time.Second)
			if got := p.tally(d); got.Calls != 2 || got.Accepts != 1 || got.Bodies != 1 || s.Entry.Lapses != 1 {
				t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s.Entry)
			}
		}
		for _, d := range all[2:] {
			s := g.comesTo(d, "unknown", 40*time.Second)
			g.repeated(d, 5)
			if got := p.tally(d); got.Calls != 1 || s.Entry.Lapses != 1 || s.Entry.Reason != "lapsed" {
				t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s.Entry)
			}
			if len(s.Timeline) != 1 || s.Timeline[0].Kind != "lapse" || s.Timeline[0].Outcome != "unknown" {
				t.Errorf("%s: timeline %+v", d["reminder_id"], s.Timeline)
			}
		}
	})
}

// TestAGatewayThatIsToldToEndSettlesWhatIsInFlight : also what its broker was answered for already.
func TestAGatewayThatIsToldToEndSettlesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.told(providertest.Control{LatencyMin: 5 * time.Second, LatencyMax: 5 * time.Second})
		c := configure(database, p).with("10s", "lease").with("8s", "providers", "mail", "timeout").
			with("8s", "sources", "queue", "answer_within")
		c = c.with(map[string]any{
			"format": "plain", "auth": map[string]any{"bearer": map[string]any{"tokens": []string{queueToken}}},
			"max_age": "7d", "answer_within": "2s",
		}, "sources", "hasty")
		g := serve(t, c)
		var answers []<-chan answer
		var all []document
		for i := range 8 {
			d := remind(fmt.Sprintf("rem-%d", i))
			all = append(all, d)
			answers = append(answers, g.pushes(d))
		}
		hasty := remind("hasty")
		if a, err := g.call(http.MethodPost, "/v1/push/hasty", queueToken, nil, []byte(hasty.String())); err != nil ||
			a.status != http.StatusServiceUnavailable || a.state() != "sending" || a.took > 4*time.Second {
			t.Errorf("a hasty broker: %s after %v, %v", a, a.took, err)
		}
		until(t, 10*time.Second, "all are called", func() bool { return p.counts().Calls == len(all)+1 })
		if err := g.stop(); err != nil {
			t.Errorf("exit: %v", err)
		}
		for i, answered := range answers {
			if a := <-answered; a.status != http.StatusOK || a.state() != "sent" {
				t.Errorf("%s was in flight: %s", all[i]["reminder_id"], a)
			}
		}
		g = serve(t, c)
		for _, d := range append(all, hasty) {
			g.stands(d, standing{"sent", "", "accepted", 1}).tells(t, "accepted")
			g.repeated(d, 1)
			p.called(d, 1)
		}
	})
}
