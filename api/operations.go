package api

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// readyTimeout bounds the readiness check.
const readyTimeout = time.Second

// Readiness checks that the ledger can be reached and that its schema is known.
type Readiness interface {
	Ready(ctx context.Context) error
}

// GateReader returns the gates of all providers.
type GateReader interface {
	Gates(ctx context.Context) ([]ledger.Gate, error)
}

// OperationsOptions configure [Operations].
type OperationsOptions struct {
	Ready     Readiness
	Gates     GateReader             // nil shows none
	Failover  func() ledger.Failover // the last one that was noticed; nil and the zero value show none
	Warnings  func() []string        // of the database's settings; nil shows none
	Draining  func() bool            // nil for never
	Metrics   http.Handler           // nil serves none
	Profiling bool                   // serves net/http/pprof under /debug/pprof
	Log       *slog.Logger           // nil discards
}

// Operations returns the handler for probes and Prometheus. It has no authentication: it belongs on a listener that
// only they can reach.
func Operations(o OperationsOptions) http.Handler {
	return (&operations{errorWriter: newErrorWriter(o.Log), OperationsOptions: o}).routes()
}

type operations struct {
	errorWriter
	OperationsOptions
}

func (o *operations) routes() chi.Router {
	r := chi.NewRouter()
	o.guard(r, nil)
	r.Get("/livez", o.live)
	r.Get("/readyz", o.ready)
	if o.Metrics != nil {
		r.Method(http.MethodGet, "/metrics", o.Metrics)
	}
	if o.Profiling {
		r.Get("/debug/pprof/*", pprof.Index)
		r.Get("/debug/pprof/cmdline", pprof.Cmdline)
		r.Get("/debug/pprof/profile", pprof.Profile)
		r.Get("/debug/pprof/symbol", pprof.Symbol)
		r.Get("/debug/pprof/trace", pprof.Trace)
	}
	return r
}

// live reports that the process serves requests. It checks no dependency: a restart would not repair a database.
func (o *operations) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, wire.Liveness{Status: wire.LivenessStatusAlive})
}

// ready reports whether requests should be sent to this replica. A closed gate is shown but never makes it unready:
// other providers are open, and waiting entries are safe. Neither does a failover: affected entries are held, all
// others go on.
func (o *operations) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	body := wire.Readiness{Status: wire.ReadinessStatusReady, Gates: []wire.Gate{}, Failover: o.failover()}
	if o.Warnings != nil {
		body.Warnings = o.Warnings()
	}
	switch {
	case o.Draining != nil && o.Draining():
		body.Status = wire.ReadinessStatusDraining
	case !o.databaseReady(ctx):
		body.Status = wire.ReadinessStatusUnavailable
	default:
		body.Gates = o.gates(ctx)
	}
	status := http.StatusOK
	if body.Status != wire.ReadinessStatusReady {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, body)
}

func (o *operations) databaseReady(ctx context.Context) bool {
	err := o.Ready.Ready(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "api: readiness check failed", "error", err)
	}
	return err == nil
}

func (o *operations) failover() wire.Failover {
	if o.Failover == nil {
		return wire.Failover{}
	}
	last := o.Failover()
	if last.Noticed.IsZero() {
		return wire.Failover{}
	}
	return wire.Failover{Noticed: last.Noticed.UTC(), Window: last.Window.String()}
}

func (o *operations) gates(ctx context.Context) []wire.Gate {
	if o.Gates == nil {
		return []wire.Gate{}
	}
	gates, err := o.Gates.Gates(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "api: reading the gates failed", "error", err)
	}
	shown := make([]wire.Gate, len(gates))
	for i, g := range gates {
		until, _ := g.ClosedUntil.Fixed()
		shown[i] = wire.Gate{Provider: g.Provider, ClosedUntil: until, Class: wire.Class(g.Class), Actor: g.Actor, Paused: g.Paused}
	}
	return shown
}
