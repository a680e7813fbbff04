// Package standardwebhooks is a push by the Standard Webhooks specification
// (https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md) and by Svix, which
// names the headers `svix-*` by default. The body is the message; the headers carry its id and a
// signature over both.
//
// Invariants: the signature is judged over the bytes as they came; the id stays the same over a
// sender's retries, the timestamp is the attempt's, so it says nothing of when a message was published.
//
// What it does not do: it keeps no memory of what was replayed inside the tolerance. A replay is a
// duplicate, and the ledger knows those.
package standardwebhooks

import (
	"net/http"

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [broker.Format]. Its authenticator is a [Signature], save in development.
type Format struct{ broker.Intake }

// New refuses options that leave a door open.
func New(o broker.Options) (*Format, error) {
	intake, err := broker.NewIntake(o)
	if err != nil {
		return nil, err
	}
	return &Format{intake}, nil
}

// Open takes the body as the message and its id from the headers that were signed.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	d := ledger.Delivery{Raw: raw, Trace: broker.TraceOf(h)}
	if id := h.Get(prefix(h) + "id"); broker.ValidMessageID(id) {
		d.MessageID = id
	}
	return f.Bound(d)
}

// prefix is the set of headers that a request uses. The id that Open reads must be the one that was
// signed, so both ask here.
func prefix(h http.Header) string {
	if h.Get("webhook-id") != "" {
		return "webhook-"
	}
	return "svix-"
}
