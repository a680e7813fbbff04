package app

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api"
	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/broker/plain"
	"github.com/sendonce/sendonce/internal/broker/pubsub"
	"github.com/sendonce/sendonce/internal/broker/standardwebhooks"
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/webhook"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/reminder"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

func openSurface(
	cfg config.Config, store store, fleet *provider.Fleet, desk *deliver.Desk, sweep *reconcile.Desk,
	redrives *redrive.Desk, keep *retention.Desk, watch *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
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
		Groups: store, Discard: redrives, Redrive: redriver{redrives}, Redrives: store, Report: redrives,
		Stop: redrives, Audit: store, Providers: providers{fleet, store}, Steer: fleet, Erase: keep,
		MaxItems: cfg.Redrive.MaxItems, DeskAtOnce: atDeskAtOnce(cfg.Database),
		CursorKey: cursorKey(cfg), AllowedHosts: allowedHosts(cfg), Wrap: watch.HTTP, Log: log,
	}, nil
}

// redriver is the desk of redrives, which also tells whether a redrive stood already under the key.
type redriver struct{ *redrive.Desk }

func (r redriver) Start(ctx context.Context, ask ledger.RedriveRequest) (ledger.Redrive, bool, error) {
	_, err := r.Book.RedriveByKey(ctx, ask.Act.By, ask.Key)
	stands, startErr := r.Desk.Start(ctx, ask)
	return stands, err == nil, startErr
}

// providers are the fleet with what waits for it in the ledger.
type providers struct {
	*provider.Fleet
	census telemetry.Census
}

func (p providers) Providers(ctx context.Context) ([]ledger.ProviderView, error) {
	census, err := p.census.Census(ctx)
	var all []ledger.ProviderView
	for _, s := range p.Status() {
		all = append(all, ledger.ProviderView{
			Name: s.Name, Contract: p.Route(s.Name).Contract, Gate: s.Gate, Open: s.View.Open,
			Capacity: s.Capacity, InFlight: s.InFlight, Rate: s.Rate, Ready: census.Ready[s.Name],
		})
	}
	return all, err
}

// atDeskAtOnce leaves the pushes at least half of the connections, and of SQLite's few readers.
func atDeskAtOnce(d config.Database) int {
	if d.Path != "" {
		return 2
	}
	return max(1, min(4, d.MaxConns/2))
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
	options := broker.Options{Source: name, Limit: s.Limit, Auth: auth, DeadLetters: s.DeadLetter}
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
