package api

import (
	"context"
	"crypto/sha256"
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

// items returns one item of each kind: waiting, redriven and sent, reparsed and dead, skipped as sent, and skipped as
// gone.
func items() []ledger.RedriveItem {
	item := func(position int, result string, current ledger.StateSummary) ledger.RedriveItem {
		id := ledger.Identity{ReminderID: fmt.Sprintf("r-%d", position), Type: "seat_expiring", Channel: "email"}
		return ledger.RedriveItem{Identity: id, RedriveID: "R1", Position: position, Version: 3, Result: result, Current: current}
	}
	dead := ledger.StateSummary{State: ledger.Dead, Class: ledger.ClassPermanent, Reason: ledger.ReasonRefused}
	all := []ledger.RedriveItem{
		item(1, "", ledger.StateSummary{State: ledger.Dead, Class: ledger.ClassExhausted, Reason: ledger.ReasonBudgetSpent}),
		item(2, ledger.ItemRedriven, ledger.StateSummary{State: ledger.Sent, Reason: ledger.ReasonAccepted}),
		item(3, ledger.ItemReparsed, dead),
		item(4, string(ledger.SkipSent), ledger.StateSummary{State: ledger.Sent, Reason: ledger.ReasonLateAcceptance}),
		item(5, string(ledger.SkipGone), ledger.StateSummary{}),
	}
	all[2].ReparsedAs = all[1].EntryID()
	return all
}

func TestRedrive_CreatedWithActorAndReason(t *testing.T) {
	var requests []ledger.RedriveRequest
	known := false
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{redrive: func(_ context.Context, request ledger.RedriveRequest) (ledger.Redrive, bool, error) {
		requests = append(requests, request)
		return aRedrive(nil), known, nil
	}}})
	r := request("POST", "/v1/admin/redrives", "operator", aRedriveRequest)
	r.Header.Set("Idempotency-Key", "k 1")
	w := h.expect(r, 202, "")
	const canonical = `{"filter":{"class":"exhausted","provider":"mail"},"limit":7,"rate":2.5,"permanent":false,"reason":"the provider is back"}`
	want := ledger.RedriveRequest{
		Filter: ledger.Query{Class: ledger.ClassExhausted, Provider: "mail"}, Limit: 7, Rate: 2.5, IdempotencyKey: "k 1", Request: canonical,
		RequestHash: fmt.Sprintf("%x", sha256.Sum256([]byte(canonical))), Audit: ledger.AuditEvent{Actor: "oncall", Role: "operator", Reason: "the provider is back"},
	}
	if diff := cmp.Diff(want, requests[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if at := w.Header().Get("Location"); at != "/v1/admin/redrives/R1" {
		t.Errorf("Location is %q", at)
	}
	const shown = `{"id":"R1","state":"running","actor":"oncall","role":"operator","reason":"the provider is back","request":{"filter":{"class":"exhausted"},` +
		`"limit":7,"permanent":false,"rate":2.5,"reason":"the provider is back"},"size":2,"rate":2.5,"permanent":false,` +
		`"created":"2031-03-04T09:00:00Z","updated":"2031-03-04T09:00:01Z"}`
	if got := strings.TrimSpace(w.Body.String()); got != shown {
		t.Errorf("answered with %s", got)
	}

	known = true
	if w := h.expect(request("POST", "/v1/admin/redrives", "operator", aRedriveRequest), 200, ""); strings.TrimSpace(w.Body.String()) != shown {
		t.Errorf("an existing redrive is answered with %s", w.Body)
	}
	if requests[1].IdempotencyKey != "" || requests[1].RequestHash != requests[0].RequestHash {
		t.Errorf("got %+v", requests[1])
	}
}

func TestRedrive_DryRunPreviewsAndStartsNothing(t *testing.T) {
	var got ledger.RedriveRequest
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{preview: func(_ context.Context, request ledger.RedriveRequest) (ledger.RedriveReport, error) {
		got = request
		all := items()[1:]
		return ledger.RedriveReport{Redrive: aRedrive(nil), Items: all, Counts: ledger.CountItems(all)}, nil
	}}})
	w := h.expect(request("POST", "/v1/admin/redrives", "operator", `{"dry_run": true, `+aRedriveRequest[1:]), 200, "")
	if strings.Contains(w.Body.String(), `"redrive":`) || strings.Contains(got.Request, "dry_run") {
		t.Errorf("a redrive that does not exist is shown: %s, %s", w.Body, got.Request)
	}
	if got := decoded[wire.RedriveReport](t, w); len(got.Items) != 4 || got.Counts.Sent != 1 {
		t.Errorf("got %s", w.Body)
	}
}

func TestRedrive_RefusalsHaveTheirCodes(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		code   wire.ProblemCode
	}{
		{ledger.ErrKeyReused, 409, wire.ProblemCodeIdempotencyKeyReused},
		{fmt.Errorf("redrive: %w", ledger.ErrNothingToRedrive), 409, wire.ProblemCodeNothingToRedrive},
		{ledger.ErrTooManyRedrives, 429, wire.ProblemCodeTooManyRedrives},
	} {
		h := newHarness(t, &fakeServices{adminFakes: adminFakes{redrive: func(context.Context, ledger.RedriveRequest) (ledger.Redrive, bool, error) {
			return ledger.Redrive{}, false, c.err
		}}})
		w := h.expect(request("POST", "/v1/admin/redrives", "operator", aRedriveRequest), c.status, c.code)
		if wait := w.Header().Get("Retry-After"); (wait == "30") != (c.status == 429) {
			t.Errorf("%v: Retry-After is %q", c.err, wait)
		}
	}
}

func TestRedrive_ReportShowsEachItemsResult(t *testing.T) {
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{show: func(_ context.Context, id string) (ledger.RedriveReport, error) {
		if id != "R/1" {
			t.Errorf("got %q", id)
		}
		ended := aRedrive(func(r *ledger.Redrive) {
			r.State, r.Finished, r.Deadline, r.Permanent = ledger.RedriveDone, ledger.At(testNow.Add(time.Minute)), testNow.Add(time.Hour), true
			r.Request, r.Interval = `{"ids":["canary"],"rate":3}`, time.Second/3
		})
		return ledger.RedriveReport{Redrive: ended, Items: items(), Counts: ledger.CountItems(items())}, nil
	}}})
	w := h.expect(request("GET", "/v1/admin/redrives/R%2F1", "support", ""), 200, "")
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("ids, key or holder are shown: %s", w.Body)
	}
	entries := items()
	want := wire.RedriveReport{
		Redrive: wire.Redrive{
			ID: "R1", State: "done", Actor: "oncall", Role: "operator", Reason: "the provider is back", Request: map[string]any{"rate": 3.0},
			Size: 2, Rate: 3, Deadline: testNow.Add(time.Hour), Permanent: true,
			Created: testNow, Updated: testNow.Add(time.Second), Finished: testNow.Add(time.Minute),
		},
		Counts: wire.RedriveCounts{
			Waiting: 1, Skipped: map[string]int{"already_sent": 1, "gone": 1}, Sent: 1, Failed: map[string]int{"permanent": 1},
		},
		SentShare: 0.5, DuplicateRate: 0.25,
		Items: []wire.RedriveItem{
			{Entry: entries[0].EntryID(), State: "dead", Class: "exhausted", Reason: "budget_spent"},
			{Entry: entries[1].EntryID(), Result: "redriven", State: "sent", Reason: "accepted"},
			{Entry: entries[2].EntryID(), Result: "reparsed", State: "dead", Class: "permanent", Reason: "refused", ReparsedAs: entries[1].EntryID()},
			{Entry: entries[3].EntryID(), Result: "already_sent", State: "sent", Reason: "late_acceptance"},
			{Entry: entries[4].EntryID(), Result: "gone"},
		},
	}
	if diff := cmp.Diff(want, decoded[wire.RedriveReport](t, w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRedrive_SharesOfNothingAreZero(t *testing.T) {
	for _, all := range [][]ledger.RedriveItem{nil, items()[:1]} {
		report := reportOf(ledger.RedriveReport{Items: all, Counts: ledger.CountItems(all)})
		if report.SentShare != 0 || report.DuplicateRate != 0 {
			t.Errorf("%d items: %+v", len(all), report)
		}
	}
}

func TestRedrive_CursorsVisitEachRedriveOnce(t *testing.T) {
	var all []ledger.Redrive
	for i := range 7 {
		all = append(all, aRedrive(func(r *ledger.Redrive) {
			r.ID, r.Created = fmt.Sprintf("R.%d", 9-i), testNow.Add(-time.Duration(i/2)*time.Microsecond)
		}))
	}
	h := newHarness(t, &fakeServices{list: pagedEntries(3), adminFakes: adminFakes{redrives: func(_ context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error) {
		rest := all
		if after != nil {
			at := slices.IndexFunc(all, func(r ledger.Redrive) bool { return r.ID == after.ID && r.Created.Equal(after.Created) })
			rest = all[at+1:]
		}
		return rest[:min(limit, len(rest))], nil
	}}})
	var seen, cursors []string
	for cursor, more := "", true; more; more = cursor != "" {
		target := "/v1/admin/redrives?limit=3"
		if cursor != "" {
			target += "&cursor=" + url.QueryEscape(cursor)
		}
		list := decoded[wire.RedriveList](t, h.expect(request("GET", target, "support", ""), 200, ""))
		for _, item := range list.Items {
			seen = append(seen, item.ID)
		}
		if cursor = list.Next; cursor != "" {
			cursors = append(cursors, cursor)
		}
	}
	if want := []string{"R.9", "R.8", "R.7", "R.6", "R.5", "R.4", "R.3"}; !slices.Equal(want, seen) || len(cursors) != 2 {
		t.Errorf("came %v on %d pages", seen, len(cursors)+1)
	}
	for _, cursor := range tampered(cursors[0]) {
		h.expect(request("GET", "/v1/admin/redrives?cursor="+url.QueryEscape(cursor), "support", ""), 400, wire.ProblemCodeInvalid)
	}
	h.expect(request("GET", "/v1/admin/audit?cursor="+url.QueryEscape(cursors[0]), "operator", ""), 400, wire.ProblemCodeInvalid)
	other := decoded[wire.EntryList](t, h.expect(request("GET", "/v1/admin/entries?limit=1", "support", ""), 200, "")).Next
	h.expect(request("GET", "/v1/admin/redrives?cursor="+url.QueryEscape(other), "support", ""), 400, wire.ProblemCodeInvalid)
}

func TestRedrive_CancelledByIDAndOnce(t *testing.T) {
	var recorded []ledger.AuditEvent
	c := &fakeServices{adminFakes: adminFakes{cancelRedrive: func(_ context.Context, id string, audit ledger.AuditEvent) (ledger.Redrive, error) {
		recorded = append(recorded, audit)
		return aRedrive(func(r *ledger.Redrive) { r.ID, r.State, r.Finished = id, ledger.RedriveCancelled, ledger.At(testNow) }), nil
	}}}
	h := newHarness(t, c)
	w := h.expect(request("POST", "/v1/admin/redrives/R1/cancel", "operator", `{"reason": "the wrong ones"}`), 200, "")
	if got := decoded[wire.Redrive](t, w); got.ID != "R1" || got.State != "cancelled" || !got.Finished.Equal(testNow) {
		t.Errorf("answered with %s", w.Body)
	}
	if diff := cmp.Diff([]ledger.AuditEvent{{Actor: "oncall", Role: "operator", Reason: "the wrong ones"}}, recorded); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	ended := aRedrive(func(r *ledger.Redrive) { r.State, r.Finished = ledger.RedriveDone, ledger.At(testNow) })
	c.cancelRedrive = func(context.Context, string, ledger.AuditEvent) (ledger.Redrive, error) {
		return ended, ledger.ErrRedriveEnded
	}
	p := decoded[wire.Problem](t, h.expect(request("POST", "/v1/admin/redrives/R1/cancel", "operator", `{"reason": "r"}`), 409, wire.ProblemCodeRedriveEnded))
	if diff := cmp.Diff(redriveOf(ended), p.Redrive); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	lost := newHarness(t, &fakeServices{adminFakes: failingAdmin(fmt.Errorf("redrive: %w", ledger.ErrNotFound))})
	for _, r := range []struct{ method, path, body string }{
		{"GET", "/v1/admin/redrives/R9", ""},
		{"POST", "/v1/admin/redrives/R9/cancel", `{"reason": "r"}`},
		{"GET", "/v1/admin/redrives/%C3%A4", ""},
		{"POST", "/v1/admin/redrives/" + strings.Repeat("a", 256) + "/cancel", `{"reason": "r"}`},
	} {
		p := decoded[wire.Problem](t, lost.expect(request(r.method, r.path, "operator", r.body), 404, wire.ProblemCodeNotFound))
		if p.Detail != "There is no redrive with this id." {
			t.Errorf("%s: got %s", r.path, p.Detail)
		}
	}
}
