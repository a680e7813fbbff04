// Command bench measures how many reminders the built gateway delivers, end to end, beside the floor:
// what its database does with the same commits and nothing around them.
//
// It is for `make bench`. A private PostgreSQL with fsync on, an SQLite file, a gateway before each and a
// provider that answers at once run as processes of their own. All cells are measured in turn, round by
// round, and ratios are taken within a round, since absolute figures move with the machine.
//
// Invariants: every delivery is acked and every reminder reaches the provider exactly once, else the run
// fails, for a fast wrong answer is no result; the database is as its packager set it; what a run starts
// ends with it.
//
// What it does not do: it judges no figure. The load is a closed loop for seconds: no steady state of
// vacuum and checkpoints, no network, no TLS.
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

// options are the flags.
type options struct {
	gateway     string
	pgbench     string
	rounds      int
	seconds     int
	connections int
	entries     int // of the large ledger; 0 measures deliveries alone
	looks       int
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
	flag.IntVar(&o.entries, "entries", 0, "measure the desk instead, over a ledger of so many entries")
	flag.IntVar(&o.looks, "looks", 200, "with -entries: requests of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	measured := run
	if o.entries > 0 {
		measured = desk
	}
	err := measured(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures all cells and prints what came out.
func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || o.seconds < 1 || o.connections < 1 || o.connections > maxConnections || flag.NArg() > 0 {
		return fmt.Errorf("rounds and seconds are at least 1, connections 1 to %d", maxConnections)
	}
	l, err := open(ctx, o)
	defer func() {
		if closed := l.close(); err == nil {
			err = closed
		}
	}()
	if err != nil {
		return err
	}
	cells := l.cells()
	results, err := measure(ctx, l, cells, o)
	if err != nil {
		return err
	}
	if err := l.reconcile(ctx); err != nil {
		return err
	}
	report(os.Stdout, l.machine(ctx), o, cells, results)
	return nil
}

// measure runs the cells in turn. Every other round goes backwards, so that what a cell leaves behind
// does not always meet the same neighbour.
func measure(ctx context.Context, l *laboratory, cells []cell, o options) ([][]sample, error) {
	results := make([][]sample, len(cells))
	for round := range o.rounds + 1 {
		for i := range cells {
			if round%2 == 1 {
				i = len(cells) - 1 - i
			}
			fmt.Fprintf(os.Stderr, "\rround %d of %d, %-60s", round, o.rounds, cells[i].name)
			begun, before := time.Now(), l.spent()
			s, err := cells[i].run(ctx, round)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", cells[i].name, err)
			}
			s.usage, s.wall = l.spent().since(before), time.Since(begun)
			if round > 0 { // the first warms up
				results[i] = append(results[i], s)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r%-80s\r", "")
	return results, nil
}

// providerCommand makes this binary the provider's process instead.
const providerCommand = "provider"

// serveProvider tells its address on standard output and serves until standard input ends.
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
