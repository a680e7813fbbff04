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

// doubtful is an entry that may have been sent.
func doubtful(change func(*ledger.Entry)) ledger.Entry {
	return entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Class, e.Receipt, e.Version = ledger.Unknown, ledger.ReasonUnanswered, ledger.ClassUnknown, "", 3
		e.DoubtSince = testNow.Add(-time.Minute)
		if change != nil {
			change(e)
		}
	})
}

// desk holds n doubtful entries, the longest in doubt first, two of them always since the same instant.
func desk(n int) func(context.Context, ledger.Doubt, int) ([]ledger.Story, error) {
	var all []ledger.Story
	for i := range n {
		all = append(all, ledger.Story{Entry: doubtful(func(e *ledger.Entry) {
			e.ReminderID, e.DoubtSince = fmt.Sprintf("r-%03d", i), testNow.Add(time.Duration(i/2)*time.Microsecond)
		})})
	}
	return func(_ context.Context, after ledger.Doubt, limit int) ([]ledger.Story, error) {
		rest := all
		if after != (ledger.Doubt{}) {
			at := slices.IndexFunc(all, func(s ledger.Story) bool {
				return s.Entry.Identity == after.Identity && s.Entry.DoubtSince.Equal(after.Since)
			})
			rest = all[at+1:]
		}
		return rest[:min(limit, len(rest))], nil
	}
}

func TestTheListOfDoubtsTellsEachCaseWithItsEvidence(t *testing.T) {
	asked := doubtful(func(e *ledger.Entry) { e.Asked, e.AskAt = 1, ledger.At(testNow.Add(time.Minute)) })
	cases := []ledger.Story{
		{Entry: asked, Payload: &ledger.Payload{Recipient: "ada-canary@example.org"}, Timeline: []ledger.Event{
			{
				Version: 2, Kind: ledger.EventAttempt, State: ledger.Unknown, Reason: ledger.ReasonUnanswered, Origin: ledger.OriginPush,
				Number: 1, Provider: "mail", Holder: "holder-canary", At: testNow, Outcome: ledger.Outcome{Cause: "timeout"},
			},
			{
				Version: 3, Kind: ledger.EventLookup, State: ledger.Unknown, Reason: ledger.ReasonNotFound, Origin: ledger.OriginReconcile,
				Provider: "mail", At: testNow, Started: testNow, Finished: testNow, Outcome: ledger.Outcome{Status: 404, Cause: "status", RequestID: "q-2"},
			},
		}},
		{Entry: doubtful(func(e *ledger.Entry) { e.ReminderID, e.Asked = "rem-2", 5 })},
	}
	run := ledger.Run{By: "oncall", Started: testNow.Add(-time.Hour), Finished: testNow, Unknown: 3, Asked: 2, Failed: 1}
	h := newHouse(t, &collaborators{waiting: func(_ context.Context, after ledger.Doubt, limit int) ([]ledger.Story, error) {
		if after != (ledger.Doubt{}) || limit != casesDefault+1 {
			t.Errorf("asked for %d after %+v", limit, after)
		}
		return cases, nil
	}}, func(o *Options) { o.LastRun = func() ledger.Run { return run } })
	w := h.wants(request("GET", "/v1/admin/reconciliation", "support", ""), 200, "")
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("the list tells recipient or holder: %s", w.Body)
	}
	const undecided = "; it may have been sent, and is not repeated without a decision; its provider is asked next at 2031-03-04T09:01:00Z."
	want := wire.CaseList{
		Items: []wire.Case{
			{
				Entry: entryOf(asked, testNow), WaitsFor: "provider", Asked: 1, AskAt: testNow.Add(time.Minute),
				Evidence: []wire.Line{
					{
						Version: 2, At: testNow, Kind: "attempt", State: "unknown", Reason: "unanswered", Origin: "push", Number: 1, Provider: "mail",
						Text:    "Attempt 1 at mail ended without a readable answer (timeout), which does not tell whether it was accepted; it is not repeated without a decision.",
						Outcome: "unknown", Cause: "timeout",
					},
					{
						Version: 3, At: testNow, Kind: "lookup", State: "unknown", Reason: "not_found", Origin: "reconcile", Provider: "mail",
						Text:    "Its provider mail was asked whether it took it, and does not know it (404), which proves nothing" + undecided,
						Started: testNow, Finished: testNow, Status: 404, Cause: "status", RequestID: "q-2",
					},
				},
			},
			{Entry: entryOf(cases[1].Entry, testNow), WaitsFor: "person", Asked: 5, Evidence: []wire.Line{}},
		},
		LastRun: wire.Run{Who: "oncall", Started: testNow.Add(-time.Hour), Finished: testNow, Unknown: 3, Asked: 2, Failed: 1},
	}
	if diff := cmp.Diff(want, decoded[wire.CaseList](t, w)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.Count(w.Body.String(), `"ask_at"`) != 1 {
		t.Errorf("a question that nobody plans is shown: %s", w.Body)
	}
}

func TestARunIsShownAsFarAsThisReplicaRanOne(t *testing.T) {
	for want, last := range map[string]func() ledger.Run{
		`{"items":[]}`:  nil,
		`{"items":[] }`: func() ledger.Run { return ledger.Run{} },
		`{"items":[],"last_run":{"who":"oncall","started":"2031-03-04T09:00:00Z","unknown":7,"asked":0,"failed":0}}`: func() ledger.Run {
			return ledger.Run{By: "oncall", Started: testNow.Add(999 * time.Nanosecond), Unknown: 7}
		},
	} {
		h := newHouse(t, &collaborators{waiting: desk(0)}, func(o *Options) { o.LastRun = last })
		w := h.wants(request("GET", "/v1/admin/reconciliation", "support", ""), 200, "")
		if got := strings.TrimSpace(w.Body.String()); got != strings.ReplaceAll(want, " ", "") {
			t.Errorf("%s, not %s", got, want)
		}
	}
}

func TestCursorsWalkTheDoubtsOnceFromEndToEnd(t *testing.T) {
	for _, n := range []int{1, 9, 10, 11, 20, 25} {
		h := newHouse(t, &collaborators{waiting: desk(n)})
		var seen []string
		pages, cursor := 0, ""
		for more := true; more; more = cursor != "" {
			target := "/v1/admin/reconciliation?limit=10"
			if cursor != "" {
				target += "&cursor=" + url.QueryEscape(cursor)
			}
			list := decoded[wire.CaseList](t, h.wants(request("GET", target, "support", ""), 200, ""))
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

func TestACursorOfOneListOpensNoOther(t *testing.T) {
	h := newHouse(t, &collaborators{waiting: desk(5), list: shelf(5)})
	doubts := decoded[wire.CaseList](t, h.wants(request("GET", "/v1/admin/reconciliation?limit=2", "support", ""), 200, "")).Next
	entries := decoded[wire.EntryList](t, h.wants(request("GET", "/v1/admin/entries?limit=2", "support", ""), 200, "")).Next
	h.wants(request("GET", "/v1/admin/reconciliation?limit=1&cursor="+doubts, "support", ""), 200, "")
	h.wants(request("GET", "/v1/admin/reconciliation?cursor="+entries, "support", ""), 400, wire.ProblemCodeInvalid)
	h.wants(request("GET", "/v1/admin/entries?cursor="+doubts, "support", ""), 400, wire.ProblemCodeInvalid)
	for i := range doubts {
		forged := []byte(doubts)
		forged[i] ^= 1
		w := h.do(request("GET", "/v1/admin/reconciliation?cursor="+url.QueryEscape(string(forged)), "support", ""))
		if w.Code != 400 {
			t.Errorf("a cursor with letter %d changed is taken: %s", i, forged)
		}
	}
}

func TestAListOfDoubtsThatIsNotUnderstoodIsRefused(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=51": "limit", "limit=x": "limit", "limit=": "limit", "limit=1&limit=2": "limit",
		"cursor=": "cursor", "cursor=canary": "cursor", "state=unknown": "state", "canari=canary": "canari", "a;b": "",
	} {
		w := h.wants(request("GET", "/v1/admin/reconciliation?"+query, "support", ""), 400, wire.ProblemCodeInvalid)
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
	highest := newHouse(t, &collaborators{waiting: func(_ context.Context, _ ledger.Doubt, limit int) ([]ledger.Story, error) {
		if limit != 51 {
			t.Errorf("asked for %d", limit)
		}
		return nil, nil
	}})
	highest.wants(request("GET", "/v1/admin/reconciliation?limit=50", "support", ""), 200, "")
}

func TestARunIsStartedInTheCallersNameWithTheirReason(t *testing.T) {
	var acts []ledger.Act
	h := newHouse(t, &collaborators{start: func(_ context.Context, act ledger.Act) (ledger.Run, error) {
		acts = append(acts, act)
		if len(acts) > 1 {
			return ledger.Run{By: "somebody", Started: testNow}, fmt.Errorf("reconcile: %w", ledger.ErrRunning)
		}
		return ledger.Run{By: act.By, Started: testNow}, nil
	}})
	run := request("POST", "/v1/admin/reconciliation/runs", "operator", `{"reason": "the outage is over"}`)
	w := h.wants(run, 202, "")
	if got := strings.TrimSpace(w.Body.String()); got != `{"who":"oncall","started":"2031-03-04T09:00:00Z","unknown":0,"asked":0,"failed":0}` {
		t.Errorf("answered with %s", got)
	}
	if diff := cmp.Diff([]ledger.Act{{By: "oncall", Role: "operator", Why: "the outage is over"}}, acts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.wants(request("POST", "/v1/admin/reconciliation/runs", "admin", `{"reason": "again"}`), 409, wire.ProblemCodeRunning)
}

func TestADecisionReachesTheDeskWithWhoAndWhy(t *testing.T) {
	var got ledger.Resolution
	h := newHouse(t, &collaborators{resolve: func(_ context.Context, id ledger.Identity, by ledger.Resolution) (ledger.Entry, error) {
		if id != doubtful(nil).Identity {
			t.Errorf("decided about %+v", id)
		}
		got = by
		return entry(func(e *ledger.Entry) {
			e.Reason, e.Receipt, e.Version = ledger.ReasonResolved, by.Receipt, by.Version+1
		}), nil
	}})
	target := "/v1/admin/entries/" + doubtful(nil).EntryID() + "/resolve"
	oncall := func(why string) ledger.Act { return ledger.Act{By: "oncall", Role: "operator", Why: why} }
	long := strings.Repeat("ä", maxWhy)
	for body, want := range map[string]ledger.Resolution{
		aResolution: {Verdict: ledger.VerdictSent, Receipt: "r-9", Version: 3, Act: oncall("the provider's log has it")},
		`{"version": 9223372036854775807, "reason": "x", "verdict": "not_sent"}`: {Verdict: ledger.VerdictNotSent, Version: 1<<63 - 1, Act: oncall("x")},
		` {"verdict": "abandoned", "reason": "` + long + `", "version": 1} `:     {Verdict: ledger.VerdictAbandoned, Version: 1, Act: oncall(long)},
		`{"verdict": "sent", "reason": "<b>\u00e4 \ud83d\ude00", "version": 1}`:  {Verdict: ledger.VerdictSent, Version: 1, Act: oncall("<b>ä 😀")},
		`{"verdict": "sent", "reason": "x", "version": 1, "receipt": "a b~"}`:    {Verdict: ledger.VerdictSent, Version: 1, Receipt: "a b~", Act: oncall("x")},
	} {
		w := h.wants(request("POST", target, "operator", body), 200, "")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
		if stands := decoded[wire.Entry](t, w); stands.Version != want.Version+1 || stands.Reason != "resolved" {
			t.Errorf("answered with %s", w.Body)
		}
	}
}

func TestADecisionThatMeetsAnotherEntryThanItSawIsShownWhatStands(t *testing.T) {
	for _, c := range []struct {
		name   string
		err    error
		stands ledger.Entry
		code   wire.ProblemCode
	}{
		{"moved on", ledger.ErrStale, entry(nil), wire.ProblemCodeStale},
		{"moved on, and unread", fmt.Errorf("swap: %w", ledger.ErrStale), ledger.Entry{}, wire.ProblemCodeStale},
		{"nothing to decide", fmt.Errorf("resolve: %w", ledger.ErrNotInDoubt), entry(nil), wire.ProblemCodeNotInDoubt},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t, &collaborators{resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
				return c.stands, c.err
			}})
			w := h.wants(request("POST", "/v1/admin/entries/"+entry(nil).EntryID()+"/resolve", "operator", aResolution), 409, c.code)
			var want wire.Entry
			if !c.stands.Absent() {
				want = entryOf(c.stands, testNow)
			}
			if diff := cmp.Diff(want, decoded[wire.Problem](t, w).Entry); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestADecisionThatIsNotClearDecidesNothing(t *testing.T) {
	h := newHouse(t, &collaborators{})
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
		{resolve, `{"verdict": "sent", "reason": "` + strings.Repeat("ä", maxWhy+1) + `", "version": 1}`, []string{"reason"}},
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
		{runs, `{"reason": "x", "by": "canary"}`, []string{"by"}},
		{runs, `{"reason": "` + strings.Repeat("a", maxWhy+1) + `"}`, []string{"reason"}},
	} {
		w := h.wants(request("POST", c.target, "operator", c.body), 400, wire.ProblemCodeInvalid)
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
	w := h.wants(request("POST", resolve, "operator", `{`+many.String()+`"version": 1}`), 400, wire.ProblemCodeInvalid)
	if n := len(decoded[wire.Problem](t, w).Errors); n != maxFaults {
		t.Errorf("%d faults are told", n)
	}
}

func TestADecisionIsBoundedPlainJSON(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for _, target := range []string{"/v1/admin/entries/" + entry(nil).EntryID() + "/resolve", "/v1/admin/reconciliation/runs"} {
		h.wants(request("POST", target, "operator", ""), 415, wire.ProblemCodeUnsupportedMediaType)
		h.wants(request("POST", target, "operator", strings.Repeat(" ", bodyLimit+1)), 413, wire.ProblemCodeTooLarge)
		coded := request("POST", target, "operator", aResolution)
		coded.Header.Set("Content-Encoding", "gzip")
		h.wants(coded, 415, wire.ProblemCodeUnsupportedMediaType)
		barred := request("POST", target, "support", aResolution)
		barred.Body = unreadable{t}
		h.wants(barred, 403, wire.ProblemCodeForbidden)
	}
}
