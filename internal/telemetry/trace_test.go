package telemetry

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/sendonce/sendonce/internal/ledger"
)

const (
	messageTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	messageSpan  = "00f067aa0ba902b7"
	requestTrace = "0af7651916cd43dd8448eb211c80319c"
	requestSpan  = "b7ad6b7169203331"
)

func TestTrace_MessageIsTheParentUnlessTheRequestHasOne(t *testing.T) {
	for name, c := range map[string]struct {
		header, carried       string
		state                 string
		trace, parent, linked string // of the delivery's span; "server" is the server's span
	}{
		"nothing came with either": {parent: "server"},
		"with the message":         {carried: messageTrace + "-" + messageSpan, trace: messageTrace, parent: messageSpan, linked: "server"},
		"with the request":         {header: requestTrace + "-" + requestSpan, trace: requestTrace, parent: "server"},
		"with both": {
			header: requestTrace + "-" + requestSpan, carried: messageTrace + "-" + messageSpan,
			trace: requestTrace, parent: "server", linked: messageSpan,
		},
		"the same with both": {
			header: requestTrace + "-" + requestSpan, carried: requestTrace + "-" + requestSpan,
			trace: requestTrace, parent: "server",
		},
		"an invalid trace":         {carried: "zzzz-" + messageSpan, parent: "server"},
		"a state that is too long": {carried: messageTrace + "-" + messageSpan, state: "a=" + strings.Repeat("x", 250) + ",b=" + strings.Repeat("y", 250) + ",c=" + strings.Repeat("z", 250), trace: messageTrace, parent: messageSpan, linked: "server"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			carried := ledger.Trace{State: c.state}
			if c.carried != "" {
				carried.Parent = "00-" + c.carried + "-01"
			}
			outgoing := http.Header{}
			next := fakeProcessor{onCall: func(ctx context.Context) { Propagate(ctx, outgoing) }}
			router := chi.NewRouter()
			router.Use(h.HTTP)
			router.Post("/v1/push/{source}", func(_ http.ResponseWriter, q *http.Request) {
				_, _ = h.Deliverer(next).Deliver(q.Context(), ledger.Delivery{Trace: carried})
			})
			q := httptest.NewRequest(http.MethodPost, "/v1/push/reservations", nil)
			q.Header.Set("baggage", "user=ada")
			if c.header != "" {
				q.Header.Set("traceparent", "00-"+c.header+"-01")
			}
			router.ServeHTTP(httptest.NewRecorder(), q)

			delivery, server := h.spans.GetSpans()[0], h.spans.GetSpans()[1]
			if server.Name != "POST /v1/push/{source}" || delivery.Name != "delivery" {
				t.Fatalf("spans %q, %q", server.Name, delivery.Name)
			}
			spanOf := func(word string) string {
				if word == "server" {
					return server.SpanContext.SpanID().String()
				}
				return word
			}
			if got := delivery.SpanContext.TraceID().String(); c.trace != "" && got != c.trace {
				t.Errorf("trace %s, want %s", got, c.trace)
			}
			if got := delivery.Parent.SpanID().String(); got != spanOf(c.parent) {
				t.Errorf("parent %s, want %s", got, spanOf(c.parent))
			}
			if got := linked(delivery); got != spanOf(c.linked) {
				t.Errorf("linked %q, want %q", got, spanOf(c.linked))
			}
			want := "00-" + delivery.SpanContext.TraceID().String() + "-" + delivery.SpanContext.SpanID().String() + "-01"
			if got := outgoing.Get("traceparent"); got != want {
				t.Errorf("propagated %q, want %q", got, want)
			}
			if len(outgoing.Get("tracestate")) > maxTraceState || outgoing.Get("baggage") != "" {
				t.Errorf("propagated %v", outgoing)
			}
		})
	}
}

func linked(s tracetest.SpanStub) string {
	var all []string
	for _, l := range s.Links {
		all = append(all, l.SpanContext.SpanID().String())
	}
	return strings.Join(all, ",")
}

func TestTrace_CallIsAChildOfItsDelivery(t *testing.T) {
	h := newHarness(t)
	outgoing := http.Header{}
	send := h.Sender(fakeSender(func(ctx context.Context) ledger.Outcome {
		Propagate(ctx, outgoing)
		return ledger.Outcome{Result: ledger.ResultAccepted}
	}))
	next := fakeProcessor{onCall: func(ctx context.Context) { send.Send(ctx, "mail", ledger.Shipment{}) }}
	if _, err := h.Deliverer(next).Deliver(t.Context(), ledger.Delivery{}); err != nil {
		t.Fatal(err)
	}
	call, delivery := h.spans.GetSpans()[0], h.spans.GetSpans()[1]
	if call.Parent.SpanID() != delivery.SpanContext.SpanID() {
		t.Error("the call is not the delivery's child")
	}
	if !strings.Contains(outgoing.Get("traceparent"), call.SpanContext.SpanID().String()) {
		t.Error("the provider does not get the call's span")
	}
}

func TestHTTP_LabelsRequestsByRoute(t *testing.T) {
	h := newHarness(t)
	router := chi.NewRouter()
	router.Use(h.HTTP)
	router.Get("/v1/reminders/{reminder_id}", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	router.Post("/v1/boom", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	router.Put("/v1/silent", func(http.ResponseWriter, *http.Request) {})

	do := func(method, path string) {
		q := httptest.NewRequest(http.MethodGet, path, nil)
		q.Method = method
		q.Host = "host-" + path[1:] + ".example"
		router.ServeHTTP(httptest.NewRecorder(), q)
	}
	for i := range 3 {
		do(http.MethodGet, "/v1/reminders/"+strconv.Itoa(i))
	}
	do(http.MethodPut, "/v1/silent")
	recovered(func() { do(http.MethodPost, "/v1/boom") })

	series := func(method, route, status string) string {
		return `http_server_request_duration_seconds_count{http_request_method="` + method +
			`",http_response_status_code="` + status + `",http_route="` + route + `"}`
	}
	before := h.scraped()
	for name, want := range map[string]float64{
		series("GET", "/v1/reminders/{reminder_id}", "202"): 3,
		series("PUT", "/v1/silent", "200"):                  1,
		series("POST", "/v1/boom", "500"):                   1,
	} {
		if before[name] != want {
			t.Errorf("%s = %v, want %v", name, before[name], want)
		}
	}
	h.spans.Reset()
	for i := range 100_000 {
		random := strconv.Itoa(i)
		do("M"+random, "/nowhere/"+random)
		if i%1000 == 0 {
			h.spans.Reset()
		}
	}
	after := h.changes(before)
	if after[series("_OTHER", "unmatched", "405")] != 100_000 || len(after) != 1 {
		t.Errorf("100,000 methods and paths made %v", after)
	}
}
