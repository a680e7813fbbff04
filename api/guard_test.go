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

func TestAWrongMethodIsToldTheRightOnes(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for _, c := range []struct{ method, path, allow string }{
		{"GET", "/v1/push/letters", "POST"},
		{"GET", "/v1/reminders", "POST"},
		{"DELETE", "/v1/reminders/r", "GET"},
		{"POST", "/v1/reminders/a%2Fb", "GET"},
		{"GET", "/v1/reminders/r/cancel", "POST"},
		{"PATCH", "/v1/admin/entries", "GET"},
		{"TRACE", "/v1/admin/entries", "GET"},
		{"PUT", "/v1/admin/entries/x", "GET"},
		{"GET", "/v1/admin/entries/x/resolve", "POST"},
		{"POST", "/v1/admin/reconciliation", "GET"},
		{"GET", "/v1/admin/reconciliation/runs", "POST"},
		{"GET", "/v1/providers/mail/events", "POST"},
		{"POST", "/v1/admin/dead-letters", "GET"},
		{"POST", "/v1/admin/dead-letters/groups", "GET"},
		{"DELETE", "/v1/admin/redrives", "GET, POST"},
		{"GET", "/v1/admin/redrives/x/cancel", "POST"},
		{"GET", "/v1/admin/users/u-77/data", "DELETE"},
		{"OPTIONS", "/v1/admin/users/u%2F77/data", "DELETE"},
		{"OPTIONS", "/v1/reminders", "POST"},
		{"PROPFIND", "/v1/reminders", "POST"},
		{"HEAD", "/v1/reminders/r", "GET"},
	} {
		w := h.wants(request(c.method, c.path, "producer", ""), 405, wire.ProblemCodeMethodNotAllowed)
		if got := w.Header().Get("Allow"); got != c.allow {
			t.Errorf("%s %s: Allow is %q, not %q", c.method, c.path, got, c.allow)
		}
	}
}

func TestThePublicSurfaceHasNothingButItsRoutes(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for _, path := range []string{
		"/", "/metrics", "/debug/pprof/", "/debug/vars", "/livez", "/readyz", "/healthz", "/admin", "/v1", "/v1/", "/v1/push", "/v1/push/",
		"/v1/reminders/", "/v1/reminders/r/", "/v1//reminders", "/V1/reminders", "/v1/admin/", "/v1/reminders/r/cancel/", "/openapi.yaml",
		"/v1/providers", "/v1/providers/mail", "/v1/admin/reconciliation/", "/v1/admin/entries/x/discard",
	} {
		for _, method := range []string{"GET", "POST", "TRACE", "CANARY"} {
			h.wants(request(method, path, "admin", ""), 404, wire.ProblemCodeNotFound)
		}
	}
}

func TestHostileMethodsAndPathsMakeNoRoutes(t *testing.T) {
	h := newHouse(t, &collaborators{})
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

func TestNoAnswerOpensTheHouseToOtherOrigins(t *testing.T) {
	h := newHouse(t, willing())
	for _, origin := range []string{"https://evil.test", "null"} {
		for _, method := range []string{"GET", "OPTIONS"} { // do looks at every answer's headers
			r := request(method, "/v1/reminders/r", "producer", "")
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			h.do(r)
		}
	}
}

func TestAForeignHostIsRefusedWhereHostsAreNamed(t *testing.T) {
	h := newHouse(t, willing(), func(o *Options) { o.AllowedHosts = []string{"localhost", "127.0.0.1", "::1"} })
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
		h.wants(r, status, code)
	}
}

func TestAPanicIsAnsweredAsAProblemWithoutDetail(t *testing.T) {
	h := newHouse(t, &collaborators{request: func(_ context.Context, _ string, r reminder.Reminder, _ ledger.Trace) (ledger.Reply, error) {
		panic("cannot send to " + r.To)
	}})
	w := h.wants(request("POST", "/v1/reminders", "producer", aReminder), 500, wire.ProblemCodeInternal)
	p := decoded[wire.Problem](t, w)
	if strings.Contains(w.Body.String(), "canary") || strings.Contains(h.log.String(), "canary") {
		t.Errorf("answer %s, log %s", w.Body, h.log)
	}
	if p.CorrelationID == "" || !strings.Contains(h.log.String(), p.CorrelationID) || !strings.Contains(h.log.String(), "guard_test.go") {
		t.Errorf("the log does not tell where: %s", h.log)
	}
}

func TestAnErrorThatTheTableDoesNotListIsA500WithoutDetail(t *testing.T) {
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

// broken is a format that panics in the middle of its answer.
type broken struct{ letter }

func (broken) Answer(w http.ResponseWriter, _ ledger.Reply) {
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, "half")
	panic(errors.New("torn"))
}

func TestAnAnswerThatHadBegunIsCutOff(t *testing.T) {
	h := newHouse(t, &collaborators{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, nil
	}}, func(o *Options) {
		o.Sources = map[string]Source{"broken": {Format: broken{newLetter(t, "broken", bodyLimit)}}}
	})
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares so
			t.Errorf("recovered %v", cause)
		}
		if !strings.Contains(h.log.String(), "an answer was cut off") {
			t.Errorf("the log says %s", h.log)
		}
	}()
	h.handler.ServeHTTP(httptest.NewRecorder(), push("broken", "letter-secret", "x"))
	t.Error("the answer was not cut off")
}

func TestAHandlerMayAbort(t *testing.T) {
	h := newHouse(t, &collaborators{find: func(context.Context, string) ([]ledger.Entry, error) { panic(http.ErrAbortHandler) }})
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // net/http compares so
			t.Errorf("recovered %v", cause)
		}
	}()
	h.handler.ServeHTTP(httptest.NewRecorder(), request("GET", "/v1/reminders/r", "producer", ""))
	t.Error("the handler did not abort")
}

func TestOverARealConnectionAChunkedBodyIsBoundedAndTheConnectionClosed(t *testing.T) {
	h := newHouse(t, &collaborators{})
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
