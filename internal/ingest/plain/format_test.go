package plain_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/plain"
	"github.com/sendonce/sendonce/internal/ledger"
)

func format(t *testing.T) ingest.Format {
	t.Helper()
	f, err := plain.New(ingest.Options{Source: "courses", Limit: 256, Auth: ingest.None{}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestOpen_BodyIsMessage(t *testing.T) {
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

func TestAnswer_ReportsStateOfEntry(t *testing.T) {
	schema := documentedSchema(t)
	entry := ledger.Entry{
		Identity: ledger.Identity{ReminderID: "rem-1", Type: "seat_expiring", Channel: "email"},
		State:    ledger.Sent, Reason: ledger.ReasonAccepted, UserID: "canary-user", Receipt: "canary-receipt",
	}
	dead := ledger.Entry{
		Identity: ledger.Identity{ReminderID: "5b0d", Type: ledger.MalformedType, Channel: "courses"}, State: ledger.Dead, Reason: ledger.ReasonMalformed,
	}
	const ids = `"reminder_id":"rem-1","type":"seat_expiring","channel":"email"`
	for name, c := range map[string]struct {
		reply  ledger.Reply
		status int
		retry  string
		body   string
	}{
		"sent":        {ledger.Reply{Ack: true, Entry: entry}, 200, "", `{"state":"sent","reason":"accepted",` + ids + `}`},
		"sent before": {ledger.Reply{Ack: true, Entry: entry, Duplicate: true, Conflict: true}, 200, "", `{"state":"sent","reason":"accepted",` + ids + `,"duplicate":true,"conflict":true}`},
		"not sent":    {ledger.Reply{Entry: entry, Reason: ledger.ReasonNoCapacity, RetryAfter: 1100 * time.Millisecond}, 503, "2", `{"state":"sent","reason":"no_capacity",` + ids + `,"retry_after":2}`},
		"unreadable": {
			ledger.Reply{Ack: true, Entry: dead, Faults: []string{"to is required", `content."\x00" is <wrong>`}},
			200, "",
			`{"state":"dead","reason":"malformed","reminder_id":"5b0d","type":"!malformed","channel":"courses",` +
				`"errors":["to is required","content.\"\\x00\" is <wrong>"]}`,
		},
		"nothing recorded": {ledger.Reply{}, 503, "1", `{"retry_after":1}`},
	} {
		w := httptest.NewRecorder()
		format(t).Answer(w, c.reply)
		if w.Code != c.status || w.Header().Get("Retry-After") != c.retry || w.Body.String() != c.body+"\n" {
			t.Errorf("%s: %d, Retry-After %q, %s", name, w.Code, w.Header().Get("Retry-After"), w.Body)
		}
		var document map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
			t.Fatal(err)
		}
		if err := schema.VisitJSON(document); err != nil {
			t.Errorf("%s: the response violates openapi.yaml: %v", name, err)
		}
		if got := w.Header().Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", name, got)
		}
	}
}

// documentedSchema returns the response's schema from openapi.yaml without additional properties, so that a member that
// is not documented fails the test.
func documentedSchema(t *testing.T) *openapi3.Schema {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	additional, schema := false, doc.Components.Schemas["PlainReply"].Value
	schema.AdditionalProperties.Has = &additional
	return schema
}

func TestNew_UnsafeOptionsAreRejected(t *testing.T) {
	if f, err := plain.New(ingest.Options{Source: "s", Limit: 1}); err == nil || f != nil {
		t.Error("a format without an authenticator was built")
	}
}
