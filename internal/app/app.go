// Package app joins the rooms: it builds from one checked configuration everything that serves, runs it
// until it is told to end, and ends it in an order that loses nothing.
//
// Invariants: what was started is stopped again, in reverse, also when the start fails half-way; after
// the first signal readiness is off before the listener closes, and what is in flight is settled.
//
// What it does not do: it decides nothing about a delivery, and reads neither flags nor environment.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/telemetry"
)

// Build is what the program knows of itself and its surroundings.
type Build struct {
	Version string
	Log     io.Writer
	Ready   func(public, operations net.Addr) // told once the listeners are open; may be nil
}

// Bounds of listeners and loops.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second // for a whole request
	idleTimeout       = 2 * time.Minute  // above what load balancers keep, so that they close first
	maxHeaderBytes    = 64 << 10
	censusEvery       = 15 * time.Second // as deploy/alerts.yaml expects
	workerPoll        = 500 * time.Millisecond
)

// Migrate brings the ledger's schema up to this version.
func Migrate(ctx context.Context, cfg config.Config) error {
	store, err := openStore(ctx, cfg, nil)
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}

// Run serves until ctx ends, then ends in good order: readiness off, answering for a moment more, the
// listeners closed, what is in flight finished within the configured grace.
func Run(ctx context.Context, cfg config.Config, build Build) error {
	log := telemetry.NewLogger(build.Log, cfg.Log.Level, cfg.Log.Format == config.LogText)
	house, err := open(ctx, cfg, build, log)
	if err != nil {
		return err
	}
	defer house.close()
	return house.serve(ctx, build)
}

// house is everything that serves, built and not yet running.
type house struct {
	cfg      config.Config
	log      *slog.Logger
	store    store
	desk     *deliver.Desk
	public   []*http.Server // the public listener, then the admin API's where it has one of its own
	ops      *http.Server
	worker   *deliver.Worker
	watches  []func(context.Context) // run until everything else has ended
	closers  []func() error
	draining atomic.Bool
}

// open builds the house; what was opened before an error is closed again.
func open(ctx context.Context, cfg config.Config, build Build, log *slog.Logger) (_ *house, err error) {
	h := &house{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	watch, err := telemetry.Start(ctx, telemetry.Options{
		Version: build.Version, Providers: names(cfg.Providers), Logger: log,
		OTLPTraces: cfg.OTLP.Traces, OTLPMetrics: cfg.OTLP.Metrics,
	})
	if err != nil {
		return nil, err
	}
	h.closers = append(h.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return watch.Shutdown(ctx)
	})
	if h.store, err = openStore(ctx, cfg, watch.TracerProvider()); err != nil {
		return nil, err
	}
	h.closers = append(h.closers, h.store.Close)
	if err := h.prepareSchema(ctx); err != nil {
		return nil, err
	}
	fleet, err := openFleet(cfg, h.store, watch, log)
	if err != nil {
		return nil, err
	}
	_ = fleet.Look(ctx) // so that the first deliveries find open gates open; without it they count as closed
	if h.desk, err = openDesk(cfg, h.store, fleet, watch); err != nil {
		return nil, err
	}
	surface, err := openSurface(cfg, h.store, h.desk, watch, log)
	if err != nil {
		return nil, err
	}
	h.worker = &deliver.Worker{
		Agenda: h.store, Capacity: fleet, Visitor: watch.Visitor(h.desk),
		Poll: workerPoll, Sweep: cfg.Sweep,
		Failed: seldom(30*time.Second, func(err error) { log.Warn("the agenda cannot be read", "error", err) }),
	}
	h.watches = []func(context.Context){
		fleet.Run,
		func(ctx context.Context) { watch.Watch(ctx, h.store, censusEvery) },
	}
	if cfg.AdminListen == "" {
		h.public = []*http.Server{server(cfg.Listen, api.New(surface), writeTimeout(cfg), log)}
	} else {
		h.public = []*http.Server{
			server(cfg.Listen, api.NewPublic(surface), writeTimeout(cfg), log),
			server(cfg.AdminListen, api.NewAdmin(surface), writeTimeout(cfg), log),
		}
	}
	h.ops = server(cfg.OpsListen, api.Operations(api.OperationsOptions{
		Ready: readiness{h.store}, Gates: closedGates(fleet), Draining: h.draining.Load,
		Metrics: watch.Handler(), Profiling: cfg.Pprof, Log: log,
	}), time.Minute, log)
	return h, nil
}

// prepareSchema migrates an embedded ledger, which nobody else could. A PostgreSQL that others share is
// migrated by 'sendonce migrate'; until then readiness says so.
func (h *house) prepareSchema(ctx context.Context) error {
	if h.cfg.Database.Path != "" {
		return h.store.Migrate(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.store.Ping(ctx); err != nil {
		h.log.Error("the ledger is not ready, and nothing is sent until it is; a schema is prepared by 'sendonce migrate -config FILE'", "error", err)
	}
	return nil
}

// serve runs worker, watches and listeners until ctx ends or a listener fails.
func (h *house) serve(ctx context.Context, build Build) error {
	servers := append(h.public[:len(h.public):len(h.public)], h.ops)
	listeners, err := listen(servers)
	if err != nil {
		return err
	}
	watching, stopWatches := context.WithCancel(context.Background())
	var watches, work sync.WaitGroup
	for _, watch := range h.watches {
		watches.Go(func() { watch(watching) })
	}
	defer watches.Wait()
	defer stopWatches()
	working, stopWork := context.WithCancel(watching)
	work.Go(func() { h.worker.Run(working) })
	failed := make(chan error, len(servers))
	for i, server := range servers {
		go func() { failed <- server.Serve(listeners[i]) }()
	}
	public, ops := listeners[0].Addr(), listeners[len(listeners)-1].Addr()
	h.log.Info("serving", "version", build.Version, "listen", public.String(), "ops_listen", ops.String())
	if build.Ready != nil {
		build.Ready(public, ops)
	}

	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
	}
	return errors.Join(cause, h.drain(stopWork, &work))
}

// listen opens every listener, or none.
func listen(servers []*http.Server) ([]net.Listener, error) {
	var open []net.Listener
	for _, server := range servers {
		listener, err := net.Listen("tcp", server.Addr)
		if err != nil {
			for _, other := range open {
				err = errors.Join(err, other.Close())
			}
			return nil, err
		}
		open = append(open, listener)
	}
	return open, nil
}

// drain ends the service in an order that loses nothing.
func (h *house) drain(stopWork func(), work *sync.WaitGroup) error {
	h.log.Info("ending", "drain", h.cfg.Drain.String(), "grace", h.cfg.Grace.String())
	h.draining.Store(true)
	stopWork() // the worker takes nothing new
	time.Sleep(h.cfg.Drain)

	ctx, cancel := context.WithTimeout(context.Background(), h.cfg.Grace)
	defer cancel()
	var err error
	for _, server := range h.public {
		err = errors.Join(err, server.Shutdown(ctx))
	}
	idle := make(chan error, 1)
	go func() {
		work.Wait() // first, so that no worker comes to the desk any more
		idle <- h.desk.Wait(ctx)
	}()
	select {
	case left := <-idle:
		err = errors.Join(err, left)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("not everything ended within %s; what was in flight is looked after when its lease has lapsed: %w", h.cfg.Grace, err)
	}
	err = errors.Join(err, h.ops.Shutdown(ctx))
	h.log.Info("ended")
	return err
}

func (h *house) close() {
	for i := len(h.closers) - 1; i >= 0; i-- {
		if err := h.closers[i](); err != nil {
			h.log.Warn("closing", "error", err)
		}
	}
}

// seldom tells at most once in a span: while the ledger is away every lane finds out twice a second.
func seldom(span time.Duration, tell func(error)) func(error) {
	var mu sync.Mutex
	var last time.Time
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= span {
			last = time.Now()
			tell(err)
		}
	}
}

func server(addr string, handler http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: write,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// writeTimeout leaves room for the longest patience, so that no answer is cut off by ourselves.
func writeTimeout(cfg config.Config) time.Duration {
	longest := callerPatience
	for _, s := range cfg.Sources {
		longest = max(longest, s.AnswerWithin)
	}
	return longest + readTimeout + 5*time.Second
}
