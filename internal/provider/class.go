package provider

import (
	"net/http"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
)

// Bounds of what is kept of a provider's words, in bytes.
const (
	maxWord    = 128
	maxReceipt = 255
)

// CauseResent is the cause of an outcome whose one call reached more than one connection: the transport
// sent it again behind our back. It must never be seen; where it is, an alert is due.
const CauseResent = "resent"

// Classify is the class table that HTTP adapters share: what an exchange proves about the one send it
// tried. now is this host's, to judge a Retry-After date by. Receipt and Code are the adapter's to fill in,
// from a body that only it can read.
func Classify(x outbound.Exchange, now time.Time) ledger.Outcome {
	o := ledger.Outcome{Status: x.Status, Cause: x.Cause, RequestID: RequestID(x.Header)}
	switch {
	case x.Connections > 1:
		// The last answer speaks for one of several requests: only acceptance stands.
		o.Cause = CauseResent
		if accepted(x.Status) {
			o.Result = ledger.ResultAccepted
		}
	case !x.Called:
		o.Result = uncalled(x.Cause)
	default:
		o.Result = classOf(x)
		o.RetryAfter = outbound.RetryAfter(x.Header, now)
	}
	return o
}

// uncalled is the class of a call that no connection was had for: proven unsent.
func uncalled(cause string) ledger.Result {
	switch cause {
	case outbound.CauseNotDialled:
		return ledger.ResultNotCalled
	case outbound.CauseCertificate:
		return ledger.ResultCredentials // theirs or our trust in it is wrong; a person must look
	case outbound.CauseRequest:
		return ledger.ResultRefused
	default:
		return ledger.ResultUnreachable
	}
}

// classOf reads a status (RFC 9110, section 15). What it does not list is unknown.
func classOf(x outbound.Exchange) ledger.Result {
	switch x.Status {
	case http.StatusTooManyRequests:
		return ledger.ResultThrottled
	case http.StatusServiceUnavailable:
		// With Retry-After, whatever it says, the server speaks of itself; without, a proxy may speak
		// that had already passed the request on.
		if x.Header.Get("Retry-After") != "" {
			return ledger.ResultThrottled
		}
		return ledger.ResultUnknown
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return ledger.ResultRefused
	case http.StatusGone:
		return ledger.ResultGone
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired:
		return ledger.ResultCredentials
	}
	switch {
	case accepted(x.Status):
		return ledger.ResultAccepted
	case x.Status >= 300 && x.Status < 400:
		return ledger.ResultCredentials // never followed: the address that we were given is not the right one
	default:
		return ledger.ResultUnknown
	}
}

func accepted(status int) bool { return status >= 200 && status < 300 }

// RequestID is the id that an answer gives its request, or nothing.
func RequestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Amzn-Requestid"} {
		if id := Word(h.Get(name)); id != "" {
			return id
		}
	}
	return ""
}

// Word is a provider's machine word as it may be kept: its printable ASCII, at most 128 bytes.
func Word(s string) string {
	kept := make([]byte, 0, min(len(s), maxWord))
	for i := 0; i < len(s) && len(kept) < maxWord; i++ {
		if s[i] >= ' ' && s[i] <= '~' {
			kept = append(kept, s[i])
		}
	}
	return string(kept)
}

// Receipt is a provider's id for a message, or nothing where it could not be given back as it came: over
// 255 bytes, or not printable ASCII.
func Receipt(s string) string {
	if len(s) > maxReceipt {
		return ""
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return ""
		}
	}
	return s
}
