package telemetry

import (
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/internal/ledger"
)

// levelOf is error for failures of ours alone: that the asker left is none.
func levelOf(err error, left bool) slog.Level {
	if err == nil || left {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// line is all that is told of one visit. Empty fields are left out.
func (v *visit) line(r ledger.Reply, err error, took time.Duration, sc trace.SpanContext) []slog.Attr {
	l := make(fields, 0, 28)
	l.word("origin", string(v.origin))
	l.word("source", v.source)
	l.word("message_id", v.message)
	id := v.identity(r)
	l.word("reminder_id", id.ReminderID)
	l.word("type", id.Type)
	l.word("channel", id.Channel)
	l.word("state_before", string(r.Before))
	l.word("state", string(r.Entry.State))
	l.word("reason", string(reasonOf(r)))
	l.word("class", string(r.Entry.Class))
	l.number("attempt", int64(r.Entry.Attempts))
	l.word("provider", r.Entry.Provider)
	if o := r.Outcome; o != nil {
		l.word("outcome", o.Result.String())
		l.number("status", int64(o.Status))
		l.word("code", v.redact(o.Code))
		l.word("cause", o.Cause)
	}
	if len(r.Faults) > 0 {
		l.word("faults", v.redact(strings.Join(r.Faults, "; ")))
	}
	if v.origin != ledger.OriginWorker {
		l = append(l, slog.Bool("ack", r.Ack))
	}
	l.number("retry_after_s", int64(r.RetryAfter/time.Second))
	l.flag("duplicate", r.Duplicate)
	l.flag("conflict", r.Conflict)
	l.flag("in_flight", r.InFlight)
	l = append(l, slog.Float64("took_ms", ms(took)))
	if r.Took.Call > 0 {
		l = append(l, slog.Float64("call_ms", ms(r.Took.Call)))
	}
	if sc.HasTraceID() {
		l = append(l, slog.String("trace_id", sc.TraceID().String()))
	}
	if err != nil {
		l = append(l, slog.String("error", v.redact(err.Error())))
	}
	return l
}

// redact is run over text from elsewhere, which most lines have none of.
func (v *visit) redact(text string) string {
	switch {
	case text == "":
		return ""
	case v.private == nil:
		return redact(text)
	}
	return redact(text, v.private()...)
}

// identity is the entry's, else the one that the visit was for.
func (v *visit) identity(r ledger.Reply) ledger.Identity {
	if r.Entry.Identity != (ledger.Identity{}) {
		return r.Entry.Identity
	}
	return v.id
}

// reasonOf is the visit's own reason, where it has one, else the entry's.
func reasonOf(r ledger.Reply) ledger.Reason {
	if r.Reason != "" {
		return r.Reason
	}
	return r.Entry.Reason
}

func (v *visit) spanAttrs() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("sendonce.origin", string(v.origin)),
		attribute.String("sendonce.source", word(v.source)),
		attribute.String("sendonce.message_id", word(v.message)),
	}
}

func (v *visit) spanEnd(r ledger.Reply) []attribute.KeyValue {
	id := v.identity(r)
	attrs := []attribute.KeyValue{
		attribute.String("sendonce.reminder_id", word(id.ReminderID)),
		attribute.String("sendonce.type", word(id.Type)),
		attribute.String("sendonce.channel", word(id.Channel)),
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

// fields gathers what is worth a place in a line.
type fields []slog.Attr

func (l *fields) word(key, value string) {
	if value != "" {
		*l = append(*l, slog.String(key, word(value)))
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

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
