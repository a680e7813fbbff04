package broker

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Answer is 204 for an ack, and for a nack 503 with Retry-After: what most brokers understand.
func (Intake) Answer(w http.ResponseWriter, reply ledger.Reply) {
	if reply.Ack {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	RetryAfter(w, reply.RetryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
}

// RetryAfter says when it is worth coming back, in whole seconds, at least one (RFC 9110 section 10.2.3).
func RetryAfter(w http.ResponseWriter, d time.Duration) {
	seconds := int64(ledger.ClampRetryAfter(d) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
}

// refusals tell each error in HTTP, by the codes of the contract's Problem (openapi.yaml); what is not
// listed is ours, and told without detail.
var refusals = []struct {
	err    error
	status int
	code   string
	detail string
}{
	{ErrUnauthenticated, http.StatusUnauthorized, "unauthenticated", "The sender is not authenticated as the source's configuration asks."},
	{ErrForbidden, http.StatusForbidden, "forbidden", "The sender is known and may not push here."},
	{ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "The delivery cannot be taken now. Deliver it again."},
	{ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large", "The request is larger than the source takes."},
	{ErrEncoding, http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body without a Content-Encoding."},
	{nil, http.StatusInternalServerError, "internal", "Something went wrong here."},
}

// authRetry is when a sender that could not be authenticated for our own reasons may try again.
const authRetry = 10 * time.Second

// Refuse is a problem document (RFC 9457) with a stable code, as the API's own problems are.
func (Intake) Refuse(w http.ResponseWriter, err error) {
	for _, r := range refusals {
		if r.err != nil && !errors.Is(err, r.err) {
			continue
		}
		switch r.status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusServiceUnavailable:
			RetryAfter(w, authRetry)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(r.status)
		// A sender that has hung up has its answer.
		_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":%q,"status":%d,"code":%q,"detail":%q}`+"\n",
			http.StatusText(r.status), r.status, r.code, r.detail)
		return
	}
}
