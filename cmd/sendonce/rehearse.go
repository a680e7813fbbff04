package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/rehearsal"
)

// rehearseHelp is the help of rehearse.
const rehearseHelp = `Run the riskiest failure scenario and check its result: a reminder is delivered, the
provider accepts it but its answer is lost, the process ends before the ack, the
broker redelivers, and redelivers again. Then redrive a batch twice: a few reminders
become dead letters, an operator previews and redrives them, and redrives them again.
Prints each step. Exit code 0 only if nothing was sent twice, lost or left unexplained.

With -config it runs its own gateway with the settings in FILE, and kills it (kill -9)
during the send and during the redrive. A fake provider stands in for each contract in
use; no real provider is called. Its ledger is its own too: a new file if FILE uses
SQLite; for PostgreSQL, the database next to the configured one, with "_rehearsal"
appended to its name (create it once, for the same user).

With -url it uses a running gateway, such as a staging one whose provider is a sandbox:
it requests a reminder to timeout-after-accept@rehearsal.invalid, and kills nothing.
It redrives, and finally discards, two reminders of its own to
refuse@rehearsal.invalid; so -token needs the role operator.`

// rehearseFlags are the flags of rehearse.
type rehearseFlags struct {
	file     string
	contract string
	realTime bool
	keep     bool
	staging  rehearsal.Staging
}

func rehearse(inv invocation) error {
	r, err := inv.rehearseFlags()
	if err != nil {
		return err
	}
	ctx, stop := signalContext()
	defer stop()
	if r.file == "" {
		return r.staging.Run(ctx)
	}
	cfg, err := config.Load(r.file, os.LookupEnv)
	if err != nil {
		return err
	}
	scenario := rehearsal.Rehearsal{
		Setting: settingOf(cfg), Contract: r.contract, RealTime: r.realTime, Keep: r.keep,
		Environ: os.Environ(), Out: inv.out, Progress: inv.errOut,
	}
	if scenario.Program, err = os.Executable(); err != nil {
		return fmt.Errorf("rehearse: find this program: %w", err)
	}
	if cfg.Database.URL.IsSet() {
		if scenario.Database, err = rehearsal.RehearsalDatabase(cfg.Database.URL.Reveal()); err != nil {
			return err
		}
	}
	return scenario.Run(ctx)
}

func (inv invocation) rehearseFlags() (rehearseFlags, error) {
	r := rehearseFlags{staging: rehearsal.Staging{Out: inv.out, Progress: inv.errOut}}
	s, flags := &r.staging, inv.flags()
	flags.StringVar(&r.file, "config", "", "configuration `FILE` to rehearse")
	flags.StringVar(&r.contract, "contract", "", "rehearse only this `CONTRACT`: "+strings.Join(rehearsal.Contracts(), ", "))
	flags.BoolVar(&r.realTime, "real-time", false, "with -config: use the lease, sweep and backoff of FILE unshortened")
	flags.BoolVar(&r.keep, "keep", false, "with -config: keep the temporary directory (configuration, logs, ledger)")
	flags.StringVar(&s.URL, "url", "", "`URL` of a running gateway whose provider is a sandbox")
	flags.StringVar(&s.Token, "token", "", "with -url: `TOKEN` of role operator, to read the entry and to redrive (or $SENDONCE_TOKEN)")
	flags.StringVar(&s.ProducerToken, "producer-token", "", "with -url and no -source: `TOKEN` of role producer, to request over REST (or $SENDONCE_PRODUCER_TOKEN)")
	flags.StringVar(&s.Source, "source", "", "with -url: deliver to the push source `NAME`, of format plain")
	flags.StringVar(&s.SourceToken, "source-token", "", "with -source: its bearer `TOKEN` (or $SENDONCE_SOURCE_TOKEN)")
	flags.StringVar(&s.Channel, "channel", "email", "with -url: the `CHANNEL` whose provider is the sandbox")
	flags.StringVar(&s.Type, "type", "seat_expiring", "with -url: the reminder's `TYPE`")
	if err := inv.parse(flags); err != nil {
		return r, err
	}
	s.Contract = r.contract
	// Not as defaults of the flags: the help would show them.
	s.Token = cmp.Or(s.Token, os.Getenv("SENDONCE_TOKEN"))
	s.ProducerToken = cmp.Or(s.ProducerToken, os.Getenv("SENDONCE_PRODUCER_TOKEN"))
	s.SourceToken = cmp.Or(s.SourceToken, os.Getenv("SENDONCE_SOURCE_TOKEN"))
	switch {
	case (r.file == "") == (s.URL == ""):
		return r, inv.usageError(flags, "needs -config or -url, and not both")
	case r.contract != "" && !slices.Contains(rehearsal.Contracts(), r.contract):
		return r, inv.usageError(flags, "does not know the contract %q; use one of %s", r.contract, strings.Join(rehearsal.Contracts(), ", "))
	case r.file != "" && s.Source != "":
		return r, inv.usageError(flags, "uses its own source with -config; -source needs -url")
	case r.file != "":
		return r, nil
	case r.realTime, r.keep:
		return r, inv.usageError(flags, "takes -real-time and -keep only with -config")
	case !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://"):
		return r, inv.usageError(flags, "needs a -url that begins with http:// or https://")
	case s.Token == "":
		return r, inv.usageError(flags, "needs -token of role operator with -url, to read the entry and to redrive")
	case s.Source != "" && s.SourceToken == "":
		return r, inv.usageError(flags, "needs -source-token with -source")
	case s.Source == "" && s.ProducerToken == "":
		return r, inv.usageError(flags, "needs -producer-token with -url, or -source and -source-token, to request the reminder")
	}
	return r, nil
}

// settingOf returns the settings that a rehearsal uses: they contain no address, header or secret of a provider.
func settingOf(cfg config.Config) rehearsal.Setting {
	s := rehearsal.Setting{Lease: cfg.Lease, Sweep: cfg.Sweep, Memory: cfg.Memory, Types: map[string]rehearsal.Policy{}}
	used := map[string]bool{}
	for _, channel := range cfg.Channels {
		used[channel.Provider] = true
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		s.Promises = append(s.Promises, promiseOf(cfg.Providers[name]))
	}
	for name, t := range cfg.Types {
		s.Types[name] = rehearsal.Policy{
			MaxAttempts: t.MaxAttempts, Base: t.Backoff.Base, Cap: t.Backoff.Cap, Deadline: t.Deadline, OnUnknown: t.OnUnknown,
		}
	}
	return s
}

func promiseOf(p config.Provider) rehearsal.Promise {
	promise := rehearsal.Promise{Contract: rehearsal.Blind, Timeout: p.Timeout}
	switch {
	case p.Contract.Idempotent > 0:
		promise.Contract, promise.Window = rehearsal.Idempotent, p.Contract.Idempotent
	case p.Contract.Lookup != "":
		promise.Contract = rehearsal.Lookup
	case p.Kind == config.KindSandbox:
		promise.Contract, promise.Window = rehearsal.Idempotent, 24*time.Hour // the default of a sandbox
	}
	return promise
}
