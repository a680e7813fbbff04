package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestEntries_EveryFilterReachesTheQuery(t *testing.T) {
	var got ledger.Query
	h := newHarness(t, &fakeServices{list: func(_ context.Context, q ledger.Query) ([]ledger.Entry, error) {
		got = q
		return nil, nil
	}})
	w := h.expect(request("GET", "/v1/admin/entries?reminder_id=r&reservation_id=s&user_id=u%201&state=dead&class=credentials"+
		"&type=!malformed&channel=email&provider=mail&code=slow_down&conflict=true&from=2031-03-04T10:00:00%2B01:00&to=2031-03-05T00:00:00Z&limit=200", "support", ""), 200, "")
	want := ledger.Query{
		ReminderID: "r", ReservationID: "s", UserID: "u 1", State: ledger.Dead, Class: ledger.ClassCredentials,
		Type: "!malformed", Channel: "email", Provider: "mail", Code: "slow_down", Conflict: true,
		From: testNow, To: time.Date(2031, 3, 5, 0, 0, 0, 0, time.UTC), Limit: 201,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if strings.TrimSpace(w.Body.String()) != `{"items":[]}` {
		t.Errorf("an empty list is %s", w.Body)
	}
	h.expect(request("GET", "/v1/admin/entries", "support", ""), 200, "")
	if diff := cmp.Diff(ledger.Query{Limit: 51}, got); diff != "" {
		t.Errorf("without filters (-want +got):\n%s", diff)
	}
}

func TestOpenAPI_HasEveryListParameter(t *testing.T) {
	doc := contract(t)
	for path, narrowing := range map[string][]string{
		"/v1/admin/entries":             slices.Collect(maps.Keys(filters)),
		"/v1/admin/dead-letters":        slices.Collect(maps.Keys(deadLetterFilters())),
		"/v1/admin/audit":               slices.Collect(maps.Keys(auditFilters)),
		"/v1/admin/redrives":            nil,
		"/v1/admin/dead-letters/groups": nil,
	} {
		read := append(narrowing, "limit")
		if !strings.HasSuffix(path, "/groups") {
			read = append(read, "cursor")
		}
		var documented []string
		for _, parameter := range doc.Paths.Value(path).Get.Parameters {
			documented = append(documented, parameter.Value.Name)
		}
		slices.Sort(read)
		slices.Sort(documented)
		if diff := cmp.Diff(documented, read); diff != "" {
			t.Errorf("%s (-document +handler):\n%s", path, diff)
		}
	}
}

func TestEntries_RefuseInvalidQueries(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for query, field := range map[string]string{
		"sort=canary%3Bselect":         "sort",
		"canari=canary":                "canari",
		"a%00%C3%A4%22=canary":         `a\x00\u00e4\"`,
		strings.Repeat("n", 65) + "=1": strings.Repeat("n", 64),
		"state=DEAD":                   "state",
		"state=DEAD'+OR+'1'%3D'1":      "state",
		"state=pending":                "state",
		"class=canary":                 "class",
		"state=":                       "state",
		"state=dead&state=sent":        "state",
		"limit=0":                      "limit",
		"conflict=false":               "conflict",
		"conflict=TRUE":                "conflict",
		"code=%C3%A4":                  "code",
		"limit=201":                    "limit",
		"limit=-1":                     "limit",
		"limit=99999999999999999999":   "limit",
		"limit=1e2":                    "limit",
		"from=yesterday":               "from",
		"from=2031-03-04":              "from",
		"from=0001-01-01T00:00:00Z":    "from",
		"to=9999-12-31T23:59:59-23:59": "to",
		"from=2031-03-04T00:00:00Z&to=2031-03-04T00:00:00Z": "to",
		"reminder_id=%00":                     "reminder_id",
		"reminder_id=%FF":                     "reminder_id",
		"user_id=" + strings.Repeat("a", 256): "user_id",
		"channel=email;drop":                  "",
		"channel=%zz":                         "",
		"cursor=":                             "cursor",
		"cursor=canary":                       "cursor",
		"cursor=..":                           "cursor",
	} {
		w := h.expect(request("GET", "/v1/admin/entries?"+query, "support", ""), 400, wire.ProblemCodeInvalid)
		faults := decoded[wire.Problem](t, w).Errors
		if len(faults) != 1 || faults[0].Field != field || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
}

// pagedEntries lists n entries as a store does, newest first, with pairs at the same time.
func pagedEntries(n int) func(context.Context, ledger.Query) ([]ledger.Entry, error) {
	var all []ledger.Entry
	for i := range n {
		all = append(all, entry(func(e *ledger.Entry) {
			e.ReminderID = fmt.Sprintf("r-%03d", n-i)
			e.FirstSeen = testNow.Add(-time.Duration(i/2) * time.Microsecond)
		}))
	}
	return func(_ context.Context, q ledger.Query) ([]ledger.Entry, error) {
		rest := all
		if q.After != nil {
			for i, e := range all {
				if e.Identity == q.After.Identity && e.FirstSeen.Equal(q.After.FirstSeen) {
					rest = all[i+1:]
				}
			}
		}
		return rest[:min(q.Limit, len(rest))], nil
	}
}

func TestEntries_CursorsVisitEachEntryOnce(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 20, 25} {
		h := newHarness(t, &fakeServices{list: pagedEntries(n)})
		seen, cursor, pages := map[string]bool{}, "", 0
		for {
			target := "/v1/admin/entries?limit=10&channel=email"
			if cursor != "" {
				target += "&cursor=" + url.QueryEscape(cursor)
			}
			list := decoded[wire.EntryList](t, h.expect(request("GET", target, "support", ""), 200, ""))
			for _, item := range list.Items {
				if seen[item.ReminderID] {
					t.Fatalf("of %d, %s came twice", n, item.ReminderID)
				}
				seen[item.ReminderID] = true
			}
			pages++
			if cursor = list.Next; cursor == "" {
				break
			}
		}
		if len(seen) != n || pages != max(1, (n+9)/10) {
			t.Errorf("of %d, %d came on %d pages", n, len(seen), pages)
		}
	}
}

func TestEntries_CursorIsValidForItsFiltersOnly(t *testing.T) {
	h := newHarness(t, &fakeServices{list: pagedEntries(5)})
	first := "/v1/admin/entries?limit=2&state=sent&channel=email"
	cursor := decoded[wire.EntryList](t, h.expect(request("GET", first, "support", ""), 200, "")).Next

	page := func(query string) *http.Request {
		return request("GET", "/v1/admin/entries?"+query, "support", "")
	}
	h.expect(page("state=sent&channel=email&cursor="+cursor), 200, "")
	h.expect(page("channel=email&state=sent&limit=1&cursor="+cursor), 200, "")
	for _, query := range []string{
		"cursor=" + cursor,
		"state=sent&cursor=" + cursor,
		"state=dead&channel=email&cursor=" + cursor,
		"state=sent&channel=email&provider=mail&cursor=" + cursor,
	} {
		h.expect(page(query), 400, wire.ProblemCodeInvalid)
	}
	for i := range cursor {
		flipped := []byte(cursor)
		flipped[i] ^= 1
		w := h.do(page("state=sent&channel=email&cursor=" + url.QueryEscape(string(flipped))))
		if w.Code != 400 {
			t.Errorf("a cursor with byte %d changed is accepted: %s", i, flipped)
		}
	}
	h.expect(page("state=sent&channel=email&cursor="+cursor[:len(cursor)-1]), 400, wire.ProblemCodeInvalid)

	other := newHarness(t, &fakeServices{}, func(o *Options) { o.CursorKey = []byte("another key, of another gateway.") })
	other.expect(page("state=sent&channel=email&cursor="+cursor), 400, wire.ProblemCodeInvalid)
	drawn := newHarness(t, &fakeServices{}, func(o *Options) { o.CursorKey = nil })
	drawn.expect(page("state=sent&channel=email&cursor="+cursor), 400, wire.ProblemCodeInvalid)
}

func TestEntryDetail_ShowsTimelineAndConflicts(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Version = 4 })
	detail := ledger.EntryDetail{
		Entry: e,
		Payload: &ledger.Payload{
			Recipient: "ada-canary@example.org", Content: []byte(`{"subject": "subject-canary"}`), Metadata: []byte(`{"m": "meta-canary"}`),
		},
		Timeline: []ledger.TimelineEvent{
			{
				Version: 1, Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonGateClosed, Origin: ledger.OriginPush,
				Source: "reservations", MessageID: "m-9", DeliveryCount: 2, Holder: "holder-canary", Provider: "mail", At: testNow,
			},
			{
				Version: 3, Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted, Origin: ledger.OriginWorker,
				Holder: "holder-canary", AttemptNumber: 1, Provider: "mail", Started: testNow, Finished: testNow.Add(time.Second), At: testNow.Add(time.Second),
				Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1", Status: 202, RequestID: "q-1", Cause: "status", RetryAfter: 1500 * time.Millisecond},
			},
		},
		Conflicts: []ledger.Conflict{{Identity: e.Identity, ContentHash: "beef", Source: "checkout", MessageID: "m-10", FirstSeen: testNow}},
	}
	h := newHarness(t, &fakeServices{detail: func(_ context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
		if id != e.Identity {
			t.Errorf("got %+v", id)
		}
		return detail, nil
	}})
	w := h.expect(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("the answer contains recipient, content or holder: %s", w.Body)
	}
	got := decoded[wire.EntryDetail](t, w)
	want := []wire.TimelineEvent{
		{
			Version: 1, At: testNow, Kind: "decision", Text: "Pushed by reservations: calls to its provider are on hold (gate closed); it waits.",
			State: "waiting", Reason: "gate_closed", Origin: "push", Source: "reservations", MessageID: "m-9", DeliveryCount: 2, Provider: "mail",
		},
		{
			Version: 3, At: testNow.Add(time.Second), Kind: "attempt", Text: "Attempt 1 at mail was accepted (202), receipt r-1.",
			State: "sent", Reason: "accepted", Origin: "worker", Attempt: 1, Provider: "mail",
			Started: testNow, Finished: testNow.Add(time.Second), Outcome: "accepted", Receipt: "r-1", Status: 202,
			RequestID: "q-1", Cause: "status", RetryAfterSeconds: 2,
		},
	}
	if diff := cmp.Diff(want, got.Timeline); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got.Entry.Conflicts == nil || *got.Entry.Conflicts != 1 || len(got.Conflicts) != 1 || got.Conflicts[0].ContentHash != "beef" {
		t.Errorf("conflicts are %s", w.Body)
	}
}

func TestEntryDetail_ShowsProviderEventsAndAudit(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Version, e.Reason, e.Receipt = 5, ledger.ReasonResolved, "r-9" })
	detail := ledger.EntryDetail{
		Entry: e,
		Timeline: []ledger.TimelineEvent{
			{
				Version: 3, Kind: ledger.EventLookup, State: ledger.Unknown, Reason: ledger.ReasonLookupUnanswered, Origin: ledger.OriginReconcile,
				Provider: "mail", At: testNow, Outcome: ledger.Outcome{Cause: "timeout"},
			},
			{
				Version: 4, Kind: ledger.EventDecision, State: ledger.Sent, Reason: ledger.ReasonResolved, Origin: ledger.OriginOperator,
				Source: "oncall", Provider: "mail", At: testNow, Outcome: ledger.Outcome{Receipt: "r-9"},
			},
			{
				Version: 5, Kind: ledger.EventStatus, State: ledger.Sent, Reason: ledger.ReasonBounced, Origin: ledger.OriginProvider,
				Source: "mail", MessageID: "ev-1", Provider: "mail", Started: testNow, Finished: testNow, At: testNow,
				Outcome: ledger.Outcome{Receipt: "r-9", Code: "5.1.1", Cause: "bounced"},
			},
		},
		Audit: []ledger.AuditEvent{
			{
				Identity: e.Identity, ID: "id-canary", At: testNow, Actor: "oncall", Role: "operator", Action: "resolve:sent", Reason: "its log has it",
				Before: `{"state":"unknown","reason":"not_found","version":3}`, After: `{"state":"sent","receipt":"r-9"}`,
			},
			{At: testNow, Actor: "root", Role: "admin", Action: "future_word", Reason: "w", Before: "", After: "canary"},
		},
	}
	h := newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) { return detail, nil }})
	w := h.expect(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")
	got := decoded[wire.EntryDetail](t, w)
	lines := []wire.TimelineEvent{
		{
			Version: 3, At: testNow, Kind: "lookup", State: "unknown", Reason: "no_answer", Origin: "reconcile", Provider: "mail", Cause: "timeout",
			Text: "Lookup at mail: no usable answer (timeout); it may have been sent, and is not repeated without a decision.",
		},
		{
			Version: 4, At: testNow, Kind: "decision", State: "sent", Reason: "resolved", Origin: "operator", Source: "oncall", Provider: "mail",
			Text: "Resolved by oncall: it was sent, receipt r-9.", Receipt: "r-9",
		},
		{
			Version: 5, At: testNow, Kind: "status", State: "sent", Reason: "bounced", Origin: "provider", Source: "mail", MessageID: "ev-1", Provider: "mail",
			Text:    "Its provider mail reported that the message bounced (5.1.1), receipt r-9; its state does not change.",
			Started: testNow, Finished: testNow, Receipt: "r-9", Code: "5.1.1", Cause: "bounced",
		},
	}
	if diff := cmp.Diff(lines, got.Timeline); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	audit := []wire.EntryAuditEvent{
		{
			At: testNow, Actor: "oncall", Role: "operator", Action: "resolve:sent", Reason: "its log has it",
			Before: map[string]any{"state": "unknown", "reason": "not_found", "version": 3.0}, After: map[string]any{"state": "sent", "receipt": "r-9"},
		},
		{At: testNow, Actor: "root", Role: "admin", Action: "future_word", Reason: "w"},
	}
	if diff := cmp.Diff(audit, got.Audit); diff != "" || strings.Contains(w.Body.String(), "canary") {
		t.Errorf("%s\n(-want +got):\n%s", w.Body, diff)
	}
}

func TestEntryDetail_MembersAreInReadingOrder(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Class = ledger.ClassUnknown })
	h := newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
		return ledger.EntryDetail{Entry: e, Timeline: []ledger.TimelineEvent{{
			Version: 2, Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted, AttemptNumber: 1, Provider: "mail", At: testNow,
			Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1"},
		}}}, nil
	}})
	body := h.expect(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "").Body.String()
	for _, members := range [][]string{
		{"entry", "id", "reminder_id", "type", "channel", "state", "reason", "class", "provider", "receipt", "attempts", "version", "timeline", "conflicts"},
		{"timeline", "version", "at", "kind", "text", "state", "reason", "attempt", "provider", "outcome", "receipt"},
	} {
		rest := body
		for _, member := range members {
			_, after, found := strings.Cut(rest, `"`+member+`":`)
			if !found {
				t.Fatalf("%s is not in the order of %v: %s", member, members, body)
			}
			rest = after
		}
	}
}

func TestEntryDetail_MalformedShowsFaults(t *testing.T) {
	malformed := entry(func(e *ledger.Entry) {
		e.Type, e.State, e.Class, e.Reason, e.Receipt = ledger.MalformedType, ledger.Dead, ledger.ClassMalformed, ledger.ReasonMalformed, ""
	})
	first := ledger.TimelineEvent{
		Version: 1, Kind: ledger.EventDecision, State: ledger.Dead, Reason: ledger.ReasonMalformed, Origin: ledger.OriginPush, Source: "seats", At: testNow,
	}
	kept := func(metadata string) *ledger.Payload {
		return &ledger.Payload{Raw: []byte("canary"), Metadata: []byte(metadata)}
	}
	const purged = "Pushed by seats; it is a dead letter, because it could not be parsed."
	for name, c := range map[string]struct {
		entry   ledger.Entry
		payload *ledger.Payload
		faults  []string
		text    string
	}{
		"kept": {
			malformed, kept(`{"faults":["to is required","type is required"]}`),
			[]string{"to is required", "type is required"},
			"Pushed by seats; it is a dead letter, because it could not be parsed: to is required; type is required.",
		},
		"purged":                 {malformed, nil, nil, purged},
		"unkept":                 {malformed, kept(""), nil, purged},
		"mangled":                {malformed, kept(`{"faults": "canary"}`), nil, purged},
		"metadata of a reminder": {entry(nil), kept(`{"faults": ["canary"]}`), nil, purged},
	} {
		h := newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
			return ledger.EntryDetail{Entry: c.entry, Payload: c.payload, Timeline: []ledger.TimelineEvent{first}}, nil
		}})
		w := h.expect(request("GET", "/v1/admin/entries/"+c.entry.EntryID(), "support", ""), 200, "")
		got := decoded[wire.EntryDetail](t, w)
		if diff := cmp.Diff(c.faults, got.Faults); diff != "" || got.Timeline[0].Text != c.text {
			t.Errorf("%s: %s %s", name, got.Timeline[0].Text, diff)
		}
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: the answer contains the message: %s", name, w.Body)
		}
	}
}

func TestEntryDetail_OnlyLastWaitingEventShowsDue(t *testing.T) {
	e := entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Receipt, e.Due = ledger.Waiting, ledger.ReasonNotCalled, "", ledger.At(testNow.Add(time.Minute))
	})
	waits := ledger.TimelineEvent{Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonGateClosed, Origin: ledger.OriginWorker, At: testNow}
	last := waits
	last.Reason, last.Outcome = ledger.ReasonNotCalled, ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "deadline"}
	h := newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
		return ledger.EntryDetail{Entry: e, Timeline: []ledger.TimelineEvent{waits, last}}, nil
	}})
	lines := decoded[wire.EntryDetail](t, h.expect(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")).Timeline
	if !strings.HasSuffix(lines[0].Text, "it waits.") || !strings.HasSuffix(lines[1].Text, "it waits until 2031-03-04T09:01:00Z.") {
		t.Errorf("the texts are %q and %q", lines[0].Text, lines[1].Text)
	}
	if lines[0].Outcome != "" || lines[1].Outcome != "not_called" || lines[1].Cause != "deadline" {
		t.Errorf("a call that was not made is shown as %+v", lines[1])
	}
}

func TestLists_FaultsNameTheAllowedValues(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	p := decoded[wire.Problem](t, h.expect(request("GET", "/v1/admin/entries?state=lost&sort=x", "support", ""), 400, wire.ProblemCodeInvalid))
	want := []wire.Fault{
		{Field: "sort", Problem: "is not a parameter of this list"},
		{Field: "state", Problem: "must be one of sending, waiting, unknown, sent, dead, dropped"},
	}
	if diff := cmp.Diff(want, p.Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRoutes_FailingServiceIsUnavailableWithoutDetail(t *testing.T) {
	down := errors.New("dial tcp 10.0.0.1:5432: db-canary")
	h := newHarness(t, &fakeServices{
		find:       func(context.Context, string) ([]ledger.Entry, error) { return nil, down },
		list:       func(context.Context, ledger.Query) ([]ledger.Entry, error) { return nil, down },
		detail:     func(context.Context, ledger.Identity) (ledger.EntryDetail, error) { return ledger.EntryDetail{}, down },
		cancel:     func(context.Context, string, string, string, string) ([]ledger.Cancelled, error) { return nil, down },
		unresolved: func(context.Context, ledger.DoubtPosition, int) ([]ledger.EntryDetail, error) { return nil, down },
		startSweep: func(context.Context, ledger.AuditEvent) (ledger.SweepRun, error) { return ledger.SweepRun{}, down },
		resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
			return entry(nil), down
		},
		recordStatus: func(context.Context, ledger.StatusEvent) (bool, error) { return true, down },
		adminFakes:   failingAdmin(down),
	})
	for _, r := range []*http.Request{
		request("GET", "/v1/admin/reconciliation", "support", ""),
		request("POST", "/v1/admin/reconciliation/runs", "operator", `{"reason": "r"}`),
		request("POST", "/v1/admin/entries/"+entry(nil).EntryID()+"/resolve", "operator", aResolution),
		event("mail", "signed", "bounced"),
		request("GET", "/v1/reminders/r", "support", ""),
		request("GET", "/v1/admin/entries", "support", ""),
		request("GET", "/v1/admin/entries/"+entry(nil).EntryID(), "support", ""),
		request("POST", "/v1/reminders/r/cancel", "producer", ""),
		request("GET", "/v1/admin/dead-letters", "support", ""),
		request("GET", "/v1/admin/dead-letters/groups", "support", ""),
		request("GET", "/v1/admin/dead-letters/"+entry(nil).EntryID(), "support", ""),
		request("POST", "/v1/admin/dead-letters/"+entry(nil).EntryID()+"/discard", "operator", `{"reason": "r", "version": 1}`),
		request("POST", "/v1/admin/redrives", "operator", aRedriveRequest),
		request("POST", "/v1/admin/redrives", "operator", `{"dry_run": true, `+aRedriveRequest[1:]),
		request("GET", "/v1/admin/redrives", "support", ""),
		request("GET", "/v1/admin/redrives/R1", "support", ""),
		request("POST", "/v1/admin/redrives/R1/cancel", "operator", `{"reason": "r"}`),
		request("GET", "/v1/admin/audit", "operator", ""),
		request("GET", "/v1/admin/providers", "support", ""),
		request("POST", "/v1/admin/providers/mail/pause", "operator", `{"reason": "r"}`),
		request("POST", "/v1/admin/providers/mail/resume", "operator", `{"reason": "r"}`),
		request("DELETE", "/v1/admin/users/u-77/data", "admin", `{"reason": "r"}`),
	} {
		w := h.expect(r, 503, wire.ProblemCodeUnavailable)
		p := decoded[wire.Problem](t, w)
		if strings.Contains(w.Body.String(), "canary") || len(p.CorrelationID) < 16 {
			t.Errorf("%s: %s", r.URL, w.Body)
		}
		if !strings.Contains(h.log.String(), p.CorrelationID) || !strings.Contains(h.log.String(), "db-canary") {
			t.Errorf("%s: the log does not have it: %s", r.URL, h.log)
		}
	}
}
