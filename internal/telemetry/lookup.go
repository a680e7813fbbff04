package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Looker looks up at a provider whether it accepted a send.
type Looker interface {
	Lookup(ctx context.Context, provider, sendKey string) (ledger.LookupResult, ledger.Outcome)
}

// Looker wraps next, and records a span and metrics for every lookup.
func (t *Telemetry) Looker(next Looker) Looker { return looker{t, next} }

type looker struct {
	t    *Telemetry
	next Looker
}

func (l looker) Lookup(ctx context.Context, provider, sendKey string) (result ledger.LookupResult, o ledger.Outcome) {
	label := provider
	if _, known := l.t.metrics.lookups[label]; !known {
		label = other
	}
	ctx, span := l.t.tracer.Start(ctx, "lookup", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("sendonce.provider", label),
	))
	started := time.Now()
	defer func() { // after a panic the result is the zero value, unanswered
		l.t.metrics.lookups[label].inc(ctx, result.String())
		l.t.metrics.provider.observe(ctx, label, time.Since(started))
		span.SetAttributes(
			attribute.String("sendonce.result", result.String()),
			attribute.String("sendonce.cause", clean(o.Cause)),
			attribute.Int("sendonce.status", o.Status),
		)
		span.End()
	}()
	return l.next.Lookup(ctx, provider, sendKey)
}

// RedriveItemDone counts a processed item of a redrive.
func (t *Telemetry) RedriveItemDone(result string) {
	t.metrics.redriven.inc(context.Background(), result)
}

// SweepDone counts a finished sweep for expired leases. An entry that no delivery, request or worker brings back
// is found by sweeps alone.
func (t *Telemetry) SweepDone() { t.metrics.sweeps.inc(context.Background(), "") }
