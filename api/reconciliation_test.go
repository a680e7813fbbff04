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

const aResolution = `{"verdict": "sent", "reason": "the provider's log has it", "version": 3, "receipt": "r-9"}`

// inDoubt returns an entry that may have been sent, changed as a test needs it.
func inDoubt(change func(*ledger.Entry)) ledger.Entry {
	return entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Class, e.Receipt, e.Version = ledger.Unknown, ledger.ReasonUnanswered, ledger.ClassUnknown, "", 3
		e.DoubtSince = testNow.Add(-time.Minute)
		if change != nil {
			change(e)
		}
	})
}

// pagedUnresolved lists n entries in doubt as a store does, the longest in doubt first, with pairs since the same time.
func pagedUnresolved(n int) func(context.Context, ledger.DoubtPosition, int) ([]ledger.EntryDetail, error) {
	var all []ledger.EntryDetail
	for i := range n {
		all = append(all, ledger.EntryDetail{Entry: inDoubt(func(e *ledger.Entry) {
			e.ReminderID, e.DoubtSince = fmt.Sprintf("r-%03d", i), testNow.Add(time.Duration(i/2)*time.Microsecond)
		})})
	}
	return func(_ context.Context, after ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error) {
		rest := all
		if after != (ledger.DoubtPosition{}) {
			at := slices.IndexFunc(all, func(s ledger.EntryDetail) bool {
				return s.Entry.Identity == after.Identity && s.Entry.DoubtSince.Equal(after.Since)
			})
			rest = all[at+1:]
		}
		return rest[:min(limit, len(rest))], nil
	}
}

func TestReconciliation_ListsEntriesWithEvidence(t *testing.T) {
	lookedUp := inDoubt(func(e *ledger.Entry) { e.LookupsNotFound, e.NextLookup = 1, ledger.At(testNow.Add(time.Minute)) })
	cases := []ledger.EntryDetail{
		{Entry: lookedUp, Payload: &ledger.Payload{Recipient: "ada-canary@example.org"}, Timeline: []ledger.TimelineEvent{
			{
				Version: 2, Kind: ledger.EventAttempt, State: ledger.Unknown, Reason: ledger.ReasonUnanswered, Origin: ledger.OriginPush,
				AttemptNumber: 1, Provider: "mail", Holder: "holder-canary", At: testNow, Outcome: ledger.Outcome{Cause: "timeout"},
			},
			{
				Version: 3, Kind: ledger.EventLookup, State: ledger.Unknown, Reason: ledger.ReasonNotFound, Origin: ledger.OriginReconcile,
				Provider: "mail", At: testNow, Started: testNow, Finished: testNow, Outcome: ledger.Outcome{Status: 404, Cause: "status", RequestID: "q-2"},
			},
		}},
		{Entry: inDoubt(func(e *ledger.Entry) { e.ReminderID, e.LookupsNotFound = "rem-2", 5 })},
	}
	run := ledger.SweepRun{Actor: "oncall", Started: testNow.Add(-time.Hour), Finished: testNow, Unknown: 3, Lookups: 2, Failed: 1}
	h := newHarness(t, &fakeServices{unresolved: func(_ context.Context, after ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error) {
		if after != (ledger.DoubtPosition{}) || limit != unresolvedDefault+1 {
			t.Errorf("got limit %d after %+v", limit, after)
		}
		return cases, nil
	}}, func(o *Options) { o.LastRun = func() ledger.SweepRun { return run } })
	w := h.expect(request("GET", "/v1/admin/reconciliation", "support", ""), 200, "")
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("the list contains recipient or holder: %s", w.Body)
	}
	const inDoubtText = "; it may have been sent, and is not repeated without a decision; the next lookup is due at 2031-03-04T09:01:00Z."
	want := wire.UnresolvedList{
		Items: []wire.UnresolvedEntry{
			{
				Entry: entryOf(lookedUp, testNow), WaitsFor: "provider", LookupsNotFound: 1, NextLookup: testNow.Add(time.Minute),
				Evidence: []wire.TimelineEvent{
					{
						Version: 2, At: testNow, Kind: "attempt", State: "unknown", Reason: "unanswered", Origin: "push", Attempt: 1, Provider: "mail",
						Text:    "Attempt 1 at mail ended without a readable answer (timeout), so it is unknown whether it was accepted; it is not repeated without a decision.",
						Outcome: "unknown", Cause: "timeout",
					},
					{
						Version: 3, At: testNow, Kind: "lookup", State: "unknown", Reason: "not_found", Origin: "reconcile", Provider: "mail",
						Text:    "Lookup at mail: not found (404), which does not prove that it was not sent" + inDoubtText,
						Started: testNow, Finished: testNow, Status: 404, Cause: "status", RequestID: "q-2",
					},
				},
			},
			{Entry: entryOf(cases[1].Entry, testNow), WaitsFor: "operator", LookupsNotFound: 5, Evidence: []wire.TimelineEvent{}},
		},
		LastRun: wire.SweepRun{Actor: "oncall", Started: testNow.Add(-time.Hour), Finished: testNow, Unknown: 3, Lookups: 2, Failed: 1},
	}
	if diff := cmp.Diff(want, decoded[wire.UnresolvedList](t, w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Count(w.Body.String(), `"next_lookup"`) != 1 {
		t.Errorf("a lookup that is not scheduled is shown: %s", w.Body)
	}
}

func TestReconciliation_ShowsLastRunOfThisReplica(t *testing.T) {
	for want, last := range map[string]func() ledger.SweepRun{
		`{"items":[]}`:  nil,
		`{"items":[] }`: func() ledger.SweepRun { return ledger.SweepRun{} },
		`{"items":[],"last_run":{"actor":"oncall","started":"2031-03-04T09:00:00Z","unknown":7,"lookups":0,"failed":0}}`: func() ledger.SweepRun {
			return ledger.SweepRun{Actor: "oncall", Started: testNow.Add(999 * time.Nanosecond), Unknown: 7}
		},
	} {
		h := newHarness(t, &fakeServices{unresolved: pagedUnresolved(0)}, func(o *Options) { o.LastRun = last })
		w := h.expect(request("GET", "/v1/admin/reconciliation", "support", ""), 200, "")
		if got := strings.TrimSpace(w.Body.String()); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestReconciliation_CursorsVisitEachEntryOnce(t *testing.T) {
	for _, n := range []int{1, 9, 10, 11, 20, 25} {
		h := newHarness(t, &fakeServices{unresolved: pagedUnresolved(n)})
		var seen []string
		pages, cursor := 0, ""
		for more := true; more; more = cursor != "" {
			target := "/v1/admin/reconciliation?limit=10"
			if cursor != "" {
				target += "&cursor=" + url.QueryEscape(cursor)
			}
			list := decoded[wire.UnresolvedList](t, h.expect(request("GET", target, "support", ""), 200, ""))
			for _, item := range list.Items {
				seen = append(seen, item.Entry.ReminderID)
			}
			if pages, cursor = pages+1, list.Next; pages > n {
				t.Fatalf("of %d no end comes: %v", n, seen)
			}
		}
		if len(seen) != n || !slices.IsSorted(seen) || len(slices.Compact(seen)) != n || pages != (n+9)/10 {
			t.Errorf("of %d came on %d pages: %v", n, pages, seen)
		}
	}
}

func TestReconciliation_CursorsAreValidForThisListOnly(t *testing.T) {
	h := newHarness(t, &fakeServices{unresolved: pagedUnresolved(5), list: pagedEntries(5)})
	doubts := decoded[wire.UnresolvedList](t, h.expect(request("GET", "/v1/admin/reconciliation?limit=2", "support", ""), 200, "")).Next
	entries := decoded[wire.EntryList](t, h.expect(request("GET", "/v1/admin/entries?limit=2", "support", ""), 200, "")).Next
	h.expect(request("GET", "/v1/admin/reconciliation?limit=1&cursor="+doubts, "support", ""), 200, "")
	h.expect(request("GET", "/v1/admin/reconciliation?cursor="+entries, "support", ""), 400, wire.ProblemCodeInvalid)
	h.expect(request("GET", "/v1/admin/entries?cursor="+doubts, "support", ""), 400, wire.ProblemCodeInvalid)
	for i := range doubts {
		forged := []byte(doubts)
		forged[i] ^= 1
		w := h.do(request("GET", "/v1/admin/reconciliation?cursor="+url.QueryEscape(string(forged)), "support", ""))
		if w.Code != 400 {
			t.Errorf("a cursor with byte %d changed is accepted: %s", i, forged)
		}
	}
}

func TestReconciliation_RefusesInvalidQueries(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=51": "limit", "limit=x": "limit", "limit=": "limit", "limit=1&limit=2": "limit",
		"cursor=": "cursor", "cursor=canary": "cursor", "state=unknown": "state", "canari=canary": "canari", "a;b": "",
	} {
		w := h.expect(request("GET", "/v1/admin/reconciliation?"+query, "support", ""), 400, wire.ProblemCodeInvalid)
		faults := decoded[wire.Problem](t, w).Errors
		if len(faults) != 1 || faults[0].Field != field || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
	documented := map[string]bool{}
	for _, parameter := range h.doc.Paths.Value("/v1/admin/reconciliation").Get.Parameters {
		documented[parameter.Value.Name] = true
	}
	if diff := cmp.Diff(map[string]bool{"limit": true, "cursor": true}, documented); diff != "" {
		t.Errorf("(-handler +document):\n%s", diff)
	}
	highest := newHarness(t, &fakeServices{unresolved: func(_ context.Context, _ ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error) {
		if limit != 51 {
			t.Errorf("got limit %d", limit)
		}
		return nil, nil
	}})
	highest.expect(request("GET", "/v1/admin/reconciliation?limit=50", "support", ""), 200, "")
}

func TestReconciliation_RunIsStartedWithActorAndReason(t *testing.T) {
	var recorded []ledger.AuditEvent
	h := newHarness(t, &fakeServices{startSweep: func(_ context.Context, audit ledger.AuditEvent) (ledger.SweepRun, error) {
		recorded = append(recorded, audit)
		if len(recorded) > 1 {
			return ledger.SweepRun{Actor: "somebody", Started: testNow}, fmt.Errorf("reconcile: %w", ledger.ErrSweepRunning)
		}
		return ledger.SweepRun{Actor: audit.Actor, Started: testNow}, nil
	}})
	run := request("POST", "/v1/admin/reconciliation/runs", "operator", `{"reason": "the outage is over"}`)
	w := h.expect(run, 202, "")
	if got := strings.TrimSpace(w.Body.String()); got != `{"actor":"oncall","started":"2031-03-04T09:00:00Z","unknown":0,"lookups":0,"failed":0}` {
		t.Errorf("answered with %s", got)
	}
	if diff := cmp.Diff([]ledger.AuditEvent{{Actor: "oncall", Role: "operator", Reason: "the outage is over"}}, recorded); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.expect(request("POST", "/v1/admin/reconciliation/runs", "admin", `{"reason": "again"}`), 409, wire.ProblemCodeRunning)
}

func TestResolve_ResolverGetsActorAndReason(t *testing.T) {
	var got ledger.Resolution
	h := newHarness(t, &fakeServices{resolve: func(_ context.Context, id ledger.Identity, resolution ledger.Resolution) (ledger.Entry, error) {
		if id != inDoubt(nil).Identity {
			t.Errorf("decided about %+v", id)
		}
		got = resolution
		return entry(func(e *ledger.Entry) {
			e.Reason, e.Receipt, e.Version = ledger.ReasonResolved, resolution.Receipt, resolution.Version+1
		}), nil
	}})
	target := "/v1/admin/entries/" + inDoubt(nil).EntryID() + "/resolve"
	oncall := func(reason string) ledger.AuditEvent {
		return ledger.AuditEvent{Actor: "oncall", Role: "operator", Reason: reason}
	}
	long := strings.Repeat("ä", maxReason)
	for body, want := range map[string]ledger.Resolution{
		aResolution: {Verdict: ledger.VerdictSent, Receipt: "r-9", Version: 3, Audit: oncall("the provider's log has it")},
		`{"version": 9223372036854775807, "reason": "x", "verdict": "not_sent"}`: {Verdict: ledger.VerdictNotSent, Version: 1<<63 - 1, Audit: oncall("x")},
		` {"verdict": "abandoned", "reason": "` + long + `", "version": 1} `:     {Verdict: ledger.VerdictAbandoned, Version: 1, Audit: oncall(long)},
		`{"verdict": "sent", "reason": "<b>\u00e4 \ud83d\ude00", "version": 1}`:  {Verdict: ledger.VerdictSent, Version: 1, Audit: oncall("<b>ä 😀")},
		`{"verdict": "sent", "reason": "x", "version": 1, "receipt": "a b~"}`:    {Verdict: ledger.VerdictSent, Version: 1, Receipt: "a b~", Audit: oncall("x")},
	} {
		w := h.expect(request("POST", target, "operator", body), 200, "")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if stored := decoded[wire.Entry](t, w); stored.Version != want.Version+1 || stored.Reason != "resolved" {
			t.Errorf("answered with %s", w.Body)
		}
	}
}

func TestResolve_ConflictShowsStoredEntry(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		stored ledger.Entry
		code   wire.ProblemCode
	}{
		{"changed", ledger.ErrStale, entry(nil), wire.ProblemCodeStale},
		{"changed, and not readable", fmt.Errorf("swap: %w", ledger.ErrStale), ledger.Entry{}, wire.ProblemCodeStale},
		{"not in doubt", fmt.Errorf("resolve: %w", ledger.ErrNotInDoubt), entry(nil), wire.ProblemCodeNotInDoubt},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, &fakeServices{resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
				return c.stored, c.err
			}})
			w := h.expect(request("POST", "/v1/admin/entries/"+entry(nil).EntryID()+"/resolve", "operator", aResolution), 409, c.code)
			var want wire.Entry
			if !c.stored.Absent() {
				want = entryOf(c.stored, testNow)
			}
			if diff := cmp.Diff(want, decoded[wire.Problem](t, w).Entry); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestResolve_InvalidBodyDecidesNothing(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	resolve, runs := "/v1/admin/entries/"+entry(nil).EntryID()+"/resolve", "/v1/admin/reconciliation/runs"
	rest := `"reason": "x", "version": 1}`
	for _, c := range []struct {
		target, body string
		fields       []string
	}{
		{resolve, `{}`, []string{"reason", "verdict", "version"}},
		{resolve, `{"verdict": "SENT", "receipt": "", "reason": "", "version": 0, "canari": "canary"}`, []string{"canari", "reason", "receipt", "verdict", "version"}},
		{resolve, `{"verdict": null, "receipt": null, "reason": null, "version": null}`, []string{"reason", "receipt", "verdict", "version"}},
		{resolve, `{"verdict": 1, "receipt": 2, "reason": ["canary"], "version": "3"}`, []string{"reason", "receipt", "verdict", "version"}},
		{resolve, `{"Verdict": "sent", ` + rest, []string{"Verdict", "verdict"}},
		{resolve, `{"verdict": "not_sent", "receipt": "canary", ` + rest, []string{"receipt"}},
		{resolve, `{"verdict": "abandoned", "receipt": "canary", ` + rest, []string{"receipt"}},
		{resolve, `{"verdict": "sent", "receipt": "` + strings.Repeat("a", 256) + `", ` + rest, []string{"receipt"}},
		{resolve, `{"verdict": "sent", "receipt": "\u00e4", ` + rest, []string{"receipt"}},
		{resolve, `{"verdict": "sent", "receipt": "a\n", ` + rest, []string{"receipt"}},
		{resolve, `{"verdict": "sent", "reason": "x"}`, []string{"version"}},
		{resolve, `{"verdict": "sent", "reason": "x", "version": -1}`, []string{"version"}},
		{resolve, `{"verdict": "sent", "reason": "x", "version": 1.0}`, []string{"version"}},
		{resolve, `{"verdict": "sent", "reason": "x", "version": 1e0}`, []string{"version"}},
		{resolve, `{"verdict": "sent", "reason": "x", "version": 9223372036854775808}`, []string{"version"}},
		{resolve, `{"verdict": "sent", "reason": " \t ", "version": 1}`, []string{"reason"}},
		{resolve, `{"verdict": "sent", "reason": "a\u0000b", "version": 1}`, []string{"reason"}},
		{resolve, `{"verdict": "sent", "reason": "a\nb", "version": 1}`, []string{"reason"}},
		{resolve, `{"verdict": "sent", "reason": "` + strings.Repeat("ä", maxReason+1) + `", "version": 1}`, []string{"reason"}},
		{resolve, `{"verdict": "sent", "verdict": "abandoned", ` + rest, []string{""}},
		{resolve, `{"verdict": "sent", "reason": "\ud800", "version": 1}`, []string{""}},
		{resolve, "{\"verdict\": \"sent\", \"reason\": \"\xff\", \"version\": 1}", []string{""}},
		{resolve, aResolution + "{}", []string{""}},
		{resolve, "null", []string{""}},
		{resolve, "[]", []string{""}},
		{resolve, `"canary"`, []string{""}},
		{resolve, "canary", []string{""}},
		{runs, "{}", []string{"reason"}},
		{runs, "null", []string{""}},
		{runs, `{"reason": ""}`, []string{"reason"}},
		{runs, `{"reason": "x", "actor": "canary"}`, []string{"actor"}},
		{runs, `{"reason": "` + strings.Repeat("a", maxReason+1) + `"}`, []string{"reason"}},
	} {
		w := h.expect(request("POST", c.target, "operator", c.body), 400, wire.ProblemCodeInvalid)
		var fields []string
		for _, fault := range decoded[wire.Problem](t, w).Errors {
			fields = append(fields, fault.Field)
		}
		if diff := cmp.Diff(c.fields, fields); diff != "" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%.80s: %s\n(-want +got):\n%s", c.body, w.Body, diff)
		}
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, `"member-%d": 1, `, i)
	}
	w := h.expect(request("POST", resolve, "operator", `{`+many.String()+`"version": 1}`), 400, wire.ProblemCodeInvalid)
	if n := len(decoded[wire.Problem](t, w).Errors); n != maxFaults {
		t.Errorf("%d faults are reported", n)
	}
}

func TestResolve_BodyIsBoundedPlainJSON(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, target := range []string{"/v1/admin/entries/" + entry(nil).EntryID() + "/resolve", "/v1/admin/reconciliation/runs"} {
		h.expect(request("POST", target, "operator", ""), 415, wire.ProblemCodeUnsupportedMediaType)
		h.expect(request("POST", target, "operator", strings.Repeat(" ", bodyLimit+1)), 413, wire.ProblemCodeTooLarge)
		coded := request("POST", target, "operator", aResolution)
		coded.Header.Set("Content-Encoding", "gzip")
		h.expect(coded, 415, wire.ProblemCodeUnsupportedMediaType)
		barred := request("POST", target, "support", aResolution)
		barred.Body = unreadable{t}
		h.expect(barred, 403, wire.ProblemCodeForbidden)
	}
}
