package blackbox

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

const (
	operatorToken = "operator-token-0123456789"
	eventsSecret  = "whsec_c2VuZG9uY2UtYmxhY2tib3gtZXZlbnRzLXNlY3JldA=="
)

// reconcileConfig is the usual configuration with an operator, a provider that sends status events, and
// lookups after seconds.
func reconcileConfig(database string, p *provider, contract map[string]any) config {
	return configure(database, p).
		with(contract, "providers", "mail", "contract").
		with(map[string]any{"secrets": []string{eventsSecret}}, "providers", "mail", "events").
		with([]string{"1s", "1s", "2s"}, "lookup_schedule").
		with([]any{
			map[string]any{"name": "checkout", "role": "producer", "tokens": []string{producerToken}},
			map[string]any{"name": "dashboard", "role": "support", "tokens": []string{supportToken}},
			map[string]any{"name": "oncall", "role": "operator", "tokens": []string{operatorToken}},
		}, "callers")
}

func lookupContract(p *provider) map[string]any { return map[string]any{"lookup": p.url()} }

func blindContract() map[string]any { return map[string]any{"blind": true} }

// resolve resolves an entry by an operator's verdict.
func (g *gateway) resolve(e entry, verdict string) answer {
	g.t.Helper()
	body := document{"verdict": verdict, "reason": "confirmed by the provider's support", "version": e.Version}
	return g.operatorPost("/v1/admin/entries/"+e.ID+"/resolve", body)
}

// operatorPost calls the API as the operator.
func (g *gateway) operatorPost(path string, body document) answer {
	g.t.Helper()
	a, err := g.call(http.MethodPost, path, operatorToken, http.Header{"Content-Type": {"application/json"}}, []byte(body.String()))
	if err != nil {
		g.t.Fatalf("post %s: %v", path, err)
	}
	return a
}

// sendStatusEvent sends a signed status event of the provider about a reminder.
func (g *gateway) sendStatusEvent(d document, id, status, receipt string) answer {
	g.t.Helper()
	body := []byte(document{
		"send_key": d.identity().SendKey(), "reminder_id": d["reminder_id"], "type": d["type"], "channel": d["channel"],
		"status": status, "id": receipt, "at": time.Now().UTC().Format(time.RFC3339Nano),
	}.String())
	signer, err := standardwebhooks.NewWebhook(eventsSecret)
	if err != nil {
		g.t.Fatal(err)
	}
	now := time.Now()
	signature, err := signer.Sign(id, now, body)
	if err != nil {
		g.t.Fatal(err)
	}
	a, err := g.call(http.MethodPost, "/v1/providers/mail/events", "", http.Header{
		"Content-Type": {"application/json"}, "Webhook-Id": {id},
		"Webhook-Timestamp": {strconv.FormatInt(now.Unix(), 10)}, "Webhook-Signature": {signature},
	}, body)
	if err != nil {
		g.t.Fatalf("status event: %v", err)
	}
	return a
}

// unresolved returns what each unresolved reminder waits for: an operator, or the provider.
func (g *gateway) unresolved() map[string]string {
	g.t.Helper()
	var page struct {
		Items []struct {
			Entry    entry           `json:"entry"`
			WaitsFor string          `json:"waits_for"`
			Evidence []timelineEvent `json:"evidence"`
		} `json:"items"`
	}
	a := g.get("/v1/admin/reconciliation")
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("reconciliation: %s, %v", a, err)
	}
	waitsFor := map[string]string{}
	for _, item := range page.Items {
		waitsFor[item.Entry.ReminderID] = item.WaitsFor
		if len(item.Evidence) == 0 {
			g.t.Errorf("%s is listed without evidence", item.Entry.ReminderID)
		}
	}
	return waitsFor
}

func TestB16_LaterLookupSettlesWhatTheProviderAccepted(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.setModes(providertest.AcceptReset)
		g := serve(t, reconcileConfig(database, p, lookupContract(p)))
		d := newReminder("rem-lookup")
		g.pushUntilAcked(d, 10*time.Second)
		s := g.waitForState(d, "sent", 20*time.Second)
		p.checkCallCount(d, 1)
		if s.Entry.Receipt == "" {
			t.Error("the receipt that the lookup found is not stored")
		}
		if !slices.ContainsFunc(s.Timeline, func(l timelineEvent) bool { return l.Kind == "lookup" && l.State == "sent" }) {
			t.Errorf("the lookup is not in the timeline: %v", s.reasons())
		}
		g.redeliver(d, 3)
		p.checkCallCount(d, 1)
	})
}

func TestB16_AfterTheLastNotFoundAnOperatorDecides(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.setModes(providertest.Reset) // the provider reads the request, and accepts nothing
		g := serve(t, reconcileConfig(database, p, lookupContract(p)))
		d := newReminder("rem-lost")
		g.pushUntilAcked(d, 10*time.Second)
		waitUntil(t, 20*time.Second, "it waits for an operator", func() bool { return g.unresolved()["rem-lost"] == "operator" })
		p.checkCallCount(d, 1)
		s := g.checkState(d, entryState{"unknown", "unknown", "not_found", 1})
		if lookedUp := countKind(s, "lookup"); lookedUp != 3 {
			t.Errorf("%d lookups in the timeline, want 3", lookedUp)
		}

		if a := g.resolve(s.Entry, "not_sent"); a.status != http.StatusOK {
			t.Fatalf("resolve: %s", a)
		}
		if a := g.resolve(s.Entry, "not_sent"); a.status != http.StatusConflict {
			t.Errorf("a verdict on an outdated version: %s", a)
		}
		p.setModes(providertest.OK)
		g.waitForState(d, "sent", 20*time.Second)
		if got := p.countsFor(d); got.Accepts != 1 {
			t.Errorf("accepted %d times", got.Accepts)
		}
		if a := g.get("/v1/admin/entries/" + s.Entry.ID); !slices.Contains(auditActions(t, a), "resolve:not_sent oncall") {
			t.Errorf("the operator's action is not in the audit: %s", a)
		}
	})
}

func countKind(s entryDetail, kind string) (n int) {
	for _, l := range s.Timeline {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

// auditActions returns the audit events of an entry, as "action actor".
func auditActions(t *testing.T, a answer) []string {
	t.Helper()
	var detail struct {
		Audit []struct {
			Action string `json:"action"`
			Actor  string `json:"actor"`
		} `json:"audit"`
	}
	if err := json.Unmarshal(a.body, &detail); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	var all []string
	for _, audit := range detail.Audit {
		all = append(all, audit.Action+" "+audit.Actor)
	}
	return all
}

func TestStatusEvent_SettlesAnUnknownEntry(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.setModes(providertest.AcceptReset)
		g := serve(t, reconcileConfig(database, p, blindContract()))
		d := newReminder("rem-reported")
		g.pushUntilAcked(d, 10*time.Second)
		g.checkState(d, entryState{"unknown", "unknown", "unanswered", 1})
		if got := g.unresolved()["rem-reported"]; got != "operator" {
			t.Errorf("it waits for %q", got)
		}
		if a := g.sendStatusEvent(d, "ev-1", "accepted", "receipt-9"); a.status != http.StatusOK {
			t.Fatalf("status event: %s", a)
		}
		if s := g.checkState(d, entryState{"sent", "", "late_acceptance", 1}); s.Entry.Receipt != "receipt-9" {
			t.Errorf("receipt %q", s.Entry.Receipt)
		}
		for range 3 {
			g.sendStatusEvent(d, "ev-2", "bounced", "receipt-9")
		}
		s := g.checkState(d, entryState{"sent", "", "late_acceptance", 1})
		if n := countKind(s, "status"); n != 2 {
			t.Errorf("%d status events in the timeline, want the acceptance and one bounce", n)
		}
		p.checkCallCount(d, 1)
	})
}

// What a standby had not received when it was promoted is lost; what may have been sent is not sent blindly.
func TestFailover_MaybeSentIsNotSentBlindly(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	p := startProvider(t)
	p.setControl(providertest.Control{Idempotent: true})
	c := reconcileConfig(f.url, p, blindContract()).
		withProvider("idem", p.url(), "2s", map[string]any{"idempotent": "24h"}).
		withProvider("lookup", p.url(), "2s", lookupContract(p))
	g := serve(t, c)
	before := func(id, channel string) document {
		return newReminder(id).with("channel", channel).with("created_at", time.Now().UTC().Format(time.RFC3339Nano))
	}
	kept := before("rem-kept", "email")
	g.pushUntilAcked(kept, 10*time.Second)
	f.loseNextCommits()
	held, repeated, lookedUp := before("rem-held", "email"), before("rem-repeated", "idem"), before("rem-lookup", "lookup")
	for _, d := range []document{held, repeated, lookedUp} {
		g.pushUntilAcked(d, 10*time.Second)
		p.checkCallCount(d, 1)
	}
	f.promote()

	g.pushUntilAcked(kept, 60*time.Second)
	for _, d := range []document{held, lookedUp} {
		g.pushUntilAcked(d, 20*time.Second)
	}
	g.checkState(held, entryState{"unknown", "unknown", "database_changed", 0})
	g.push(repeated.String())
	g.pushUntilAcked(repeated, 20*time.Second)
	g.waitForState(repeated, "sent", 20*time.Second)
	g.waitForState(lookedUp, "sent", 20*time.Second)
	for _, d := range []document{kept, held, repeated, lookedUp} {
		if got := p.countsFor(d); got.Accepts != 1 {
			t.Errorf("%s was accepted %d times", d["reminder_id"], got.Accepts)
		}
	}
	p.checkCallCount(kept, 1)
	p.checkCallCount(held, 1)
	p.checkCallCount(repeated, 2)
	p.checkCallCount(lookedUp, 1)

	later := before("rem-later", "email")
	g.pushUntilAcked(later, 10*time.Second)
	g.checkState(later, entryState{"sent", "", "accepted", 1})
	var ready struct {
		Failover *struct {
			Noticed time.Time `json:"noticed"`
		} `json:"failover"`
	}
	if a := g.opsGet("/readyz"); json.Unmarshal(a.body, &ready) != nil || a.status != http.StatusOK || ready.Failover == nil {
		t.Errorf("readiness does not report the failover: %s", a)
	}
	if g.metric("sendonce_failover_noticed_timestamp_seconds") == "0" {
		t.Error("metrics do not report the failover")
	}
	if a := g.resolve(g.detail(held).Entry, "sent"); a.status != http.StatusOK {
		t.Errorf("resolve: %s", a)
	}
	g.checkState(held, entryState{"sent", "", "resolved", 0})
}
