// Command bench measures how many reminders the built gateway delivers, end to end, beside a baseline: what
// its database does with the same commits and nothing else.
//
// It is for `make bench`. A private PostgreSQL with fsync on, an SQLite file, a gateway on each and a
// provider that responds at once run as processes of their own. All cells are measured in turn, round by
// round, and ratios are taken within a round, since absolute figures vary with the machine.
//
// Invariants: every delivery is acked and every reminder reaches the provider exactly once, otherwise the run
// fails, because a fast wrong result is no result; the database is configured as its packager ships it; what
// a run starts ends with it.
//
// What it does not do: it judges no figure. The load is a closed loop for seconds: no steady state of vacuum
// and checkpoints, no network, no TLS.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// options holds the flags.
type options struct {
	gateway     string
	pgbench     string
	rounds      int
	seconds     int
	connections int
	entries     int // of the large ledger; 0 measures deliveries alone
	requests    int
}

func (o options) span() time.Duration { return time.Duration(o.seconds) * time.Second }

func main() {
	if len(os.Args) > 1 && os.Args[1] == providerCommand {
		if err := serveProvider(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.gateway, "gateway", "bin/sendonce", "the built binary")
	flag.StringVar(&o.pgbench, "pgbench", "pgbench", "PostgreSQL's own load generator")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds that count; one more warms up")
	flag.IntVar(&o.seconds, "seconds", 3, "length of a cell")
	flag.IntVar(&o.connections, "connections", 64, "senders at once, each waiting for its answer")
	flag.IntVar(&o.entries, "entries", 0, "measure the admin API instead, on a ledger of so many entries")
	flag.IntVar(&o.requests, "requests", 200, "with -entries: requests of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	measureAll := run
	if o.entries > 0 {
		measureAll = runAdmin
	}
	err := measureAll(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all cells and prints the report.
func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || o.seconds < 1 || o.connections < 1 || o.connections > maxConnections || flag.NArg() > 0 {
		return fmt.Errorf("rounds and seconds are at least 1, connections 1 to %d", maxConnections)
	}
	e, err := open(ctx, o)
	defer func() {
		if closed := e.close(); err == nil {
			err = closed
		}
	}()
	if err != nil {
		return err
	}
	cells := e.cells()
	results, err := measure(ctx, e, cells, o)
	if err != nil {
		return err
	}
	if err := e.reconcile(ctx); err != nil {
		return err
	}
	report(os.Stdout, e.machine(ctx), o, cells, results)
	return nil
}

// measure runs the cells in turn. Every other round runs backwards, so that the after-effects of a cell do
// not always affect the same neighbour.
func measure(ctx context.Context, e *environment, cells []cell, o options) ([][]sample, error) {
	results := make([][]sample, len(cells))
	for round := range o.rounds + 1 {
		for i := range cells {
			if round%2 == 1 {
				i = len(cells) - 1 - i
			}
			fmt.Fprintf(os.Stderr, "\rround %d of %d, %-60s", round, o.rounds, cells[i].name)
			begun, before := time.Now(), e.usageNow()
			s, err := cells[i].run(ctx, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cells[i].name, err)
			}
			s.usage, s.wall = e.usageNow().since(before), time.Since(begun)
			if round > 0 { // the first round warms up
				results[i] = append(results[i], s)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r%-80s\r", "")
	return results, nil
}

// providerCommand makes this binary run as the provider's process instead.
const providerCommand = "provider"

// serveProvider prints its address on standard output and serves until standard input ends.
func serveProvider() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() { _ = http.Serve(listener, &providertest.Hostile{}) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}
