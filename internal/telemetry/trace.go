package telemetry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// maxTraceState is how many bytes of a peer's tracestate are propagated: as many as
// https://www.w3.org/TR/trace-context/#tracestate-limits requires.
const maxTraceState = 512

// Propagate writes ctx's trace context into the header of an outgoing request. Baggage is never
// propagated: whatever a caller put there would reach a provider.
func Propagate(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// extract returns a peer's trace context, or the zero SpanContext if there is none or it is not valid.
func extract(t ledger.Trace) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": t.Parent}
	if len(t.State) <= maxTraceState {
		carrier["tracestate"] = t.State
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// parented is the context key of an HTTP request that has a trace context of its own.
type parented struct{}

// start starts the span of a delivery, request or task. Its parent is the trace context that the message
// carried, since that is where the message was published; if the HTTP request has a parent of its own, the span
// stays below the request. The other of the two is linked.
func (t *Telemetry) start(ctx context.Context, name string, kind trace.SpanKind, carried ledger.Trace, attrs []attribute.KeyValue) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}
	current, message := trace.SpanContextFromContext(ctx), extract(carried)
	switch {
	case !message.IsValid() || current.TraceID() == message.TraceID():
	case ctx.Value(parented{}) != nil:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: message}))
	default:
		if current.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: current}))
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, message)
	}
	return t.tracer.Start(ctx, name, options...)
}
