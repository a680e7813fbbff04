// Package broker is what every push format shares: who may push, how an envelope becomes a
// [ledger.Delivery], and how the verdict is told in the broker's own terms. One package a format stands
// below it; they do not know each other.
//
// Invariants:
//
//   - nothing is opened that was not authenticated, over the bytes as they came;
//   - what is authentic but can't be opened is a delivery with a fault, never an error: it becomes a
//     dead letter and is acked, since a message that nobody can read must not come back for ever;
//   - a secret is compared in constant time, and an empty one is refused at construction;
//   - no answer carries a recipient, content or secret, nor a CloudEvents header (a Knative sender
//     would take it for a reply event).
//
// What it does not do: it does not read request bodies, undo content encodings, parse reminders or
// decide anything about them.
package broker

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

// Format is one broker's way to push.
type Format interface {
	// Authenticate proves who sent the raw bytes. The error is one of [ErrUnauthenticated],
	// [ErrForbidden] and [ErrUnavailable].
	Authenticate(ctx context.Context, h http.Header, raw []byte) error
	// Open reads an authentic envelope. Where it cannot, the delivery has a Fault, and of the rest what
	// is known.
	Open(h http.Header, raw []byte) ledger.Delivery
	// Answer writes ack or nack.
	Answer(w http.ResponseWriter, reply ledger.Reply)
	// Refuse writes the answer to a request that did not come as far as Open.
	Refuse(w http.ResponseWriter, err error)
}

// Why a request is not opened.
var (
	// ErrUnauthenticated : nobody we know sent it.
	ErrUnauthenticated = errors.New("broker: not authenticated")
	// ErrForbidden : we know who sent it, and they may not.
	ErrForbidden = errors.New("broker: forbidden")
	// ErrUnavailable : we can't tell who sent it now, or it did not arrive whole; it may come again.
	ErrUnavailable = errors.New("broker: cannot be taken now")
	// ErrTooLarge : the request is beyond the raw cap, so nothing of it was authenticated.
	ErrTooLarge = errors.New("broker: request too large")
	// ErrEncoding : the request has a content encoding. None is undone: 1 MiB may hold 1 GiB.
	ErrEncoding = errors.New("broker: content encoding not supported")
)

// Options are what every format is built with.
type Options struct {
	Source string // the configured source's name
	Limit  int64  // on the opened message, in bytes
	Auth   Authenticator
	// DeadLetters : the source brings what its broker gave up on, with the broker's own markers. Elsewhere
	// they are a sender's word, and prove nothing.
	DeadLetters bool
}

// Intake is what every format does alike; each embeds one.
type Intake struct{ options Options }

// NewIntake refuses options that would leave a door open: no authenticator at all, or no limit.
func NewIntake(o Options) (Intake, error) {
	switch {
	case o.Source == "":
		return Intake{}, errors.New("broker: a source needs a name")
	case o.Limit <= 0:
		return Intake{}, errors.New("broker: a source needs a limit")
	case o.Auth == nil:
		return Intake{}, errors.New("broker: a source needs an authenticator, be it None")
	}
	return Intake{o}, nil
}

// Authenticate asks the source's authenticator.
func (i Intake) Authenticate(ctx context.Context, h http.Header, raw []byte) error {
	return i.options.Auth.Authenticate(ctx, h, raw)
}

// DeadLetters tells whether the source brings what its broker gave up on.
func (i Intake) DeadLetters() bool { return i.options.DeadLetters }

// keptOfOversize is how much of an oversize message its dead letter shows, in bytes.
const keptOfOversize = 4 << 10

// Bound names the source of a delivery and holds its message to the limit. Of one that is larger the
// first 4 KiB stay and a last line with the hex SHA-256 of the whole, so that its dead letter has an
// identity of its own, and no reader takes the rest for a message.
func (i Intake) Bound(d ledger.Delivery) ledger.Delivery {
	d.Source = i.options.Source
	if int64(len(d.Raw)) <= i.options.Limit {
		return d
	}
	if d.Fault == "" {
		d.Fault = fmt.Sprintf("over the limit of %d bytes", i.options.Limit)
	}
	sum := sha256.Sum256(d.Raw)
	head := slices.Clone(d.Raw[:min(len(d.Raw), keptOfOversize)])
	d.Raw = append(head, "\nsha256 "+hex.EncodeToString(sum[:])+"\n"...)
	return d
}
