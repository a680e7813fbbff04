// Package ingest contains what all push formats share: authenticating the sender, turning an envelope into a
// [ledger.Delivery], and writing the response in the terms of the broker. Each format is a package below this one;
// the formats do not import each other.
//
// Invariants:
//
//   - nothing is opened that was not authenticated, over the bytes as received;
//   - a request that is authentic but cannot be opened is a delivery with a fault, never an error: it becomes a
//     dead letter and is acked, since a message that nobody can read must not be redelivered forever;
//   - a secret is compared in constant time, and an empty one is rejected at construction;
//   - no response contains a recipient, content or secret, nor a CloudEvents header (a Knative sender would take
//     the response for a reply event).
//
// What it does not do: it does not read request bodies, decode content encodings, parse reminders or make decisions
// about them.
package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Format is the push format of one broker.
type Format interface {
	// Authenticate verifies the sender of the raw bytes. The error wraps [ErrUnauthenticated],
	// [ErrForbidden] or [ErrUnavailable].
	Authenticate(ctx context.Context, h http.Header, raw []byte) error
	// Open reads an authentic envelope. If it cannot be read, the delivery has a Fault, and its other fields
	// hold what could be read.
	Open(h http.Header, raw []byte) ledger.Delivery
	// Answer writes the response for an ack or a nack.
	Answer(w http.ResponseWriter, reply ledger.Reply)
	// Reject writes the response to a request that was rejected before Open.
	Reject(w http.ResponseWriter, err error)
}

// Errors of a request that is not opened.
var (
	// ErrUnauthenticated means that the sender is not known.
	ErrUnauthenticated = errors.New("ingest: not authenticated")
	// ErrForbidden means that the sender is known but may not push here.
	ErrForbidden = errors.New("ingest: forbidden")
	// ErrUnavailable means that the sender cannot be verified now, or that the request did not arrive
	// completely; it may be sent again.
	ErrUnavailable = errors.New("ingest: temporarily unavailable")
	// ErrTooLarge means that the request exceeds the limit on raw bytes, so none of it was authenticated.
	ErrTooLarge = errors.New("ingest: request too large")
	// ErrEncoding means that the request has a content encoding. None is decoded: 1 MiB may expand to 1 GiB.
	ErrEncoding = errors.New("ingest: content encoding not supported")
)

// Options are the options common to all formats.
type Options struct {
	Source string // name of the configured source
	Limit  int64  // maximum length of the opened message, in bytes
	Auth   Authenticator
	// DeadLetters says that the source delivers messages that the broker has dead-lettered, with the broker's
	// own attributes. On any other source the sender could set these attributes, so they prove nothing.
	DeadLetters bool
}

// Base implements what all formats have in common; every format embeds one.
type Base struct{ options Options }

// NewBase rejects unsafe options: no authenticator, or no limit.
func NewBase(o Options) (Base, error) {
	switch {
	case o.Source == "":
		return Base{}, errors.New("ingest: a source needs a name")
	case o.Limit <= 0:
		return Base{}, errors.New("ingest: a source needs a limit")
	case o.Auth == nil:
		return Base{}, errors.New("ingest: a source needs an authenticator, even if it is None")
	}
	return Base{o}, nil
}

// Authenticate calls the source's authenticator.
func (b Base) Authenticate(ctx context.Context, h http.Header, raw []byte) error {
	return b.options.Auth.Authenticate(ctx, h, raw)
}

// DeadLetters reports whether the source delivers messages that the broker has dead-lettered.
func (b Base) DeadLetters() bool { return b.options.DeadLetters }

// oversizeKept is how much of an oversize message is kept for its dead letter, in bytes.
const oversizeKept = 4 << 10

// LimitSize sets the source of a delivery and enforces the limit on its message. A larger message is replaced by its
// first 4 KiB and a last line with the hex SHA-256 of the whole message, so that its dead letter has an identity of
// its own, and the truncated text cannot be parsed as a message.
func (b Base) LimitSize(d ledger.Delivery) ledger.Delivery {
	d.Source = b.options.Source
	if int64(len(d.Raw)) <= b.options.Limit {
		return d
	}
	if d.Fault == "" {
		d.Fault = fmt.Sprintf("over the limit of %d bytes", b.options.Limit)
	}
	sum := sha256.Sum256(d.Raw)
	head := slices.Clone(d.Raw[:min(len(d.Raw), oversizeKept)])
	d.Raw = append(head, "\nsha256 "+hex.EncodeToString(sum[:])+"\n"...)
	return d
}
