package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestProviders_ListShowsStatus(t *testing.T) {
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{providers: func(context.Context) ([]ledger.ProviderStatus, error) {
		return []ledger.ProviderStatus{
			{
				Name: "mail", Contract: ledger.Contract{Kind: ledger.ContractIdempotent, Window: 24 * time.Hour}, Capacity: 20, InFlight: 3, Rate: 50, Ready: 7,
				Gate: ledger.Gate{
					Provider: "mail", ClosedUntil: ledger.At(testNow), Class: ledger.ClassThrottled, Actor: "oncall", Paused: true, Failures: 2, Version: 9,
				},
			},
			{Name: "sms", Capacity: 1, Open: true},
		}, nil
	}}})
	w := h.expect(request("GET", "/v1/admin/providers", "support", ""), 200, "")
	const want = `{"items":[` +
		`{"name":"mail","contract":{"kind":"idempotent","window":"24h0m0s"},"gate":{"paused":true,"open":false,"closed_until":"2031-03-04T09:00:00Z","class":"throttled","actor":"oncall"},` +
		`"capacity":20,"in_flight":3,"rate":50,"ready":7},` +
		`{"name":"sms","contract":{"kind":"blind"},"gate":{"paused":false,"open":true},"capacity":1,"in_flight":0,"ready":0}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("got %s", got)
	}
}

func TestProviders_PausedAndResumedByName(t *testing.T) {
	var got []any
	setPaused := func(paused bool) func(context.Context, string, ledger.AuditEvent) (ledger.Gate, error) {
		return func(_ context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error) {
			got = append(got, provider, audit)
			if provider == "other" {
				return ledger.Gate{}, ledger.ErrNotFound
			}
			return ledger.Gate{Provider: provider, Paused: paused, Actor: audit.Actor}, nil
		}
	}
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{pause: setPaused(true), resume: setPaused(false)}})
	for action, want := range map[string]string{
		"pause":  `{"paused":true,"open":false,"actor":"oncall"}`,
		"resume": `{"paused":false,"open":true,"actor":"oncall"}`,
	} {
		got = nil
		w := h.expect(request("POST", "/v1/admin/providers/ma%2Fil/"+action, "operator", `{"reason": "until noon"}`), 200, "")
		if strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %s", action, w.Body)
		}
		if diff := cmp.Diff([]any{"ma/il", ledger.AuditEvent{Actor: "oncall", Role: "operator", Reason: "until noon"}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", action, diff)
		}
		p := decoded[wire.Problem](t, h.expect(request("POST", "/v1/admin/providers/other/"+action, "operator", `{"reason": "x"}`), 404, wire.ProblemCodeNotFound))
		if p.Detail != "There is no provider with this name." {
			t.Errorf("%s: got %s", action, p.Detail)
		}
	}
}
