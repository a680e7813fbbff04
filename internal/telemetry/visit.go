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

// Deliverer takes one delivery of a broker.
type Deliverer interface {
	Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error)
}

// Requester takes one reminder from a caller of the API.
type Requester interface {
	Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error)
}

// Visitor looks after one entry for the worker.
type Visitor interface {
	Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Deliverer tells of every delivery that next takes.
func (t *Telemetry) Deliverer(next Deliverer) Deliverer { return deliverer{t, next} }

// Requester tells of every reminder that next is asked for.
func (t *Telemetry) Requester(next Requester) Requester { return requester{t, next} }

// Visitor tells of every visit that next makes.
func (t *Telemetry) Visitor(next Visitor) Visitor { return visitor{t, next} }

type deliverer struct {
	t    *Telemetry
	next Deliverer
}

func (d deliverer) Deliver(ctx context.Context, del ledger.Delivery) (ledger.Reply, error) {
	v := &visit{
		msg: "delivery", kind: trace.SpanKindConsumer, carried: del.Trace,
		origin: ledger.OriginPush, source: del.Source, message: del.MessageID,
		private: func() []string { return []string{string(del.Raw)} },
	}
	return d.t.attend(ctx, v, func(ctx context.Context) (ledger.Reply, error) { return d.next.Deliver(ctx, del) })
}

type requester struct {
	t    *Telemetry
	next Requester
}

func (q requester) Request(ctx context.Context, caller string, r reminder.Reminder, tr ledger.Trace) (ledger.Reply, error) {
	v := &visit{
		msg: "request", kind: trace.SpanKindInternal, carried: tr,
		origin: ledger.OriginAPI, source: caller,
		id:      ledger.Identity{ReminderID: r.ReminderID, Type: r.Type, Channel: r.Channel},
		private: func() []string { return []string{r.To, string(r.Content), string(r.Metadata)} },
	}
	return q.t.attend(ctx, v, func(ctx context.Context) (ledger.Reply, error) { return q.next.Request(ctx, caller, r, tr) })
}

type visitor struct {
	t    *Telemetry
	next Visitor
}

func (w visitor) Visit(ctx context.Context, id ledger.Identity) (ledger.Reply, error) {
	v := &visit{msg: "visit", kind: trace.SpanKindInternal, origin: ledger.OriginWorker, id: id}
	return w.t.attend(ctx, v, func(ctx context.Context) (ledger.Reply, error) { return w.next.Visit(ctx, id) })
}

// visit is what is known of one before it is made.
type visit struct {
	msg     string
	kind    trace.SpanKind
	carried ledger.Trace
	origin  ledger.Origin
	source  string
	message string
	id      ledger.Identity
	private func() []string // what came with the message and may stand in nothing that is told; may be nil
}

// underway is the key of the visit in its context.
type underway struct{}

// errPanicked is told of a visit that did not return.
var errPanicked = errors.New("panicked")

// attend makes a visit, and tells of it.
func (t *Telemetry) attend(ctx context.Context, v *visit, do func(context.Context) (ledger.Reply, error)) (r ledger.Reply, err error) {
	began := time.Now()
	spanned, span := t.start(context.WithValue(ctx, underway{}, v), v.msg, v.kind, v.carried, v.spanAttrs())
	err = errPanicked
	// The span is ended from within a function of ours: ended by defer itself it would record the value of
	// a panic, and nobody knows what that shows.
	defer func() {
		took := time.Since(began)
		t.figures.delivery.took(spanned, string(v.origin), took)
		t.account(spanned, v, r, err, took)
		span.End()
	}()
	return do(spanned)
}

// Settled tells how a send ended whose visit had been answered before ([ledger.Reply.InFlight]). ctx must
// stem from that visit's.
func (t *Telemetry) Settled(ctx context.Context, r ledger.Reply, err error) {
	v := visit{}
	if made, ok := ctx.Value(underway{}).(*visit); ok {
		v = *made
	}
	v.msg = "settled"
	t.account(ctx, &v, r, err, r.Took.Total)
}

// Late counts what a holder recorded that came back after its entry had moved on; kind is the event's
// [ledger.Reason].
func (t *Telemetry) Late(kind string) { t.figures.late.one(context.Background(), kind) }

// account counts, and writes the span's and the log's end.
func (t *Telemetry) account(ctx context.Context, v *visit, r ledger.Reply, err error, took time.Duration) {
	left := err != nil && errors.Is(err, context.Canceled) && ctx.Err() != nil
	t.count(ctx, r, err != nil && !left)
	level := levelOf(err, left)
	if level < slog.LevelWarn && (r.Conflict || len(r.Faults) > 0 || r.Reason == ledger.ReasonPossibleSecondSend) {
		level = slog.LevelWarn
	}
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		span.SetAttributes(v.spanEnd(r)...)
		if err != nil && !left {
			span.SetStatus(codes.Error, "failed") // the text is in the log line, under the same trace id
		}
	}
	if t.log.Enabled(ctx, level) {
		t.log.LogAttrs(ctx, level, v.msg, v.line(r, err, took, span.SpanContext())...)
	}
}

func (t *Telemetry) count(ctx context.Context, r ledger.Reply, failed bool) {
	f := t.figures
	if failed {
		f.unavailable.one(ctx, "")
	}
	if r.Duplicate {
		f.duplicates.one(ctx, "")
	}
	if r.Conflict {
		f.conflicts.one(ctx, "")
	}
	if !moved(r) {
		return
	}
	switch r.Entry.State {
	case ledger.Waiting:
		if r.Outcome != nil && r.Outcome.Result != ledger.ResultNotCalled {
			f.retries.one(ctx, string(r.Entry.Class))
		}
	case ledger.Dead:
		f.dead.one(ctx, string(r.Entry.Class))
	case ledger.Sent:
		f.sent.one(ctx, receiptOf(r.Entry))
	}
}

// moved tells whether this visit is the one that brought the entry where it stands. A wait after a wait
// is a move, too, when there was a call in between.
func moved(r ledger.Reply) bool {
	switch r.Reason {
	case ledger.ReasonLateFailure, ledger.ReasonReplayed, ledger.ReasonPossibleSecondSend:
		return false
	}
	return !r.Duplicate && !r.InFlight && !r.Entry.Absent() && (r.Outcome != nil || r.Entry.State != r.Before)
}

func receiptOf(e ledger.Entry) string {
	if e.Missing == "" {
		return receiptPresent
	}
	return string(e.Missing)
}
