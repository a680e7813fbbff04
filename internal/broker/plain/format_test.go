package plain_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/broker/plain"
	"github.com/sendonce/sendonce/internal/ledger"
)

func format(t *testing.T) broker.Format {
	t.Helper()
	f, err := plain.New(broker.Options{Source: "courses", Limit: 256, Auth: broker.None{}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheBodyIsTheMessage(t *testing.T) {
	body, err := os.ReadFile("testdata/reminder.json")
	if err != nil {
		t.Fatal(err)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, c := range map[string]struct {
		h    http.Header
		raw  []byte
		want ledger.Delivery
	}{
		"no headers":           {nil, body, ledger.Delivery{Source: "courses", Raw: body}},
		"an id":                {http.Header{"Message-Id": {"m-1"}, "X-Message-Id": {"m-2"}}, body, ledger.Delivery{Source: "courses", MessageID: "m-1", Raw: body}},
		"the other id":         {http.Header{"X-Message-Id": {"m-2"}}, body, ledger.Delivery{Source: "courses", MessageID: "m-2", Raw: body}},
		"an id that is binary": {http.Header{"Message-Id": {"m\x01"}}, body, ledger.Delivery{Source: "courses", Raw: body}},
		"an id too long":       {http.Header{"Message-Id": {strings.Repeat("m", 256)}}, body, ledger.Delivery{Source: "courses", Raw: body}},
		"a trace":              {http.Header{"Traceparent": {parent}}, body, ledger.Delivery{Source: "courses", Raw: body, Trace: ledger.Trace{Parent: parent}}},
		"no body":              {nil, nil, ledger.Delivery{Source: "courses"}},
		"not JSON":             {nil, []byte("\x00\xff"), ledger.Delivery{Source: "courses", Raw: []byte("\x00\xff")}},
	} {
		if diff := cmp.Diff(c.want, format(t).Open(c.h, c.raw)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if d := format(t).Open(nil, make([]byte, 257)); d.Fault != "over the limit of 256 bytes" {
		t.Errorf("257 bytes: fault %q", d.Fault)
	}
}

func TestAPersonCanReadTheAnswer(t *testing.T) {
	entry := ledger.Entry{
		Identity: ledger.Identity{ReminderID: "rem-1", Type: "seat_expiring", Channel: "email"},
		State:    ledger.Sent, Reason: ledger.ReasonAccepted, UserID: "canary-user", Receipt: "canary-receipt",
	}
	const ids = `"reminder_id":"rem-1","type":"seat_expiring","channel":"email"`
	for name, c := range map[string]struct {
		reply  ledger.Reply
		status int
		retry  string
		body   string
	}{
		"sent":             {ledger.Reply{Ack: true, Entry: entry}, 200, "", `{"state":"sent","reason":"accepted",` + ids + `}`},
		"sent before":      {ledger.Reply{Ack: true, Entry: entry, Duplicate: true, Conflict: true}, 200, "", `{"state":"sent","reason":"accepted",` + ids + `,"duplicate":true,"conflict":true}`},
		"a reason why not": {ledger.Reply{Entry: entry, Reason: ledger.ReasonNoCapacity, RetryAfter: 1100 * time.Millisecond}, 503, "2", `{"state":"sent","reason":"no_capacity",` + ids + `,"retry_after":2}`},
		"nothing recorded": {ledger.Reply{}, 503, "1", `{"retry_after":1}`},
	} {
		w := httptest.NewRecorder()
		format(t).Answer(w, c.reply)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retry || strings.TrimSpace(w.Body.String()) != c.body {
			t.Errorf("%s: %d, Retry-After %q, %s", name, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", name, got)
		}
	}
}

func TestOptionsThatLeaveADoorOpenAreRefused(t *testing.T) {
	if f, err := plain.New(broker.Options{Source: "s", Limit: 1}); err == nil || f != nil {
		t.Error("a format without an authenticator was built")
	}
}
