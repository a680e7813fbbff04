// Command sendonce is the gateway: see its usage text below, and README.md.
//
// It parses flags, shuts down on signals, and turns an error into an exit code; everything else is in
// internal/app and internal/rehearsal.
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

// command is a subcommand. The overview and -h print the same texts.
type command struct {
	name    string
	args    string
	help    string
	example string // arguments of a working example
	run     func(invocation) error
}

func commands() []command {
	return []command{
		{"dev", "[-addr HOST:PORT] [-data DIR]", `Run a gateway for trying it out, on this machine only, with an embedded ledger,
open push sources and a sandbox provider. Prints commands to paste into a shell.`, "-addr 127.0.0.1:8081 -data ./second", dev},
		{"serve", "[-config] FILE", "Run the gateway with the push sources, callers, providers and ledger in FILE.", "-config config.yaml", serve},
		{"migrate", "[-config] FILE", `Migrate the ledger's schema to this version and exit. Old and new versions of
the program can run side by side on the new schema.`, "-config config.yaml", migrate},
		{"check-config", "[-config] FILE", "Read FILE and the environment as serve would, report all faults, and exit.", "config.yaml", checkConfig},
		{"health", "[-addr HOST:PORT | -config FILE]", `Check whether a gateway on this machine is ready, at its operations listener.
For HEALTHCHECK. The address is ops_listen in FILE.`, "-config config.yaml", health},
		{"rehearse", "-config FILE | -url URL", rehearseHelp, "-config config.yaml", rehearse},
		{"version", "", "Print the version.", "", version},
	}
}

// usage returns the overview of all commands.
func usage() string {
	var b strings.Builder
	b.WriteString("sendonce sends each logical reminder at most once, and can explain every decision afterwards.\n\nUsage:\n")
	for _, c := range commands() {
		summary, _, _ := strings.Cut(c.help, "\n\n")
		fmt.Fprintf(&b, "\n  %s\n        %s\n", c.synopsis(), strings.ReplaceAll(summary, "\n", "\n        "))
	}
	b.WriteString("\n'sendonce COMMAND -h' shows a command's flags. Exit codes: 0 success, 1 failure, 2 usage error.\n")
	return b.String()
}

func (c command) synopsis() string { return strings.TrimSpace("sendonce " + c.name + " " + c.args) }

// errUsage means that the command line is wrong, and that the error has been printed.
var errUsage = errors.New("usage")

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	default:
		fmt.Fprint(os.Stderr, formatError(err))
		os.Exit(1)
	}
}

// formatError returns the text of an error, with the program's name once and further lines indented.
func formatError(err error) string {
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
			return c.run(invocation{command: c, args: rest, out: out, errOut: errOut})
		}
	}
	fmt.Fprintf(errOut, "sendonce: unknown command %q\n\n%s", name, usage())
	return errUsage
}

// signalContext returns a context that ends at the first SIGTERM or SIGINT. A second signal ends the process at
// once: sends in flight are then unknown, and recovered as such.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		if _, open := <-signals; !open {
			return
		}
		cancel()
		if _, open := <-signals; open {
			fmt.Fprintln(os.Stderr, "sendonce: second signal: exiting now; sends in flight are recovered at the next start")
			os.Exit(1)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		cancel()
	}
}
