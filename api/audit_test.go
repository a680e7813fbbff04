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

// pagedAudit lists n audit events as a store does, newest first, with pairs at the same time.
func pagedAudit(n int) func(context.Context, ledger.AuditQuery) ([]ledger.AuditEvent, error) {
	var all []ledger.AuditEvent
	for i := range n {
		all = append(all, ledger.AuditEvent{
			ID: fmt.Sprintf("A%02d", n-i), At: testNow.Add(-time.Duration(i/2) * time.Microsecond), Actor: "oncall", Role: "operator", Action: "pause:mail", Reason: "w",
		})
	}
	return func(_ context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error) {
		rest := all
		if q.After != nil {
			at := slices.IndexFunc(all, func(a ledger.AuditEvent) bool { return a.ID == q.After.ID && a.At.Equal(q.After.At) })
			rest = all[at+1:]
		}
		return rest[:min(q.Limit, len(rest))], nil
	}
}

func TestAudit_ListsActorActionAndReason(t *testing.T) {
	var got ledger.AuditQuery
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{audit: func(_ context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error) {
		got = q
		return []ledger.AuditEvent{
			{
				Identity: entry(nil).Identity, ID: "A2", At: testNow, Actor: "oncall", Role: "operator", Action: "discard", Reason: "<its course>",
				Before: `{"state":"dead","version":3}`, After: `{"state":"dropped","version":4}`,
			},
			{ID: "A1", At: testNow.Add(-time.Second), Actor: "root", Role: "admin", Action: "erase:user", Reason: "asked for"},
		}, nil
	}}})
	w := h.expect(request("GET", "/v1/admin/audit?actor=oncall&action=discard&from=2031-03-04T09:00:00Z&to=2031-03-04T10:00:00Z&limit=9", "operator", ""), 200, "")
	want := ledger.AuditQuery{Actor: "oncall", Action: "discard", From: testNow, To: testNow.Add(time.Hour), Limit: 10}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	lines := []wire.AuditEvent{
		{
			At: testNow, ID: "A2", Actor: "oncall", Role: "operator", Action: "discard", Reason: "<its course>", Entry: entry(nil).EntryID(),
			Before: map[string]any{"state": "dead", "version": 3.0}, After: map[string]any{"state": "dropped", "version": 4.0},
		},
		{At: testNow.Add(-time.Second), ID: "A1", Actor: "root", Role: "admin", Action: "erase:user", Reason: "asked for"},
	}
	if diff := cmp.Diff(lines, decoded[wire.AuditList](t, w).Items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Count(w.Body.String(), `"entry"`) != 1 {
		t.Errorf("an entry that does not exist is named: %s", w.Body)
	}
}

func TestAudit_CursorsVisitEachEventOnce(t *testing.T) {
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{audit: pagedAudit(7)}})
	var seen, cursors []string
	for cursor, more := "", true; more; more = cursor != "" {
		target := "/v1/admin/audit?actor=oncall&limit=3"
		if cursor != "" {
			target += "&cursor=" + url.QueryEscape(cursor)
		}
		list := decoded[wire.AuditList](t, h.expect(request("GET", target, "operator", ""), 200, ""))
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
		h.expect(request("GET", "/v1/admin/audit?actor=oncall&cursor="+url.QueryEscape(cursor), "operator", ""), 400, wire.ProblemCodeInvalid)
	}
	for _, query := range []string{"", "actor=root&", "actor=oncall&action=discard&"} {
		h.expect(request("GET", "/v1/admin/audit?"+query+"cursor="+url.QueryEscape(cursors[0]), "operator", ""), 400, wire.ProblemCodeInvalid)
	}
}
