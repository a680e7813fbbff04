// Package plain is a push without an envelope: the body is the message. Any queue, bridge or person with
// curl can speak it, so its answers also tell people what became of the reminder.
//
// What it does not do: no counter and no time of publishing come with it; a source's configuration has
// to state how long its queue keeps messages.
package plain

import (
	"cmp"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [broker.Format].
type Format struct{ broker.Intake }

// New refuses options that leave a door open.
func New(o broker.Options) (*Format, error) {
	intake, err := broker.NewIntake(o)
	if err != nil {
		return nil, err
	}
	return &Format{intake}, nil
}

// Open takes the body as the message, and its id from `message-id` or `x-message-id` where one is there.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	d := ledger.Delivery{Raw: raw, Trace: broker.TraceOf(h)}
	if id := cmp.Or(h.Get("message-id"), h.Get("x-message-id")); broker.ValidMessageID(id) {
		d.MessageID = id
	}
	return f.Bound(d)
}

// answer is what a person reads.
type answer struct {
	State      ledger.State  `json:"state,omitzero"`
	Reason     ledger.Reason `json:"reason,omitzero"`
	ReminderID string        `json:"reminder_id,omitzero"`
	Type       string        `json:"type,omitzero"`
	Channel    string        `json:"channel,omitzero"`
	Errors     []string      `json:"errors,omitempty"` // why it could not be read
	Duplicate  bool          `json:"duplicate,omitzero"`
	Conflict   bool          `json:"conflict,omitzero"`
	RetryAfter int64         `json:"retry_after,omitzero"` // seconds
}

// Answer is 200 for an ack and 503 with Retry-After for a nack; both say where the entry stands.
func (f *Format) Answer(w http.ResponseWriter, reply ledger.Reply) {
	e := reply.Entry
	a := answer{
		State: e.State, Reason: cmp.Or(reply.Reason, e.Reason),
		ReminderID: e.ReminderID, Type: e.Type, Channel: e.Channel,
		Errors:    reply.Faults,
		Duplicate: reply.Duplicate, Conflict: reply.Conflict,
	}
	status := http.StatusOK
	if !reply.Ack {
		status = http.StatusServiceUnavailable
		broker.RetryAfter(w, reply.RetryAfter)
		a.RetryAfter = int64(ledger.ClampRetryAfter(reply.RetryAfter) / time.Second)
	}
	body, _ := json.Marshal(a) // ASCII throughout, faults too: it always marshals
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a sender that has hung up has its answer
}
