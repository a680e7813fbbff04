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

// Sender tells of every call that next makes.
func (t *Telemetry) Sender(next Sender) Sender { return sender{t, next} }

type sender struct {
	t    *Telemetry
	next Sender
}

func (s sender) Send(ctx context.Context, provider string, sh ledger.Shipment) (o ledger.Outcome) {
	began := time.Now()
	label := provider
	if _, known := s.t.figures.attempts[label]; !known {
		label = other
	}
	ctx, span := s.t.tracer.Start(ctx, "send", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("sendonce.provider", label),
		attribute.String("sendonce.reminder_id", word(sh.ReminderID)),
		attribute.String("sendonce.type", word(sh.Type)),
		attribute.String("sendonce.channel", word(sh.Channel)),
	))
	// After a panic the outcome is the zero one, unknown, which is what a panic proves.
	defer func() {
		s.t.called(ctx, label, o, time.Since(began))
		if span.IsRecording() {
			describe(span, o, sh)
		}
		span.End()
	}()
	return s.next.Send(ctx, provider, sh)
}

func (t *Telemetry) called(ctx context.Context, label string, o ledger.Outcome, took time.Duration) {
	if o.Result != ledger.ResultNotCalled {
		t.figures.attempts[label].one(ctx, o.Result.String())
		t.figures.provider.took(ctx, label, took)
	}
}

func describe(span trace.Span, o ledger.Outcome, sh ledger.Shipment) {
	private := []string{sh.Recipient, string(sh.Content), string(sh.Metadata)}
	span.SetAttributes(
		attribute.String("sendonce.outcome", o.Result.String()),
		attribute.String("sendonce.cause", word(o.Cause)),
		attribute.String("sendonce.code", redact(o.Code, private...)),
		attribute.String("sendonce.request_id", word(strike(o.RequestID, private))),
		attribute.Int("sendonce.status", o.Status),
	)
	if o.Result != ledger.ResultAccepted {
		span.SetStatus(codes.Error, o.Result.String())
	}
}
