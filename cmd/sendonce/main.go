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
	"strings"
	"syscall"
)

// command is one word of the command line. The same texts teach it in the overview and behind -h.
type command struct {
	name    string
	args    string
	does    string
	example string // what stands behind the name in one that works
	run     func(line) error
}

func commands() []command {
	return []command{
		{"dev", "[-addr HOST:PORT] [-data DIR]", `Try it: a gateway on this machine alone, with an embedded ledger, open push
sources and a sandbox provider. Prints deliveries to paste into another shell.`, "-addr 127.0.0.1:8081 -data ./second", dev},
		{"serve", "[-config] FILE", "Run it: push sources, callers, providers and the ledger as FILE says.", "-config config.yaml", serve},
		{"migrate", "[-config] FILE", `Bring the ledger's schema up to this version and end. Old and new versions
of the program may run side by side on the new schema.`, "-config config.yaml", migrate},
		{"check-config", "[-config] FILE", "Read FILE and the environment as serve would, say all that is wrong, and end.", "config.yaml", checkConfig},
		{"health", "[-addr HOST:PORT | -config FILE]", `Ask the operations listener of a gateway on this machine whether it is ready.
For HEALTHCHECK. FILE says where it listens (ops_listen).`, "-config config.yaml", health},
		{"rehearse", "-config FILE | -url URL", rehearsing, "-config config.yaml", rehearse},
		{"version", "", "Say which version this is.", "", version},
	}
}

// usage is the overview.
func usage() string {
	var b strings.Builder
	b.WriteString("sendonce sends one logical reminder at most once, and can explain each decision afterwards.\n\nUsage:\n")
	for _, c := range commands() {
		brief, _, _ := strings.Cut(c.does, "\n\n")
		fmt.Fprintf(&b, "\n  %s\n        %s\n", c.synopsis(), strings.ReplaceAll(brief, "\n", "\n        "))
	}
	b.WriteString("\n'sendonce COMMAND -h' shows a command's flags. Exit codes: 0 done, 1 failed, 2 not understood.\n")
	return b.String()
}

func (c command) synopsis() string { return strings.TrimSpace("sendonce " + c.name + " " + c.args) }

// errUsage : the command line was not understood; what is wrong with it has been said.
var errUsage = errors.New("usage")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprint(os.Stderr, told(err))
		os.Exit(1)
	}
}

// told is an error as people read it: who says so, once, and further lines set in.
func told(err error) string {
	return "sendonce: " + strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "\n  ") + "\n"
}

func run(args []string, out, errOut io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(errOut, usage())
		return errUsage
	}
	name, rest := args[0], args[1:]
	switch name {
	case "help", "-h", "-help", "--help":
		if len(rest) == 0 {
			fmt.Fprint(out, usage())
			return nil
		}
		name, rest = rest[0], []string{"-h"}
	case "-v", "-version", "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(line{command: c, args: rest, out: out, errOut: errOut})
		}
	}
	fmt.Fprintf(errOut, "sendonce: there is no command %q\n\n%s", name, usage())
	return errUsage
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
