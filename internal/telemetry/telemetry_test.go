package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// harness is a Telemetry whose log, spans and metrics are kept in memory.
type harness struct {
	*Telemetry
	t     *testing.T
	log   *logBuffer
	spans *tracetest.InMemoryExporter
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, log: new(logBuffer), spans: tracetest.NewInMemoryExporter()}
	var err error
	h.Telemetry, err = assemble(t.Context(), Options{
		Version:   "v1.2.3",
		Providers: []string{"mail", "sms"},
		Logger:    NewLogger(h.log, slog.LevelInfo, false),
	}, exporters{
		spans:   []sdktrace.SpanProcessor{sdktrace.NewSimpleSpanProcessor(h.spans)},
		readers: []sdkmetric.Reader{sdkmetric.NewManualReader()}, // a second reader must not disturb the scrape
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// scraped returns the scraped series of sendonce and of HTTP, by name and labels as written.
func (h *harness) scraped() map[string]float64 {
	h.t.Helper()
	all := map[string]float64{}
	for line := range strings.Lines(h.exposition()) {
		if !strings.HasPrefix(line, "sendonce_") && !strings.HasPrefix(line, "http_") && !strings.HasPrefix(line, "target_info") {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			h.t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = value
	}
	return all
}

func (h *harness) exposition() string {
	h.t.Helper()
	w := httptest.NewRecorder()
	h.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		h.t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// lines are the log's lines, each of which must be one JSON object.
func (h *harness) lines() []map[string]any {
	h.t.Helper()
	var all []map[string]any
	for line := range strings.Lines(h.log.String()) {
		var one map[string]any
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			h.t.Fatalf("not one JSON line: %q: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

// changes are the series that differ from before, without the buckets and sums of histograms.
func (h *harness) changes(before map[string]float64) map[string]float64 {
	diff := map[string]float64{}
	for name, now := range h.scraped() {
		timing := strings.Contains(name, "_bucket{") || strings.Contains(name, "_sum{") || strings.Contains(name, "backlog_age")
		if was, had := before[name]; !timing && (!had && now != 0 || was != now) {
			diff[name] = now - was
		}
	}
	return diff
}

// fakeProcessor returns the same reply for every delivery, request and task.
type fakeProcessor struct {
	reply  ledger.Reply
	err    error
	onCall func(context.Context)
}

func (p fakeProcessor) process(ctx context.Context) (ledger.Reply, error) {
	if p.onCall != nil {
		p.onCall(ctx)
	}
	return p.reply, p.err
}

func (p fakeProcessor) Deliver(ctx context.Context, _ ledger.Delivery) (ledger.Reply, error) {
	return p.process(ctx)
}

func (p fakeProcessor) Request(ctx context.Context, _ string, _ reminder.Reminder, _ ledger.Trace) (ledger.Reply, error) {
	return p.process(ctx)
}

func (p fakeProcessor) Process(ctx context.Context, _ ledger.Identity) (ledger.Reply, error) {
	return p.process(ctx)
}

// fakeSender is a [Sender] made of a function.
type fakeSender func(ctx context.Context) ledger.Outcome

func (f fakeSender) Send(ctx context.Context, _ string, _ ledger.Shipment) ledger.Outcome {
	return f(ctx)
}

func entry(state ledger.State, reason ledger.Reason, class ledger.Class) ledger.Entry {
	return ledger.Entry{
		Identity: ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"},
		Version:  2, State: state, Reason: reason, Class: class, Provider: "mail", Attempts: 1,
	}
}

func TestMetrics_SeriesForAlertsExistFromTheStart(t *testing.T) {
	h := newHarness(t)
	got := h.scraped()
	if age, ok := got["sendonce_backlog_age_seconds"]; !ok || age < 0 || age > 60 {
		t.Errorf("age of the backlog: %v, %v", age, ok)
	}
	delete(got, "sendonce_backlog_age_seconds")
	want := map[string]float64{
		`sendonce_retries_total{class="credentials"}`:      0,
		`sendonce_retries_total{class="throttled"}`:        0,
		`sendonce_retries_total{class="unreachable"}`:      0,
		`sendonce_retries_total{class="recipient"}`:        0,
		`sendonce_retries_total{class="unknown"}`:          0,
		`sendonce_dead_total{class="permanent"}`:           0,
		`sendonce_dead_total{class="recipient"}`:           0,
		`sendonce_dead_total{class="exhausted"}`:           0,
		`sendonce_dead_total{class="unroutable"}`:          0,
		`sendonce_dead_total{class="malformed"}`:           0,
		`sendonce_dead_total{class="broker"}`:              0,
		`sendonce_sent_total{receipt="present"}`:           0,
		`sendonce_sent_total{receipt="unreadable"}`:        0,
		`sendonce_sent_total{receipt="assumed"}`:           0,
		`sendonce_sent_total{receipt="resolved"}`:          0,
		`sendonce_duplicates_total`:                        0,
		`sendonce_conflicts_total`:                         0,
		`sendonce_ledger_unavailable_total`:                0,
		`sendonce_backlog_failures_total`:                  0,
		`sendonce_sweeps_total`:                            0,
		`sendonce_late_total{kind="late_acceptance"}`:      0,
		`sendonce_late_total{kind="late_failure"}`:         0,
		`sendonce_late_total{kind="replayed"}`:             0,
		`sendonce_late_total{kind="possible_second_send"}`: 0,
		`target_info{service_name="sendonce",service_version="v1.2.3",telemetry_sdk_language="go",telemetry_sdk_name="opentelemetry",telemetry_sdk_version="1.47.0"}`: 1,
	}
	for _, provider := range []string{"mail", "sms"} {
		for _, outcome := range []string{"unknown", "accepted", "refused", "gone", "credentials", "throttled", "unreachable", "deferred"} {
			want[`sendonce_attempts_total{outcome="`+outcome+`",provider="`+provider+`"}`] = 0
		}
		for _, result := range []string{"found", "not_found", "unanswered"} {
			want[`sendonce_lookups_total{provider="`+provider+`",result="`+result+`"}`] = 0
		}
	}
	for _, result := range []string{
		"redriven", "reparsed", "gone", "already_sent", "in_progress", "unknown", "not_wanted", "moved", "permanent", "parked", "purged",
		"expired", "unroutable", "malformed", "refused", "failed",
	} {
		want[`sendonce_redriven_total{result="`+result+`"}`] = 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestGauges_AbsentBeforeTheFirstBacklog(t *testing.T) {
	for name := range newHarness(t).scraped() {
		for _, gauge := range []string{"sendonce_pending", "sendonce_ready", "sendonce_dead{", "sendonce_gate_closed"} {
			if strings.HasPrefix(name, gauge) {
				t.Errorf("%s is shown before the first backlog", name)
			}
		}
	}
}

func TestMetrics_LabelOutsideItsClosedSetIsOther(t *testing.T) {
	h := newHarness(t)
	before := len(h.scraped())
	send := h.Sender(fakeSender(func(context.Context) ledger.Outcome { return ledger.Outcome{Result: ledger.Result(200)} }))
	for i := range 100_000 {
		random := "x" + strconv.Itoa(i*7919)
		h.Late(random)
		h.count(t.Context(), ledger.Reply{Entry: entry(ledger.Dead, "x", ledger.Class(random))}, false)
		sent := entry(ledger.Sent, ledger.ReasonAccepted, "")
		sent.ReceiptMissing = ledger.ReceiptMissing(random)
		h.count(t.Context(), ledger.Reply{Entry: sent}, false)
		waiting := ledger.Reply{Entry: entry(ledger.Waiting, "x", ledger.Class(random)), Outcome: &ledger.Outcome{}}
		h.count(t.Context(), waiting, false)
		if i%10 == 0 { // spans take much memory
			send.Send(t.Context(), random, ledger.Shipment{})
		}
	}
	h.gauges.set(ledger.Backlog{
		Pending: []ledger.PendingCount{{State: "odd", Count: 1}},
		Dead:    map[ledger.Class]int64{"odd": 1},
		Ready:   map[string]int64{"odd": 2, "even": 3, "mail": 4},
	}, time.Now(), time.Hour)
	h.Providers(func() []ledger.Gate { return []ledger.Gate{{Provider: "odd", Failures: 1}} },
		func() map[string]int { return map[string]int{"odd": 1, "sms": 5} })

	got := h.scraped()
	for name, want := range map[string]float64{
		`sendonce_late_total{kind="other"}`:                           100_000,
		`sendonce_dead_total{class="other"}`:                          100_000,
		`sendonce_sent_total{receipt="other"}`:                        100_000,
		`sendonce_retries_total{class="other"}`:                       100_000,
		`sendonce_attempts_total{outcome="unknown",provider="other"}`: 10_000,
		`sendonce_provider_seconds_count{provider="other"}`:           10_000,
		`sendonce_ready{provider="other"}`:                            5,
		`sendonce_ready{provider="mail"}`:                             4,
		`sendonce_capacity{provider="other"}`:                         1,
		`sendonce_capacity{provider="sms"}`:                           5,
		`sendonce_gate_closed{provider="other"}`:                      1,
		`sendonce_gate_closed{provider="mail"}`:                       0,
	} {
		if got[name] != want {
			t.Errorf("%s = %v, want %v", name, got[name], want)
		}
	}
	if grown := len(got) - before; grown > 60 {
		t.Errorf("%d more series after 100,000 values", grown)
	}
}

func TestStart_ExportsToTheCollectorFromTheEnvironment(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		got[q.URL.Path] += string(body) + q.Header.Get("x-tenant")
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
	t.Setenv("OTEL_SERVICE_NAME", "sendonce-eu")

	var log bytes.Buffer
	tel, err := Start(t.Context(), Options{
		Providers: []string{"mail"}, Logger: NewLogger(&log, slog.LevelInfo, false), OTLPTraces: true, OTLPMetrics: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	reply := ledger.Reply{Entry: entry(ledger.Sent, ledger.ReasonAccepted, ""), Ack: true}
	if _, err := tel.Deliverer(fakeProcessor{reply: reply}).Deliver(t.Context(), ledger.Delivery{Source: "reservations"}); err != nil {
		t.Fatal(err)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for path, word := range map[string]string{"/v1/traces": "rem-1842", "/v1/metrics": "sendonce_sent_total"} {
		for _, want := range []string{word, "blue", "sendonce-eu"} {
			if !strings.Contains(got[path], want) {
				t.Errorf("%s: no %q in what was sent", path, want)
			}
		}
	}
}

// A label must never stop a delivery: what can be read of it is used, and the rest is said once.
func TestStart_InvalidResourceAttributesAreAWarning(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "region=eu,canary,")
	t.Setenv("OTEL_SERVICE_NAME", "sendonce-eu")
	var log bytes.Buffer
	tel, err := Start(t.Context(), Options{Version: "v1", Logger: NewLogger(&log, slog.LevelInfo, false)})
	if err != nil {
		t.Fatal(err)
	}
	if warning := Warnings(t.Context()); len(warning) != 1 || !strings.Contains(log.String(), warning[0]) || strings.Contains(log.String(), "canary") {
		t.Errorf("warnings %q, log %s", warning, &log)
	}
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, label := range []string{`region="eu"`, `service_name="sendonce-eu"`, `service_version="v1"`} {
		if !strings.Contains(w.Body.String(), label) {
			t.Errorf("no label %s", label)
		}
	}
}

func TestStart_WithoutExporterLogsTraceIDsButRecordsNoSpan(t *testing.T) {
	var log bytes.Buffer
	tel, err := Start(t.Context(), Options{Logger: NewLogger(&log, slog.LevelInfo, false)})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	next := fakeProcessor{onCall: func(ctx context.Context) { Propagate(ctx, header) }, reply: ledger.Reply{Ack: true}}
	if _, err := tel.Deliverer(next).Deliver(t.Context(), ledger.Delivery{}); err != nil {
		t.Fatal(err)
	}
	parent := header.Get("traceparent")
	if len(parent) != 55 || !strings.HasSuffix(parent, "-00") {
		t.Errorf("traceparent %q, want one that is not sampled", parent)
	}
	if !strings.Contains(log.String(), `"trace_id":"`+parent[3:35]+`"`) {
		t.Errorf("%s is not in %s", parent, &log)
	}
}
