// Package app wires the components: it builds the gateway from one checked configuration, runs it until its
// context ends, and shuts it down in an order that loses nothing.
//
// Invariants: what was started is stopped in reverse order, also when the start fails half-way; on shutdown
// readiness is off before the listener closes, and sends in flight are settled.
//
// What it does not do: it decides nothing about a delivery, and reads neither flags nor the environment.
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
	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

// Build is the program's version and its connections to the process and to tests.
type Build struct {
	Version string
	Log     io.Writer
	Ready   func(public, operations net.Addr) // called once the listeners are open; may be nil
	Hooks   TestHooks                         // what a test build wraps the components with
}

// Timeouts and limits of the listeners, and intervals of the background loops.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second // for a whole request
	maxHeaderBytes    = 64 << 10
	backlogEvery      = 15 * time.Second // as deploy/alerts.yaml expects
	workerPoll        = 500 * time.Millisecond
	redrivePoll       = 500 * time.Millisecond // so that a cancel is seen within a second
	purgeEvery        = 24 * time.Hour
	purgePagePause    = 500 * time.Millisecond // a million entries take a quarter of an hour
)

// Migrate migrates the ledger's schema to this version.
func Migrate(ctx context.Context, cfg config.Config) error {
	store, err := openStore(ctx, cfg, nil, time.Now)
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}

// Check builds the providers and sources and reads the database's URL as serve would, without opening a connection, so
// that 'check-config' also finds what only these packages can check of their settings.
func Check(cfg config.Config) error {
	var faults []error
	if cfg.Database.Path == "" {
		if err := postgres.Check(postgresOptions(cfg)); err != nil {
			faults = append(faults, fmt.Errorf("database.url: %w", err))
		}
	}
	for _, name := range names(cfg.Providers) {
		if _, err := newProvider(name, cfg.Providers[name], outbound.New(outbound.Options{}), time.Now); err != nil {
			faults = append(faults, fmt.Errorf("providers.%s: %w", name, err))
		}
	}
	for _, name := range names(cfg.Sources) {
		if _, err := newFormat(name, cfg.Sources[name], new(http.Client), time.Now); err != nil {
			faults = append(faults, fmt.Errorf("sources.%s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// Warnings returns what serve would log about settings that it cannot follow, and that never stop it.
func Warnings(ctx context.Context, cfg config.Config) []string {
	return append(cfg.OTLP.Warnings[:len(cfg.OTLP.Warnings):len(cfg.OTLP.Warnings)], telemetry.Warnings(ctx)...)
}

// Run serves until ctx ends, then shuts down: readiness off, answering for the configured drain, the listeners
// closed, sends in flight finished within the configured grace.
func Run(ctx context.Context, cfg config.Config, build Build) error {
	log := telemetry.NewLogger(build.Log, cfg.Log.Level, cfg.Log.Format == config.LogText)
	gateway, err := newGateway(ctx, cfg, build, log)
	if err != nil {
		return err
	}
	defer gateway.close()
	return gateway.serve(ctx, build)
}

// gateway holds all components, built and not yet running.
type gateway struct {
	cfg        config.Config
	log        *slog.Logger
	store      store
	deliverer  *deliver.Deliverer
	public     []*http.Server // the public listener, then the admin API's where it has one of its own
	ops        *http.Server
	worker     *deliver.Worker
	reconciler *reconcile.Reconciler
	redriver   *redrive.Redriver
	purger     *retention.Purger
	background []func(context.Context) // run until everything else has stopped
	closers    []func() error
	draining   atomic.Bool
	warnings   []string // of the database's settings, as they were at the start
}

// newGateway builds the gateway; after an error, what was opened before it is closed again.
func newGateway(ctx context.Context, cfg config.Config, build Build, log *slog.Logger) (_ *gateway, err error) {
	g := &gateway{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	hooks, err := build.Hooks.ready(log)
	if err != nil {
		return nil, err
	}
	for _, warning := range cfg.OTLP.Warnings {
		log.Warn("telemetry: " + warning)
	}
	tel, err := telemetry.Start(ctx, telemetry.Options{
		Version: build.Version, Providers: names(cfg.Providers), Logger: log,
		OTLPTraces: cfg.OTLP.Traces, OTLPMetrics: cfg.OTLP.Metrics,
	})
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return tel.Shutdown(ctx)
	})
	if g.store, err = openStore(ctx, cfg, tel.TracerProvider(), hooks.now); err != nil {
		return nil, err
	}
	g.closers = append(g.closers, g.store.Close)
	ready := &readiness{store: g.store}
	g.store = hooks.store(observed{g.store, ready})
	if err := g.prepareSchema(ctx); err != nil {
		return nil, err
	}
	pool, err := newPool(cfg, g.store, tel, log, hooks.now)
	if err != nil {
		return nil, err
	}
	_ = pool.Refresh(ctx) // so that the first deliveries find open gates open; until a refresh they count as closed
	failovers := reconcile.NewFailoverDetector(g.store, cfg.FailoverWindow, func(f ledger.Failover) { logFailover(log, f) })
	tel.Failovers(failovers.Last)
	g.deliverer = hooks.deliverer(newDeliverer(cfg, g.store, pool, failovers, tel, hooks.now))
	g.reconciler = newReconciler(cfg, g.store, pool, failovers, g.deliverer, tel, log, hooks.now)
	g.redriver = newRedriver(cfg, g.store, failovers, g.deliverer, tel, log, hooks.now)
	g.purger = newPurger(cfg, g.store, log, hooks.now)
	options, err := newAPI(cfg, g.store, pool, g.deliverer, g.reconciler, g.redriver, g.purger, tel, log, hooks.now)
	if err != nil {
		return nil, err
	}
	g.worker = &deliver.Worker{
		Due: g.store, Capacity: pool, Processor: tel.Processor(g.deliverer),
		Poll:    workerPoll,
		OnError: logEvery(30*time.Second, func(err error) { log.Warn("worker: listing due entries failed", "error", err) }),
	}
	g.background = []func(context.Context){
		pool.Run,
		func(ctx context.Context) { tel.WatchBacklog(ctx, g.store, backlogEvery) },
	}
	options = hooks.api(options)
	if cfg.AdminListen == "" {
		g.public = []*http.Server{server(cfg, cfg.Listen, api.New(options), writeTimeout(cfg), log)}
	} else {
		g.public = []*http.Server{
			server(cfg, cfg.Listen, api.NewPublic(options), writeTimeout(cfg), log),
			server(cfg, cfg.AdminListen, api.NewAdmin(options), writeTimeout(cfg), log),
		}
	}
	g.ops = server(cfg, cfg.OpsListen, api.Operations(api.OperationsOptions{
		Ready: ready, Gates: closedGates(pool), Failover: failovers.Last, Draining: g.draining.Load,
		Warnings: func() []string { return g.warnings },
		Metrics:  tel.Handler(), Profiling: cfg.Pprof, Log: log,
	}), time.Minute, log)
	return g, nil
}

// prepareSchema migrates an embedded ledger, which no other process can do while this one runs. A PostgreSQL
// database may be shared, so 'sendonce migrate' migrates it; until then the replica is not ready.
func (g *gateway) prepareSchema(ctx context.Context) error {
	if g.cfg.Database.Path != "" {
		if err := g.store.Migrate(ctx); err != nil {
			return err
		}
		g.logLowWater(ctx)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := g.store.Ping(ctx); err != nil {
		g.log.Error("the ledger is not ready, nothing is sent until it is; 'sendonce migrate -config FILE' migrates the schema", "error", err)
		return nil
	}
	g.logLowWater(ctx)
	warnings, err := g.store.Warnings(ctx)
	if err != nil {
		g.log.Warn("the database's settings could not be read", "error", err)
	}
	for _, warning := range warnings {
		g.log.Warn(warning)
	}
	g.warnings = warnings
	return nil
}

// serve runs the background loops, the worker and the listeners until ctx ends or a listener fails.
func (g *gateway) serve(ctx context.Context, build Build) error {
	servers := append(g.public[:len(g.public):len(g.public)], g.ops)
	listeners, err := listen(servers)
	if err != nil {
		return err
	}
	backgroundCtx, stopBackground := context.WithCancel(context.Background())
	var background, work sync.WaitGroup
	for _, run := range g.background {
		background.Go(func() { run(backgroundCtx) })
	}
	defer background.Wait()
	defer stopBackground()
	workCtx, stopWork := context.WithCancel(backgroundCtx)
	work.Go(func() { g.worker.Run(workCtx) })
	work.Go(func() { g.reconciler.Run(workCtx) })
	work.Go(func() { g.redriver.Run(workCtx) })
	work.Go(func() { g.purger.Run(workCtx) })
	failed := make(chan error, len(servers))
	for i, server := range servers {
		go func() { failed <- server.Serve(listeners[i]) }()
	}
	public, ops := listeners[0].Addr(), listeners[len(listeners)-1].Addr()
	g.log.Info("serving", "version", build.Version, "listen", public.String(), "ops_listen", ops.String())
	if build.Ready != nil {
		build.Ready(public, ops)
	}

	var cause error
	select {
	case <-ctx.Done():
	case cause = <-failed:
	}
	return errors.Join(cause, g.drain(stopWork, &work))
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

// drain shuts the gateway down in an order that loses nothing.
func (g *gateway) drain(stopWork func(), work *sync.WaitGroup) error {
	g.log.Info("shutting down", "drain", g.cfg.Drain.String(), "grace", g.cfg.Grace.String())
	g.draining.Store(true)
	stopWork() // the loops begin nothing new
	time.Sleep(g.cfg.Drain)

	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Grace)
	defer cancel()
	var err error
	for _, server := range g.public {
		err = errors.Join(err, server.Shutdown(ctx))
	}
	idle := make(chan error, 1)
	go func() {
		work.Wait() // first, so that nothing calls the deliverer any more
		idle <- g.deliverer.Wait(ctx)
	}()
	select {
	case waitErr := <-idle:
		err = errors.Join(err, waitErr)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("shutdown did not finish within the grace of %s; sends in flight are recovered when their leases expire: %w", g.cfg.Grace, err)
	}
	err = errors.Join(err, g.ops.Shutdown(ctx))
	g.log.Info("stopped")
	return err
}

func (g *gateway) close() {
	for i := len(g.closers) - 1; i >= 0; i-- {
		if err := g.closers[i](); err != nil {
			g.log.Warn("close failed", "error", err)
		}
	}
}

// logEvery calls log at most once per interval: while the ledger is unavailable every provider's worker fails
// twice a second.
func logEvery(interval time.Duration, log func(error)) func(error) {
	var mu sync.Mutex
	var last time.Time
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) >= interval {
			last = time.Now()
			log(err)
		}
	}
}

func server(cfg config.Config, addr string, handler http.Handler, write time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Addr: addr, Handler: handler,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: write,
		IdleTimeout: cfg.IdleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// writeTimeout is longer than the longest time to reply, so that the server never cuts off its own reply.
func writeTimeout(cfg config.Config) time.Duration {
	longest := callerTimeout
	for _, s := range cfg.Sources {
		longest = max(longest, s.AnswerWithin)
	}
	return longest + readTimeout + 5*time.Second
}
