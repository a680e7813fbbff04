// Command sendonce is the gateway: see its usage text below, and README.md.
//
// It parses flags, turns signals into an end, and an error into an exit code; everything else is
// internal/app's.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const usage = `sendonce sends one logical reminder at most once, and can explain each decision afterwards.

Usage:

  sendonce dev [-addr HOST:PORT] [-data DIR]
        Try it: a gateway on this machine alone, with an embedded ledger, open push
        sources and a sandbox provider. Prints deliveries to paste into another shell.

  sendonce serve -config FILE
        Run it: push sources, callers, providers and the ledger as FILE says.

  sendonce migrate -config FILE
        Bring the ledger's schema up to this version and end. Old and new versions
        of the program may run side by side on the new schema.

  sendonce check-config FILE
        Read FILE and the environment as serve would, say all that is wrong, and end.

  sendonce health [-addr HOST:PORT]
        Ask the operations listener of a gateway whether it is ready. For HEALTHCHECK.

  sendonce version

'sendonce COMMAND -h' shows a command's flags. Exit codes: 0 done, 1 failed, 2 not understood.
`

// errUsage : the command line was not understood; what is wrong with it has been said.
var errUsage = errors.New("usage")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "sendonce:", err)
		os.Exit(1)
	}
}

func run(args []string, out, errOut io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(errOut, usage)
		return errUsage
	}
	commands := map[string]func([]string, io.Writer, io.Writer) error{
		"dev": dev, "serve": serve, "migrate": migrate, "check-config": checkConfig,
		"health": health, "version": version,
	}
	name, rest := args[0], args[1:]
	if name == "help" || name == "-h" || name == "-help" || name == "--help" {
		fmt.Fprint(out, usage)
		return nil
	}
	command, known := commands[name]
	if !known {
		fmt.Fprintf(errOut, "sendonce: there is no command %q\n\n%s", name, usage)
		return errUsage
	}
	return command(rest, out, errOut)
}

// untilSignal is a context that ends at the first SIGTERM or SIGINT. A second one ends the process on
// the spot: what is in flight then is unknown, and recovered as such.
func untilSignal() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		if _, open := <-signals; !open {
			return
		}
		cancel()
		if _, open := <-signals; open {
			fmt.Fprintln(os.Stderr, "sendonce: second signal: ending now; what was in flight is looked after at the next start")
			os.Exit(1)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}

// parse reads a command's flags and wants exactly so many arguments behind them.
func parse(flags *flag.FlagSet, args []string, errOut io.Writer, want int) error {
	flags.SetOutput(errOut)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if flags.NArg() != want {
		fmt.Fprintf(errOut, "sendonce %s: wants %d argument(s), got %d\n", flags.Name(), want, flags.NArg())
		flags.Usage()
		return errUsage
	}
	return nil
}
