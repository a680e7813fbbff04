// Package plain is the push format without an envelope: the body is the message. Any queue, bridge or developer with
// curl can use it, so its responses also describe the state of the reminder in readable form.
//
// What it does not do: the format has neither a delivery counter nor a publish time; the source's configuration must
// state how long its queue keeps messages.
package plain

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [ingest.Format].
type Format struct{ ingest.Base }

// New returns the format. It rejects unsafe options, as [ingest.NewBase] does.
func New(o ingest.Options) (*Format, error) {
	base, err := ingest.NewBase(o)
	if err != nil {
		return nil, err
	}
	return &Format{base}, nil
}

// Open takes the body as the message, and its id from the header message-id or x-message-id if there is one.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	d := ledger.Delivery{Raw: raw, Trace: ingest.TraceFrom(h)}
	if id := cmp.Or(h.Get("message-id"), h.Get("x-message-id")); ingest.ValidMessageID(id) {
		d.MessageID = id
	}
	return f.LimitSize(d)
}

// response is the response body.
type response struct {
	State      ledger.State  `json:"state,omitzero"`
	Reason     ledger.Reason `json:"reason,omitzero"`
	ReminderID string        `json:"reminder_id,omitzero"`
	Type       string        `json:"type,omitzero"`
	Channel    string        `json:"channel,omitzero"`
	Errors     []string      `json:"errors,omitempty"` // why the message could not be read
	Duplicate  bool          `json:"duplicate,omitzero"`
	Conflict   bool          `json:"conflict,omitzero"`
	RetryAfter int64         `json:"retry_after,omitzero"` // seconds
}

// Answer responds with 200 to an ack and with 503 and Retry-After to a nack; both report the state of the entry.
func (f *Format) Answer(w http.ResponseWriter, reply ledger.Reply) {
	e := reply.Entry
	body := response{
		State: e.State, Reason: cmp.Or(reply.Reason, e.Reason),
		ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel,
		Errors:    reply.Faults,
		Duplicate: reply.Duplicate, Conflict: reply.Conflict,
	}
	status := http.StatusOK
	if !reply.Ack {
		status = http.StatusServiceUnavailable
		ingest.RetryAfter(w, reply.RetryAfter)
		body.RetryAfter = int64(ledger.ClampRetryAfter(reply.RetryAfter) / time.Second)
	}
	text, _ := json.Marshal(body) // cannot fail: all strings are ASCII, including the faults
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a write error means that the sender has closed the connection
}
