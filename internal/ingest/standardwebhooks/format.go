// Package standardwebhooks is the push format of the Standard Webhooks specification
// (https://github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md) and of Svix, whose headers are
// named svix-* by default. The body is the message; the headers carry its id and a signature over both.
//
// Invariants: the signature is verified over the bytes as received; the id is the same for all retries of a sender,
// but the timestamp is that of the attempt, so it does not tell when a message was published.
//
// What it does not do: it does not detect replays within the tolerance. A replay is a duplicate, and the ledger
// handles duplicates.
package standardwebhooks

import (
	"net/http"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Format implements [ingest.Format]. Its authenticator is a [Signature], except in development.
type Format struct{ ingest.Base }

// New returns the format. It rejects unsafe options, as [ingest.NewBase] does.
func New(o ingest.Options) (*Format, error) {
	base, err := ingest.NewBase(o)
	if err != nil {
		return nil, err
	}
	return &Format{base}, nil
}

// Open takes the body as the message, and its id from the signed headers.
func (f *Format) Open(h http.Header, raw []byte) ledger.Delivery {
	d := ledger.Delivery{Raw: raw, Trace: ingest.TraceFrom(h)}
	if id := h.Get(prefix(h) + "id"); ingest.ValidMessageID(id) {
		d.MessageID = id
	}
	return f.LimitSize(d)
}

// prefix returns the prefix of the headers that a request uses. Open and Authenticate both use it, because the id
// that Open reads must be the one that was signed.
func prefix(h http.Header) string {
	if h.Get("webhook-id") != "" {
		return "webhook-"
	}
	return "svix-"
}
