package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func replying(reply ledger.Reply, err error) *fakeServices {
	return &fakeServices{request: func(context.Context, string, reminder.Reminder, ledger.Trace) (ledger.Reply, error) {
		return reply, err
	}}
}

func TestRequest_StatusFollowsTheEntrysState(t *testing.T) {
	waiting := entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Receipt = ledger.Waiting, ledger.ReasonThrottled, ""
		e.ReminderID = "a/b"
		e.Due = ledger.At(testNow.Add(90 * time.Second))
		e.Wake = e.Due
	})
	unknown := entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Receipt, e.DoubtSince = ledger.Unknown, ledger.ReasonUnanswered, "", testNow
	})
	for _, c := range []struct {
		name       string
		reply      ledger.Reply
		err        error
		status     int
		code       wire.ProblemCode
		retryAfter string
		location   string
	}{
		{name: "sent", reply: ledger.Reply{Ack: true, Entry: entry(nil)}, status: 200},
		{name: "dead", reply: ledger.Reply{Ack: true, Entry: entry(func(e *ledger.Entry) {
			e.State, e.Class, e.Reason, e.Receipt = ledger.Dead, ledger.ClassPermanent, ledger.ReasonRefused, ""
		})}, status: 200},
		{
			name: "waiting", reply: ledger.Reply{Ack: true, Entry: waiting},
			status: 202, retryAfter: "90", location: "/v1/reminders/a%2Fb",
		},
		{
			name: "overdue", reply: ledger.Reply{Ack: true, Entry: entry(func(e *ledger.Entry) {
				e.State, e.Receipt, e.Due = ledger.Waiting, "", ledger.At(testNow.Add(-time.Hour))
			})},
			status: 202, retryAfter: "1", location: "/v1/reminders/rem-1842",
		},
		{
			name: "unknown", reply: ledger.Reply{Ack: true, Entry: unknown},
			status: 202, retryAfter: "5", location: "/v1/reminders/rem-1842",
		},
		{
			name: "in flight", reply: ledger.Reply{RetryAfter: 29 * time.Second, Entry: entry(func(e *ledger.Entry) {
				e.State, e.Reason, e.Receipt, e.Holder = ledger.Sending, ledger.ReasonClaimed, "", "holder-canary"
			})},
			status: 202, retryAfter: "29", location: "/v1/reminders/rem-1842",
		},
		{name: "conflict", reply: ledger.Reply{Ack: true, Conflict: true, Entry: entry(nil)}, status: 409, code: wire.ProblemCodeConflict},
		{name: "nothing recorded", reply: ledger.Reply{}, status: 503, code: wire.ProblemCodeUnavailable, retryAfter: "5"},
		{
			name: "in flight, and nothing recorded", reply: ledger.Reply{InFlight: true, RetryAfter: time.Second},
			status: 503, code: wire.ProblemCodeUnavailable, retryAfter: "5",
		},
		{
			name: "in flight, and recorded", reply: ledger.Reply{InFlight: true, RetryAfter: 29 * time.Second, Entry: entry(func(e *ledger.Entry) {
				e.State, e.Reason, e.Receipt = ledger.Sending, ledger.ReasonClaimed, ""
			})},
			status: 202, retryAfter: "29", location: "/v1/reminders/rem-1842",
		},
		{
			name: "no ledger", reply: ledger.Reply{Entry: entry(nil)}, err: errors.New("dial tcp: db-canary refused"),
			status: 503, code: wire.ProblemCodeUnavailable, retryAfter: "5",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, replying(c.reply, c.err))
			w := h.expect(request("POST", "/v1/reminders", "producer", aReminder), c.status, c.code)
			if got := w.Header().Get("Retry-After"); got != c.retryAfter {
				t.Errorf("Retry-After is %q, not %q", got, c.retryAfter)
			}
			if got := w.Header().Get("Location"); got != c.location {
				t.Errorf("Location is %q, not %q", got, c.location)
			}
			if strings.Contains(w.Body.String(), "canary") {
				t.Errorf("the answer reveals too much: %s", w.Body)
			}
			if c.status == 409 && decoded[wire.Problem](t, w).Entry.ID != entry(nil).EntryID() {
				t.Errorf("the conflict does not show the stored entry: %s", w.Body)
			}
		})
	}
}

func TestRequest_RequesterGetsParsedReminderCallerAndTrace(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	h := newHarness(t, &fakeServices{request: func(_ context.Context, caller string, r reminder.Reminder, trace ledger.Trace) (ledger.Reply, error) {
		if caller != "checkout" || r.ReminderID != "rem-1842" || r.To != "ada-canary@example.org" || trace.Parent != parent {
			t.Errorf("the requester got %q %+v %+v", caller, r, trace)
		}
		return ledger.Reply{Ack: true, Entry: entry(nil)}, nil
	}})
	for _, token := range []string{"producer", "old-producer"} {
		r := request("POST", "/v1/reminders", token, aReminder)
		r.Header.Set("Content-Type", "application/json; charset=utf-8")
		r.Header.Set("Traceparent", parent)
		h.expect(r, 200, "")
	}
}

func TestEntryOf_ShowsEverythingButPersonalDataAndHolder(t *testing.T) {
	e := entry(func(e *ledger.Entry) {
		e.State, e.Reason, e.Class, e.Receipt = ledger.Waiting, ledger.ReasonRepeatable, ledger.ClassUnknown, ""
		e.Attempts, e.LeaseExpirations, e.Deliveries = 3, 1, 4
		e.Due, e.Deadline, e.DoubtSince = ledger.At(testNow.Add(time.Minute)), testNow.Add(time.Hour), testNow.Add(-time.Minute)
	})
	h := newHarness(t, replying(ledger.Reply{Ack: true, Entry: e}, nil))
	got := decoded[wire.Entry](t, h.expect(request("POST", "/v1/reminders", "producer", aReminder), 202, ""))
	want := wire.Entry{
		ID: e.EntryID(), ReminderID: "rem-1842", ReservationID: "seat-1842", Type: "seat_expiring", Channel: "email",
		UserID: "u-77", State: "waiting", Class: "unknown", Reason: "repeatable", Provider: "mail",
		Attempts: 3, LeaseExpirations: 1, Deliveries: 4, Due: testNow.Add(time.Minute), Deadline: testNow.Add(time.Hour),
		Owner: "ledger", DoubtSince: testNow.Add(-time.Minute), FirstSeen: testNow, Updated: testNow.Add(time.Second),
		CorrelationID: "req-5f", Version: 2,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEntryOf_AssumedSendIsMarked(t *testing.T) {
	h := newHarness(t, replying(ledger.Reply{Ack: true, Entry: entry(func(e *ledger.Entry) {
		e.Reason, e.Receipt, e.ReceiptMissing = ledger.ReasonAssumed, "", ledger.MissingAssumed
	})}, nil))
	got := decoded[wire.Entry](t, h.expect(request("POST", "/v1/reminders", "producer", aReminder), 200, ""))
	if got.ReceiptMissing != "assumed" || got.Receipt != "" {
		t.Errorf("shown as %+v", got)
	}
}

func TestRequest_InvalidReminderListsEveryFault(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, c := range []struct {
		body   string
		fields []string
	}{
		{`{"to": "canary@example.org"}`, []string{"channel", "content", "reminder_id", "type"}},
		{strings.Replace(aReminder, `"to"`, `"state": "sent", "version": 9, "to"`, 1), []string{"state", "version"}},
		{strings.Replace(aReminder, `"to"`, `"tenant": "canary", "to"`, 1), []string{"tenant"}},
		{strings.Replace(aReminder, `"type"`, `"Type"`, 1), []string{"Type", "type"}},
		{aReminder + aReminder, nil},
		{"canary", nil},
		{"[]", nil},
		{strings.Repeat(`{"content":`, 10000), nil},
	} {
		w := h.expect(request("POST", "/v1/reminders", "producer", c.body), 400, wire.ProblemCodeInvalid)
		var fields []string
		p := decoded[wire.Problem](t, w)
		for _, fault := range p.Errors {
			fields = append(fields, fault.Field)
		}
		if c.fields != nil {
			if diff := cmp.Diff(c.fields, fields); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", c.body, diff)
			}
		}
		if len(p.Errors) == 0 || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%.80s: answered with %s", c.body, w.Body)
		}
	}
}

func TestRequest_BodyIsBoundedPlainJSON(t *testing.T) {
	h := newHarness(t, replying(ledger.Reply{Ack: true, Entry: entry(nil)}, nil))
	padded := func(size int) string { return aReminder + strings.Repeat(" ", size-len(aReminder)) }
	for _, c := range []struct {
		name   string
		body   string
		change func(*http.Request)
		status int
		code   wire.ProblemCode
	}{
		{"at the limit", padded(bodyLimit), nil, 200, ""},
		{"over the limit", padded(bodyLimit + 1), nil, 413, wire.ProblemCodeTooLarge},
		{"over the limit, chunked", padded(bodyLimit + 1), func(r *http.Request) { r.ContentLength = -1 }, 413, wire.ProblemCodeTooLarge},
		{"announced over the limit", padded(bodyLimit + 1), func(r *http.Request) { r.Body = unreadable{t} }, 413, wire.ProblemCodeTooLarge},
		{"no type", aReminder, func(r *http.Request) { r.Header.Del("Content-Type") }, 415, wire.ProblemCodeUnsupportedMediaType},
		{"a form's type", aReminder, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415, wire.ProblemCodeUnsupportedMediaType},
		{"a panickingFormat type", aReminder, func(r *http.Request) { r.Header.Set("Content-Type", "application/json; =") }, 415, wire.ProblemCodeUnsupportedMediaType},
		{"compressed", aReminder, func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, 415, wire.ProblemCodeUnsupportedMediaType},
		{"cut off", aReminder, func(r *http.Request) {
			r.Body = io.NopCloser(&faultReader{bytes.NewReader([]byte("{")), io.ErrUnexpectedEOF})
		}, 400, wire.ProblemCodeInvalid},
		{"too slow", aReminder, func(r *http.Request) {
			r.Body = io.NopCloser(&faultReader{bytes.NewReader([]byte("{")), os.ErrDeadlineExceeded})
		}, 408, wire.ProblemCodeTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request("POST", "/v1/reminders", "producer", c.body)
			if c.change != nil {
				c.change(r)
			}
			h.t = t
			h.expect(r, c.status, c.code)
		})
	}
}

func TestOpenAPI_ReminderExampleIsAccepted(t *testing.T) {
	h := newHarness(t, replying(ledger.Reply{Ack: true, Entry: entry(nil)}, nil))
	operation := h.doc.Paths.Value("/v1/reminders").Post
	example, err := json.Marshal(operation.RequestBody.Value.Content["application/json"].Schema.Value.Example)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{aReminder, string(example)} {
		r := request("POST", "/v1/reminders", "producer", body)
		err := openapi3filter.ValidateRequest(t.Context(), &openapi3filter.RequestValidationInput{
			Request: r, Route: &routers.Route{
				Spec: h.doc, PathItem: h.doc.Paths.Value("/v1/reminders"), Operation: operation, Path: "/v1/reminders", Method: "POST",
			},
			Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
		})
		if err != nil {
			t.Errorf("openapi.yaml refuses %s: %v", body, err)
		}
		h.expect(request("POST", "/v1/reminders", "producer", body), 200, "")
	}
}

func TestReminder_FoundByIDWithAnyCharacters(t *testing.T) {
	var ids []string
	h := newHarness(t, &fakeServices{find: func(_ context.Context, id string) ([]ledger.Entry, error) {
		ids = append(ids, id)
		return []ledger.Entry{entry(nil), entry(func(e *ledger.Entry) { e.Channel = "sms" })}, nil
	}})
	for _, path := range []string{"rem-1842", "a%2Fb", "100%25", "100%2525", "a%2Fb%25", "a+b", "..", "~!*'();:@&=$,"} {
		w := h.expect(request("GET", "/v1/reminders/"+path, "producer", ""), 200, "")
		if list := decoded[wire.EntryList](t, w); len(list.Items) != 2 || list.Next != "" || list.Items[1].Channel != "sms" {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
	want := []string{"rem-1842", "a/b", "100%", "100%25", "a/b%", "a+b", "..", "~!*'();:@&=$,"}
	if diff := cmp.Diff(want, ids); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRoutes_UnknownIDsAreNotFound(t *testing.T) {
	h := newHarness(t, &fakeServices{
		find: func(_ context.Context, id string) ([]ledger.Entry, error) {
			if id != "absent" {
				t.Errorf("got %q, which is no valid reminder id", id)
			}
			return nil, nil
		},
		cancel: func(context.Context, string, string, string, string) ([]ledger.Cancelled, error) { return nil, nil },
		detail: func(context.Context, ledger.Identity) (ledger.EntryDetail, error) {
			return ledger.EntryDetail{}, ledger.ErrNotFound
		},
		resolve: func(context.Context, ledger.Identity, ledger.Resolution) (ledger.Entry, error) {
			return ledger.Entry{}, fmt.Errorf("reconcile: %w", ledger.ErrNotFound)
		},
	})
	const reminder, one, path = "There is no entry with this reminder_id.", "There is no entry with this id.", "No route matches this path."
	for _, c := range []struct{ method, target, token, detail string }{
		{"POST", "/v1/admin/entries/" + entry(nil).EntryID() + "/resolve", "operator", one},
		{"POST", "/v1/admin/entries/canary/resolve", "operator", one},
		{"POST", "/v1/providers/canary/events", "", "There is no provider with this name that sends events."},
		{"POST", "/v1/providers/%6Dail%2F/events", "", "There is no provider with this name that sends events."},
		{"GET", "/v1/reminders/absent", "producer", reminder},
		{"GET", "/v1/reminders/%00", "producer", reminder},
		{"GET", "/v1/reminders/%C3%A4", "producer", reminder},
		{"GET", "/v1/reminders/%FF", "producer", reminder},
		{"GET", "/v1/reminders/a%20b", "producer", reminder},
		{"GET", "/v1/reminders/" + strings.Repeat("a", 256), "producer", reminder},
		{"GET", "/v1/reminders/", "producer", path},
		{"POST", "/v1/reminders/absent/cancel", "producer", reminder},
		{"GET", "/v1/admin/entries/" + entry(nil).EntryID(), "support", one},
		{"GET", "/v1/admin/entries/canary", "support", one},
		{"GET", "/v1/admin/entries/" + entry(nil).EntryID() + "=", "support", one},
		{"POST", "/v1/push/canary", "", "There is no push source with this name."},
	} {
		body := ""
		if strings.HasSuffix(c.target, "/resolve") {
			body = aResolution
		}
		w := h.expect(request(c.method, c.target, c.token, body), 404, wire.ProblemCodeNotFound)
		if strings.Contains(w.Body.String(), "canary") {
			t.Errorf("%s: the answer repeats the request: %s", c.target, w.Body)
		}
		if got := decoded[wire.Problem](t, w).Detail; got != c.detail {
			t.Errorf("%s: %s", c.target, got)
		}
	}
}

func TestCancel_ReportsTheResultForEachEntry(t *testing.T) {
	h := newHarness(t, &fakeServices{cancel: func(_ context.Context, caller, id, typ, channel string) ([]ledger.Cancelled, error) {
		if caller != "checkout" || id != "a/b" {
			t.Errorf("cancelled %q for %q", id, caller)
		}
		if typ != "" {
			return []ledger.Cancelled{{
				Entry: entry(func(e *ledger.Entry) { e.Type, e.Channel, e.State = typ, channel, ledger.Dropped }), Result: ledger.CancelDropped, Tombstone: true,
			}}, nil
		}
		return []ledger.Cancelled{
			{Entry: entry(nil), Result: ledger.CancelTooLate},
			{Entry: entry(func(e *ledger.Entry) { e.State = ledger.Sending }), Result: ledger.CancelInFlight},
		}, nil
	}})
	all := []wire.Cancelled{
		{Type: "seat_expiring", Channel: "email", Result: "sent", State: "sent"},
		{Type: "seat_expiring", Channel: "email", Result: "in_flight", State: "sending"},
	}
	for body, want := range map[string][]wire.Cancelled{
		"":                              all,
		"{}":                            all,
		" \n":                           all,
		`{"type": "t", "channel": "c"}`: {{Type: "t", Channel: "c", Result: "dropped", Tombstone: true, State: "dropped"}},
	} {
		w := h.expect(request("POST", "/v1/reminders/a%2Fb/cancel", "producer", body), 200, "")
		if diff := cmp.Diff(want, decoded[wire.CancelledList](t, w).Items); diff != "" {
			t.Errorf("%q (-want +got):\n%s", body, diff)
		}
	}
}

func TestCancel_InvalidBodyCancelsNothing(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, body := range []string{
		"null", "[]", `"x"`, "{", `{"type": "t"}`, `{"channel": "c"}`, `{"type": null, "channel": null}`,
		`{"type": "", "channel": ""}`, `{"type": "t", "channel": "C"}`, `{"type": "!malformed", "channel": "c"}`,
		`{"type": "t", "channel": "c", "force": "canary"}`, `{"Type": "t", "Channel": "c"}`, `{"canary": "x"}`,
		`{"type": "t", "type": "u", "channel": "c"}`, `{"type": "t", "channel": "c"} {}`, `{"type": 1, "channel": 2}`,
	} {
		w := h.expect(request("POST", "/v1/reminders/r/cancel", "producer", body), 400, wire.ProblemCodeInvalid)
		if strings.Contains(w.Body.String(), "canary") || len(decoded[wire.Problem](t, w).Errors) == 0 {
			t.Errorf("%s: %s", body, w.Body)
		}
	}
	h.expect(request("POST", "/v1/reminders/%00/cancel", "producer", ""), 400, wire.ProblemCodeInvalid)
	r := request("POST", "/v1/reminders/r/cancel", "producer", "{}")
	r.Header.Set("Content-Type", "text/plain")
	h.expect(r, 415, wire.ProblemCodeUnsupportedMediaType)
}
