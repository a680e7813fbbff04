package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
		"&type=!malformed&channel=email&provider=mail&from=2031-03-04T10:00:00%2B01:00&to=2031-03-05T00:00:00Z&limit=200", "support", ""), 200, "")
	want := ledger.Query{
		ReminderID: "r", ReservationID: "s", UserID: "u 1", State: ledger.Dead, Class: ledger.ClassCredentials,
		Type: "!malformed", Channel: "email", Provider: "mail",
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
	documented := map[string]bool{}
	for _, parameter := range contract(t).Paths.Value("/v1/admin/entries").Get.Parameters {
		documented[parameter.Value.Name] = true
	}
	read := map[string]bool{"limit": true, "cursor": true}
	for name := range filters {
		read[name] = true
	}
	if diff := cmp.Diff(documented, read); diff != "" {
		t.Errorf("(-document +handler):\n%s", diff)
	}
}

func TestAQueryThatIsNotUnderstoodIsRefusedWhole(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for query, field := range map[string]string{
		"sort=created_at%3Bselect":     "",
		"canary=canary":                "",
		"state=DEAD":                   "state",
		"state=DEAD'+OR+'1'%3D'1":      "state",
		"state=pending":                "state",
		"class=canary":                 "class",
		"state=":                       "state",
		"state=dead&state=sent":        "state",
		"limit=0":                      "limit",
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
			Version: 1, At: testNow, Kind: "decision", Text: "Pushed by reservations: the provider's gate is closed; it waits.",
			State: "waiting", Reason: "gate_closed", Origin: "push", Source: "reservations", MessageID: "m-9", DeliveryCount: 2, Provider: "mail",
		},
		{
			Version: 3, At: testNow.Add(time.Second), Kind: "attempt", Text: "Attempt 1 at mail was accepted (202), receipt r-1, to come back after 2 s.",
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

func TestReadsThatFailAreUnavailableWithoutDetail(t *testing.T) {
	down := errors.New("dial tcp 10.0.0.1:5432: db-canary")
	h := newHouse(t, &collaborators{
		find:   func(context.Context, string) ([]ledger.Entry, error) { return nil, down },
		list:   func(context.Context, ledger.Query) ([]ledger.Entry, error) { return nil, down },
		story:  func(context.Context, ledger.Identity) (ledger.Story, error) { return ledger.Story{}, down },
		cancel: func(context.Context, string, string, string, string) ([]ledger.Cancelled, error) { return nil, down },
	})
	for _, r := range []*http.Request{
		request("GET", "/v1/reminders/r", "support", ""),
		request("GET", "/v1/admin/entries", "support", ""),
		request("GET", "/v1/admin/entries/"+entry(nil).EntryID(), "support", ""),
		request("POST", "/v1/reminders/r/cancel", "producer", ""),
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
