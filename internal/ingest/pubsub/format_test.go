package pubsub_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/pubsub"
	"github.com/sendonce/sendonce/internal/ledger"
)

const limit = 1024

func format(t testing.TB) ingest.Format {
	t.Helper()
	f, err := pubsub.New(ingest.Options{Source: "seats", Limit: limit, Auth: ingest.None{}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

const (
	data   = `{"reminder_id":"rem-1","type":"seat_expiring","channel":"email","to":"p7@example.test","content":{"text":"hi"}}`
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

func TestOpen_GoldenEnvelopes(t *testing.T) {
	meta := http.Header{
		"X-Goog-Pubsub-Subscription-Name": {"projects/demo-prj/subscriptions/relay-push"},
		"X-Goog-Pubsub-Message-Id":        {"9911223344556677"},
		"X-Goog-Pubsub-Publish-Time":      {"2031-03-01T10:15:30.123Z"},
		"Googclient_traceparent":          {parent},
		"Message-Id":                      {"set by the publisher"},
	}
	published := time.Date(2031, 3, 1, 10, 15, 30, 123e6, time.UTC)
	wrapped := ledger.Delivery{
		Source: "seats", MessageID: "9911223344556677", Published: published, DeliveryCount: 2, Raw: []byte(data),
		Trace: ledger.Trace{Parent: parent, State: "acme=1"},
	}
	unwrapped := golden(t, "unwrapped.json")
	for name, c := range map[string]struct {
		h    http.Header
		raw  []byte
		want ledger.Delivery
	}{
		"wrapped":             {nil, golden(t, "wrapped.json"), wrapped},
		"wrapped and headers": {meta, golden(t, "wrapped.json"), wrapped},
		"forwarded by a dead-letter policy": {nil, golden(t, "forwarded.json"), ledger.Delivery{
			Source: "seats", MessageID: "9911223344559999", Published: time.Date(2031, 3, 1, 11, 15, 30, 0, time.UTC), Raw: []byte(data),
		}},
		"unwrapped with metadata": {meta, unwrapped, ledger.Delivery{
			Source: "seats", MessageID: "9911223344556677", Published: published, Raw: unwrapped, Trace: ledger.Trace{Parent: parent},
		}},
		"unwrapped without": {http.Header{"Traceparent": {parent}}, unwrapped, ledger.Delivery{
			Source: "seats", Raw: unwrapped, Trace: ledger.Trace{Parent: parent},
		}},
		"attributes only": {nil, golden(t, "attributes_only.json"), ledger.Delivery{
			Source: "seats", MessageID: "70010024", Published: time.Date(2031, 3, 4, 8, 30, 1, 0, time.UTC), DeliveryCount: 1,
			Raw:   []byte(`{"attributes":{"a":"1","kind":"reminder"},"messageId":"70010024","publishTime":"2031-03-04T08:30:01Z"}`),
			Fault: "message.data is missing: the message has attributes only",
		}},
	} {
		if diff := cmp.Diff(c.want, format(t).Open(c.h, c.raw)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestOpen_DeadLetterAttributesAreReadFromDeadLetterSourceOnly(t *testing.T) {
	dead, err := pubsub.New(ingest.Options{Source: "seats-dead", Limit: limit, Auth: ingest.None{}, DeadLetters: true})
	if err != nil {
		t.Fatal(err)
	}
	first := time.Date(2031, 3, 1, 10, 15, 30, 123e6, time.UTC)
	attributes := http.Header{
		"Cloudpubsubdeadlettersourcesubscription":     {"relay-push"},
		"Cloudpubsubdeadlettersourcedeliverycount":    {"5"},
		"Cloudpubsubdeadlettersourcetopicpublishtime": {"2031-03-01T10:15:30.123Z"},
	}
	unwrapped := golden(t, "unwrapped.json")
	for name, c := range map[string]struct {
		h    http.Header
		raw  []byte
		want ledger.Delivery
	}{
		"wrapped": {nil, golden(t, "forwarded.json"), ledger.Delivery{
			Source: "seats-dead", MessageID: "9911223344559999", Published: first, DeliveryCount: 5, DeadLetteredBy: "relay-push", Raw: []byte(data),
		}},
		"unwrapped": {attributes, unwrapped, ledger.Delivery{
			Source: "seats-dead", Published: first, DeliveryCount: 5, DeadLetteredBy: "relay-push", Raw: unwrapped,
		}},
		"unreadable attributes": {http.Header{
			"Cloudpubsubdeadlettersourcesubscription":     {"relay\x00push"},
			"Cloudpubsubdeadlettersourcedeliverycount":    {"99999999999"},
			"Cloudpubsubdeadlettersourcetopicpublishtime": {"yesterday"},
		}, unwrapped, ledger.Delivery{Source: "seats-dead", Raw: unwrapped}},
		"none": {nil, unwrapped, ledger.Delivery{Source: "seats-dead", Raw: unwrapped}},
	} {
		if diff := cmp.Diff(c.want, dead.Open(c.h, c.raw)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	// On any other source the publisher sets them, and could make the message older or younger.
	if d := format(t).Open(attributes, unwrapped); d.DeadLetteredBy != "" || d.DeliveryCount != 0 || !d.Published.IsZero() {
		t.Errorf("%+v", d)
	}
}

func TestOpen_UnreadableMessageIsOneDeadLetter(t *testing.T) {
	first := format(t).Open(nil, golden(t, "attributes_only.json"))
	again := format(t).Open(nil, golden(t, "attributes_only_again.json"))
	if first.DeliveryCount == again.DeliveryCount {
		t.Fatal("the two envelopes must differ in their counter")
	}
	a := ledger.MalformedIdentity(first.Source, first.MessageID, first.Raw)
	b := ledger.MalformedIdentity(again.Source, again.MessageID, again.Raw)
	if a != b {
		t.Errorf("the counter changed the identity of the dead letter:\n%s\n%s", first.Raw, again.Raw)
	}
}

// wrap returns an envelope with the given members of its message, and further members at the top level.
func wrap(message, top string) string {
	return `{"message":{` + message + `},"subscription":"s"` + top + `}`
}

func TestOpen_UnreadableEnvelopeIsDeliveryWithFault(t *testing.T) {
	const (
		base64Fault = "message.data is not standard base64 with padding (RFC 4648 section 4)"
		typeFault   = "the envelope's message is not an object with members of the documented types"
	)
	encoded := base64.StdEncoding.EncodeToString([]byte(data))
	good := fmt.Sprintf(`"data":%q`, encoded)
	unsafe := base64.URLEncoding.EncodeToString([]byte("\xfb\xff\xfe"))
	for name, c := range map[string]struct {
		h     http.Header
		raw   string
		fault string
	}{
		"no data":                  {nil, wrap(`"messageId":"1"`, ""), "message.data is missing: the message has attributes only"},
		"null data":                {nil, wrap(`"data":null`, ""), "message.data is missing: the message has attributes only"},
		"a null message":           {nil, `{"message":null}`, "message.data is missing: the message has attributes only"},
		"empty data":               {nil, wrap(`"data":""`, ""), "message.data is empty"},
		"no base64":                {nil, wrap(`"data":"!!!"`, ""), base64Fault},
		"URL-safe base64":          {nil, wrap(fmt.Sprintf(`"data":%q`, unsafe), ""), base64Fault},
		"base64 without padding":   {nil, wrap(fmt.Sprintf(`"data":%q`, strings.TrimRight(base64.StdEncoding.EncodeToString([]byte("{}")), "=")), ""), base64Fault},
		"base64 over two lines":    {nil, wrap(fmt.Sprintf(`"data":%q`, encoded[:8]+"\n"+encoded[8:]), ""), base64Fault},
		"base64 with stray bits":   {nil, wrap(`"data":"e31="`, ""), base64Fault},
		"data as an object":        {nil, wrap(`"data":{}`, ""), typeFault},
		"the id as a number":       {nil, wrap(good+`,"messageId":7`, ""), typeFault},
		"a message as a string":    {nil, `{"message":"x"}`, typeFault},
		"attributes of numbers":    {nil, wrap(good+`,"attributes":{"a":1}`, ""), typeFault},
		"two ids":                  {nil, wrap(good+`,"messageId":"1","message_id":"2"`, ""), "message.message_id differs from another message id in the request"},
		"an id with a line end":    {nil, wrap(good+`,"messageId":"1\n2"`, ""), "message.messageId is not 1 to 255 printable ASCII characters"},
		"an id too long":           {nil, wrap(good+`,"message_id":"`+strings.Repeat("1", 256)+`"`, ""), "message.message_id is not 1 to 255 printable ASCII characters"},
		"another id in a header":   {http.Header{"X-Goog-Pubsub-Message-Id": {"2"}}, wrap(good+`,"messageId":"1"`, ""), "x-goog-pubsub-message-id differs from another message id in the request"},
		"two times":                {nil, wrap(good+`,"publishTime":"2031-03-01T00:00:00Z","publish_time":"2031-03-01T00:00:01Z"`, ""), "message.publish_time differs from another publish time in the request"},
		"no RFC 3339 time":         {nil, wrap(good+`,"publishTime":"yesterday"`, ""), "message.publishTime is not an RFC 3339 time in the years 2000 to 9999"},
		"a time before the range":  {nil, wrap(good+`,"publishTime":"0001-01-01T00:00:00Z"`, ""), "message.publishTime is not an RFC 3339 time in the years 2000 to 9999"},
		"a time after the range":   {nil, wrap(good+`,"publishTime":"9999-12-31T23:30:00-01:00"`, ""), "message.publishTime is not an RFC 3339 time in the years 2000 to 9999"},
		"a counter as a string":    {nil, wrap(good, `,"deliveryAttempt":"2"`), "deliveryAttempt is not a non-negative integer"},
		"a counter below zero":     {nil, wrap(good, `,"deliveryAttempt":-1`), "deliveryAttempt is not a non-negative integer"},
		"a counter out of range":   {nil, wrap(good, `,"deliveryAttempt":1e400`), "deliveryAttempt is not a non-negative integer"},
		"schema encoding BINARY":   {nil, wrap(good+`,"attributes":{"googclient_schemaencoding":"BINARY"}`, ""), "the data has the schema encoding BINARY (googclient_schemaencoding), not JSON"},
		"unwrapped and binary":     {http.Header{"Googclient_schemaencoding": {"BINARY"}}, data, "the data has the schema encoding BINARY (googclient_schemaencoding), not JSON"},
		"unwrapped with a bad id":  {http.Header{"X-Goog-Pubsub-Message-Id": {"é"}}, data, "x-goog-pubsub-message-id is not 1 to 255 printable ASCII characters"},
		"unwrapped with two ids":   {http.Header{"X-Goog-Pubsub-Message-Id": {"1", "2"}}, data, "x-goog-pubsub-message-id occurs more than once"},
		"unwrapped with no time":   {http.Header{"X-Goog-Pubsub-Publish-Time": {"soon"}}, data, "x-goog-pubsub-publish-time is not an RFC 3339 time in the years 2000 to 9999"},
		"unwrapped over the limit": {nil, strings.Repeat("x", limit+1), "over the limit of 1024 bytes"},
		"wrapped over the limit":   {nil, wrap(fmt.Sprintf(`"data":%q`, base64.StdEncoding.EncodeToString(make([]byte, limit+1))), ""), "over the limit of 1024 bytes"},
	} {
		d := format(t).Open(c.h, []byte(c.raw))
		if d.Fault != c.fault {
			t.Errorf("%s:\n got fault %q\nwant       %q", name, d.Fault, c.fault)
		}
		if d.Source != "seats" || len(d.Raw) == 0 {
			t.Errorf("%s: source %q and %d bytes for its dead letter", name, d.Source, len(d.Raw))
		}
	}
}

func TestOpen_ValidEnvelopeHasNoFault(t *testing.T) {
	good := fmt.Sprintf(`"data":%q`, base64.StdEncoding.EncodeToString([]byte(data)))
	for name, raw := range map[string]string{
		"data alone":              `{"message":{` + good + `}}`,
		"the id twice, equal":     wrap(good+`,"messageId":"1","message_id":"1"`, ""),
		"one instant in two ways": wrap(good+`,"publishTime":"2031-03-01T01:00:00+01:00","publish_time":"2031-03-01T00:00:00.000Z"`, ""),
		"a counter of null":       wrap(good, `,"deliveryAttempt":null`),
		"unknown members":         wrap(good+`,"shard":{"a":[1]}`, `,"region":"eu"`),
		"an escaped solidus":      wrap(strings.ReplaceAll(good, "/", `\/`), ""),
		"schema encoding JSON":    wrap(good+`,"attributes":{"googclient_schemaencoding":"JSON"}`, ""),
	} {
		d := format(t).Open(nil, []byte(raw))
		if d.Fault != "" || string(d.Raw) != data {
			t.Errorf("%s: fault %q, message %s", name, d.Fault, d.Raw)
		}
	}
	exact := base64.StdEncoding.EncodeToString(make([]byte, limit))
	if d := format(t).Open(nil, []byte(wrap(`"data":"`+exact+`"`, ""))); d.Fault != "" || len(d.Raw) != limit {
		t.Errorf("exactly the limit: fault %q, %d bytes", d.Fault, len(d.Raw))
	}
}

// A body that is not an envelope is passed on unchanged: the reminder parser rejects it and gives the reason.
func TestOpen_AmbiguousEnvelopeIsNotOpened(t *testing.T) {
	for name, raw := range map[string]string{
		"two messages":         `{"message":{"data":"e30="},"message":{"data":"e319"}}`,
		"two data":             `{"message":{"data":"e30=","data":"e319"}}`,
		"two data, one hidden": `{"message":{"data":"e30=","d\u0061ta":"e319"}}`,
		"a second document":    `{"message":{"data":"e30="}} {}`,
		"a byte order mark":    "\ufeff" + `{"message":{"data":"e30="}}`,
		"another case":         `{"Message":{"data":"e30="}}`,
		"an array":             `[{"message":{"data":"e30="}}]`,
		"not JSON":             "\x00",
	} {
		d := format(t).Open(nil, []byte(raw))
		if string(d.Raw) != raw {
			t.Errorf("%s: opened as %q", name, d.Raw)
		}
	}
}

func TestAnswer_IsAckOrNackForPubSub(t *testing.T) {
	ack, nack := httptest.NewRecorder(), httptest.NewRecorder()
	format(t).Answer(ack, ledger.Reply{Ack: true})
	format(t).Answer(nack, ledger.Reply{})
	if ack.Code != 204 || nack.Code != 503 || ack.Body.Len()+nack.Body.Len() != 0 {
		t.Errorf("ack %d, nack %d", ack.Code, nack.Code)
	}
	if f, err := pubsub.New(ingest.Options{Source: "s", Limit: 1}); err == nil || f != nil {
		t.Error("a format without an authenticator was built")
	}
}

func FuzzOpen(f *testing.F) {
	for _, name := range []string{"wrapped.json", "forwarded.json", "attributes_only.json", "unwrapped.json"} {
		f.Add("9911223344556677", "2031-03-01T10:15:30.123Z", golden(f, name))
	}
	f.Add("", "", []byte(`{"message":{"data":"e30="},"deliveryAttempt":1e9}`))
	opened := format(f)
	f.Fuzz(func(t *testing.T, id, at string, raw []byte) {
		h := http.Header{"X-Goog-Pubsub-Message-Id": {id}, "X-Goog-Pubsub-Publish-Time": {at}}
		before := string(raw)
		d := opened.Open(h, raw)
		if !cmp.Equal(d, opened.Open(h, raw)) || string(raw) != before {
			t.Error("opening the request twice gives different deliveries")
		}
		if d.Source != "seats" || d.DeliveryCount < 0 || d.MessageID != "" && !ingest.ValidMessageID(d.MessageID) {
			t.Errorf("source %q, count %d, id %q", d.Source, d.DeliveryCount, d.MessageID)
		}
		if d.Fault == "" && len(d.Raw) > limit || len(d.Fault) > 128 {
			t.Errorf("%d bytes, fault %q", len(d.Raw), d.Fault)
		}
		if !d.Published.IsZero() && (d.Published.Year() < 2000 || d.Published.Year() > 9999) {
			t.Errorf("published %v", d.Published)
		}
	})
}
