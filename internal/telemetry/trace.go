package telemetry

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// maxTraceState is how much of a peer's tracestate is passed on, as far as
// https://www.w3.org/TR/trace-context/#tracestate-limits asks for.
const maxTraceState = 512

// Propagate writes ctx's trace context into the header of an outgoing request. Baggage is never passed
// on: whatever a caller put there would reach a provider.
func Propagate(ctx context.Context, h http.Header) {
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(h))
}

// extract reads a peer's trace context; the zero SpanContext when there is none, or one that is not valid.
func extract(t ledger.Trace) trace.SpanContext {
	carrier := propagation.MapCarrier{"traceparent": t.Parent}
	if len(t.State) <= maxTraceState {
		carrier["tracestate"] = t.State
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// parented marks the context of an HTTP request that brought a trace context of its own.
type parented struct{}

// start begins the span of one visit. The trace context that travelled with the message is its parent,
// since that is where the message was published; where the HTTP request has a parent of its own the span
// stays there. The other of the two is linked.
func (t *Telemetry) start(ctx context.Context, name string, kind trace.SpanKind, carried ledger.Trace, attrs []attribute.KeyValue) (context.Context, trace.Span) {
	options := []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attrs...)}
	here, message := trace.SpanContextFromContext(ctx), extract(carried)
	switch {
	case !message.IsValid() || here.TraceID() == message.TraceID():
	case ctx.Value(parented{}) != nil:
		options = append(options, trace.WithLinks(trace.Link{SpanContext: message}))
	default:
		if here.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: here}))
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, message)
	}
	return t.tracer.Start(ctx, name, options...)
}
