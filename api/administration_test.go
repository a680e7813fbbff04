package api

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// book holds n acts, the newest first, two of them always at the same instant.
func book(n int) func(context.Context, ledger.AuditQuery) ([]ledger.Act, error) {
	var all []ledger.Act
	for i := range n {
		all = append(all, ledger.Act{
			ID: fmt.Sprintf("A%02d", n-i), At: testNow.Add(-time.Duration(i/2) * time.Microsecond), By: "oncall", Role: "operator", Verb: "pause:mail", Why: "w",
		})
	}
	return func(_ context.Context, q ledger.AuditQuery) ([]ledger.Act, error) {
		rest := all
		if q.After != nil {
			at := slices.IndexFunc(all, func(a ledger.Act) bool { return a.ID == q.After.ID && a.At.Equal(q.After.At) })
			rest = all[at+1:]
		}
		return rest[:min(q.Limit, len(rest))], nil
	}
}

func TestTheAuditTellsWhoDidWhatAndWhy(t *testing.T) {
	var got ledger.AuditQuery
	h := newHouse(t, &collaborators{desks: desks{audit: func(_ context.Context, q ledger.AuditQuery) ([]ledger.Act, error) {
		got = q
		return []ledger.Act{
			{
				Identity: entry(nil).Identity, ID: "A2", At: testNow, By: "oncall", Role: "operator", Verb: "discard", Why: "<its course>",
				Before: `{"state":"dead","version":3}`, After: `{"state":"dropped","version":4}`,
			},
			{ID: "A1", At: testNow.Add(-time.Second), By: "root", Role: "admin", Verb: "erase:user", Why: "asked for"},
		}, nil
	}}})
	w := h.wants(request("GET", "/v1/admin/audit?by=oncall&verb=discard&from=2031-03-04T09:00:00Z&to=2031-03-04T10:00:00Z&limit=9", "operator", ""), 200, "")
	want := ledger.AuditQuery{By: "oncall", Verb: "discard", From: testNow, To: testNow.Add(time.Hour), Limit: 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lines := []wire.AuditLine{
		{
			At: testNow, ID: "A2", Who: "oncall", Role: "operator", What: "discard", Why: "<its course>", Entry: entry(nil).EntryID(),
			Before: map[string]any{"state": "dead", "version": 3.0}, After: map[string]any{"state": "dropped", "version": 4.0},
		},
		{At: testNow.Add(-time.Second), ID: "A1", Who: "root", Role: "admin", What: "erase:user", Why: "asked for"},
	}
	if diff := cmp.Diff(lines, decoded[wire.AuditList](t, w).Items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Count(w.Body.String(), `"entry"`) != 1 {
		t.Errorf("an entry that there is not is named: %s", w.Body)
	}
}

func TestCursorsWalkTheAuditOnceFromEndToEnd(t *testing.T) {
	h := newHouse(t, &collaborators{desks: desks{audit: book(7)}})
	var seen, cursors []string
	for cursor, more := "", true; more; more = cursor != "" {
		target := "/v1/admin/audit?by=oncall&limit=3"
		if cursor != "" {
			target += "&cursor=" + url.QueryEscape(cursor)
		}
		list := decoded[wire.AuditList](t, h.wants(request("GET", target, "operator", ""), 200, ""))
		for _, item := range list.Items {
			seen = append(seen, item.ID)
		}
		if cursor = list.Next; cursor != "" {
			cursors = append(cursors, cursor)
		}
	}
	if want := []string{"A07", "A06", "A05", "A04", "A03", "A02", "A01"}; !slices.Equal(want, seen) || len(cursors) != 2 {
		t.Errorf("came %v on %d pages", seen, len(cursors)+1)
	}
	for _, cursor := range tampered(cursors[0]) {
		h.wants(request("GET", "/v1/admin/audit?by=oncall&cursor="+url.QueryEscape(cursor), "operator", ""), 400, wire.ProblemCodeInvalid)
	}
	for _, query := range []string{"", "by=root&", "by=oncall&verb=discard&"} {
		h.wants(request("GET", "/v1/admin/audit?"+query+"cursor="+url.QueryEscape(cursors[0]), "operator", ""), 400, wire.ProblemCodeInvalid)
	}
}

func TestProvidersAreShownAsTheyStand(t *testing.T) {
	h := newHouse(t, &collaborators{desks: desks{providers: func(context.Context) ([]ledger.ProviderView, error) {
		return []ledger.ProviderView{
			{
				Name: "mail", Contract: ledger.Contract{Kind: ledger.Idempotent, Window: 24 * time.Hour}, Capacity: 20, InFlight: 3, Rate: 50, Ready: 7,
				Gate: ledger.Gate{
					Provider: "mail", ClosedUntil: ledger.At(testNow), Class: ledger.ClassThrottled, By: "oncall", Paused: true, Strikes: 2, Version: 9,
				},
			},
			{Name: "sms", Capacity: 1, Open: true},
		}, nil
	}}})
	w := h.wants(request("GET", "/v1/admin/providers", "support", ""), 200, "")
	const want = `{"items":[` +
		`{"name":"mail","contract":{"kind":"idempotent","window":"24h0m0s"},"gate":{"paused":true,"open":false,"closed_until":"2031-03-04T09:00:00Z","class":"throttled","by":"oncall"},` +
		`"capacity":20,"in_flight":3,"rate":50,"ready":7},` +
		`{"name":"sms","contract":{"kind":"blind"},"gate":{"paused":false,"open":true},"capacity":1,"in_flight":0,"ready":0}]}`
	if got := strings.TrimSpace(w.Body.String()); got != want {
		t.Errorf("told %s", got)
	}
}

func TestAProviderIsPausedAndResumedByName(t *testing.T) {
	var got []any
	steered := func(paused bool) func(context.Context, string, ledger.Act) (ledger.Gate, error) {
		return func(_ context.Context, provider string, act ledger.Act) (ledger.Gate, error) {
			got = append(got, provider, act)
			if provider == "other" {
				return ledger.Gate{}, ledger.ErrNotFound
			}
			return ledger.Gate{Provider: provider, Paused: paused, By: act.By}, nil
		}
	}
	h := newHouse(t, &collaborators{desks: desks{pause: steered(true), resume: steered(false)}})
	for verb, want := range map[string]string{
		"pause":  `{"paused":true,"open":false,"by":"oncall"}`,
		"resume": `{"paused":false,"open":true,"by":"oncall"}`,
	} {
		got = nil
		w := h.wants(request("POST", "/v1/admin/providers/ma%2Fil/"+verb, "operator", `{"reason": "until noon"}`), 200, "")
		if strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%s: %s", verb, w.Body)
		}
		if diff := cmp.Diff([]any{"ma/il", ledger.Act{By: "oncall", Role: "operator", Why: "until noon"}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", verb, diff)
		}
		p := decoded[wire.Problem](t, h.wants(request("POST", "/v1/admin/providers/other/"+verb, "operator", `{"reason": "x"}`), 404, wire.ProblemCodeNotFound))
		if p.Detail != "There is no provider of this name." {
			t.Errorf("%s: told %s", verb, p.Detail)
		}
	}
}

func TestAPersonIsErasedByAnAdminWithAReason(t *testing.T) {
	var got []any
	h := newHouse(t, &collaborators{desks: desks{erase: func(_ context.Context, userID string, act ledger.Act) (int, error) {
		got = []any{userID, act}
		return 3, nil
	}}})
	for path, userID := range map[string]string{"u-77": "u-77", "u%2F%20~": "u/ ~", strings.Repeat("u", 255): strings.Repeat("u", 255)} {
		w := h.wants(request("DELETE", "/v1/admin/users/"+path+"/data", "admin", `{"reason": "they asked"}`), 200, "")
		if strings.TrimSpace(w.Body.String()) != `{"erased":3}` {
			t.Errorf("answered with %s", w.Body)
		}
		if diff := cmp.Diff([]any{userID, ledger.Act{By: "root", Role: "admin", Why: "they asked"}}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	got = nil
	for _, path := range []string{strings.Repeat("u", 256), "%C3%A4", "u%00", "u%0A"} {
		w := h.wants(request("DELETE", "/v1/admin/users/"+path+"/data", "admin", `{"reason": "they asked"}`), 400, wire.ProblemCodeInvalid)
		if faults := decoded[wire.Problem](t, w).Errors; len(faults) != 1 || faults[0].Field != "user_id" || got != nil {
			t.Errorf("%s: %s, %v", path, w.Body, got)
		}
	}
}
