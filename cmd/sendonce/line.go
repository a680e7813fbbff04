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

// line is what stands behind a command's name, and where the command speaks.
type line struct {
	command
	args        []string
	out, errOut io.Writer
}

func (l line) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("sendonce "+l.name, flag.ContinueOnError)
	flags.SetOutput(l.errOut)
	flags.Usage = func() {}
	return flags
}

// parse reads the flags; nothing may stand behind them.
func (l line) parse(flags *flag.FlagSet) error {
	if err := l.parseSome(flags); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return l.misread(flags, "takes no argument, only flags; got %q", flags.Arg(0))
	}
	return nil
}

func (l line) parseSome(flags *flag.FlagSet) error {
	err := flags.Parse(l.args)
	if errors.Is(err, flag.ErrHelp) {
		l.teach(flags, l.out)
		return err
	}
	if err != nil { // it has been said
		l.teach(flags, l.errOut)
		return errUsage
	}
	return nil
}

// misread says what is wrong with the line, and how it is written.
func (l line) misread(flags *flag.FlagSet, problem string, args ...any) error {
	fmt.Fprintf(l.errOut, "sendonce %s: %s\n", l.name, fmt.Sprintf(problem, args...))
	l.teach(flags, l.errOut)
	return errUsage
}

func (l line) teach(flags *flag.FlagSet, w io.Writer) {
	fmt.Fprintf(w, "%s\n\nUsage:    %s\nExample:  %s\n\n", l.does, l.synopsis(), strings.TrimSpace("sendonce "+l.name+" "+l.example))
	flags.SetOutput(w)
	flags.PrintDefaults()
}

// file reads the flags of a command that takes nothing but a FILE, in either form.
func (l line) file() (string, error) {
	flags := l.flags()
	file := flags.String("config", "", "configuration `FILE`; the flag may be left out")
	if err := l.parseSome(flags); err != nil {
		return "", err
	}
	named := flags.Args()
	if *file != "" {
		named = append(named, *file)
	}
	if len(named) != 1 || named[0] == "" {
		return "", l.misread(flags, "wants one FILE, behind -config or as its only argument; got %d", len(named))
	}
	return named[0], nil
}

// configured is what the FILE says.
func (l line) configured() (config.Config, error) {
	file, err := l.file()
	if err != nil {
		return config.Config{}, err
	}
	return config.Load(file, os.LookupEnv)
}
