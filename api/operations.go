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

// readyWithin bounds what readiness asks.
const readyWithin = time.Second

// Readiness asks whether the ledger can be reached and its schema is known.
type Readiness interface {
	Ready(ctx context.Context) error
}

// GateReader reads the gates of all providers.
type GateReader interface {
	Gates(ctx context.Context) ([]ledger.Gate, error)
}

// OperationsOptions are what the operations surface stands on.
type OperationsOptions struct {
	Ready     Readiness
	Gates     GateReader             // nil shows none
	Failover  func() ledger.Failover // the last that is known of; nil and the zero value show none
	Draining  func() bool            // nil never drains
	Metrics   http.Handler           // nil serves none
	Profiling bool                   // serves net/http/pprof under /debug/pprof
	Log       *slog.Logger           // nil discards
}

// Operations is the surface for probes and Prometheus. It has no authentication: it belongs on a listener
// that only they reach.
func Operations(o OperationsOptions) http.Handler {
	return (&operations{edge: newEdge(o.Log), OperationsOptions: o}).routes()
}

type operations struct {
	edge
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

// live says that the process serves. It asks nobody: a restart would not mend a database.
func (o *operations) live(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, wire.Liveness{Status: wire.LivenessStatusAlive})
}

// ready says whether requests should come here. A gate is shown and never makes it unready: the other
// providers are open, and what waits is safe. Neither does a failover: what it touches is held, the rest flows.
func (o *operations) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	body := wire.Readiness{Status: wire.ReadinessStatusReady, Gates: []wire.Gate{}, Failover: o.failover()}
	switch {
	case o.Draining != nil && o.Draining():
		body.Status = wire.ReadinessStatusDraining
	case !o.reached(ctx):
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

func (o *operations) reached(ctx context.Context) bool {
	err := o.Ready.Ready(ctx)
	if err != nil {
		o.log.WarnContext(ctx, "not ready", "error", err)
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
		o.log.WarnContext(ctx, "the gates cannot be read", "error", err)
	}
	shown := make([]wire.Gate, len(gates))
	for i, g := range gates {
		until, _ := g.ClosedUntil.Fixed()
		shown[i] = wire.Gate{Provider: g.Provider, ClosedUntil: until, Class: wire.Class(g.Class), By: g.By, Paused: g.Paused}
	}
	return shown
}
