package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Sender calls a provider.
type Sender interface {
	Send(ctx context.Context, provider string, s ledger.Shipment) ledger.Outcome
}

// Sender wraps next, and records a span and metrics for every call to a provider.
func (t *Telemetry) Sender(next Sender) Sender { return sender{t, next} }

type sender struct {
	t    *Telemetry
	next Sender
}

func (s sender) Send(ctx context.Context, provider string, sh ledger.Shipment) (o ledger.Outcome) {
	started := time.Now()
	label := provider
	if _, known := s.t.metrics.attempts[label]; !known {
		label = other
	}
	ctx, span := s.t.tracer.Start(ctx, "send", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("sendonce.provider", label),
		attribute.String("sendonce.reminder_id", clean(sh.ReminderID)),
		attribute.String("sendonce.type", clean(sh.Type)),
		attribute.String("sendonce.channel", clean(sh.Channel)),
	))
	// After a panic the outcome is the zero value, unknown, and unknown is correct: the call may have been made.
	defer func() {
		s.t.recordCall(ctx, label, o, time.Since(started))
		if span.IsRecording() {
			setOutcome(span, o, sh)
		}
		span.End()
	}()
	return s.next.Send(ctx, provider, sh)
}

func (t *Telemetry) recordCall(ctx context.Context, label string, o ledger.Outcome, duration time.Duration) {
	if o.Result != ledger.ResultNotCalled {
		t.metrics.attempts[label].inc(ctx, o.Result.String())
		t.metrics.provider.observe(ctx, label, duration)
	}
}

func setOutcome(span trace.Span, o ledger.Outcome, sh ledger.Shipment) {
	private := []string{sh.Recipient, string(sh.Content), string(sh.Metadata)}
	span.SetAttributes(
		attribute.String("sendonce.outcome", o.Result.String()),
		attribute.String("sendonce.cause", clean(o.Cause)),
		attribute.String("sendonce.code", redact(o.Code, private...)),
		attribute.String("sendonce.request_id", clean(redactText(o.RequestID, private))),
		attribute.Int("sendonce.status", o.Status),
	)
	if o.Result != ledger.ResultAccepted {
		span.SetStatus(codes.Error, o.Result.String())
	}
}
