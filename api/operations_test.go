package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

type readiness func(context.Context) error

func (f readiness) Ready(ctx context.Context) error { return f(ctx) }

type gates func(context.Context) ([]ledger.Gate, error)

func (f gates) Gates(ctx context.Context) ([]ledger.Gate, error) { return f(ctx) }

func reachable(context.Context) error { return nil }

// newOperationsHarness returns a harness for the operations handler.
func newOperationsHarness(t *testing.T, o OperationsOptions) *harness {
	t.Helper()
	h := &harness{t: t, doc: contract(t), log: &bytes.Buffer{}}
	o.Log = slog.New(slog.NewJSONHandler(h.log, nil))
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Operations(o).ServeHTTP(w, r)
		if h.doc.Paths.Value(r.URL.Path) != nil {
			h.pattern = r.URL.Path
		}
	})
	return h
}

func TestReady_DependsOnLedgerAndDrainNeverOnGates(t *testing.T) {
	closed := gates(func(context.Context) ([]ledger.Gate, error) {
		return []ledger.Gate{
			{Provider: "mail", ClosedUntil: ledger.At(testNow), Class: ledger.ClassCredentials, Actor: "outcome", Failures: 3},
			{Provider: "sms", Actor: "oncall", Paused: true},
		}, nil
	})
	shown := []wire.Gate{{Provider: "mail", ClosedUntil: testNow, Class: "credentials", Actor: "outcome"}, {Provider: "sms", Actor: "oncall", Paused: true}}
	none := []wire.Gate{}
	for _, c := range []struct {
		name   string
		o      OperationsOptions
		status int
		want   wire.Readiness
	}{
		{"ready", OperationsOptions{Ready: readiness(reachable)}, 200, wire.Readiness{Status: "ready", Gates: none}},
		{"gate closed", OperationsOptions{Ready: readiness(reachable), Gates: closed}, 200, wire.Readiness{Status: "ready", Gates: shown}},
		{"gates unread", OperationsOptions{Ready: readiness(reachable), Gates: gates(func(context.Context) ([]ledger.Gate, error) {
			return nil, errors.New("canary")
		})}, 200, wire.Readiness{Status: "ready", Gates: none}},
		{"no ledger", OperationsOptions{Ready: readiness(func(context.Context) error {
			return errors.New("postgres://user:canary@db refused")
		}), Gates: closed}, 503, wire.Readiness{Status: "unavailable", Gates: none}},
		{"draining", OperationsOptions{
			Ready: readiness(func(context.Context) error { t.Error("a draining process checks the ledger"); return nil }), Draining: func() bool { return true },
		}, 503, wire.Readiness{Status: "draining", Gates: none}},
		{"failed over long ago", OperationsOptions{Ready: readiness(reachable), Failover: func() ledger.Failover {
			return ledger.Failover{Noticed: testNow, Window: 5 * time.Minute}
		}}, 200, wire.Readiness{Status: "ready", Gates: none, Failover: wire.Failover{Noticed: testNow, Window: "5m0s"}}},
		{"failed over, with an empty window", OperationsOptions{Ready: readiness(reachable), Failover: func() ledger.Failover {
			return ledger.Failover{Noticed: testNow}
		}}, 200, wire.Readiness{Status: "ready", Gates: none, Failover: wire.Failover{Noticed: testNow, Window: "0s"}}},
		{"failed over, and ledger unreachable", OperationsOptions{Ready: readiness(func(context.Context) error { return errors.New("unreachable") }), Failover: func() ledger.Failover {
			return ledger.Failover{Noticed: testNow, Window: time.Minute}
		}}, 503, wire.Readiness{Status: "unavailable", Gates: none, Failover: wire.Failover{Noticed: testNow, Window: "1m0s"}}},
		{"never failed over", OperationsOptions{Ready: readiness(reachable), Failover: func() ledger.Failover {
			return ledger.Failover{Window: time.Minute}
		}}, 200, wire.Readiness{Status: "ready", Gates: none}},
		{"a setting that may lose commits", OperationsOptions{
			Ready: readiness(reachable), Warnings: func() []string { return []string{"fsync = off"} },
		}, 200, wire.Readiness{Status: "ready", Gates: none, Warnings: []string{"fsync = off"}}},
		{"not draining", OperationsOptions{Ready: readiness(reachable), Draining: func() bool { return false }}, 200, wire.Readiness{Status: "ready", Gates: none}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newOperationsHarness(t, c.o)
			w := h.expect(request("GET", "/readyz", "", ""), c.status, "")
			if diff := cmp.Diff(c.want, decoded[wire.Readiness](t, w)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(w.Body.String(), "canary") {
				t.Errorf("the answer reveals too much: %s", w.Body)
			}
			if strings.Contains(w.Body.String(), "failover") != !c.want.Failover.Noticed.IsZero() {
				t.Errorf("a failover that never happened is shown: %s", w.Body)
			}
			h.expect(request("GET", "/livez", "", ""), 200, "")
		})
	}
}

func TestReady_TimesOutAfterOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newOperationsHarness(t, OperationsOptions{Ready: readiness(func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})})
		begun := time.Now()
		h.expect(request("GET", "/readyz", "", ""), 503, "")
		if took := time.Since(begun); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestOperations_MetricsAndOptionalProfiling(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, "up 1\n")
	})
	h := newOperationsHarness(t, OperationsOptions{Ready: readiness(reachable), Metrics: metrics})
	if w := h.expect(request("GET", "/metrics", "", ""), 200, ""); w.Body.String() != "up 1\n" {
		t.Errorf("metrics are %s", w.Body)
	}
	h.expect(request("POST", "/metrics", "", ""), 405, wire.ProblemCodeMethodNotAllowed)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/v1/reminders", "/"} {
		h.expect(request("GET", path, "", ""), 404, wire.ProblemCodeNotFound)
	}
	bare := newOperationsHarness(t, OperationsOptions{Ready: readiness(reachable)})
	if w := bare.do(request("GET", "/livez", "", "")); w.Code != 200 {
		t.Errorf("livez: %d", w.Code)
	}

	profiled := Operations(OperationsOptions{Ready: readiness(reachable), Profiling: true})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap?debug=1", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline", "/debug/pprof/symbol"} {
		w := httptest.NewRecorder()
		profiled.ServeHTTP(w, request("GET", path, "", ""))
		if w.Code != 200 || w.Body.Len() == 0 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}
