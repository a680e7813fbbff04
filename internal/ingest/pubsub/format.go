// Package pubsub is the push format of Google Cloud Pub/Sub, wrapped (the default) and unwrapped (NoWrapper, with or
// without metadata in the headers).
//
// Sources: "Push subscriptions", "Payload unwrapping" and "Authentication for push subscriptions" at
// cloud.google.com/pubsub/docs, and google/pubsub/v1/pubsub.proto in googleapis/googleapis.
//
// Invariants: unknown members are ignored, since Google may add some, but a duplicate name is not accepted; data is
// decoded once, from standard base64 only; the delivery counter never becomes part of the message, so that an
// unreadable message is the same dead letter at every delivery.
//
// What it does not do: it reads no attributes except trace context and encoding and, if the source is the
// subscription of a dead-letter topic, the attributes that Pub/Sub adds to the messages it has dead-lettered. On any
// other source the publisher could set those attributes; in an unwrapped push, every attribute is a plain header.
package pubsub

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [ingest.Format]. Its authenticator is made by [NewOIDC], except in development. Pub/Sub treats
// 204 as an ack and every 4xx and 5xx as a nack; its documentation does not say that it honours Retry-After.
type Format struct{ ingest.Base }

// New returns the format. It rejects unsafe options, as [ingest.NewBase] does.
func New(o ingest.Options) (*Format, error) {
	base, err := ingest.NewBase(o)
	if err != nil {
		return nil, err
	}
	return &Format{base}, nil
}

// Open reads the body as an envelope if it is an object with the member message, which no reminder has. Every other
// body is an unwrapped message.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil || e.Message == nil {
		d := unwrapped(h, raw)
		if f.DeadLetters() {
			d = deadLettered(d, h.Get)
		}
		return f.LimitSize(d)
	}
	d, attributes := e.open(h)
	if f.DeadLetters() {
		d = deadLettered(d, func(name string) string { return attributes[name] })
	}
	return f.LimitSize(d)
}

// Attributes of a message that was forwarded to a dead-letter topic ("Dead-letter topics" at
// cloud.google.com/pubsub/docs). The forwarded message has a message id and a publish time of its own.
const (
	deadSubscription = "CloudPubSubDeadLetterSourceSubscription"
	deadCount        = "CloudPubSubDeadLetterSourceDeliveryCount"
	deadPublished    = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// deadLettered reads the dead-letter attributes: the subscription that dead-lettered the message, the number of its
// deliveries, and the original publish time. An attribute that cannot be read is left out; the message is a dead
// letter without it.
func deadLettered(d ledger.Delivery, attribute func(string) string) ledger.Delivery {
	if name := attribute(deadSubscription); ingest.ValidMessageID(name) {
		d.DeadLetteredBy = name
	}
	if n, err := strconv.ParseInt(attribute(deadCount), 10, 32); err == nil && n >= 0 {
		d.DeliveryCount = int(n)
	}
	if at, err := time.Parse(time.RFC3339, attribute(deadPublished)); err == nil && at.Year() >= 2000 && at.Year() <= 9999 {
		d.Published = at.UTC()
	}
	return d
}

// Attributes set by the client libraries.
const (
	traceParent    = "googclient_traceparent"
	traceState     = "googclient_tracestate"
	schemaEncoding = "googclient_schemaencoding"
)

const faultBinary = "the data has the schema encoding BINARY (googclient_schemaencoding), not JSON"

// unwrapped returns the delivery of a message whose metadata, if there is any, is in the headers.
func unwrapped(h http.Header, raw []byte) ledger.Delivery {
	var f fields
	f.headers(h)
	f.failIf(h.Get(schemaEncoding) == "BINARY", faultBinary)
	d := ledger.Delivery{
		MessageID: f.id, Published: f.published, Raw: raw, Fault: f.fault,
		Trace: ingest.NewTrace(h.Get(traceParent), h.Get(traceState)),
	}
	if d.Trace.Parent == "" {
		d.Trace = ingest.TraceFrom(h)
	}
	return d
}

// envelope is the wrapped body. Its other member, subscription, adds nothing to what the route already says.
type envelope struct {
	Message         jsontext.Value `json:"message"`
	DeliveryAttempt jsontext.Value `json:"deliveryAttempt"`
}

// message is the envelope's message. Google writes the id and the time in both spellings.
type message struct {
	Data             *string           `json:"data"`
	Attributes       map[string]string `json:"attributes"`
	MessageID        string            `json:"messageId"`
	MessageIDSnake   string            `json:"message_id"`
	PublishTime      string            `json:"publishTime"`
	PublishTimeSnake string            `json:"publish_time"`
}

// open returns the delivery of a wrapped message, and the message's attributes.
func (e envelope) open(h http.Header) (d ledger.Delivery, attributes map[string]string) {
	var (
		m message
		f fields
	)
	if err := json.Unmarshal(e.Message, &m); err != nil {
		f.failIf(true, "the envelope's message is not an object with members of the documented types")
	}
	f.add("message.messageId", m.MessageID, "message.publishTime", m.PublishTime)
	f.add("message.message_id", m.MessageIDSnake, "message.publish_time", m.PublishTimeSnake)
	f.headers(h)
	count := f.count(e.DeliveryAttempt)
	data := f.decode(m.Data)
	f.failIf(m.Attributes[schemaEncoding] == "BINARY", faultBinary)

	if data == nil {
		// The message itself replaces its data, in canonical form, so that the order of its members does not matter.
		_ = e.Message.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
		data = e.Message
	}
	trace := ingest.NewTrace(m.Attributes[traceParent], m.Attributes[traceState])
	if trace.Parent == "" {
		trace = ingest.TraceFrom(h)
	}
	return ledger.Delivery{
		MessageID: f.id, Published: f.published, DeliveryCount: count,
		Raw: data, Fault: f.fault, Trace: trace,
	}, m.Attributes
}

// fields collects the metadata of one message, which may be given in several places, and the first fault.
type fields struct {
	id        string
	published time.Time
	fault     string
}

// failIf records fault if invalid is true and there is no earlier fault.
func (f *fields) failIf(invalid bool, fault string) {
	if invalid && f.fault == "" {
		f.fault = fault
	}
}

// headers adds the metadata that Pub/Sub writes into headers if write_metadata is set.
func (f *fields) headers(h http.Header) {
	const id, at = "x-goog-pubsub-message-id", "x-goog-pubsub-publish-time"
	for _, name := range []string{id, at} {
		f.failIf(len(h.Values(name)) > 1, name+" occurs more than once")
	}
	f.add(id, h.Get(id), at, h.Get(at))
}

// add adds the id and the time given in one place; an empty value is absent. A later value must equal the first one.
func (f *fields) add(idName, id, timeName, at string) {
	if id != "" {
		if !ingest.ValidMessageID(id) {
			f.failIf(true, idName+" is not 1 to 255 printable ASCII characters")
		} else {
			f.failIf(f.id != "" && f.id != id, idName+" differs from another message id in the request")
			f.id = cmp.Or(f.id, id)
		}
	}
	if at != "" {
		published, err := time.Parse(time.RFC3339, at)
		published = published.UTC()
		if err != nil || published.Year() < 2000 || published.Year() > 9999 {
			f.failIf(true, timeName+" is not an RFC 3339 time in the years 2000 to 9999")
			return
		}
		f.failIf(!f.published.IsZero() && !f.published.Equal(published), timeName+" differs from another publish time in the request")
		f.published = cmp.Or(f.published, published)
	}
}

// count returns the approximate, 1-based counter that a subscription with a dead-letter policy sends; 0 if there is
// none.
func (f *fields) count(attempt jsontext.Value) int {
	if attempt == nil {
		return 0
	}
	var n int32
	if err := json.Unmarshal(attempt, &n); err != nil || n < 0 {
		f.failIf(true, "deliveryAttempt is not a non-negative integer")
		return 0
	}
	return int(n)
}

// decode returns the message's data, or nil if it cannot be read.
func (f *fields) decode(data *string) []byte {
	switch {
	case data == nil:
		f.failIf(true, "message.data is missing: the message has attributes only")
		return nil
	case *data == "":
		f.failIf(true, "message.data is empty")
		return nil
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(*data)
	// The decoder skips line breaks, but RFC 4648 section 3.3 requires rejecting them.
	if err != nil || strings.ContainsAny(*data, "\r\n") {
		f.failIf(true, "message.data is not standard base64 with padding (RFC 4648 section 4)")
		return nil
	}
	return decoded
}
