// Package pubsub is push by Google Cloud Pub/Sub, wrapped (the default) and unwrapped (`NoWrapper`, with
// or without metadata in the headers).
//
// Sources: "Push subscriptions", "Payload unwrapping" and "Authentication for push subscriptions" at
// cloud.google.com/pubsub/docs, and google/pubsub/v1/pubsub.proto in googleapis/googleapis.
//
// Invariants: members that Google may add are let pass, but no name may stand twice; data is decoded
// once, from standard base64 only; the counter of deliveries never becomes part of the message, so that
// a message nobody can read is the same dead letter each time.
//
// What it does not do: it takes nothing from attributes but trace context and encoding, and, of a source that
// is the subscription of a dead-letter topic, the marks that Pub/Sub puts on what it gave up on. Elsewhere they
// are the publisher's to write; an unwrapped push has every attribute as a plain header.
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

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [broker.Format]. Its authenticator is [NewOIDC], save in development. Pub/Sub takes
// 204 for an ack and every 4xx and 5xx for a nack, and does not say that it heeds a Retry-After.
type Format struct{ broker.Intake }

// New refuses options that leave a door open.
func New(o broker.Options) (*Format, error) {
	intake, err := broker.NewIntake(o)
	if err != nil {
		return nil, err
	}
	return &Format{intake}, nil
}

// Open reads an envelope where the body is an object with the member `message`, which no reminder has;
// every other body is an unwrapped message.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil || e.Message == nil {
		d := unwrapped(h, raw)
		if f.DeadLetters() {
			d = givenUp(d, h.Get)
		}
		return f.Bound(d)
	}
	d, attributes := e.open(h)
	if f.DeadLetters() {
		d = givenUp(d, func(name string) string { return attributes[name] })
	}
	return f.Bound(d)
}

// Marks of a message that was forwarded to a dead-letter topic ("Dead-letter topics" at
// cloud.google.com/pubsub/docs). The forwarded one has a message id and a publish time of its own.
const (
	deadSubscription = "CloudPubSubDeadLetterSourceSubscription"
	deadCount        = "CloudPubSubDeadLetterSourceDeliveryCount"
	deadPublished    = "CloudPubSubDeadLetterSourceTopicPublishTime"
)

// givenUp reads the marks: who gave up, after how many deliveries, and when the message was published first. A
// mark that cannot be read is left out; the message is a dead letter without it.
func givenUp(d ledger.Delivery, mark func(string) string) ledger.Delivery {
	if name := mark(deadSubscription); broker.ValidMessageID(name) {
		d.GaveUpBy = name
	}
	if n, err := strconv.ParseInt(mark(deadCount), 10, 32); err == nil && n >= 0 {
		d.Count = int(n)
	}
	if at, err := time.Parse(time.RFC3339, mark(deadPublished)); err == nil && at.Year() >= 2000 && at.Year() <= 9999 {
		d.Published = at.UTC()
	}
	return d
}

// Attributes of the client libraries.
const (
	traceParent    = "googclient_traceparent"
	traceState     = "googclient_tracestate"
	schemaEncoding = "googclient_schemaencoding"
)

const faultBinary = "the data is BINARY by its schema (googclient_schemaencoding), not JSON"

// unwrapped is a message whose metadata, if it comes at all, is in the headers.
func unwrapped(h http.Header, raw []byte) ledger.Delivery {
	var seen evidence
	seen.headers(h)
	seen.check(h.Get(schemaEncoding) == "BINARY", faultBinary)
	d := ledger.Delivery{
		MessageID: seen.id, Published: seen.published, Raw: raw, Fault: seen.fault,
		Trace: broker.NewTrace(h.Get(traceParent), h.Get(traceState)),
	}
	if d.Trace.Parent == "" {
		d.Trace = broker.TraceOf(h)
	}
	return d
}

// envelope is the wrapped body. Its other member, subscription, tells us nothing that the route did not.
type envelope struct {
	Message         jsontext.Value `json:"message"`
	DeliveryAttempt jsontext.Value `json:"deliveryAttempt"`
}

// message is the envelope's message. Google writes id and time in both spellings.
type message struct {
	Data         *string           `json:"data"`
	Attributes   map[string]string `json:"attributes"`
	MessageID    string            `json:"messageId"`
	MessageIDToo string            `json:"message_id"`
	PublishTime  string            `json:"publishTime"`
	PublishedToo string            `json:"publish_time"`
}

func (e envelope) open(h http.Header) (d ledger.Delivery, attributes map[string]string) {
	var (
		m    message
		seen evidence
	)
	if err := json.Unmarshal(e.Message, &m); err != nil {
		seen.check(true, "the envelope's message is not an object with members of the documented types")
	}
	seen.note("message.messageId", m.MessageID, "message.publishTime", m.PublishTime)
	seen.note("message.message_id", m.MessageIDToo, "message.publish_time", m.PublishedToo)
	seen.headers(h)
	count := seen.count(e.DeliveryAttempt)
	data := seen.decode(m.Data)
	seen.check(m.Attributes[schemaEncoding] == "BINARY", faultBinary)

	if data == nil {
		// The message stands in for its data, in one form however the members are ordered this time.
		_ = e.Message.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
		data = e.Message
	}
	trace := broker.NewTrace(m.Attributes[traceParent], m.Attributes[traceState])
	if trace.Parent == "" {
		trace = broker.TraceOf(h)
	}
	return ledger.Delivery{
		MessageID: seen.id, Published: seen.published, Count: count,
		Raw: data, Fault: seen.fault, Trace: trace,
	}, m.Attributes
}

// evidence gathers what several places say about one message, and the first thing that is wrong.
type evidence struct {
	id        string
	published time.Time
	fault     string
}

func (s *evidence) check(wrong bool, fault string) {
	if wrong && s.fault == "" {
		s.fault = fault
	}
}

// headers notes the metadata that Pub/Sub writes into headers with `write_metadata`.
func (s *evidence) headers(h http.Header) {
	const id, at = "x-goog-pubsub-message-id", "x-goog-pubsub-publish-time"
	for _, name := range []string{id, at} {
		s.check(len(h.Values(name)) > 1, name+" came more than once")
	}
	s.note(id, h.Get(id), at, h.Get(at))
}

// note takes an id and a time from one place; empty is absent. What a later place says must be the same.
func (s *evidence) note(idName, id, timeName, at string) {
	if id != "" {
		if !broker.ValidMessageID(id) {
			s.check(true, idName+" is not 1 to 255 printable ASCII characters")
		} else {
			s.check(s.id != "" && s.id != id, idName+" differs from another message id in the request")
			s.id = cmp.Or(s.id, id)
		}
	}
	if at != "" {
		published, err := time.Parse(time.RFC3339, at)
		published = published.UTC()
		if err != nil || published.Year() < 2000 || published.Year() > 9999 {
			s.check(true, timeName+" is not an RFC 3339 time in the years 2000 to 9999")
			return
		}
		s.check(!s.published.IsZero() && !s.published.Equal(published), timeName+" differs from another publish time in the request")
		s.published = cmp.Or(s.published, published)
	}
}

// count is the approximate, 1-based counter that a subscription with a dead-letter policy sends; 0 when
// there is none.
func (s *evidence) count(attempt jsontext.Value) int {
	if attempt == nil {
		return 0
	}
	var n int32
	if err := json.Unmarshal(attempt, &n); err != nil || n < 0 {
		s.check(true, "deliveryAttempt is not a whole number from 0 on")
		return 0
	}
	return int(n)
}

// decode is the message's data; nil when there is none to read.
func (s *evidence) decode(data *string) []byte {
	switch {
	case data == nil:
		s.check(true, "message.data is missing: the message has attributes only")
		return nil
	case *data == "":
		s.check(true, "message.data is empty")
		return nil
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(*data)
	// The decoder skips line ends, which RFC 4648 section 3.3 has it refuse.
	if err != nil || strings.ContainsAny(*data, "\r\n") {
		s.check(true, "message.data is not standard base64 with padding (RFC 4648 section 4)")
		return nil
	}
	return decoded
}
