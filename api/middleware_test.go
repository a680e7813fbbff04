package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

func TestRoutes_WrongMethodGetsAllow(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/push/seats", "POST"},
		{"GET", "/v1/reminders", "POST"},
		{"DELETE", "/v1/reminders/r", "GET, HEAD"},
		{"POST", "/v1/reminders/a%2Fb", "GET, HEAD"},
		{"GET", "/v1/reminders/r/cancel", "POST"},
		{"PATCH", "/v1/admin/entries", "GET, HEAD"},
		{"TRACE", "/v1/admin/entries", "GET, HEAD"},
		{"PUT", "/v1/admin/entries/x", "GET, HEAD"},
		{"GET", "/v1/admin/entries/x/resolve", "POST"},
		{"POST", "/v1/admin/reconciliation", "GET, HEAD"},
		{"GET", "/v1/admin/reconciliation/runs", "POST"},
		{"GET", "/v1/providers/mail/events", "POST"},
		{"POST", "/v1/admin/dead-letters", "GET, HEAD"},
		{"POST", "/v1/admin/dead-letters/groups", "GET, HEAD"},
		{"DELETE", "/v1/admin/redrives", "GET, HEAD, POST"},
		{"GET", "/v1/admin/redrives/x/cancel", "POST"},
		{"GET", "/v1/admin/users/u-77/data", "DELETE"},
		{"OPTIONS", "/v1/admin/users/u%2F77/data", "DELETE"},
		{"OPTIONS", "/v1/reminders", "POST"},
		{"PROPFIND", "/v1/reminders", "POST"},
		{"HEAD", "/v1/reminders", "POST"},
		{"HEAD", "/v1/push/seats", "POST"},
		{"HEAD", "/v1/reminders/r/cancel", "POST"},
	} {
		w := h.expect(request(c.method, c.path, "producer", ""), 405, wire.ProblemCodeMethodNotAllowed)
		if got := w.Header().Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow is %q, not %q", c.method, c.path, got, c.allow)
		}
	}
}

func TestRoutes_HeadIsAnsweredAsGetWithoutBody(t *testing.T) {
	services := httptest.NewServer(newHarness(t, working()).handler)
	defer services.Close()
	probes := httptest.NewServer(Operations(OperationsOptions{
		Ready: readiness(reachable), Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1")) }),
	}))
	defer probes.Close()
	for _, address := range []string{
		probes.URL + "/livez", probes.URL + "/readyz", probes.URL + "/metrics", services.URL + "/v1/reminders/r",
		services.URL + "/v1/admin/entries", services.URL + "/v1/admin/audit", services.URL + "/v1/nothing",
	} {
		answers := map[string]*http.Response{}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			r, err := http.NewRequestWithContext(t.Context(), method, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer admin")
			w, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Body.Close()
			answers[method] = w
		}
		get, head := answers[http.MethodGet], answers[http.MethodHead]
		if body, err := io.ReadAll(head.Body); head.StatusCode != get.StatusCode || len(body) != 0 || err != nil ||
			head.Header.Get("Content-Type") != get.Header.Get("Content-Type") {
			t.Errorf("%s: HEAD is answered with %d and %q, GET with %d", address, head.StatusCode, body, get.StatusCode)
		}
	}
}

func TestRoutes_OtherPathsAreNotFound(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, path := range []string{
		"/", "/metrics", "/debug/pprof/", "/debug/vars", "/livez", "/readyz", "/healthz", "/admin", "/v1", "/v1/", "/v1/push", "/v1/push/",
		"/v1/reminders/", "/v1/reminders/r/", "/v1//reminders", "/V1/reminders", "/v1/admin/", "/v1/reminders/r/cancel/", "/openapi.yaml",
		"/v1/providers", "/v1/providers/mail", "/v1/admin/reconciliation/", "/v1/admin/entries/x/discard",
	} {
		for _, method := range []string{"GET", "POST", "TRACE", "CANARY"} {
			h.expect(request(method, path, "admin", ""), 404, wire.ProblemCodeNotFound)
		}
	}
}

func TestRoutes_HostileMethodsAndPathsCreateNoPatterns(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	patterns := map[string]bool{}
	draw := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		method := fmt.Sprintf("M%X", draw.Uint64())
		w := h.do(request(method, fmt.Sprintf("/%x/%x", draw.Uint32(), draw.Uint32()), "", ""))
		patterns[h.pattern] = true
		if w.Code != 404 {
			t.Fatalf("%s is answered with %d", method, w.Code)
		}
		w = h.do(request(method, "/v1/reminders/"+fmt.Sprint(draw.Uint64()), "", ""))
		patterns[h.pattern] = true
		if w.Code != 405 {
			t.Fatalf("%s is answered with %d", method, w.Code)
		}
	}
	if len(patterns) != 1 || !patterns[""] {
		t.Errorf("%d patterns: %v", len(patterns), patterns)
	}
}

func TestMiddleware_NoCrossOriginHeaders(t *testing.T) {
	h := newHarness(t, working())
	for _, origin := range []string{"https://evil.test", "null"} {
		for _, method := range []string{"GET", "OPTIONS"} { // do looks at every answer's headers
			r := request(method, "/v1/reminders/r", "producer", "")
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			h.do(r)
		}
	}
}

func TestMiddleware_RefusesForeignHosts(t *testing.T) {
	h := newHarness(t, working(), func(o *Options) { o.AllowedHosts = []string{"localhost", "127.0.0.1", "::1"} })
	for host, status := range map[string]int{
		"localhost": 200, "LocalHost:8080": 200, "127.0.0.1:8080": 200, "127.0.0.1": 200, "[::1]:8080": 200, "[::1]": 200,
		"evil.test": 421, "evil.test:8080": 421, "localhost.evil.test": 421, "": 421, "127.0.0.1.evil.test:80": 421, "127.0.0.2": 421, "localhost:8080:1": 421,
	} {
		r := request("GET", "/v1/reminders/r", "producer", "")
		r.Host = host
		code := wire.ProblemCode("")
		if status == 421 {
			code = wire.ProblemCodeMisdirected
		}
		h.expect(r, status, code)
	}
}

func TestMiddleware_PanicIsProblemWithoutDetail(t *testing.T) {
	h := newHarness(t, &fakeServices{request: func(_ context.Context, _ string, r reminder.Reminder, _ ledger.Trace) (ledger.Reply, error) {
		panic("cannot send to " + r.To)
	}})
	w := h.expect(request("POST", "/v1/reminders", "producer", aReminder), 500, wire.ProblemCodeInternal)
	p := decoded[wire.Problem](t, w)
	if strings.Contains(w.Body.String(), "canary") || strings.Contains(h.log.String(), "canary") {
		t.Errorf("answer %s, log %s", w.Body, h.log)
	}
	if p.CorrelationID == "" || !strings.Contains(h.log.String(), p.CorrelationID) || !strings.Contains(h.log.String(), "middleware_test.go") {
		t.Errorf("the log does not have the location: %s", h.log)
	}
}

func TestProblemOf_UnlistedErrorIs500WithoutDetail(t *testing.T) {
	p := problemOf(errors.New("canary"))
	if p.Status != 500 || p.Code != wire.ProblemCodeInternal || strings.Contains(fmt.Sprint(p), "canary") {
		t.Errorf("%+v", p)
	}
	for _, known := range problems {
		if got := problemOf(fmt.Errorf("canary: %w", known.err)); got.Code != known.code || got.Status != known.status {
			t.Errorf("%v: %+v", known.err, got)
		}
	}
}

// panickingFormat panics in the middle of its answer.
type panickingFormat struct{ fakeFormat }

func (panickingFormat) Answer(w http.ResponseWriter, _ ledger.Reply) {
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, "half")
	panic(errors.New("cut off"))
}

func TestMiddleware_PanicAbortsStartedResponse(t *testing.T) {
	h := newHarness(t, &fakeServices{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, nil
	}}, func(o *Options) {
		o.Sources = map[string]Source{"panicking": {Format: panickingFormat{newFakeFormat(t, "panicking", bodyLimit)}}}
	})
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares so
			t.Errorf("recovered %v", cause)
		}
		if !strings.Contains(h.log.String(), "response aborted after a panic") {
			t.Errorf("the log says %s", h.log)
		}
	}()
	h.handler.ServeHTTP(httptest.NewRecorder(), push("panicking", "push-secret", "x"))
	t.Error("the answer was not cut off")
}

func TestMiddleware_HandlerMayAbort(t *testing.T) {
	h := newHarness(t, &fakeServices{find: func(context.Context, string) ([]ledger.Entry, error) { panic(http.ErrAbortHandler) }})
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares so
			t.Errorf("recovered %v", cause)
		}
	}()
	h.handler.ServeHTTP(httptest.NewRecorder(), request("GET", "/v1/reminders/r", "producer", ""))
	t.Error("the handler did not abort")
}

func TestReadBody_ChunkedBodyIsBoundedAndConnectionClosed(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	server := httptest.NewServer(h.handler)
	defer server.Close()
	r, err := http.NewRequest(http.MethodPost, server.URL+"/v1/reminders", io.MultiReader(bytes.NewReader(make([]byte, bodyLimit)), strings.NewReader("x")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer producer")
	r.Header.Set("Content-Type", "application/json")
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 413 || !answer.Close {
		t.Errorf("answered with %d, closed: %v", answer.StatusCode, answer.Close)
	}
}
