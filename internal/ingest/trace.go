package ingest

import (
	"net/http"
	"strings"

	"github.com/sendonce/sendonce/internal/ledger"
)

// maxMessageID is the maximum length of a broker's message id, in bytes.
const maxMessageID = 255

// ValidMessageID reports whether a broker's message id can be stored: 1 to 255 printable ASCII characters.
func ValidMessageID(id string) bool { return id != "" && printable(id, maxMessageID) }

// Limits on trace context, in bytes. A traceparent of version 00 has 55 bytes, later versions may have more; a
// tracestate of up to 512 bytes must be propagated (https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.1.5).
const (
	maxTraceParent = 128
	maxTraceState  = 512
)

// NewTrace returns a trace context. It is empty if the parent is invalid or exceeds its limit; an invalid state is
// left out.
func NewTrace(parent, state string) ledger.Trace {
	if parent == "" || !printable(parent, maxTraceParent) {
		return ledger.Trace{}
	}
	if !printable(state, maxTraceState) {
		state = ""
	}
	return ledger.Trace{Parent: parent, State: state}
}

// TraceFrom returns the trace context in the headers of a request.
func TraceFrom(h http.Header) ledger.Trace {
	return NewTrace(h.Get("traceparent"), strings.Join(h.Values("tracestate"), ","))
}

// printable reports whether s has at most limit bytes, all of them printable ASCII.
func printable(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
