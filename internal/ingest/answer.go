package ingest

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Answer responds with 204 to an ack and with 503 and Retry-After to a nack, which most brokers understand.
func (Base) Answer(w http.ResponseWriter, reply ledger.Reply) {
	if reply.Ack {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	RetryAfter(w, reply.RetryAfter)
	w.WriteHeader(http.StatusServiceUnavailable)
}

// RetryAfter sets the Retry-After header to d in whole seconds, at least one (RFC 9110 section 10.2.3).
func RetryAfter(w http.ResponseWriter, d time.Duration) {
	seconds := int64(ledger.ClampRetryAfter(d) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
}

// rejections maps each error to its HTTP response, with the codes of the schema Problem in openapi.yaml. An error that
// is not listed is internal, and the response gives no details.
var rejections = []struct {
	err    error
	status int
	code   string
	detail string
}{
	{ErrUnauthenticated, http.StatusUnauthorized, "unauthenticated", "The request is not authenticated as the configuration of the source requires."},
	{ErrForbidden, http.StatusForbidden, "forbidden", "The sender is authenticated but may not push to this source."},
	{ErrUnavailable, http.StatusServiceUnavailable, "unavailable", "The delivery cannot be accepted now. Deliver it again."},
	{ErrTooLarge, http.StatusRequestEntityTooLarge, "too_large", "The request is larger than the limit of the source."},
	{ErrEncoding, http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body without a Content-Encoding."},
	{nil, http.StatusInternalServerError, "internal", "An internal error occurred."},
}

// unavailableRetry is the Retry-After for a sender that could not be authenticated for a reason on our side.
const unavailableRetry = 10 * time.Second

// Reject writes a problem document (RFC 9457) with a stable code, in the form of the API's own problems.
func (Base) Reject(w http.ResponseWriter, err error) {
	for _, r := range rejections {
		if r.err != nil && !errors.Is(err, r.err) {
			continue
		}
		switch r.status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusServiceUnavailable:
			RetryAfter(w, unavailableRetry)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(r.status)
		// A write error means that the sender has closed the connection; there is nobody left to inform.
		_, _ = fmt.Fprintf(w, `{"type":"about:blank","title":%q,"status":%d,"code":%q,"detail":%q}`+"\n",
			http.StatusText(r.status), r.status, r.code, r.detail)
		return
	}
}
