package app

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/exaring/otelpgx"
	"go.opentelemetry.io/otel/trace"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/broker/plain"
	"github.com/sendonce/sendonce/internal/broker/pubsub"
	"github.com/sendonce/sendonce/internal/broker/standardwebhooks"
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/sandbox"
	"github.com/sendonce/sendonce/internal/provider/smtp"
	"github.com/sendonce/sendonce/internal/provider/webhook"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/relevance"
	"github.com/sendonce/sendonce/internal/reminder"
	"github.com/sendonce/sendonce/internal/telemetry"
)

// callerPatience is how long a caller of the API is kept waiting for a send.
const callerPatience = 20 * time.Second

// store is what the rooms together ask of the ledger's store.
type store interface {
	deliver.Ledger
	deliver.Archive
	deliver.Register
	reconcile.Agenda
	reconcile.Records
	reconcile.EpochLog
	provider.Gates
	telemetry.Census
	api.Lister
	api.Teller
	Ping(ctx context.Context) error
	Migrate(ctx context.Context) error
	Close() error
}

func openStore(ctx context.Context, cfg config.Config, traces trace.TracerProvider, now func() time.Time) (store, error) {
	if path := cfg.Database.Path; path != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("the ledger's folder: %w", err)
		}
		return sqlite.Open(ctx, sqlite.Options{Path: path, Now: now})
	}
	options := postgres.Options{
		URL: cfg.Database.URL.Reveal(), MaxConns: cfg.Database.MaxConns, Pooler: cfg.Database.Pooler,
	}
	if traces != nil {
		options.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(traces), otelpgx.WithDisableSQLStatementInAttributes())
	}
	return postgres.Open(ctx, options)
}

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

func openDesk(cfg config.Config, store store, fleet *provider.Fleet, epochs deliver.Epochs, watch *telemetry.Telemetry, now func() time.Time) *deliver.Desk {
	types := make(map[string]policy.Type)
	questions := make(map[string]relevance.Question)
	for name, t := range cfg.Types {
		types[name] = policy.Type{
			MaxAttempts: t.MaxAttempts, Backoff: policy.Backoff{Base: t.Backoff.Base, Cap: t.Backoff.Cap},
			Deadline: t.Deadline, OnUnknown: ledger.OnUnknown(t.OnUnknown), AsksRelevance: t.Relevance != nil,
		}
		if q := t.Relevance; q != nil {
			questions[name] = relevance.Question{
				URL: q.URL, Headers: headers(q.Headers), Timeout: q.Timeout, SendUnanswered: q.Otherwise == config.OtherwiseSend,
			}
		}
	}
	channels := make(map[string]string)
	for name, c := range cfg.Channels {
		channels[name] = c.Provider
	}
	sources := make(map[string]deliver.Source)
	for name, s := range cfg.Sources {
		sources[name] = deliver.Source{
			RetriesBy: ledger.Owner(s.Retries), TakeoverAfter: s.TakeoverAfter, AnswerWithin: s.AnswerWithin,
		}
	}
	return deliver.New(deliver.Options{
		Ledger: store, Archive: store, Register: store,
		Slots: fleet, Sender: watch.Sender(fleet), Routes: fleet,
		Relevance: relevance.New(outbound.New(outbound.Options{}), questions),
		Epochs:    epochs,
		Lease:     cfg.Lease, Margin: cfg.Margin(),
		Memory: policy.Memory{Span: cfg.Memory, AcceptSince: cfg.AcceptSince},
		Types:  types, Channels: channels, Sources: sources, Asks: cfg.Asks,
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: callerPatience},
		Clock:   now, Draw: mathrand.Float64, Token: rand.Text,
		Late: watch.Late, Settled: watch.Settled,
	})
}

func openSweep(
	cfg config.Config, store store, fleet *provider.Fleet, failovers *reconcile.Failovers, desk *deliver.Desk,
	watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) *reconcile.Desk {
	return reconcile.New(reconcile.Options{
		Ledger: store, Records: store, Agenda: store,
		Visitor: watch.Visitor(desk), Providers: askable{fleet, watch.Asker(fleet)}, Rules: desk.Rules, Failovers: failovers,
		Sweep: cfg.Sweep, Clock: now, Token: rand.Text, Late: watch.Late, Swept: watch.Swept,
		Failed: seldom(30*time.Second, func(err error) { log.Warn("not everything could be reconciled", "error", err) }),
	})
}

// askable is the fleet, whose questions are watched.
type askable struct {
	*provider.Fleet
	asker telemetry.Asker
}

func (a askable) Ask(ctx context.Context, name, sendKey string) (ledger.Finding, ledger.Outcome) {
	return a.asker.Ask(ctx, name, sendKey)
}

// tellFailover says in the log that the database changed under us.
func tellFailover(log *slog.Logger, f ledger.Failover) {
	log.Warn("the database is another one than before: what it may have forgotten is held in doubt",
		"noticed", f.Noticed, "window", f.Window.String())
}

func openSurface(
	cfg config.Config, store store, desk *deliver.Desk, sweep *reconcile.Desk,
	watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) (api.Options, error) {
	sources := make(map[string]api.Source)
	keys := new(http.Client) // for an issuer's keys; its user bounds it
	for name, s := range cfg.Sources {
		format, err := openFormat(name, s, keys, now)
		if err != nil {
			return api.Options{}, fmt.Errorf("source %s: %w", name, err)
		}
		sources[name] = api.Source{Format: format, Limit: s.Limit}
	}
	events := make(map[string]api.EventReader)
	for name, p := range cfg.Providers {
		if len(p.Events) == 0 {
			continue
		}
		opened, err := webhook.NewEvents(name, reveal(p.Events), now)
		if err != nil {
			return api.Options{}, fmt.Errorf("provider %s: %w", name, err)
		}
		events[name] = eventReader{opened}
	}
	var callers []api.Caller
	for _, c := range cfg.Callers {
		caller := api.Caller{Name: c.Name, Role: api.Role(c.Role)}
		for _, token := range c.Tokens {
			caller.TokenHashes = append(caller.TokenHashes, [sha256.Size]byte(token))
		}
		callers = append(callers, caller)
	}
	return api.Options{
		Sources: sources, Callers: callers,
		Deliver: watch.Deliverer(desk), Request: watch.Requester(desk),
		Cancel: desk, Reminder: store, List: store, Story: store,
		Cases: sweep, Start: sweep, LastRun: sweep.LastRun, Resolve: sweep, Events: events, Hear: sweep,
		CursorKey: cursorKey(cfg), AllowedHosts: allowedHosts(cfg), Wrap: watch.HTTP, Log: log,
	}, nil
}

// eventReader is a provider's events with their errors in the surface's words.
type eventReader struct{ events *webhook.Events }

func (r eventReader) Open(h http.Header, raw []byte) (ledger.Report, error) {
	report, err := r.events.Open(h, raw)
	var faults webhook.Faults
	switch {
	case errors.Is(err, webhook.ErrNotAuthentic):
		return ledger.Report{}, fmt.Errorf("%w: %w", api.ErrForged, err)
	case errors.As(err, &faults):
		told := make(reminder.Faults, len(faults))
		for i, fault := range faults {
			told[i] = reminder.Fault(fault)
		}
		return ledger.Report{}, told
	}
	return report, err
}

func openFormat(name string, s config.Source, keys *http.Client, now func() time.Time) (broker.Format, error) {
	auth, err := openAuth(s.Auth, keys, now)
	if err != nil {
		return nil, err
	}
	options := broker.Options{Source: name, Limit: s.Limit, Auth: auth}
	switch s.Format {
	case config.FormatPubSub:
		return pubsub.New(options)
	case config.FormatStandardWebhooks:
		return standardwebhooks.New(options)
	default:
		return plain.New(options)
	}
}

func openAuth(a config.Auth, keys *http.Client, now func() time.Time) (broker.Authenticator, error) {
	switch {
	case a.OIDC != nil:
		return pubsub.NewOIDC(pubsub.OIDCOptions{
			Audience: a.OIDC.Audience, Email: a.OIDC.Email, Issuer: a.OIDC.Issuer, KeysURL: a.OIDC.KeysURL,
			Client: keys, Now: now,
		})
	case a.Header != nil:
		return broker.NewHeader(a.Header.Name, reveal(a.Header.Secrets))
	case len(a.StandardWebhooks) > 0:
		return standardwebhooks.NewSignature(reveal(a.StandardWebhooks), now)
	case a.None:
		return broker.None{}, nil
	default:
		return broker.NewBearer(reveal(a.Bearer))
	}
}

// cursorKey is the same on every replica with the same configuration, and changes with its callers'
// tokens: a cursor is a place in a list, not something to keep.
func cursorKey(cfg config.Config) []byte {
	h := sha256.New()
	h.Write([]byte("sendonce list cursors"))
	for _, c := range cfg.Callers {
		for _, token := range c.Tokens {
			h.Write(token[:])
		}
	}
	return h.Sum(nil)
}

// allowedHosts are the names under which dev may be called: its open sources must not be reachable from
// a web page that points a name of its own at loopback.
func allowedHosts(cfg config.Config) []string {
	if !cfg.Dev {
		return nil
	}
	host, _, _ := net.SplitHostPort(cfg.Listen)
	return []string{"localhost", "127.0.0.1", "::1", host}
}

// readiness is the store as the operations surface asks for it.
type readiness struct{ store store }

func (r readiness) Ready(ctx context.Context) error { return r.store.Ping(ctx) }

// gates are the closed gates as the operations surface asks for them.
type gates func() []ledger.Gate

func (g gates) Gates(context.Context) ([]ledger.Gate, error) { return g(), nil }

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func headers(secrets map[string]config.Secret) http.Header {
	h := make(http.Header)
	for name, secret := range secrets {
		h.Set(name, secret.Reveal())
	}
	return h
}

func reveal(secrets []config.Secret) []string {
	var plain []string
	for _, s := range secrets {
		plain = append(plain, s.Reveal())
	}
	return plain
}
