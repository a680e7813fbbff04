package api

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestDeadLetters_AcceptEveryFilterButState(t *testing.T) {
	var got ledger.Query
	h := newHarness(t, &fakeServices{list: func(_ context.Context, q ledger.Query) ([]ledger.Entry, error) {
		got = q
		return []ledger.Entry{deadLetter(nil)}, nil
	}})
	w := h.expect(request("GET", "/v1/admin/dead-letters?reminder_id=r&reservation_id=s&user_id=u&class=exhausted&type=t&channel=email&provider=mail"+
		"&code=slow_down&conflict=true&from=2031-03-04T09:00:00Z&to=2031-03-05T00:00:00Z&limit=3", "support", ""), 200, "")
	want := ledger.Query{
		ReminderID: "r", ReservationID: "s", UserID: "u", State: ledger.Dead, Class: ledger.ClassExhausted, Type: "t", Channel: "email",
		Provider: "mail", Code: "slow_down", Conflict: true, From: testNow, To: time.Date(2031, 3, 5, 0, 0, 0, 0, time.UTC), Limit: 4,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if items := decoded[wire.EntryList](t, w).Items; len(items) != 1 || items[0].State != "dead" || items[0].Code != "slow_down" {
		t.Errorf("listed: %s", w.Body)
	}
}

func TestDeadLetters_CursorsAreValidForThisListOnly(t *testing.T) {
	h := newHarness(t, &fakeServices{list: pagedEntries(5)})
	seen, cursor, pages := map[string]bool{}, "", 0
	for more := true; more; more = cursor != "" {
		target := "/v1/admin/dead-letters?limit=2"
		if cursor != "" {
			target += "&cursor=" + url.QueryEscape(cursor)
		}
		list := decoded[wire.EntryList](t, h.expect(request("GET", target, "support", ""), 200, ""))
		for _, item := range list.Items {
			seen[item.ReminderID] = true
		}
		if cursor = list.Next; cursor != "" {
			h.expect(request("GET", "/v1/admin/entries?cursor="+url.QueryEscape(cursor), "support", ""), 400, wire.ProblemCodeInvalid)
			h.expect(request("GET", "/v1/admin/entries?state=dead&cursor="+url.QueryEscape(cursor), "support", ""), 400, wire.ProblemCodeInvalid)
			h.expect(request("GET", "/v1/admin/dead-letters?code=x&cursor="+url.QueryEscape(cursor), "support", ""), 400, wire.ProblemCodeInvalid)
		}
		pages++
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d came on %d pages", len(seen), pages)
	}
}

// tampered returns the variants of a cursor with one changed byte.
func tampered(cursor string) (all []string) {
	for i := range cursor {
		forged := []byte(cursor)
		forged[i] ^= 1
		all = append(all, string(forged))
	}
	return all
}

func TestLists_RefuseInvalidParameters(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for query, field := range map[string]string{
		"dead-letters?state=dead":                                 "state",
		"dead-letters?conflict=no":                                "conflict",
		"dead-letters?canari=canary":                              "canari",
		"dead-letters?limit=201":                                  "limit",
		"dead-letters?cursor=canary":                              "cursor",
		"dead-letters?code=":                                      "code",
		"dead-letters?code=a&code=b":                              "code",
		"dead-letters/groups?limit=0":                             "limit",
		"dead-letters/groups?cursor=canary":                       "cursor",
		"dead-letters/groups?class=canary":                        "class",
		"redrives?state=running":                                  "state",
		"redrives?limit=x":                                        "limit",
		"redrives?cursor=canary":                                  "cursor",
		"redrives?cursor=.":                                       "cursor",
		"audit?who=canary":                                        "who",
		"audit?actor=":                                            "actor",
		"audit?action=%00":                                        "action",
		"audit?from=canary":                                       "from",
		"audit?from=2031-03-04T00:00:00Z&to=2031-03-04T00:00:00Z": "to",
		"audit?cursor=canary":                                     "cursor",
		"providers?name=canary":                                   "name",
		"providers?canari;=true":                                  "",
	} {
		w := h.expect(request("GET", "/v1/admin/"+query, "operator", ""), 400, wire.ProblemCodeInvalid)
		faults := decoded[wire.Problem](t, w).Errors
		if len(faults) != 1 || faults[0].Field != field || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: %s", query, w.Body)
		}
	}
	w := h.expect(request("GET", "/v1/admin/audit?from=2031-03-04T00:00:00Z&to=2031-03-03T00:00:00Z&limit=0", "operator", ""), 400, wire.ProblemCodeInvalid)
	if faults := decoded[wire.Problem](t, w).Errors; len(faults) != 2 {
		t.Errorf("not all faults at once: %s", w.Body)
	}
}

func TestDeadLetters_GroupedByCause(t *testing.T) {
	var limits []int
	h := newHarness(t, &fakeServices{adminFakes: adminFakes{groups: func(_ context.Context, limit int) ([]ledger.DeadLetterGroup, error) {
		limits = append(limits, limit)
		return []ledger.DeadLetterGroup{
			{
				Class: ledger.ClassPermanent, Provider: "mail", Code: "bad_template", Type: "seat_expiring", Count: 412,
				FirstDead: testNow.Add(-time.Hour), LastDead: testNow, Sample: deadLetter(nil).Identity,
			},
			{Class: ledger.ClassMalformed, Type: ledger.MalformedType, Count: 1, FirstDead: testNow, LastDead: testNow, Sample: deadLetter(nil).Identity},
		}, nil
	}}})
	w := h.expect(request("GET", "/v1/admin/dead-letters/groups", "support", ""), 200, "")
	h.expect(request("GET", "/v1/admin/dead-letters/groups?limit=200", "support", ""), 200, "")
	want := []wire.DeadLetterGroup{
		{
			Class: "permanent", Provider: "mail", Code: "bad_template", Type: "seat_expiring", Count: 412,
			FirstDead: testNow.Add(-time.Hour), LastDead: testNow, Sample: deadLetter(nil).EntryID(),
		},
		{Class: "malformed", Type: "!malformed", Count: 1, FirstDead: testNow, LastDead: testNow, Sample: deadLetter(nil).EntryID()},
	}
	if diff := cmp.Diff(want, decoded[wire.DeadLetterGroupList](t, w).Items); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]int{pageDefault, pageMax}, limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	none := newHarness(t, working()).expect(request("GET", "/v1/admin/dead-letters/groups", "support", ""), 200, "")
	if got := strings.TrimSpace(none.Body.String()); got != `{"items":[]}` {
		t.Errorf("no groups are %s", got)
	}
}

func TestDeadLetters_DetailOnlyOfDeadEntries(t *testing.T) {
	for _, state := range ledger.States() {
		e := entry(func(e *ledger.Entry) { e.State = state })
		h := newDetailHarness(t, ledger.EntryDetail{Entry: e})
		target := "/v1/admin/dead-letters/" + e.EntryID()
		if state == ledger.Dead {
			h.expect(request("GET", target, "support", ""), 200, "")
			continue
		}
		p := decoded[wire.Problem](t, h.expect(request("GET", target, "support", ""), 404, wire.ProblemCodeNotFound))
		if p.Detail != "There is no dead letter with this id." {
			t.Errorf("%s: got %s", state, p.Detail)
		}
	}
	unknown := newHarness(t, &fakeServices{detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
		return ledger.EntryDetail{}, fmt.Errorf("sqlite: %w", ledger.ErrNotFound)
	}})
	unknown.expect(request("GET", "/v1/admin/dead-letters/"+entry(nil).EntryID(), "support", ""), 404, wire.ProblemCodeNotFound)
	unknown.expect(request("GET", "/v1/admin/dead-letters/canary", "support", ""), 404, wire.ProblemCodeNotFound)
}

func TestDiscard_TakesTheVersionThatWasRead(t *testing.T) {
	var got []any
	c := &fakeServices{adminFakes: adminFakes{discard: func(_ context.Context, id ledger.Identity, version int64, audit ledger.AuditEvent) (ledger.Entry, error) {
		got = []any{id, version, audit}
		return deadLetter(func(e *ledger.Entry) {
			e.State, e.Reason, e.Version = ledger.Dropped, ledger.ReasonDiscarded, version+1
		}), nil
	}}}
	h := newHarness(t, c)
	target := "/v1/admin/dead-letters/" + deadLetter(nil).EntryID() + "/discard"
	w := h.expect(request("POST", target, "admin", `{"reason": "the course was cancelled", "version": 3}`), 200, "")
	want := []any{deadLetter(nil).Identity, int64(3), ledger.AuditEvent{Actor: "root", Role: "admin", Reason: "the course was cancelled"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if stored := decoded[wire.Entry](t, w); stored.State != "dropped" || stored.Reason != "discarded" || stored.Version != 4 {
		t.Errorf("answered with %s", w.Body)
	}

	for _, refusal := range []struct {
		err    error
		stored ledger.Entry
		status int
		code   wire.ProblemCode
	}{
		{fmt.Errorf("swap: %w", ledger.ErrStale), deadLetter(nil), 409, wire.ProblemCodeStale},
		{ledger.ErrStale, ledger.Entry{}, 409, wire.ProblemCodeStale},
		{ledger.ErrNotDead, entry(nil), 409, wire.ProblemCodeNotDead},
		{ledger.ErrNotFound, ledger.Entry{}, 404, wire.ProblemCodeNotFound},
	} {
		c.discard = func(context.Context, ledger.Identity, int64, ledger.AuditEvent) (ledger.Entry, error) {
			return refusal.stored, refusal.err
		}
		w := h.expect(request("POST", target, "operator", `{"reason": "r", "version": 1}`), refusal.status, refusal.code)
		var shown wire.Entry
		if !refusal.stored.Absent() {
			shown = entryOf(refusal.stored, testNow)
		}
		if diff := cmp.Diff(shown, decoded[wire.Problem](t, w).Entry); diff != "" {
			t.Errorf("%v (-want +got):\n%s", refusal.err, diff)
		}
	}
	h.expect(request("POST", "/v1/admin/dead-letters/canary/discard", "operator", `{"reason": "r", "version": 1}`), 404, wire.ProblemCodeNotFound)
}
