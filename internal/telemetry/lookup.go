package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Asker asks a provider whether it took a send.
type Asker interface {
	Ask(ctx context.Context, provider, sendKey string) (ledger.Finding, ledger.Outcome)
}

// Asker tells of every question that next asks.
func (t *Telemetry) Asker(next Asker) Asker { return asker{t, next} }

type asker struct {
	t    *Telemetry
	next Asker
}

func (a asker) Ask(ctx context.Context, provider, sendKey string) (found ledger.Finding, o ledger.Outcome) {
	label := provider
	if _, known := a.t.figures.lookups[label]; !known {
		label = other
	}
	ctx, span := a.t.tracer.Start(ctx, "lookup", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("sendonce.provider", label),
	))
	began := time.Now()
	defer func() { // after a panic the finding is the zero one, no answer
		a.t.figures.lookups[label].one(ctx, found.String())
		a.t.figures.provider.took(ctx, label, time.Since(began))
		span.SetAttributes(
			attribute.String("sendonce.answer", found.String()),
			attribute.String("sendonce.cause", word(o.Cause)),
			attribute.Int("sendonce.status", o.Status),
		)
		span.End()
	}()
	return a.next.Ask(ctx, provider, sendKey)
}

// Redriven counts a dead letter's turn in a redrive.
func (t *Telemetry) Redriven(result string) { t.figures.redriven.one(context.Background(), result) }

// Swept counts a look for silent holders. What waits for nobody is picked up by these alone.
func (t *Telemetry) Swept() { t.figures.sweeps.one(context.Background(), "") }
