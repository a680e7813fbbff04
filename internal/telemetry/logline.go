package telemetry

import (
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// levelOf returns the level of a log line: a failure is an error, unless the client went away.
func levelOf(err error, canceled bool) slog.Level {
	if err == nil || canceled {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// logAttrs returns the fields of the log line. Empty fields are left out.
func (rec *taskRecord) logAttrs(r ledger.Reply, err error, took time.Duration, sc trace.SpanContext) []slog.Attr {
	l := make(fields, 0, 28)
	l.text("origin", string(rec.origin))
	l.text("source", rec.source)
	l.text("message_id", rec.message)
	id := rec.identity(r)
	l.text("reminder_id", id.ReminderID)
	l.text("type", id.Type)
	l.text("channel", id.Channel)
	l.text("state_before", string(r.Before))
	l.text("state", string(r.Entry.State))
	l.text("reason", string(reasonOf(r)))
	l.text("class", string(r.Entry.Class))
	l.number("attempt", int64(r.Entry.Attempts))
	l.text("provider", r.Entry.Provider)
	if o := r.Outcome; o != nil {
		l.text("outcome", o.Result.String())
		l.number("status", int64(o.Status))
		l.text("code", rec.redact(o.Code))
		l.text("cause", o.Cause)
	}
	if len(r.Faults) > 0 {
		l.text("faults", rec.redact(strings.Join(r.Faults, "; ")))
	}
	if rec.origin != ledger.OriginWorker {
		l = append(l, slog.Bool("ack", r.Ack))
	}
	l.number("retry_after_s", int64(r.RetryAfter/time.Second))
	l.flag("duplicate", r.Duplicate)
	l.flag("conflict", r.Conflict)
	l.flag("in_flight", r.InFlight)
	l = append(l, slog.Float64("duration_ms", ms(took)))
	if r.Durations.Call > 0 {
		l = append(l, slog.Float64("call_ms", ms(r.Durations.Call)))
	}
	if sc.HasTraceID() {
		l = append(l, slog.String("trace_id", sc.TraceID().String()))
	}
	if err != nil {
		l = append(l, slog.String("error", rec.redact(err.Error())))
	}
	return l
}

// redact redacts text from a peer or a driver, which most lines do not have.
func (rec *taskRecord) redact(text string) string {
	switch {
	case text == "":
		return ""
	case rec.private == nil:
		return redact(text)
	}
	return redact(text, rec.private()...)
}

// identity returns the entry's identity, else the one that was to be processed.
func (rec *taskRecord) identity(r ledger.Reply) ledger.Identity {
	if r.Entry.Identity != (ledger.Identity{}) {
		return r.Entry.Identity
	}
	return rec.id
}

// reasonOf returns the reply's own reason if it has one, else the entry's.
func reasonOf(r ledger.Reply) ledger.Reason {
	if r.Reason != "" {
		return r.Reason
	}
	return r.Entry.Reason
}

func (rec *taskRecord) startAttrs() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("sendonce.origin", string(rec.origin)),
		attribute.String("sendonce.source", clean(rec.source)),
		attribute.String("sendonce.message_id", clean(rec.message)),
	}
}

func (rec *taskRecord) endAttrs(r ledger.Reply) []attribute.KeyValue {
	id := rec.identity(r)
	attrs := []attribute.KeyValue{
		attribute.String("sendonce.reminder_id", clean(id.ReminderID)),
		attribute.String("sendonce.type", clean(id.Type)),
		attribute.String("sendonce.channel", clean(id.Channel)),
		attribute.String("sendonce.state_before", string(r.Before)),
		attribute.String("sendonce.state", string(r.Entry.State)),
		attribute.String("sendonce.reason", string(reasonOf(r))),
		attribute.String("sendonce.class", string(r.Entry.Class)),
		attribute.Int("sendonce.attempt", r.Entry.Attempts),
		attribute.Bool("sendonce.ack", r.Ack),
		attribute.Bool("sendonce.duplicate", r.Duplicate),
	}
	if r.Outcome != nil {
		attrs = append(attrs, attribute.String("sendonce.outcome", r.Outcome.Result.String()))
	}
	return attrs
}

// fields are the fields of a log line; empty values are not added.
type fields []slog.Attr

func (l *fields) text(key, value string) {
	if value != "" {
		*l = append(*l, slog.String(key, clean(value)))
	}
}

func (l *fields) number(key string, value int64) {
	if value != 0 {
		*l = append(*l, slog.Int64(key, value))
	}
}

func (l *fields) flag(key string, value bool) {
	if value {
		*l = append(*l, slog.Bool(key, true))
	}
}

// ms returns d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
