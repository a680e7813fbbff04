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
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

// Build is what the program knows of itself and its surroundings.
type Build struct {
	Version string
	Log     io.Writer
	Ready   func(public, operations net.Addr) // told once the listeners are open; may be nil
	Rig     Rig                               // what a test build puts around the rooms
}

// Bounds of listeners and loops.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 15 * time.Second // for a whole request
	idleTimeout       = 2 * time.Minute  // above what load balancers keep, so that they close first
	maxHeaderBytes    = 64 << 10
	censusEvery       = 15 * time.Second // as deploy/alerts.yaml expects
	workerPoll        = 500 * time.Millisecond
	redrivePoll       = 500 * time.Millisecond // so that a cancel is seen within a second
	purgeEvery        = 24 * time.Hour
	purgeBreath       = 500 * time.Millisecond // a million entries take a quarter of an hour
)

// Migrate brings the ledger's schema up to this version.
func Migrate(ctx context.Context, cfg config.Config) error {
	store, err := openStore(ctx, cfg, nil, time.Now)
	if err != nil {
		return err
	}
	return errors.Join(store.Migrate(ctx), store.Close())
}

// Check builds what serve would build and dials nobody, so that 'check-config' finds what only the rooms
// themselves know of their settings.
func Check(cfg config.Config) error {
	var faults []error
	for _, name := range names(cfg.Providers) {
		if _, err := openProvider(name, cfg.Providers[name], outbound.New(outbound.Options{}), time.Now); err != nil {
			faults = append(faults, fmt.Errorf("providers.%s: %w", name, err))
		}
	}
	for _, name := range names(cfg.Sources) {
		if _, err := openFormat(name, cfg.Sources[name], new(http.Client), time.Now); err != nil {
			faults = append(faults, fmt.Errorf("sources.%s: %w", name, err))
		}
	}
	return errors.Join(faults...)
}

// Run serves until ctx ends, then ends in good order: readiness off, answering for a moment more, the
// listeners closed, what is in flight finished within the configured grace.
func Run(ctx context.Context, cfg config.Config, build Build) error {
	log := telemetry.NewLogger(build.Log, cfg.Log.Level, cfg.Log.Format == config.LogText)
	gateway, err := open(ctx, cfg, build, log)
	if err != nil {
		return err
	}
	defer gateway.close()
	return gateway.serve(ctx, build)
}

// gateway is everything that serves, built and not yet running.
type gateway struct {
	cfg      config.Config
	log      *slog.Logger
	store    store
	desk     *deliver.Desk
	public   []*http.Server // the public listener, then the admin API's where it has one of its own
	ops      *http.Server
	worker   *deliver.Worker
	sweep    *reconcile.Desk
	redrive  *redrive.Desk
	keep     *retention.Desk
	watches  []func(context.Context) // run until everything else has ended
	closers  []func() error
	draining atomic.Bool
}

// open builds the gateway; what was opened before an error is closed again.
func open(ctx context.Context, cfg config.Config, build Build, log *slog.Logger) (_ *gateway, err error) {
	g := &gateway{cfg: cfg, log: log}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	rig, err := build.Rig.ready(log)
	if err != nil {
		return nil, err
	}
	watch, err := telemetry.Start(ctx, telemetry.Options{
		Version: build.Version, Providers: names(cfg.Providers), Logger: log,
		OTLPTraces: cfg.OTLP.Traces, OTLPMetrics: cfg.OTLP.Metrics,
	})
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return watch.Shutdown(ctx)
	})
	if g.store, err = openStore(ctx, cfg, watch.TracerProvider(), rig.now); err != nil {
		return nil, err
	}
	g.closers = append(g.closers, g.store.Close)
	g.store = rig.store(g.store)
	if err := g.prepareSchema(ctx); err != nil {
		return nil, err
	}
	fleet, err := openFleet(cfg, g.store, watch, log, rig.now)
	if err != nil {
		return nil, err
	}
	_ = fleet.Look(ctx) // so that the first deliveries find open gates open; without it they count as closed
	failovers := reconcile.NewFailovers(g.store, cfg.FailoverWindow, func(f ledger.Failover) { tellFailover(log, f) })
	watch.Failovers(failovers.Last)
	g.desk = rig.desk(openDesk(cfg, g.store, fleet, failovers, watch, rig.now))
	g.sweep = openSweep(cfg, g.store, fleet, failovers, g.desk, watch, log, rig.now)
	g.redrive = openRedrive(cfg, g.store, failovers, g.desk, watch, log, rig.now)
	g.keep = openRetention(cfg, g.store, log, rig.now)
	surface, err := openSurface(cfg, g.store, fleet, g.desk, g.sweep, g.redrive, g.keep, watch, log, rig.now)
	if err != nil {
		return nil, err
	}
	g.worker = &deliver.Worker{
		Agenda: g.store, Capacity: fleet, Visitor: watch.Visitor(g.desk),
		Poll:   workerPoll,
		Failed: seldom(30*time.Second, func(err error) { log.Warn("the agenda cannot be read", "error", err) }),
	}
	g.watches = []func(context.Context){
		fleet.Run,
		func(ctx context.Context) { watch.Watch(ctx, g.store, censusEvery) },
	}
	surface = rig.surface(surface)
	if cfg.AdminListen == "" {
		g.public = []*http.Server{server(cfg.Listen, api.New(surface), writeTimeout(cfg), log)}
	} else {
		g.public = []*http.Server{
			server(cfg.Listen, api.NewPublic(surface), writeTimeout(cfg), log),
			server(cfg.AdminListen, api.NewAdmin(surface), writeTimeout(cfg), log),
		}
	}
	g.ops = server(cfg.OpsListen, api.Operations(api.OperationsOptions{
		Ready: readiness{g.store}, Gates: closedGates(fleet), Failover: failovers.Last, Draining: g.draining.Load,
		Metrics: watch.Handler(), Profiling: cfg.Pprof, Log: log,
	}), time.Minute, log)
	return g, nil
}

// prepareSchema migrates an embedded ledger, which nobody else could. A PostgreSQL that others share is
// migrated by 'sendonce migrate'; until then readiness says so.
func (g *gateway) prepareSchema(ctx context.Context) error {
	if g.cfg.Database.Path != "" {
		return g.store.Migrate(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := g.store.Ping(ctx); err != nil {
		g.log.Error("the ledger is not ready, and nothing is sent until it is; a schema is prepared by 'sendonce migrate -config FILE'", "error", err)
	}
	return nil
}

// serve runs worker, watches and listeners until ctx ends or a listener fails.
func (g *gateway) serve(ctx context.Context, build Build) error {
	servers := append(g.public[:len(g.public):len(g.public)], g.ops)
	listeners, err := listen(servers)
	if err != nil {
		return err
	}
	watching, stopWatches := context.WithCancel(context.Background())
	var watches, work sync.WaitGroup
	for _, watch := range g.watches {
		watches.Go(func() { watch(watching) })
	}
	defer watches.Wait()
	defer stopWatches()
	working, stopWork := context.WithCancel(watching)
	work.Go(func() { g.worker.Run(working) })
	work.Go(func() { g.sweep.Run(working) })
	work.Go(func() { g.redrive.Run(working) })
	work.Go(func() { g.keep.Run(working) })
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

// drain ends the service in an order that loses nothing.
func (g *gateway) drain(stopWork func(), work *sync.WaitGroup) error {
	g.log.Info("ending", "drain", g.cfg.Drain.String(), "grace", g.cfg.Grace.String())
	g.draining.Store(true)
	stopWork() // the worker takes nothing new
	time.Sleep(g.cfg.Drain)

	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Grace)
	defer cancel()
	var err error
	for _, server := range g.public {
		err = errors.Join(err, server.Shutdown(ctx))
	}
	idle := make(chan error, 1)
	go func() {
		work.Wait() // first, so that no worker comes to the desk any more
		idle <- g.desk.Wait(ctx)
	}()
	select {
	case left := <-idle:
		err = errors.Join(err, left)
	case <-ctx.Done():
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		err = fmt.Errorf("not everything ended within %s; what was in flight is looked after when its lease has lapsed: %w", g.cfg.Grace, err)
	}
	err = errors.Join(err, g.ops.Shutdown(ctx))
	g.log.Info("ended")
	return err
}

func (g *gateway) close() {
	for i := len(g.closers) - 1; i >= 0; i-- {
		if err := g.closers[i](); err != nil {
			g.log.Warn("closing", "error", err)
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
