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

func TestEveryFilterNarrowsTheQuery(t *testing.T) {
	var got ledger.Query
	h := newHouse(t, &collaborators{list: func(_ context.Context, q ledger.Query) ([]ledger.Entry, error) {
		got = q
		return nil, nil
	}})
	w := h.wants(request("GET", "/v1/admin/entries?reminder_id=r&reservation_id=s&user_id=u%201&state=dead&class=credentials"+
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
	h.wants(request("GET", "/v1/admin/entries", "support", ""), 200, "")
	if diff := cmp.Diff(ledger.Query{Limit: 51}, got); diff != "" {
		t.Errorf("without filters (-want +got):\n%s", diff)
	}
}

func TestTheDocumentNamesEveryParameterOfAList(t *testing.T) {
	doc := contract(t)
	for path, narrowing := range map[string][]string{
		"/v1/admin/entries":             slices.Collect(maps.Keys(filters)),
		"/v1/admin/dead-letters":        slices.Collect(maps.Keys(letterFilters())),
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

func TestAQueryThatIsNotUnderstoodIsRefusedWhole(t *testing.T) {
	h := newHouse(t, &collaborators{})
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
		w := h.wants(request("GET", "/v1/admin/entries?"+query, "support", ""), 400, wire.ProblemCodeInvalid)
		faults := decoded[wire.Problem](t, w).Errors
		if len(faults) != 1 || faults[0].Field != field || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
}

// shelf lists n entries, newest first, two of them always at the same instant, as a store does.
func shelf(n int) func(context.Context, ledger.Query) ([]ledger.Entry, error) {
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

func TestCursorsWalkAListOnceFromEndToEnd(t *testing.T) {
	for _, n := range []int{0, 1, 9, 10, 11, 20, 25} {
		h := newHouse(t, &collaborators{list: shelf(n)})
		seen, cursor, pages := map[string]bool{}, "", 0
		for {
			target := "/v1/admin/entries?limit=10&channel=email"
			if cursor != "" {
				target += "&cursor=" + url.QueryEscape(cursor)
			}
			list := decoded[wire.EntryList](t, h.wants(request("GET", target, "support", ""), 200, ""))
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

func TestACursorHoldsForItsOwnListAlone(t *testing.T) {
	h := newHouse(t, &collaborators{list: shelf(5)})
	first := "/v1/admin/entries?limit=2&state=sent&channel=email"
	cursor := decoded[wire.EntryList](t, h.wants(request("GET", first, "support", ""), 200, "")).Next

	page := func(query string) *http.Request {
		return request("GET", "/v1/admin/entries?"+query, "support", "")
	}
	h.wants(page("state=sent&channel=email&cursor="+cursor), 200, "")
	h.wants(page("channel=email&state=sent&limit=1&cursor="+cursor), 200, "")
	for _, query := range []string{
		"cursor=" + cursor,
		"state=sent&cursor=" + cursor,
		"state=dead&channel=email&cursor=" + cursor,
		"state=sent&channel=email&provider=mail&cursor=" + cursor,
	} {
		h.wants(page(query), 400, wire.ProblemCodeInvalid)
	}
	for i := range cursor {
		flipped := []byte(cursor)
		flipped[i] ^= 1
		w := h.do(page("state=sent&channel=email&cursor=" + url.QueryEscape(string(flipped))))
		if w.Code != 400 {
			t.Errorf("a cursor with letter %d changed is taken: %s", i, flipped)
		}
	}
	h.wants(page("state=sent&channel=email&cursor="+cursor[:len(cursor)-1]), 400, wire.ProblemCodeInvalid)

	other := newHouse(t, &collaborators{}, func(o *Options) { o.CursorKey = []byte("another key, of another house...") })
	other.wants(page("state=sent&channel=email&cursor="+cursor), 400, wire.ProblemCodeInvalid)
	drawn := newHouse(t, &collaborators{}, func(o *Options) { o.CursorKey = nil })
	drawn.wants(page("state=sent&channel=email&cursor="+cursor), 400, wire.ProblemCodeInvalid)
}

func TestAStoryReadsLikeOne(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Version = 4 })
	story := ledger.Story{
		Entry: e,
		Payload: &ledger.Payload{
			Recipient: "ada-canary@example.org", Content: []byte(`{"subject": "subject-canary"}`), Metadata: []byte(`{"m": "meta-canary"}`),
		},
		Timeline: []ledger.Event{
			{
				Version: 1, Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonGateClosed, Origin: ledger.OriginPush,
				Source: "reservations", Message: "m-9", Count: 2, Holder: "holder-canary", Provider: "mail", At: testNow,
			},
			{
				Version: 3, Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted, Origin: ledger.OriginWorker,
				Holder: "holder-canary", Number: 1, Provider: "mail", Started: testNow, Finished: testNow.Add(time.Second), At: testNow.Add(time.Second),
				Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1", Status: 202, RequestID: "q-1", Cause: "status", RetryAfter: 1500 * time.Millisecond},
			},
		},
		Conflicts: []ledger.Conflict{{Identity: e.Identity, ContentHash: "beef", Source: "checkout", MessageID: "m-10", FirstSeen: testNow}},
	}
	h := newHouse(t, &collaborators{story: func(_ context.Context, id ledger.Identity) (ledger.Story, error) {
		if id != e.Identity {
			t.Errorf("asked for %+v", id)
		}
		return story, nil
	}})
	w := h.wants(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")
	if strings.Contains(w.Body.String(), "canary") {
		t.Errorf("the story tells recipient, content or holder: %s", w.Body)
	}
	got := decoded[wire.Story](t, w)
	want := []wire.Line{
		{
			Version: 1, At: testNow, Kind: "decision", Text: "Pushed by reservations: its provider is left alone for now (its gate is closed); it waits.",
			State: "waiting", Reason: "gate_closed", Origin: "push", Source: "reservations", MessageID: "m-9", DeliveryCount: 2, Provider: "mail",
		},
		{
			Version: 3, At: testNow.Add(time.Second), Kind: "attempt", Text: "Attempt 1 at mail was accepted (202), receipt r-1.",
			State: "sent", Reason: "accepted", Origin: "worker", Number: 1, Provider: "mail",
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

func TestAStoryTellsWhatProvidersSaidAndPeopleDecided(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Version, e.Reason, e.Receipt = 5, ledger.ReasonResolved, "r-9" })
	told := ledger.Story{
		Entry: e,
		Timeline: []ledger.Event{
			{
				Version: 3, Kind: ledger.EventLookup, State: ledger.Unknown, Reason: ledger.ReasonUnansweredYet, Origin: ledger.OriginReconcile,
				Provider: "mail", At: testNow, Outcome: ledger.Outcome{Cause: "timeout"},
			},
			{
				Version: 4, Kind: ledger.EventDecision, State: ledger.Sent, Reason: ledger.ReasonResolved, Origin: ledger.OriginPerson,
				Source: "oncall", Provider: "mail", At: testNow, Outcome: ledger.Outcome{Receipt: "r-9"},
			},
			{
				Version: 5, Kind: ledger.EventReport, State: ledger.Sent, Reason: ledger.ReasonBounced, Origin: ledger.OriginProvider,
				Source: "mail", Message: "ev-1", Provider: "mail", Started: testNow, Finished: testNow, At: testNow,
				Outcome: ledger.Outcome{Receipt: "r-9", Code: "5.1.1", Cause: "bounced"},
			},
		},
		Acts: []ledger.Act{
			{
				Identity: e.Identity, ID: "id-canary", At: testNow, By: "oncall", Role: "operator", Verb: "resolve:sent", Why: "its log has it",
				Before: `{"state":"unknown","reason":"not_found","version":3}`, After: `{"state":"sent","receipt":"r-9"}`,
			},
			{At: testNow, By: "root", Role: "admin", Verb: "word_of_tomorrow", Why: "w", Before: "", After: "canary"},
		},
	}
	h := newHouse(t, &collaborators{story: func(context.Context, ledger.Identity) (ledger.Story, error) { return told, nil }})
	w := h.wants(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")
	got := decoded[wire.Story](t, w)
	lines := []wire.Line{
		{
			Version: 3, At: testNow, Kind: "lookup", State: "unknown", Reason: "no_answer", Origin: "reconcile", Provider: "mail", Cause: "timeout",
			Text: "Its provider mail was asked whether it took it, and did not say (timeout); it may have been sent, and is not repeated without a decision.",
		},
		{
			Version: 4, At: testNow, Kind: "decision", State: "sent", Reason: "resolved", Origin: "person", Source: "oncall", Provider: "mail",
			Text: "Decided by oncall: it was sent, receipt r-9.", Receipt: "r-9",
		},
		{
			Version: 5, At: testNow, Kind: "report", State: "sent", Reason: "bounced", Origin: "provider", Source: "mail", MessageID: "ev-1", Provider: "mail",
			Text:    "Its provider mail reported that the address did not take it (5.1.1), receipt r-9; that changes nothing.",
			Started: testNow, Finished: testNow, Receipt: "r-9", Code: "5.1.1", Cause: "bounced",
		},
	}
	if diff := cmp.Diff(lines, got.Timeline); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	acts := []wire.Act{
		{
			At: testNow, Who: "oncall", Role: "operator", What: "resolve:sent", Why: "its log has it",
			Before: map[string]any{"state": "unknown", "reason": "not_found", "version": 3.0}, After: map[string]any{"state": "sent", "receipt": "r-9"},
		},
		{At: testNow, Who: "root", Role: "admin", What: "word_of_tomorrow", Why: "w"},
	}
	if diff := cmp.Diff(acts, got.Acts); diff != "" || strings.Contains(w.Body.String(), "canary") {
		t.Errorf("%s\n(-want +got):\n%s", w.Body, diff)
	}
}

func TestAStoryIsToldTopDown(t *testing.T) {
	e := entry(func(e *ledger.Entry) { e.Class = ledger.ClassUnknown })
	h := newHouse(t, &collaborators{story: func(context.Context, ledger.Identity) (ledger.Story, error) {
		return ledger.Story{Entry: e, Timeline: []ledger.Event{{
			Version: 2, Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted, Number: 1, Provider: "mail", At: testNow,
			Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1"},
		}}}, nil
	}})
	body := h.wants(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "").Body.String()
	for _, members := range [][]string{
		{"entry", "id", "reminder_id", "type", "channel", "state", "reason", "class", "provider", "receipt", "attempts", "version", "timeline", "conflicts"},
		{"timeline", "version", "at", "kind", "text", "state", "reason", "number", "provider", "outcome", "receipt"},
	} {
		rest := body
		for _, member := range members {
			_, after, found := strings.Cut(rest, `"`+member+`":`)
			if !found {
				t.Fatalf("%s stands in another order than %v: %s", member, members, body)
			}
			rest = after
		}
	}
}

func TestTheStoryOfADeadLetterThatNobodyCouldReadTellsWhatWasWrong(t *testing.T) {
	malformed := entry(func(e *ledger.Entry) {
		e.Type, e.State, e.Class, e.Reason, e.Receipt = ledger.MalformedType, ledger.Dead, ledger.ClassMalformed, ledger.ReasonMalformed, ""
	})
	born := ledger.Event{
		Version: 1, Kind: ledger.EventDecision, State: ledger.Dead, Reason: ledger.ReasonMalformed, Origin: ledger.OriginPush, Source: "seats", At: testNow,
	}
	kept := func(metadata string) *ledger.Payload {
		return &ledger.Payload{Raw: []byte("canary"), Metadata: []byte(metadata)}
	}
	const purged = "Pushed by seats; it is a dead letter, since it could not be read."
	for name, c := range map[string]struct {
		entry   ledger.Entry
		payload *ledger.Payload
		faults  []string
		text    string
	}{
		"kept": {
			malformed, kept(`{"faults":["to is required","type is required"]}`),
			[]string{"to is required", "type is required"},
			"Pushed by seats; it is a dead letter, since it could not be read: to is required; type is required.",
		},
		"purged":  {malformed, nil, nil, purged},
		"unkept":  {malformed, kept(""), nil, purged},
		"mangled": {malformed, kept(`{"faults": "canary"}`), nil, purged},
		"no fault of a reminder, whose metadata is its own": {entry(nil), kept(`{"faults": ["canary"]}`), nil, purged},
	} {
		h := newHouse(t, &collaborators{story: func(context.Context, ledger.Identity) (ledger.Story, error) {
			return ledger.Story{Entry: c.entry, Payload: c.payload, Timeline: []ledger.Event{born}}, nil
		}})
		w := h.wants(request("GET", "/v1/admin/entries/"+c.entry.EntryID(), "support", ""), 200, "")
		got := decoded[wire.Story](t, w)
		if diff := cmp.Diff(c.faults, got.Faults); diff != "" || got.Timeline[0].Text != c.text {
			t.Errorf("%s: %s %s", name, got.Timeline[0].Text, diff)
		}
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: the story tells the message: %s", name, w.Body)
		}
	}
}

func TestOnlyTheLastLineOfAnEntryThatWaitsTellsItsDue(t *testing.T) {
	e := entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Receipt, e.Due = ledger.Waiting, ledger.ReasonNotCalled, "", ledger.At(testNow.Add(time.Minute))
	})
	waits := ledger.Event{Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonGateClosed, Origin: ledger.OriginWorker, At: testNow}
	last := waits
	last.Reason, last.Outcome = ledger.ReasonNotCalled, ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "deadline"}
	h := newHouse(t, &collaborators{story: func(context.Context, ledger.Identity) (ledger.Story, error) {
		return ledger.Story{Entry: e, Timeline: []ledger.Event{waits, last}}, nil
	}})
	lines := decoded[wire.Story](t, h.wants(request("GET", "/v1/admin/entries/"+e.EntryID(), "support", ""), 200, "")).Timeline
	if !strings.HasSuffix(lines[0].Text, "it waits.") || !strings.HasSuffix(lines[1].Text, "it waits until 2031-03-04T09:01:00Z.") {
		t.Errorf("told as %q and %q", lines[0].Text, lines[1].Text)
	}
	if lines[0].Outcome != "" || lines[1].Outcome != "not_called" || lines[1].Cause != "deadline" {
		t.Errorf("a call that was not made is told as %+v", lines[1])
	}
}

func TestAFaultOfAListSaysWhatIsAllowed(t *testing.T) {
	h := newHouse(t, &collaborators{})
	p := decoded[wire.Problem](t, h.wants(request("GET", "/v1/admin/entries?state=lost&sort=x", "support", ""), 400, wire.ProblemCodeInvalid))
	want := []wire.Fault{
		{Field: "sort", Problem: "is not a parameter of this list"},
		{Field: "state", Problem: "must be one of sending, waiting, unknown, sent, dead, dropped"},
	}
	if diff := cmp.Diff(want, p.Errors); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadsThatFailAreUnavailableWithoutDetail(t *testing.T) {
	down := errors.New("dial tcp 10.0.0.1:5432: db-canary")
	h := newHouse(t, &collaborators{
		find:    func(context.Context, string) ([]ledger.Entry, error) { return nil, down },
		list:    func(context.Context, ledger.Query) ([]ledger.Entry, error) { return nil, down },
		story:   func(context.Context, ledger.Identity) (ledger.Story, error) { return ledger.Story{}, down },
		cancel:  func(context.Context, string, string, string, string) ([]ledger.Cancelled, error) { return nil, down },
		waiting: func(context.Context, ledger.Doubt, int) ([]ledger.Story, error) { return nil, down },
		start:   func(context.Context, ledger.Act) (ledger.Run, error) { return ledger.Run{}, down },
		resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
			return entry(nil), down
		},
		hear:  func(context.Context, ledger.Report) (bool, error) { return true, down },
		desks: failingDesks(down),
	})
	for _, r := range []*http.Request{
		request("GET", "/v1/admin/reconciliation", "support", ""),
		request("POST", "/v1/admin/reconciliation/runs", "operator", `{"reason": "r"}`),
		request("POST", "/v1/admin/entries/"+entry(nil).EntryID()+"/resolve", "operator", aResolution),
		event("mail", "sealed", "bounced"),
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
		w := h.wants(r, 503, wire.ProblemCodeUnavailable)
		p := decoded[wire.Problem](t, w)
		if strings.Contains(w.Body.String(), "canary") || len(p.CorrelationID) < 16 {
			t.Errorf("%s: %s", r.URL, w.Body)
		}
		if !strings.Contains(h.log.String(), p.CorrelationID) || !strings.Contains(h.log.String(), "db-canary") {
			t.Errorf("%s: the log does not tell: %s", r.URL, h.log)
		}
	}
}
