package provider

import (
	"net/http"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
)

// Limits on the provider's text that is stored, in bytes.
const (
	maxText    = 128
	maxReceipt = 255
)

// CauseResent is the cause of an outcome whose single call was written to more than one connection, because the
// transport resent it on its own. It must never occur; if it does, it is worth an alert.
const CauseResent = "resent"

// Classify maps a response to the outcome that it proves about the one send that was attempted; all HTTP adapters
// share it. now is this host's clock, used to evaluate a Retry-After date. Receipt and Code are left for
// the adapter to fill in, since only the adapter can read the body.
func Classify(x outbound.Response, now time.Time) ledger.Outcome {
	o := ledger.Outcome{Status: x.Status, Cause: x.Cause, RequestID: RequestID(x.Header)}
	switch {
	case x.Connections > 1:
		// The last response belongs to one of several requests, so only an acceptance is proof.
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

// uncalled classifies a call that never got a connection, and so is proven unsent.
func uncalled(cause string) ledger.Result {
	switch cause {
	case outbound.CauseNotDialled:
		return ledger.ResultNotCalled
	case outbound.CauseCertificate:
		return ledger.ResultCredentials // their certificate or our trust store is wrong; an operator must act
	case outbound.CauseRequest:
		return ledger.ResultRefused
	default:
		return ledger.ResultUnreachable
	}
}

// classOf maps a status code (RFC 9110, section 15) to a result. A status that is not listed is unknown.
func classOf(x outbound.Response) ledger.Result {
	switch x.Status {
	case http.StatusTooManyRequests:
		return ledger.ResultThrottled
	case http.StatusServiceUnavailable:
		// With a Retry-After, whatever its value, the server reports on itself. Without one, the response
		// may come from a proxy that had already forwarded the request.
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
		return ledger.ResultCredentials // redirects are never followed: the configured address is wrong
	default:
		return ledger.ResultUnknown
	}
}

func accepted(status int) bool { return status >= 200 && status < 300 }

// RequestID returns the request id from a response's headers, or "".
func RequestID(h http.Header) string {
	for _, name := range []string{"X-Request-Id", "Request-Id", "X-Amzn-Requestid"} {
		if id := Printable(h.Get(name)); id != "" {
			return id
		}
	}
	return ""
}

// Printable returns the printable ASCII characters of s, at most 128 of them: the form in which a provider's code
// or request id is stored.
func Printable(s string) string {
	printable := make([]byte, 0, min(len(s), maxText))
	for i := 0; i < len(s) && len(printable) < maxText; i++ {
		if s[i] >= ' ' && s[i] <= '~' {
			printable = append(printable, s[i])
		}
	}
	return string(printable)
}

// Receipt returns a provider's id for a message unchanged, or "" if it cannot be stored unchanged: longer than
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
