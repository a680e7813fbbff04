package blackbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestEachDeliveryIsOneLineAndNoLineShowsWhatWasSaidToWhom : nor does a metric or an answer.
func TestEachDeliveryIsOneLineAndNoLineShowsWhatWasSaidToWhom(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		const canary = "canary-7d1f"
		p := startProvider(t)
		modes := []string{providertest.OK, "status:422", "status:410", providertest.AcceptHTML, providertest.AcceptReset, "status:500"}
		control := providertest.Control{Modes: map[string][]string{}}
		secret := func(id string) document {
			return remind(id).but("to", canary+id+"@example.test").
				but("content", map[string]any{"subject": canary, "text": canary}).but("metadata", map[string]string{"note": canary})
		}
		var all []document
		for i, mode := range modes {
			d := secret(fmt.Sprintf("rem-%d", i))
			control.Modes[d.to()] = []string{mode}
			all = append(all, d)
		}
		p.told(control)
		g := serve(t, configure(database, p).with(map[string]any{"level": "debug"}, "log").
			with(map[string]any{"blind": true}, "providers", "mail", "contract"))
		var answers []string
		for _, d := range append(all, all[0]) {
			answers = append(answers, g.push(d.String()).String())
		}
		answers = append(answers, g.push(all[0].but("to", canary+"other@example.test").String()).String())
		answers = append(answers, g.push(`{"to": "`+canary+`", `).String())
		answers = append(answers, g.push(all[0].but("deadline", canary).String()).String())
		deliveries := len(answers)
		answers = append(answers, g.post("/v1/reminders", all[0].String()).String())
		answers = append(answers, g.post("/v1/reminders", all[0].but("deadline", canary).String()).String())
		for _, e := range g.list(url.Values{}) {
			answers = append(answers, g.get("/v1/admin/entries/"+e.ID).String())
		}
		for _, a := range answers {
			if strings.Contains(a, canary) {
				t.Errorf("an answer shows it: %s", a)
			}
		}
		metrics := string(g.operations("/metrics").body)
		if strings.Contains(metrics, canary) || !strings.Contains(metrics, "sendonce_attempts_total") {
			t.Errorf("the metrics show it, or nothing:\n%s", metrics)
		}
		for series, want := range map[string]string{
			`sendonce_attempts_total{outcome="accepted",provider="mail"}`: "2",
			`sendonce_attempts_total{outcome="refused",provider="mail"}`:  "1",
			`sendonce_attempts_total{outcome="gone",provider="mail"}`:     "1",
			`sendonce_attempts_total{outcome="unknown",provider="mail"}`:  "2",
			`sendonce_sent_total{receipt="present"}`:                      "1",
			`sendonce_sent_total{receipt="unread"}`:                       "1",
			`sendonce_conflicts_total`:                                    "1",
			`sendonce_delivery_seconds_count{origin="push"}`:              fmt.Sprint(deliveries),
		} {
			if got := g.metric(series); got != want {
				t.Errorf("%s is %q, want %s", series, got, want)
			}
		}
		if err := g.stop(); err != nil {
			t.Errorf("exit: %v", err)
		}
		told := map[string]int{}
		for _, text := range g.log.lines() {
			if strings.Contains(text, canary) {
				t.Errorf("a line shows it: %s", text)
			}
			var l struct {
				Msg, State, Reason string
				ID                 string `json:"reminder_id"`
				Took               any    `json:"took_ms"`
				Ack                *bool  `json:"ack"`
			}
			if json.Unmarshal([]byte(text), &l) == nil && l.Msg == "delivery" {
				told[l.ID]++
				if l.State == "" || l.Reason == "" || l.Took == nil || l.Ack == nil {
					t.Errorf("a line that does not tell the whole: %s", text)
				}
			}
		}
		lines := 0
		for _, n := range told {
			lines += n
		}
		if lines != deliveries || told["rem-0"] != 3 || told["rem-1"] != 1 {
			t.Errorf("%d lines of %d deliveries: %v", lines, deliveries, told)
		}
	})
}
