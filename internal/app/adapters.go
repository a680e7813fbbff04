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

func newPool(cfg config.Config, store store, tel *telemetry.Telemetry, log *slog.Logger, now func() time.Time) (*provider.Pool, error) {
	client := outbound.New(outbound.Options{})
	var limits []provider.LimitedProvider
	for _, name := range names(cfg.Providers) {
		p := cfg.Providers[name]
		adapter, err := newProvider(name, p, client, now)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", name, err)
		}
		limits = append(limits, provider.LimitedProvider{
			Provider: adapter, Timeout: p.Timeout, Concurrency: p.Concurrency,
			Rate: p.Rate.PerSecond(),
		})
	}
	pool, err := provider.NewPool(store, provider.Options{
		Rules: ledger.DefaultGateRules(cfg.Lease), Now: now, OnGateChange: func(g ledger.Gate) { logGate(log, g) },
	}, limits...)
	if err != nil {
		return nil, err
	}
	tel.Providers(gatesOf(pool), capacities(cfg))
	return pool, nil
}

// logGate logs that a provider's gate was closed or opened by the results of calls.
func logGate(log *slog.Logger, g ledger.Gate) {
	until, closed := g.ClosedUntil.Fixed()
	if !closed {
		log.Info("provider gate opened", "provider", g.Provider)
		return
	}
	log.Warn("provider gate closed", "provider", g.Provider, "class", string(g.Class),
		"until", until, "failures", g.Failures)
}

// gatesOf returns all gates, as last known to this replica.
func gatesOf(pool *provider.Pool) func() []ledger.Gate {
	return func() []ledger.Gate {
		var all []ledger.Gate
		for _, s := range pool.Status() {
			all = append(all, s.Gate)
		}
		return all
	}
}

// closedGates returns the gates that admit no call now, as last known to this replica.
func closedGates(pool *provider.Pool) gates {
	return func() []ledger.Gate {
		var closed []ledger.Gate
		for _, s := range pool.Status() {
			if !s.GateStatus.Open {
				closed = append(closed, s.Gate)
			}
		}
		return closed
	}
}

// capacities returns how many calls this replica may have in flight at each provider.
func capacities(cfg config.Config) func() map[string]int {
	all := make(map[string]int)
	for name, p := range cfg.Providers {
		all[name] = p.Concurrency
	}
	return func() map[string]int { return all }
}

func newProvider(name string, p config.Provider, client *outbound.Client, now func() time.Time) (provider.Provider, error) {
	contract := ledger.Contract{}
	switch {
	case p.Contract.Idempotent > 0:
		contract = ledger.Contract{Kind: ledger.ContractIdempotent, Window: p.Contract.Idempotent}
	case p.Contract.Lookup != "":
		contract = ledger.Contract{Kind: ledger.ContractLookup}
	}
	switch p.Kind {
	case config.KindSandbox:
		return sandbox.New(name, contract), nil
	case config.KindSMTP:
		return smtp.New(smtp.Config{
			Name: name, Host: p.SMTP.Host, Port: p.SMTP.Port, Username: p.SMTP.Username, Password: p.SMTP.Password.Reveal(),
			Security: smtp.Security(p.SMTP.TLS), From: p.SMTP.From, Helo: p.SMTP.Helo, Insecure: p.Insecure,
		})
	default:
		return webhook.New(webhook.Config{
			Name: name, URL: p.URL, LookupURL: p.Contract.Lookup, Headers: headers(p.Headers), Contract: contract,
			Secret: p.Signing.Reveal(), Client: client, Propagate: telemetry.Propagate, Now: now,
		})
	}
}
