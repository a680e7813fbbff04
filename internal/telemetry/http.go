package telemetry

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// unmatched is the route label of a request that matched no pattern.
const unmatched = "unmatched"

// HTTP is middleware that records a server span and http_server_request_duration_seconds for every request,
// both under the pattern of its route. It must be the first in a chi router's Use.
//
// It does not use OpenTelemetry's own middleware, which puts the Host header into the labels, and path, peer,
// forwarded address, user agent and the value of a panic into the span: all of them unbounded or personal. Names follow https://opentelemetry.io/docs/specs/semconv/http/.
func (t *Telemetry) HTTP(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		started := time.Now()
		method := methodOf(r)
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		if trace.SpanContextFromContext(ctx).IsRemote() {
			ctx = context.WithValue(ctx, parented{}, true)
		}
		ctx, span := t.tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer))
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		returned := false
		defer func() {
			route, status := routeOf(ctx), statusOf(ww, returned)
			labels := []attribute.KeyValue{
				attribute.String("http.request.method", method),
				attribute.String("http.route", route),
				attribute.Int("http.response.status_code", status),
			}
			t.metrics.http.Record(ctx, time.Since(started).Seconds(), metric.WithAttributes(labels...))
			span.SetName(method + " " + route)
			span.SetAttributes(labels...)
			if status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
			}
			span.End()
		}()
		next.ServeHTTP(ww, r.WithContext(ctx))
		returned = true
	})
}

// methodOf returns the request's method, or _OTHER, which the conventions define for unknown methods.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions, http.MethodConnect, http.MethodTrace:
		return r.Method
	}
	return "_OTHER"
}

// routeOf returns the pattern that matched the request; it is known once the router has run.
func routeOf(ctx context.Context) string {
	if pattern := chi.RouteContext(ctx).RoutePattern(); pattern != "" {
		return pattern
	}
	return unmatched
}

// statusOf returns the status of the response. A handler that panicked before it wrote one has none, and
// counts as 500.
func statusOf(w middleware.WrapResponseWriter, returned bool) int {
	switch {
	case w.Status() != 0:
		return w.Status()
	case returned:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}
