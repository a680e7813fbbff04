package app

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/sandbox"
	"github.com/sendonce/sendonce/internal/provider/smtp"
	"github.com/sendonce/sendonce/internal/provider/webhook"
	"github.com/sendonce/sendonce/internal/telemetry"
)

func openFleet(cfg config.Config, store store, watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time) (*provider.Fleet, error) {
	client := outbound.New(outbound.Options{})
	var lanes []provider.Lane
	for _, name := range names(cfg.Providers) {
		p := cfg.Providers[name]
		adapter, err := openProvider(name, p, client, now)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		lanes = append(lanes, provider.Lane{
			Provider: adapter, Timeout: p.Timeout, Concurrency: p.Concurrency,
			Rate: p.Rate.PerSecond(),
		})
	}
	fleet, err := provider.NewFleet(store, provider.Options{
		Rules: ledger.DefaultGateRules(cfg.Lease), Now: now, Moved: func(g ledger.Gate) { tellGate(log, g) },
	}, lanes...)
	if err != nil {
		return nil, err
	}
	watch.Lanes(gatesOf(fleet), capacities(cfg))
	return fleet, nil
}

// tellGate says in the log that calls closed or opened a provider's gate.
func tellGate(log *slog.Logger, g ledger.Gate) {
	until, closed := g.ClosedUntil.Fixed()
	if !closed {
		log.Info("a gate is open again", "provider", g.Provider)
		return
	}
	log.Warn("a gate is closed: nobody calls the provider until then", "provider", g.Provider, "class", string(g.Class),
		"until", until, "strikes", g.Strikes)
}

// gatesOf tells how the gates stand, as this replica knows them.
func gatesOf(fleet *provider.Fleet) func() []ledger.Gate {
	return func() []ledger.Gate {
		var all []ledger.Gate
		for _, s := range fleet.Status() {
			all = append(all, s.Gate)
		}
		return all
	}
}

// closedGates are those that let nobody through now, as this replica knows them.
func closedGates(fleet *provider.Fleet) gates {
	return func() []ledger.Gate {
		var closed []ledger.Gate
		for _, s := range fleet.Status() {
			if !s.View.Open {
				closed = append(closed, s.Gate)
			}
		}
		return closed
	}
}

// capacities tells how many calls each provider takes at once from this replica.
func capacities(cfg config.Config) func() map[string]int {
	all := make(map[string]int)
	for name, p := range cfg.Providers {
		all[name] = p.Concurrency
	}
	return func() map[string]int { return all }
}

func openProvider(name string, p config.Provider, client *outbound.Client, now func() time.Time) (provider.Provider, error) {
	contract := ledger.Contract{}
	switch {
	case p.Contract.Idempotent > 0:
		contract = ledger.Contract{Kind: ledger.Idempotent, Window: p.Contract.Idempotent}
	case p.Contract.Lookup != "":
		contract = ledger.Contract{Kind: ledger.Lookup}
	}
	switch p.Kind {
	case config.KindSandbox:
		return sandbox.New(name, contract), nil
	case config.KindSMTP:
		return smtp.New(smtp.Config{
			Name: name, Host: p.SMTP.Host, Port: p.SMTP.Port, Username: p.SMTP.Username, Password: p.SMTP.Password.Reveal(),
			Security: smtp.Security(p.SMTP.TLS), From: p.SMTP.From, Hello: p.SMTP.Hello,
		})
	default:
		return webhook.New(webhook.Config{
			Name: name, URL: p.URL, LookupURL: p.Contract.Lookup, Headers: headers(p.Headers), Contract: contract,
			Secret: p.Signing.Reveal(), Client: client, Propagate: telemetry.Propagate, Now: now,
		})
	}
}
