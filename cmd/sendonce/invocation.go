package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sendonce/sendonce/internal/config"
)

// invocation is one run of a command: its arguments and its outputs.
type invocation struct {
	command
	args        []string
	out, errOut io.Writer
}

func (inv invocation) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("sendonce "+inv.name, flag.ContinueOnError)
	flags.SetOutput(inv.errOut)
	flags.Usage = func() {}
	return flags
}

// parse parses the flags; an argument after them is an error.
func (inv invocation) parse(flags *flag.FlagSet) error {
	if err := inv.parseFlags(flags); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return inv.usageError(flags, "takes no argument, only flags; got %q", flags.Arg(0))
	}
	return nil
}

func (inv invocation) parseFlags(flags *flag.FlagSet) error {
	err := flags.Parse(inv.args)
	if errors.Is(err, flag.ErrHelp) {
		inv.printHelp(flags, inv.out)
		return err
	}
	if err != nil { // the flag package has printed it
		inv.printHelp(flags, inv.errOut)
		return errUsage
	}
	return nil
}

// usageError prints what is wrong with the arguments, and the help.
func (inv invocation) usageError(flags *flag.FlagSet, problem string, args ...any) error {
	fmt.Fprintf(inv.errOut, "sendonce %s: %s\n", inv.name, fmt.Sprintf(problem, args...))
	inv.printHelp(flags, inv.errOut)
	return errUsage
}

func (inv invocation) printHelp(flags *flag.FlagSet, w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage:    %s\nExample:  %s\n\n", inv.help, inv.synopsis(), strings.TrimSpace("sendonce "+inv.name+" "+inv.example))
	flags.SetOutput(w)
	flags.PrintDefaults()
}

// configFile parses the flags of a command that takes only a FILE, as -config FILE or as its argument.
func (inv invocation) configFile() (string, error) {
	flags := inv.flags()
	file := flags.String("config", "", "configuration `FILE`; may also be given without the flag")
	if err := inv.parseFlags(flags); err != nil {
		return "", err
	}
	files := flags.Args()
	if *file != "" {
		files = append(files, *file)
	}
	if len(files) != 1 || files[0] == "" {
		return "", inv.usageError(flags, "needs one FILE, after -config or as its only argument; got %d", len(files))
	}
	return files[0], nil
}

// loadConfig loads the configuration FILE.
func (inv invocation) loadConfig() (config.Config, error) {
	file, err := inv.configFile()
	if err != nil {
		return config.Config{}, err
	}
	return config.Load(file, os.LookupEnv)
}
