package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func TestDeliverer_LogsOneWideLine(t *testing.T) {
	h := newHarness(t)
	e := entry(ledger.Waiting, ledger.ReasonThrottled, ledger.ClassThrottled)
	e.Attempts = 3
	next := fakeProcessor{reply: ledger.Reply{
		Entry: e, Before: ledger.Waiting, RetryAfter: 7 * time.Second, Conflict: true,
		Outcome:   &ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, Code: "rate_limited", Cause: "status"},
		Durations: ledger.Durations{Call: 1500 * time.Microsecond},
	}}
	if _, err := h.Deliverer(next).Deliver(t.Context(), ledger.Delivery{Source: "reservations", MessageID: "m-1"}); err != nil {
		t.Fatal(err)
	}
	lines := h.lines()
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	got := lines[0]
	at, err := time.Parse(time.RFC3339Nano, got["time"].(string))
	if err != nil || at.Location() != time.UTC {
		t.Errorf("time %v is not UTC: %v", got["time"], err)
	}
	if took := got["duration_ms"].(float64); took < 0 || took > 10_000 {
		t.Errorf("duration_ms %v", took)
	}
	if want := h.spans.GetSpans()[0].SpanContext.TraceID().String(); got["trace_id"] != want {
		t.Errorf("trace_id %v, want %s", got["trace_id"], want)
	}
	for _, varying := range []string{"time", "duration_ms", "trace_id"} {
		delete(got, varying)
	}
	want := map[string]any{
		"level": "WARN", "msg": "delivery", "origin": "push", "source": "reservations", "message_id": "m-1",
		"reminder_id": "rem-1842", "type": "seat_expiring", "channel": "email",
		"state_before": "waiting", "state": "waiting", "reason": "throttled", "class": "throttled", "attempt": 3.0,
		"provider": "mail", "outcome": "throttled", "status": 429.0, "code": "rate_limited", "cause": "status",
		"ack": false, "retry_after_s": 7.0, "conflict": true, "call_ms": 1.5,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProcessor_CountsByStateChange(t *testing.T) {
	sent := entry(ledger.Sent, ledger.ReasonAccepted, "")
	assumed, unreadable := sent, sent
	assumed.ReceiptMissing, unreadable.ReceiptMissing = ledger.MissingAssumed, ledger.MissingUnreadable
	outcome := func(r ledger.Result) *ledger.Outcome { return &ledger.Outcome{Result: r} }

	for name, c := range map[string]struct {
		reply ledger.Reply
		err   error
		want  map[string]float64
		level string
	}{
		"sent": {
			reply: ledger.Reply{Entry: sent, Ack: true, Outcome: outcome(ledger.ResultAccepted)},
			want:  map[string]float64{`sendonce_sent_total{receipt="present"}`: 1},
		},
		"sent with an unreadable receipt": {
			reply: ledger.Reply{Entry: unreadable, Outcome: outcome(ledger.ResultAccepted)},
			want:  map[string]float64{`sendonce_sent_total{receipt="unreadable"}`: 1},
		},
		"assumed after an unknown outcome": {
			reply: ledger.Reply{Entry: assumed, Outcome: outcome(ledger.ResultUnknown)},
			want:  map[string]float64{`sendonce_sent_total{receipt="assumed"}`: 1},
		},
		"a duplicate of what is sent": {
			reply: ledger.Reply{Entry: sent, Before: ledger.Sent, Ack: true, Duplicate: true},
			want:  map[string]float64{`sendonce_duplicates_total`: 1},
		},
		"a conflict": {
			reply: ledger.Reply{Entry: sent, Before: ledger.Sent, Duplicate: true, Conflict: true},
			want:  map[string]float64{`sendonce_duplicates_total`: 1, `sendonce_conflicts_total`: 1},
			level: "WARN",
		},
		"a scheduled retry": {
			reply: ledger.Reply{
				Entry: entry(ledger.Waiting, ledger.ReasonUnreachable, ledger.ClassUnreachable), Before: ledger.Waiting,
				Outcome: outcome(ledger.ResultUnreachable),
			},
			want: map[string]float64{`sendonce_retries_total{class="unreachable"}`: 1},
		},
		"a wait without a call": {
			reply: ledger.Reply{Entry: entry(ledger.Waiting, ledger.ReasonScheduled, "")},
			want:  map[string]float64{},
		},
		"a call that was not made": {
			reply: ledger.Reply{
				Entry: entry(ledger.Waiting, ledger.ReasonNotCalled, ledger.ClassThrottled), Outcome: outcome(ledger.ResultNotCalled),
			},
			want: map[string]float64{},
		},
		"dead": {
			reply: ledger.Reply{Entry: entry(ledger.Dead, ledger.ReasonGone, ledger.ClassRecipient), Outcome: outcome(ledger.ResultGone)},
			want:  map[string]float64{`sendonce_dead_total{class="recipient"}`: 1},
		},
		"dead on arrival": {
			reply: ledger.Reply{Entry: entry(ledger.Dead, ledger.ReasonMalformed, ledger.ClassMalformed), Ack: true},
			want:  map[string]float64{`sendonce_dead_total{class="malformed"}`: 1},
		},
		"already dead": {
			reply: ledger.Reply{Entry: entry(ledger.Dead, ledger.ReasonGone, ledger.ClassRecipient), Before: ledger.Dead},
			want:  map[string]float64{},
		},
		"a late result after another holder": {
			reply: ledger.Reply{
				Entry: sent, Before: ledger.Waiting, Reason: ledger.ReasonPossibleSecondSend, Outcome: outcome(ledger.ResultAccepted),
			},
			want:  map[string]float64{},
			level: "WARN",
		},
		"replied before it settled": {
			reply: ledger.Reply{Entry: entry(ledger.Sending, ledger.ReasonClaimed, ""), InFlight: true},
			want:  map[string]float64{},
		},
		"the ledger is unavailable": {
			err:   errors.New("no connection"),
			want:  map[string]float64{`sendonce_ledger_unavailable_total`: 1},
			level: "ERROR",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			before := h.scraped()
			reply, err := h.Processor(fakeProcessor{reply: c.reply, err: c.err}).Process(t.Context(), sent.Identity)
			if diff := cmp.Diff(c.reply, reply, cmp.AllowUnexported(ledger.Moment{})); diff != "" || !errors.Is(err, c.err) {
				t.Errorf("the wrapper changed the reply: %s %v", diff, err)
			}
			c.want[`sendonce_delivery_seconds_count{origin="worker"}`] = 1
			if diff := cmp.Diff(c.want, h.changes(before)); diff != "" {
				t.Error(diff)
			}
			if c.level == "" {
				c.level = "INFO"
			}
			if line := h.lines()[0]; line["level"] != c.level || line["msg"] != "task" || line["reminder_id"] != "rem-1842" {
				t.Errorf("line %v, want level %s", line, c.level)
			}
		})
	}
}

func TestRequester_CanceledRequestIsNotAFailure(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithCancel(t.Context())
	before := h.scraped()
	next := fakeProcessor{onCall: func(context.Context) { cancel() }, err: context.Canceled}
	if _, err := h.Requester(next).Request(ctx, "checkout", reminder.Reminder{}, ledger.Trace{}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]float64{`sendonce_delivery_seconds_count{origin="api"}`: 1}, h.changes(before)); diff != "" {
		t.Error(diff)
	}
	if line := h.lines()[0]; line["level"] != "INFO" || line["source"] != "checkout" || line["msg"] != "request" {
		t.Errorf("line %v", line)
	}
}

func TestSettled_LogsASendThatOutlivesItsReply(t *testing.T) {
	h := newHarness(t)
	var inside context.Context
	next := fakeProcessor{
		reply:  ledger.Reply{Entry: entry(ledger.Sending, ledger.ReasonClaimed, ""), InFlight: true},
		onCall: func(ctx context.Context) { inside = ctx },
	}
	if _, err := h.Deliverer(next).Deliver(t.Context(), ledger.Delivery{Source: "reservations", MessageID: "m-1"}); err != nil {
		t.Fatal(err)
	}
	before := h.scraped()
	h.Settled(context.WithoutCancel(inside), ledger.Reply{
		Entry: entry(ledger.Sent, ledger.ReasonAccepted, ""), Outcome: &ledger.Outcome{Result: ledger.ResultAccepted},
		Durations: ledger.Durations{Total: 12 * time.Second},
	}, nil)
	if diff := cmp.Diff(map[string]float64{`sendonce_sent_total{receipt="present"}`: 1}, h.changes(before)); diff != "" {
		t.Error(diff)
	}
	lines := h.lines()
	first, last := lines[0], lines[1]
	if last["msg"] != "settled" || last["message_id"] != "m-1" || last["trace_id"] != first["trace_id"] ||
		last["duration_ms"] != 12000.0 || last["outcome"] != "accepted" {
		t.Errorf("line %v", last)
	}
}

func TestDeliverer_RecordsAPanicAndLetsItPass(t *testing.T) {
	h := newHarness(t)
	before := h.scraped()
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic was not passed on")
			}
		}()
		next := fakeProcessor{onCall: func(context.Context) { panic("boom") }}
		_, _ = h.Deliverer(next).Deliver(t.Context(), ledger.Delivery{})
	}()
	want := map[string]float64{`sendonce_ledger_unavailable_total`: 1, `sendonce_delivery_seconds_count{origin="push"}`: 1}
	if diff := cmp.Diff(want, h.changes(before)); diff != "" {
		t.Error(diff)
	}
	if line := h.lines()[0]; line["level"] != slog.LevelError.String() || line["error"] != "panicked" {
		t.Errorf("line %v", line)
	}
}

func TestSender_CountsByProviderAndOutcome(t *testing.T) {
	for _, result := range ledger.Results() {
		t.Run(result.String(), func(t *testing.T) {
			h := newHarness(t)
			before := h.scraped()
			want := ledger.Outcome{Result: result, Status: 200, Receipt: "r-1"}
			got := h.Sender(fakeSender(func(context.Context) ledger.Outcome { return want })).Send(t.Context(), "mail", ledger.Shipment{})
			if got != want {
				t.Errorf("the wrapper changed the outcome to %v", got)
			}
			counts := map[string]float64{}
			if result != ledger.ResultNotCalled {
				counts[`sendonce_attempts_total{outcome="`+result.String()+`",provider="mail"}`] = 1
				counts[`sendonce_provider_seconds_count{provider="mail"}`] = 1
			}
			if diff := cmp.Diff(counts, h.changes(before)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestSender_PanicIsAnUnknownOutcome(t *testing.T) {
	h := newHarness(t)
	before := h.scraped()
	func() {
		defer func() { _ = recover() }()
		h.Sender(fakeSender(func(context.Context) ledger.Outcome { panic("boom") })).Send(t.Context(), "mail", ledger.Shipment{})
	}()
	if got := h.changes(before)[`sendonce_attempts_total{outcome="unknown",provider="mail"}`]; got != 1 {
		t.Errorf("%v unknown attempts, want 1", got)
	}
}
