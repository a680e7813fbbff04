package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Deliverer processes one delivery from a source.
type Deliverer interface {
	Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error)
}

// Requester processes one reminder from a caller of the API.
type Requester interface {
	Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error)
}

// Processor processes one entry for the worker.
type Processor interface {
	Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Deliverer wraps next, and records every delivery.
func (t *Telemetry) Deliverer(next Deliverer) Deliverer { return deliverer{t, next} }

// Requester wraps next, and records every request.
func (t *Telemetry) Requester(next Requester) Requester { return requester{t, next} }

// Processor wraps next, and records every worker task.
func (t *Telemetry) Processor(next Processor) Processor { return processor{t, next} }

type deliverer struct {
	t    *Telemetry
	next Deliverer
}

func (d deliverer) Deliver(ctx context.Context, del ledger.Delivery) (ledger.Reply, error) {
	rec := &taskRecord{
		msg: "delivery", kind: trace.SpanKindConsumer, carried: del.Trace,
		origin: ledger.OriginPush, source: del.Source, message: del.MessageID,
		private: func() []string { return []string{string(del.Raw)} },
	}
	return d.t.observe(ctx, rec, func(ctx context.Context) (ledger.Reply, error) { return d.next.Deliver(ctx, del) })
}

type requester struct {
	t    *Telemetry
	next Requester
}

func (r requester) Request(ctx context.Context, caller string, rem reminder.Reminder, tr ledger.Trace) (ledger.Reply, error) {
	rec := &taskRecord{
		msg: "request", kind: trace.SpanKindInternal, carried: tr,
		origin: ledger.OriginAPI, source: caller,
		id:      ledger.Identity{ReminderID: rem.ReminderID, Type: rem.Type, Channel: rem.Channel},
		private: func() []string { return []string{rem.To, string(rem.Content), string(rem.Metadata)} },
	}
	return r.t.observe(ctx, rec, func(ctx context.Context) (ledger.Reply, error) { return r.next.Request(ctx, caller, rem, tr) })
}

type processor struct {
	t    *Telemetry
	next Processor
}

func (p processor) Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	rec := &taskRecord{msg: "task", kind: trace.SpanKindInternal, origin: ledger.OriginWorker, id: id}
	return p.t.observe(ctx, rec, func(ctx context.Context) (ledger.Reply, error) { return p.next.Process(ctx, id) })
}

// taskRecord is what is known of a delivery, an API request or a worker task before it is processed.
type taskRecord struct {
	msg     string
	kind    trace.SpanKind
	carried ledger.Trace
	origin  ledger.Origin
	source  string
	message string
	id      ledger.Identity
	private func() []string // what the message carried, and must not be logged or traced; may be nil
}

// taskKey is the context key of the taskRecord.
type taskKey struct{}

// errPanicked is recorded for a call that did not return.
var errPanicked = errors.New("panicked")

// observe calls do within a span, and records the result.
func (t *Telemetry) observe(ctx context.Context, rec *taskRecord, do func(context.Context) (ledger.Reply, error)) (r ledger.Reply, err error) {
	started := time.Now()
	spanCtx, span := t.start(context.WithValue(ctx, taskKey{}, rec), rec.msg, rec.kind, rec.carried, rec.startAttrs())
	err = errPanicked
	// The span is ended inside a deferred function: if span.End were deferred itself, it would record the value
	// of a panic, which may hold anything.
	defer func() {
		duration := time.Since(started)
		t.metrics.delivery.observe(spanCtx, string(rec.origin), duration)
		t.record(spanCtx, rec, r, err, duration)
		span.End()
	}()
	return do(spanCtx)
}

// Settled records how a send ended after its delivery or request had been answered ([ledger.Reply.InFlight]).
// ctx must be derived from the context of that delivery or request.
func (t *Telemetry) Settled(ctx context.Context, r ledger.Reply, err error) {
	rec := taskRecord{}
	if stored, ok := ctx.Value(taskKey{}).(*taskRecord); ok {
		rec = *stored
	}
	rec.msg = "settled"
	t.record(ctx, &rec, r, err, r.Durations.Total)
}

// Late counts a result that a holder recorded after its entry had changed; kind is the event's [ledger.Reason].
func (t *Telemetry) Late(kind string) { t.metrics.late.inc(context.Background(), kind) }

// record updates the counters, completes the span and writes the log line.
func (t *Telemetry) record(ctx context.Context, rec *taskRecord, r ledger.Reply, err error, duration time.Duration) {
	canceled := err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil
	t.count(ctx, r, err != nil && !canceled)
	level := levelOf(err, canceled)
	if level < slog.LevelWarn && (r.Conflict || len(r.Faults) > 0 || r.Reason == ledger.ReasonPossibleSecondSend) {
		level = slog.LevelWarn
	}
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		span.SetAttributes(rec.endAttrs(r)...)
		if err != nil && !canceled {
			span.SetStatus(codes.Error, "failed") // the log line with the same trace id has the text
		}
	}
	if t.log.Enabled(ctx, level) {
		t.log.LogAttrs(ctx, level, rec.msg, rec.logAttrs(r, err, duration, span.SpanContext())...)
	}
}

func (t *Telemetry) count(ctx context.Context, r ledger.Reply, failed bool) {
	m := t.metrics
	if failed {
		m.unavailable.inc(ctx, "")
	}
	if r.Duplicate {
		m.duplicates.inc(ctx, "")
	}
	if r.Conflict {
		m.conflicts.inc(ctx, "")
	}
	if !changedState(r) {
		return
	}
	switch r.Entry.State {
	case ledger.Waiting:
		if r.Outcome != nil && r.Outcome.Result != ledger.ResultNotCalled {
			m.retries.inc(ctx, string(r.Entry.Class))
		}
	case ledger.Dead:
		m.dead.inc(ctx, string(r.Entry.Class))
	case ledger.Sent:
		m.sent.inc(ctx, receiptOf(r.Entry))
	}
}

// changedState reports whether this reply is the one that brought the entry into its state. From waiting to
// waiting is a change too when there was a call in between.
func changedState(r ledger.Reply) bool {
	switch r.Reason {
	case ledger.ReasonLateFailure, ledger.ReasonReplayed, ledger.ReasonPossibleSecondSend:
		return false
	}
	return !r.Duplicate && !r.InFlight && !r.Entry.Absent() && (r.Outcome != nil || r.Entry.State != r.Before)
}

func receiptOf(e ledger.Entry) string {
	if e.ReceiptMissing == "" {
		return receiptPresent
	}
	return string(e.ReceiptMissing)
}
