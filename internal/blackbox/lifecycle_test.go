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

// TestReminder_SentInItsTimeOrNotAtAll covers deadlines that have passed and that pass while waiting, and a
// not_before in the future.
func TestReminder_SentInItsTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{Modes: map[string][]string{
			"first@example.test": {"throttle:600"}, "ahead@example.test": {"throttle:6", providertest.OK},
		}})
		g := serve(t, configure(database, p).withProvider("shut", p.url(), "2s", nil).withProvider("shut-briefly", p.url(), "2s", nil))
		ahead := func(d time.Duration) time.Time { return time.Now().Add(d).UTC() }

		expired := newReminder("over").with("deadline", ahead(-time.Second))
		g.redeliver(expired, 3)
		g.checkState(expired, entryState{"dropped", "", "expired", 0})

		early := newReminder("early").with("not_before", ahead(3*time.Second))
		g.redeliver(early, 3) // acked: the ledger finishes it
		g.checkState(early, entryState{"waiting", "", "scheduled", 0})
		p.checkCallCount(early, 0)

		// The wait that the provider demands would end after the deadline.
		first := newReminder("first").with("channel", "shut").with("deadline", ahead(20*time.Second))
		g.redeliver(first, 1)
		g.checkState(first, entryState{"dropped", "throttled", "expired", 1}).checkOutcomes(t, "throttled")

		// Its deadline passes while the gate is closed: one is redelivered by its broker, the other is not.
		limit := ahead(3 * time.Second)
		back := newReminder("back").with("channel", "shut").with("deadline", limit)
		g.pushExpectNack(back)
		g.pushExpectNack(newReminder("ahead").with("channel", "shut-briefly"))
		left := newReminder("left").with("channel", "shut-briefly").with("deadline", limit)
		g.pushExpectNack(left)
		g.pushUntilAcked(back, 20*time.Second)
		// The shortest wait is a second plus or minus its jitter: a wait that would end after the deadline is
		// not begun.
		if early := time.Until(limit); early > 1300*time.Millisecond {
			t.Errorf("it was dropped %v before its deadline", early)
		}
		g.waitForState(left, "dropped", 20*time.Second)
		for _, d := range []document{back, left} {
			g.checkState(d, entryState{"dropped", "", "expired", 0})
		}

		s := g.waitForState(early, "sent", 20*time.Second)
		s.checkOutcomes(t, "accepted")
		due := early["not_before"].(time.Time)
		if last := s.Timeline[len(s.Timeline)-1]; last.Finished.Before(due) || last.Finished.After(due.Add(5*time.Second)) {
			t.Errorf("it was sent %v after its time", last.Finished.Sub(due))
		}
		for _, d := range []document{expired, back, left, first, early} {
			g.redeliver(d, 5)
			p.checkCallCount(d, g.detail(d).Entry.Attempts)
		}
	})
}

// TestCancel_DropsTheUnsentAndReportsTheRest cancels before the delivery, while it waits, during the call,
// and after.
func TestCancel_DropsTheUnsentAndReportsTheRest(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p, slow := startProvider(t), startProvider(t)
		slow.setControl(providertest.Control{
			LatencyMin: time.Second, LatencyMax: time.Second,
			Modes: map[string][]string{"unsent@example.test": {"throttle:1"}, "silent@example.test": {providertest.AcceptStall}},
		})
		g := serve(t, configure(database, p).withProvider("slow", slow.url(), "2s", map[string]any{"idempotent": "24h"}).
			withProvider("throttled", slow.url(), "2s", nil))

		before := newReminder("before")
		g.checkCancel(before, "dropped", true)
		g.checkCancel(before, "already_dropped", true)
		g.redeliver(before, 3)
		g.checkState(before, entryState{"dropped", "", "cancelled", 0})
		p.checkCallCount(before, 0)

		waiting := newReminder("waiting").with("not_before", time.Now().Add(time.Hour).UTC())
		g.redeliver(waiting, 1)
		g.checkCancel(waiting, "dropped", false)
		g.redeliver(waiting, 3)
		g.checkState(waiting, entryState{"dropped", "", "cancelled", 0})

		after := newReminder("after")
		g.redeliver(after, 1)
		g.checkCancel(after, "sent", false)
		g.checkState(after, entryState{"sent", "", "accepted", 1})
		p.checkCallCount(after, 1)

		for _, during := range []struct {
			id, channel string
			want        entryState
		}{
			{"taken", "slow", entryState{"sent", "", "accepted", 1}},
			{"silent", "slow", entryState{"unknown", "unknown", "cancelled", 1}},
			{"unsent", "throttled", entryState{"dropped", "throttled", "cancelled", 1}},
		} {
			d := newReminder(during.id).with("channel", during.channel)
			pushed := g.pushAsync(d)
			waitUntil(t, 10*time.Second, during.id+" is called", func() bool { return slow.countsFor(d).Calls == 1 })
			g.checkCancel(d, "in_flight", false)
			if a := <-pushed; a.status != http.StatusOK {
				t.Errorf("%s, cancelled during its call: %s", during.id, a)
			}
			g.redeliver(d, 5)
			g.checkState(d, during.want)
			slow.checkCallCount(d, 1)
		}
		if a := g.post("/v1/reminders/missing/cancel", ""); a.status != http.StatusNotFound {
			t.Errorf("cancel of what does not exist: %s", a)
		}
	})
}

// checkCancel cancels one type and channel of a reminder, and checks the gateway's response.
func (g *gateway) checkCancel(d document, result string, tombstone bool) {
	g.t.Helper()
	id := d.identity()
	a := g.post("/v1/reminders/"+id.ReminderID+"/cancel", fmt.Sprintf(`{"type": %q, "channel": %q}`, id.Type, id.Channel))
	var response struct {
		Items []struct {
			Result    string `json:"result"`
			Tombstone bool   `json:"tombstone"`
		} `json:"items"`
	}
	if err := json.Unmarshal(a.body, &response); err != nil || a.status != http.StatusOK || len(response.Items) != 1 ||
		response.Items[0].Result != result || response.Items[0].Tombstone != tombstone {
		g.t.Errorf("cancel of %s: %s, want %s", id.ReminderID, a, result)
	}
}

// TestREST_ReportsTheOutcomeAndMayBeRepeated covers requests for a reminder over REST.
func TestREST_ReportsTheOutcomeAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{Modes: map[string][]string{
			"pending@example.test": {"throttle:1", providertest.OK}, "mixed@example.test": {"throttle:1", providertest.OK},
		}})
		g := serve(t, configure(database, p).withProvider("throttling", p.url(), "2s", nil).withProvider("mixing", p.url(), "2s", nil))

		final := newReminder("final")
		for range 3 {
			if a := g.post("/v1/reminders", final.String()); a.status != http.StatusOK || a.state() != "sent" {
				t.Errorf("a request: %s", a)
			}
		}
		p.checkCallCount(final, 1)

		pending := newReminder("pending").with("channel", "throttling")
		a := g.post("/v1/reminders", pending.String())
		if a.status != http.StatusAccepted || a.state() != "waiting" || a.retryAfter() < 1 || a.header.Get("Location") != "/v1/reminders/pending" {
			t.Fatalf("a request that has to wait: %s, %v", a, a.header)
		}
		waitUntil(t, 20*time.Second, "it is sent without a further request", func() bool {
			listed := g.get(a.header.Get("Location"))
			var list struct{ Items []entry }
			return json.Unmarshal(listed.body, &list) == nil && len(list.Items) == 1 && list.Items[0].State == "sent"
		})
		if a := g.post("/v1/reminders", pending.String()); a.status != http.StatusOK {
			t.Errorf("repeated: %s", a)
		}
		p.checkCallCount(pending, 2)

		// A broker's entry becomes the ledger's when a caller requests it: no redelivery is needed.
		mixed := newReminder("mixed").with("channel", "mixing")
		g.pushExpectNack(mixed)
		if a := g.post("/v1/reminders", mixed.String()); a.status != http.StatusAccepted && a.status != http.StatusOK {
			t.Errorf("requested while its broker had it: %s", a)
		}
		g.waitForState(mixed, "sent", 20*time.Second)
		g.redeliver(mixed, 1)
		p.checkCallCount(mixed, 2)

		for _, other := range []document{final.with("to", "eve@example.test"), final.with("content", map[string]any{"text": "other"})} {
			if a := g.post("/v1/reminders", other.String()); a.status != http.StatusConflict || a.code() != "conflict" {
				t.Errorf("other content: %s", a)
			}
		}
		if s := g.checkState(final, entryState{"sent", "", "accepted", 1}); len(s.Conflicts) != 2 {
			t.Errorf("%d conflicts are stored", len(s.Conflicts))
		}
		p.checkCallCount(final, 1)

		a = g.post("/v1/reminders", `{"type": "Seat", "channel": 7, "deadline": "soon", "content": []}`)
		for _, field := range []string{`"type"`, `"channel"`, `"to"`, `"deadline"`, `"content"`, `"reminder_id"`} {
			if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), `"field":`+field) {
				t.Errorf("the field %s is not named: %s", field, a)
			}
		}
		g.checkRoles(final)
	})
}

// checkRoles checks what each role may request.
func (g *gateway) checkRoles(d document) {
	g.t.Helper()
	id := d.identity().EntryID()
	for _, test := range []struct {
		method, path, token, body string
		status                    int
	}{
		{http.MethodPost, "/v1/reminders", "", d.String(), http.StatusUnauthorized},
		{http.MethodPost, "/v1/reminders", queueToken, d.String(), http.StatusUnauthorized},
		{http.MethodPost, "/v1/reminders", supportToken, d.String(), http.StatusForbidden},
		{http.MethodPost, "/v1/reminders/" + d.identity().ReminderID + "/cancel", supportToken, "", http.StatusForbidden},
		{http.MethodGet, "/v1/reminders/" + d.identity().ReminderID, producerToken, "", http.StatusOK},
		{http.MethodGet, "/v1/reminders/" + d.identity().ReminderID, supportToken, "", http.StatusOK},
		{http.MethodGet, "/v1/reminders/missing", producerToken, "", http.StatusNotFound},
		{http.MethodGet, "/v1/admin/entries", producerToken, "", http.StatusForbidden},
		{http.MethodGet, "/v1/admin/entries", "", "", http.StatusUnauthorized},
		{http.MethodGet, "/v1/admin/entries/" + id, producerToken, "", http.StatusForbidden},
		{http.MethodGet, "/v1/admin/entries/" + id, supportToken, "", http.StatusOK},
	} {
		a, err := g.call(test.method, test.path, test.token, http.Header{"Content-Type": {"application/json"}}, []byte(test.body))
		if err != nil || a.status != test.status {
			g.t.Errorf("%s %s as %q: %s, %v; want %d", test.method, test.path, test.token, a, err, test.status)
		}
	}
}

func (a answer) state() string { return a.field("state") }
func (a answer) code() string  { return a.field("code") }

// field returns a text member at the top level of the response.
func (a answer) field(name string) string {
	var body map[string]any
	_ = json.Unmarshal(a.body, &body) // no JSON has no members
	text, _ := body[name].(string)
	return text
}

// TestTakeover_LedgerFinishesWhatTheBrokerDropped nacks the broker once, and it never redelivers.
func TestTakeover_LedgerFinishesWhatTheBrokerDropped(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.setModes("throttle:1", providertest.OK)
		g := serve(t, configure(database, p).withTakeover("2s"))
		d := newReminder("dropped")
		g.pushExpectNack(d)
		due := g.detail(d).Entry.Due
		s := g.waitForState(d, "sent", 20*time.Second)
		s.checkOutcomes(t, "throttled", "accepted")
		if !slices.Contains(s.reasons(), "taken_over") || s.Entry.Owner != "ledger" {
			t.Errorf("the takeover is not recorded: %+v", s)
		}
		if sent := time.Now(); sent.Before(due.Add(2 * time.Second)) {
			t.Errorf("it was taken over %v before takeover_after had passed", due.Add(2*time.Second).Sub(sent))
		}
		g.redeliver(d, 3)
		p.checkCallCount(d, 2)
	})
}

// TestKill_LeavesNothingInFlight kills the gateway when the provider has accepted the message and not
// responded; one reminder of each contract is redelivered, and one is not.
func TestKill_LeavesNothingInFlight(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		modes := map[string][]string{}
		all := []document{
			newReminder("harmless-back").with("channel", "honours"), newReminder("harmless-gone").with("channel", "honours"),
			newReminder("blind-back").with("channel", "blind"), newReminder("blind-gone").with("channel", "blind"),
		}
		for _, d := range all {
			modes[d.recipient()] = []string{providertest.AcceptStall, providertest.OK}
		}
		p.setControl(providertest.Control{Idempotent: true, Modes: modes})
		c := configure(database, p).withTakeover("1s").
			withProvider("honours", p.url(), "2500ms", map[string]any{"idempotent": "24h"}).withProvider("blind", p.url(), "2500ms", nil)
		g := serve(t, c)
		for _, d := range all {
			g.pushAsync(d)
		}
		waitUntil(t, 10*time.Second, "all are called", func() bool { return p.counts().Calls == len(all) })
		g.kill()

		g = serve(t, c)
		g.pushUntilAcked(all[0], 30*time.Second)
		g.pushUntilAcked(all[2], 30*time.Second)
		for _, d := range all[:2] {
			s := g.waitForState(d, "sent", 40*time.Second)
			if got := p.countsFor(d); got.Calls != 2 || got.Accepts != 1 || got.Bodies != 1 || s.Entry.LeaseExpirations != 1 {
				t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s.Entry)
			}
		}
		for _, d := range all[2:] {
			s := g.waitForState(d, "unknown", 40*time.Second)
			g.redeliver(d, 5)
			if got := p.countsFor(d); got.Calls != 1 || s.Entry.LeaseExpirations != 1 || s.Entry.Reason != "lease_expired" {
				t.Errorf("%s: the provider saw %+v; %+v", d["reminder_id"], got, s.Entry)
			}
			if len(s.Timeline) != 1 || s.Timeline[0].Kind != "lease_expired" || s.Timeline[0].Outcome != "unknown" {
				t.Errorf("%s: timeline %+v", d["reminder_id"], s.Timeline)
			}
		}
	})
}

// TestShutdown_SettlesWhatIsInFlight includes a call whose broker has already been answered.
func TestShutdown_SettlesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		p := startProvider(t)
		p.setControl(providertest.Control{LatencyMin: 5 * time.Second, LatencyMax: 5 * time.Second})
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
			d := newReminder(fmt.Sprintf("rem-%d", i))
			all = append(all, d)
			answers = append(answers, g.pushAsync(d))
		}
		impatient := newReminder("hasty")
		if a, err := g.call(http.MethodPost, "/v1/push/hasty", queueToken, nil, []byte(impatient.String())); err != nil ||
			a.status != http.StatusServiceUnavailable || a.state() != "sending" || a.took > 4*time.Second {
			t.Errorf("a broker with a short answer_within: %s after %v, %v", a, a.took, err)
		}
		waitUntil(t, 10*time.Second, "all are called", func() bool { return p.counts().Calls == len(all)+1 })
		if err := g.stop(); err != nil {
			t.Errorf("exit: %v", err)
		}
		for i, answered := range answers {
			if a := <-answered; a.status != http.StatusOK || a.state() != "sent" {
				t.Errorf("%s was in flight: %s", all[i]["reminder_id"], a)
			}
		}
		g = serve(t, c)
		for _, d := range append(all, impatient) {
			g.checkState(d, entryState{"sent", "", "accepted", 1}).checkOutcomes(t, "accepted")
			g.redeliver(d, 1)
			p.checkCallCount(d, 1)
		}
	})
}
