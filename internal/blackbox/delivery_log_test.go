package blackbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// TestDeliveryLog_OneLineEachWithoutPersonalData checks that each delivery is one log line, and that no line,
// metric or response contains a recipient or content.
func TestDeliveryLog_OneLineEachWithoutPersonalData(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		const canary = "canary-7d1f"
		p := startProvider(t)
		modes := []string{providertest.OK, "status:422", "status:410", providertest.AcceptHTML, providertest.AcceptReset, "status:500"}
		control := providertest.Control{Modes: map[string][]string{}}
		secret := func(id string) document {
			return newReminder(id).with("to", canary+id+"@example.test").
				with("content", map[string]any{"subject": canary, "text": canary}).with("metadata", map[string]string{"note": canary})
		}
		var all []document
		for i, mode := range modes {
			d := secret(fmt.Sprintf("rem-%d", i))
			control.Modes[d.recipient()] = []string{mode}
			all = append(all, d)
		}
		p.setControl(control)
		g := serve(t, configure(database, p).with(map[string]any{"level": "debug"}, "log").
			with(map[string]any{"blind": true}, "providers", "mail", "contract"))
		var answers []string
		for _, d := range append(all, all[0]) {
			answers = append(answers, g.push(d.String()).String())
		}
		answers = append(answers, g.push(all[0].with("to", canary+"other@example.test").String()).String())
		answers = append(answers, g.push(`{"to": "`+canary+`", `).String())
		answers = append(answers, g.push(all[0].with("deadline", canary).String()).String())
		deliveries := len(answers)
		answers = append(answers, g.post("/v1/reminders", all[0].String()).String())
		answers = append(answers, g.post("/v1/reminders", all[0].with("deadline", canary).String()).String())
		for _, e := range g.list(url.Values{}) {
			answers = append(answers, g.get("/v1/admin/entries/"+e.ID).String())
		}
		for _, a := range answers {
			if strings.Contains(a, canary) {
				t.Errorf("a response contains the canary: %s", a)
			}
		}
		metrics := string(g.opsGet("/metrics").body)
		if strings.Contains(metrics, canary) || !strings.Contains(metrics, "sendonce_attempts_total") {
			t.Errorf("the metrics contain the canary, or are incomplete:\n%s", metrics)
		}
		for series, want := range map[string]string{
			`sendonce_attempts_total{outcome="accepted",provider="mail"}`: "2",
			`sendonce_attempts_total{outcome="refused",provider="mail"}`:  "1",
			`sendonce_attempts_total{outcome="gone",provider="mail"}`:     "1",
			`sendonce_attempts_total{outcome="unknown",provider="mail"}`:  "2",
			`sendonce_sent_total{receipt="present"}`:                      "1",
			`sendonce_sent_total{receipt="unreadable"}`:                   "1",
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
		linesByID := map[string]int{}
		for _, text := range g.log.lines() {
			if strings.Contains(text, canary) {
				t.Errorf("a log line contains the canary: %s", text)
			}
			var l struct {
				Msg, State, Reason string
				ID                 string `json:"reminder_id"`
				Took               any    `json:"duration_ms"`
				Ack                *bool  `json:"ack"`
			}
			if json.Unmarshal([]byte(text), &l) == nil && l.Msg == "delivery" {
				linesByID[l.ID]++
				if l.State == "" || l.Reason == "" || l.Took == nil || l.Ack == nil {
					t.Errorf("an incomplete log line: %s", text)
				}
			}
		}
		lines := 0
		for _, n := range linesByID {
			lines += n
		}
		if lines != deliveries || linesByID["rem-0"] != 3 || linesByID["rem-1"] != 1 {
			t.Errorf("%d lines of %d deliveries: %v", lines, deliveries, linesByID)
		}
	})
}
