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
	operator     = "operator-token-0123456789"
	eventsSecret = "whsec_c2VuZG9uY2UtYmxhY2tib3gtZXZlbnRzLXNlY3JldA=="
)

// reconciled is the usual gateway with an operator, a provider that reports, and questions after seconds.
func reconciled(database string, p *provider, contract map[string]any) config {
	return configure(database, p).
		with(contract, "providers", "mail", "contract").
		with(map[string]any{"secrets": []string{eventsSecret}}, "providers", "mail", "events").
		with([]string{"1s", "1s", "2s"}, "asks").
		with([]any{
			map[string]any{"name": "checkout", "role": "producer", "tokens": []string{producer}},
			map[string]any{"name": "desk", "role": "support", "tokens": []string{supporter}},
			map[string]any{"name": "oncall", "role": "operator", "tokens": []string{operator}},
		}, "callers")
}

func byLookup(p *provider) map[string]any { return map[string]any{"lookup": p.url()} }

func blind() map[string]any { return map[string]any{"blind": true} }

// resolve is a person's verdict on an entry.
func (g *gateway) resolve(e entry, verdict string) answer {
	g.t.Helper()
	body := document{"verdict": verdict, "reason": "found out at the provider's desk", "version": e.Version}
	return g.operate("/v1/admin/entries/"+e.ID+"/resolve", body)
}

// operate calls the API as the operator.
func (g *gateway) operate(path string, body document) answer {
	g.t.Helper()
	a, err := g.call(http.MethodPost, path, operator, http.Header{"Content-Type": {"application/json"}}, []byte(body.String()))
	if err != nil {
		g.t.Fatalf("post %s: %v", path, err)
	}
	return a
}

// report is a signed report of the provider about a reminder.
func (g *gateway) report(d document, id, status, receipt string) answer {
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
		g.t.Fatalf("report: %v", err)
	}
	return a
}

// waiting are the reminders that wait for a person or for their provider's word, and for whom.
func (g *gateway) waiting() map[string]string {
	g.t.Helper()
	var page struct {
		Items []struct {
			Entry    entry  `json:"entry"`
			WaitsFor string `json:"waits_for"`
			Evidence []line `json:"evidence"`
		} `json:"items"`
	}
	a := g.get("/v1/admin/reconciliation")
	if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("reconciliation: %s, %v", a, err)
	}
	whom := map[string]string{}
	for _, item := range page.Items {
		whom[item.Entry.ReminderID] = item.WaitsFor
		if len(item.Evidence) == 0 {
			g.t.Errorf("%s is listed without evidence", item.Entry.ReminderID)
		}
	}
	return whom
}

func TestB16AProviderThatIsAskedLaterSettlesWhatItTook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.plays(providertest.AcceptReset)
		g := serve(t, reconciled(database, p, byLookup(p)))
		d := remind("rem-asked")
		g.acked(d, 10*time.Second)
		s := g.comesTo(d, "sent", 20*time.Second)
		p.called(d, 1)
		if s.Entry.Receipt == "" {
			t.Error("the receipt that the provider found is not kept")
		}
		if !slices.ContainsFunc(s.Timeline, func(l line) bool { return l.Kind == "lookup" && l.State == "sent" }) {
			t.Errorf("the question is not in the timeline: %v", s.reasons())
		}
		g.repeated(d, 3)
		p.called(d, 1)
	})
}

func TestB16AfterTheLastNegativeAnswerAPersonDecidesAndItIsCalledOnceMore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.plays(providertest.Reset) // it reads the request, and takes nothing
		g := serve(t, reconciled(database, p, byLookup(p)))
		d := remind("rem-lost")
		g.acked(d, 10*time.Second)
		until(t, 20*time.Second, "it is left to a person", func() bool { return g.waiting()["rem-lost"] == "person" })
		p.called(d, 1)
		s := g.stands(d, standing{"unknown", "unknown", "not_found", 1})
		if asked := countKind(s, "lookup"); asked != 3 {
			t.Errorf("%d questions in the timeline, want 3", asked)
		}

		if a := g.resolve(s.Entry, "not_sent"); a.status != http.StatusOK {
			t.Fatalf("resolve: %s", a)
		}
		if a := g.resolve(s.Entry, "not_sent"); a.status != http.StatusConflict {
			t.Errorf("a verdict on a version that has moved on: %s", a)
		}
		p.plays(providertest.OK)
		g.comesTo(d, "sent", 20*time.Second)
		if got := p.tally(d); got.Accepts != 1 {
			t.Errorf("accepted %d times", got.Accepts)
		}
		if a := g.get("/v1/admin/entries/" + s.Entry.ID); !slices.Contains(acts(t, a), "resolve:not_sent oncall") {
			t.Errorf("the person's act is not told: %s", a)
		}
	})
}

func countKind(s story, kind string) (n int) {
	for _, l := range s.Timeline {
		if l.Kind == kind {
			n++
		}
	}
	return n
}

// acts are what people did to an entry, and who, as its story tells.
func acts(t *testing.T, a answer) []string {
	t.Helper()
	var told struct {
		Acts []struct {
			What string `json:"what"`
			Who  string `json:"who"`
		} `json:"acts"`
	}
	if err := json.Unmarshal(a.body, &told); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	var all []string
	for _, act := range told.Acts {
		all = append(all, act.What+" "+act.Who)
	}
	return all
}

func TestAProvidersReportSettlesWhatNobodyKnew(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		p := startProvider(t)
		p.plays(providertest.AcceptReset)
		g := serve(t, reconciled(database, p, blind()))
		d := remind("rem-reported")
		g.acked(d, 10*time.Second)
		g.stands(d, standing{"unknown", "unknown", "unanswered", 1})
		if got := g.waiting()["rem-reported"]; got != "person" {
			t.Errorf("it waits for %q", got)
		}
		if a := g.report(d, "ev-1", "accepted", "receipt-9"); a.status != http.StatusOK {
			t.Fatalf("report: %s", a)
		}
		if s := g.stands(d, standing{"sent", "", "late_acceptance", 1}); s.Entry.Receipt != "receipt-9" {
			t.Errorf("receipt %q", s.Entry.Receipt)
		}
		for range 3 {
			g.report(d, "ev-2", "bounced", "receipt-9")
		}
		s := g.stands(d, standing{"sent", "", "late_acceptance", 1})
		if n := countKind(s, "report"); n != 2 {
			t.Errorf("%d reports in the timeline, want the acceptance and one bounce", n)
		}
		p.called(d, 1)
	})
}

// What a standby had not received when it was promoted is lost; what that may have been is not sent blindly.
func TestAfterAFailoverNothingThatMayHaveBeenSentIsSentBlindly(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	p := startProvider(t)
	p.told(providertest.Control{Idempotent: true})
	c := reconciled(f.url, p, blind()).
		lane("idem", p.url(), "2s", map[string]any{"idempotent": "24h"}).
		lane("asks", p.url(), "2s", byLookup(p))
	g := serve(t, c)
	before := func(id, channel string) document {
		return remind(id).but("channel", channel).but("created_at", time.Now().UTC().Format(time.RFC3339Nano))
	}
	kept := before("rem-kept", "email")
	g.acked(kept, 10*time.Second)
	f.loseNextCommits()
	held, repeated, asked := before("rem-held", "email"), before("rem-repeated", "idem"), before("rem-asked", "asks")
	for _, d := range []document{held, repeated, asked} {
		g.acked(d, 10*time.Second)
		p.called(d, 1)
	}
	f.fail()

	g.acked(kept, 60*time.Second)
	for _, d := range []document{held, asked} {
		g.acked(d, 20*time.Second)
	}
	g.stands(held, standing{"unknown", "unknown", "ledger_changed", 0})
	g.push(repeated.String())
	g.acked(repeated, 20*time.Second)
	g.comesTo(repeated, "sent", 20*time.Second)
	g.comesTo(asked, "sent", 20*time.Second)
	for _, d := range []document{kept, held, repeated, asked} {
		if got := p.tally(d); got.Accepts != 1 {
			t.Errorf("%s was accepted %d times", d["reminder_id"], got.Accepts)
		}
	}
	p.called(kept, 1)
	p.called(held, 1)
	p.called(repeated, 2)
	p.called(asked, 1)

	later := before("rem-later", "email")
	g.acked(later, 10*time.Second)
	g.stands(later, standing{"sent", "", "accepted", 1})
	var ready struct {
		Failover *struct {
			Noticed time.Time `json:"noticed"`
		} `json:"failover"`
	}
	if a := g.operations("/readyz"); json.Unmarshal(a.body, &ready) != nil || a.status != http.StatusOK || ready.Failover == nil {
		t.Errorf("readiness does not tell of the failover: %s", a)
	}
	if g.metric("sendonce_failover_noticed_timestamp_seconds") == "0" {
		t.Error("metrics do not tell of the failover")
	}
	if a := g.resolve(g.of(held).Entry, "sent"); a.status != http.StatusOK {
		t.Errorf("resolve: %s", a)
	}
	g.stands(held, standing{"sent", "", "resolved", 0})
}
