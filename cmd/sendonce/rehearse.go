package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/cli"
	"github.com/sendonce/sendonce/internal/config"
)

// rehearsing is what rehearse teaches.
const rehearsing = `Walk the dangerous path and judge what comes of it: a reminder is delivered, the
provider takes it but its answer is lost, the process ends before the ack, the
broker redelivers, and redelivers again. Then redrive a batch twice: a few reminders
die, an operator previews and redrives them, and redrives them once more. Tells it as
a story. Exit code 0 only when nothing was doubled, lost or left unexplained.

With -config it runs a gateway of its own as FILE says, with kill -9 in the middle of
the send and of the redrive, against a stand-in that plays the provider's side of each
contract in use. No real provider can be reached. Its ledger is its own too: a fresh
file where FILE names SQLite; where it names PostgreSQL, the database beside the
configured one with "_rehearsal" behind its name (create it once, for the same user).

With -url it asks a gateway that is running, such as a staging one whose provider is
a sandbox, for a reminder to timeout-after-accept@rehearsal.invalid, and ends nothing.
What it redrives, and discards in the end, are two of its own reminders to
refuse@rehearsal.invalid; so -token is an operator's.`

// rehearsed is what the flags of rehearse say.
type rehearsed struct {
	file     string
	contract string
	realTime bool
	keep     bool
	staging  cli.Staging
}

func rehearse(l line) error {
	r, err := l.rehearsed()
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	if r.file == "" {
		return r.staging.Run(ctx)
	}
	cfg, err := config.Load(r.file, os.LookupEnv)
	if err != nil {
		return err
	}
	walk := cli.Rehearsal{
		Setting: settingOf(cfg), Contract: r.contract, RealTime: r.realTime, Keep: r.keep,
		Environ: os.Environ(), Out: l.out, Progress: l.errOut,
	}
	if walk.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("rehearse: which program is this: %w", err)
	}
	if cfg.Database.URL.IsSet() {
		if walk.Database, err = cli.RehearsalDatabase(cfg.Database.URL.Reveal()); err != nil {
			return err
		}
	}
	return walk.Run(ctx)
}

func (l line) rehearsed() (rehearsed, error) {
	r := rehearsed{staging: cli.Staging{Out: l.out, Progress: l.errOut}}
	s, flags := &r.staging, l.flags()
	flags.StringVar(&r.file, "config", "", "configuration `FILE` to rehearse")
	flags.StringVar(&r.contract, "contract", "", "rehearse only this `CONTRACT`: "+strings.Join(cli.Contracts(), ", "))
	flags.BoolVar(&r.realTime, "real-time", false, "with -config: keep the lease, sweep and backoff of FILE, and wait as long")
	flags.BoolVar(&r.keep, "keep", false, "with -config: keep the temporary folder (configuration, logs, ledger)")
	flags.StringVar(&s.URL, "url", "", "`URL` of a running gateway whose provider is a sandbox")
	flags.StringVar(&s.Token, "token", "", "with -url: `TOKEN` of role operator, to read the story and to redrive (or $SENDONCE_TOKEN)")
	flags.StringVar(&s.ProducerToken, "producer-token", "", "with -url and no -source: `TOKEN` of role producer, to ask over REST (or $SENDONCE_PRODUCER_TOKEN)")
	flags.StringVar(&s.Source, "source", "", "with -url: deliver by the push source `NAME`, of format plain")
	flags.StringVar(&s.SourceToken, "source-token", "", "with -source: its bearer `TOKEN` (or $SENDONCE_SOURCE_TOKEN)")
	flags.StringVar(&s.Channel, "channel", "email", "with -url: the `CHANNEL` that leads to the sandbox")
	flags.StringVar(&s.Type, "type", "seat_expiring", "with -url: the reminder's `TYPE`")
	if err := l.parse(flags); err != nil {
		return r, err
	}
	s.Contract = r.contract
	// Not as the flags' defaults: help would show them.
	s.Token = cmp.Or(s.Token, os.Getenv("SENDONCE_TOKEN"))
	s.ProducerToken = cmp.Or(s.ProducerToken, os.Getenv("SENDONCE_PRODUCER_TOKEN"))
	s.SourceToken = cmp.Or(s.SourceToken, os.Getenv("SENDONCE_SOURCE_TOKEN"))
	switch {
	case (r.file == "") == (s.URL == ""):
		return r, l.misread(flags, "wants -config or -url, and not both")
	case r.contract != "" && !slices.Contains(cli.Contracts(), r.contract):
		return r, l.misread(flags, "knows no contract %q; one of %s", r.contract, strings.Join(cli.Contracts(), ", "))
	case r.file != "" && s.Source != "":
		return r, l.misread(flags, "brings its own source with -config; -source goes with -url")
	case r.file != "":
		return r, nil
	case r.realTime, r.keep:
		return r, l.misread(flags, "waits as long as the gateway does, and has no folder to keep: -real-time and -keep go with -config")
	case !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://"):
		return r, l.misread(flags, "wants a -url that begins with http:// or https://")
	case s.Token == "":
		return r, l.misread(flags, "needs -token of role operator with -url, to read what became of the reminder and to redrive")
	case s.Source != "" && s.SourceToken == "":
		return r, l.misread(flags, "needs -source-token with -source")
	case s.Source == "" && s.ProducerToken == "":
		return r, l.misread(flags, "needs -producer-token with -url, or -source and -source-token, to bring the reminder")
	}
	return r, nil
}

// settingOf is what a rehearsal takes over: no address, header or secret of a provider is in it.
func settingOf(cfg config.Config) cli.Setting {
	s := cli.Setting{Lease: cfg.Lease, Sweep: cfg.Sweep, Memory: cfg.Memory, Types: map[string]cli.Policy{}}
	used := map[string]bool{}
	for _, channel := range cfg.Channels {
		used[channel.Provider] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		s.Promises = append(s.Promises, promiseOf(cfg.Providers[name]))
	}
	for name, t := range cfg.Types {
		s.Types[name] = cli.Policy{
			MaxAttempts: t.MaxAttempts, Base: t.Backoff.Base, Cap: t.Backoff.Cap, Deadline: t.Deadline, OnUnknown: t.OnUnknown,
		}
	}
	return s
}

func promiseOf(p config.Provider) cli.Promise {
	promise := cli.Promise{Contract: cli.Blind, Timeout: p.Timeout}
	switch {
	case p.Contract.Idempotent > 0:
		promise.Contract, promise.Window = cli.Idempotent, p.Contract.Idempotent
	case p.Contract.Lookup != "":
		promise.Contract = cli.Lookup
	case p.Kind == config.KindSandbox:
		promise.Contract, promise.Window = cli.Idempotent, 24*time.Hour // as a sandbox promises by itself
	}
	return promise
}
