package broker

import (
	"net/http"
	"strings"

	"github.com/sendonce/sendonce/internal/ledger"
)

// maxMessageID bounds a broker's message id, in bytes.
const maxMessageID = 255

// ValidMessageID tells whether a broker's id can be kept: 1 to 255 printable ASCII characters.
func ValidMessageID(id string) bool { return id != "" && printable(id, maxMessageID) }

// Bounds on trace context, in bytes. A traceparent of version 00 has 55, later ones may have more;
// tracestate must be passed on up to 512 (https://www.w3.org/TR/trace-context/, sections 3.2 and 3.3.1.5).
const (
	maxTraceParent = 128
	maxTraceState  = 512
)

// NewTrace is the trace context out of an envelope, empty where it is beyond its bounds.
func NewTrace(parent, state string) ledger.Trace {
	if parent == "" || !printable(parent, maxTraceParent) {
		return ledger.Trace{}
	}
	if !printable(state, maxTraceState) {
		state = ""
	}
	return ledger.Trace{Parent: parent, State: state}
}

// TraceOf is the trace context in the headers of a request.
func TraceOf(h http.Header) ledger.Trace {
	return NewTrace(h.Get("traceparent"), strings.Join(h.Values("tracestate"), ","))
}

func printable(s string, limit int) bool {
	return len(s) <= limit && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
