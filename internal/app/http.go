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
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/plain"
	"github.com/sendonce/sendonce/internal/ingest/pubsub"
	"github.com/sendonce/sendonce/internal/ingest/standardwebhooks"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/webhook"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/reminder"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

func newAPI(
	cfg config.Config, store store, pool *provider.Pool, deliverer *deliver.Deliverer, reconciler *reconcile.Reconciler,
	redriver *redrive.Redriver, purger *retention.Purger, tel *telemetry.Telemetry, log *slog.Logger, now func() time.Time,
) (api.Options, error) {
	sources := make(map[string]api.Source)
	keys := new(http.Client) // for an issuer's keys; pubsub bounds its requests
	for name, s := range cfg.Sources {
		format, err := newFormat(name, s, keys, now)
		if err != nil {
			return api.Options{}, fmt.Errorf("source %s: %w", name, err)
		}
		sources[name] = api.Source{Format: format, Limit: s.Limit}
	}
	events := make(map[string]api.StatusEventReader)
	for name, p := range cfg.Providers {
		if len(p.Events) == 0 {
			continue
		}
		reader, err := webhook.NewEvents(name, reveal(p.Events), now)
		if err != nil {
			return api.Options{}, fmt.Errorf("provider %s: %w", name, err)
		}
		events[name] = eventReader{reader}
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
		Deliver: tel.Deliverer(deliverer), Request: tel.Requester(deliverer),
		Cancel: deliverer, Reminder: store, List: store, EntryDetail: store,
		Unresolved: reconciler, StartSweep: reconciler, LastRun: reconciler.LastRun, Resolve: reconciler, Events: events, StatusEvents: reconciler,
		Groups: store, Discard: redriver, Redrive: redriveStarter{redriver}, Redrives: store, RedriveReport: redriver,
		CancelRedrive: redriver, Audit: store, Providers: providers{pool, store}, Pauser: pool, Erase: purger,
		MaxItems: cfg.Redrive.MaxItems, AdminConcurrency: adminConcurrency(cfg.Database),
		CursorKey: cursorKey(cfg), AllowedHosts: allowedHosts(cfg), Wrap: tel.HTTP, Log: log,
	}, nil
}

// redriveStarter is a Redriver whose Start also reports whether a redrive already existed under the key.
type redriveStarter struct{ *redrive.Redriver }

func (r redriveStarter) Start(ctx context.Context, req ledger.RedriveRequest) (ledger.Redrive, bool, error) {
	_, err := r.Redrives.RedriveByKey(ctx, req.Audit.Actor, req.IdempotencyKey)
	stored, startErr := r.Redriver.Start(ctx, req)
	return stored, err == nil, startErr
}

// providers is the provider pool together with the entries that are due for each provider.
type providers struct {
	*provider.Pool
	backlog telemetry.BacklogCounter
}

func (p providers) Providers(ctx context.Context) ([]ledger.ProviderStatus, error) {
	backlog, err := p.backlog.Backlog(ctx)
	var all []ledger.ProviderStatus
	for _, s := range p.Status() {
		all = append(all, ledger.ProviderStatus{
			Name: s.Name, Contract: p.Route(s.Name).Contract, Gate: s.Gate, Open: s.GateStatus.Open,
			Capacity: s.Capacity, InFlight: s.InFlight, Rate: s.Rate, Ready: backlog.Ready[s.Name],
		})
	}
	return all, err
}

// adminConcurrency leaves at least half of the connections, and of SQLite's few readers, to the deliveries.
func adminConcurrency(d config.Database) int {
	if d.Path != "" {
		return 2
	}
	return max(1, min(4, d.MaxConns/2))
}

// eventReader reads a provider's status events, and translates its errors to those of package api.
type eventReader struct{ events *webhook.Events }

func (r eventReader) Open(h http.Header, raw []byte) (ledger.StatusEvent, error) {
	event, err := r.events.Open(h, raw)
	var faults webhook.Faults
	switch {
	case errors.Is(err, webhook.ErrNotAuthentic):
		return ledger.StatusEvent{}, fmt.Errorf("%w: %w", api.ErrNotAuthentic, err)
	case errors.As(err, &faults):
		translated := make(reminder.Faults, len(faults))
		for i, fault := range faults {
			translated[i] = reminder.Fault(fault)
		}
		return ledger.StatusEvent{}, translated
	}
	return event, err
}

func newFormat(name string, s config.Source, keys *http.Client, now func() time.Time) (ingest.Format, error) {
	auth, err := newAuthenticator(s.Auth, keys, now)
	if err != nil {
		return nil, err
	}
	options := ingest.Options{Source: name, Limit: s.Limit, Auth: auth, DeadLetters: s.DeadLetter}
	switch s.Format {
	case config.FormatPubSub:
		return pubsub.New(options)
	case config.FormatStandardWebhooks:
		return standardwebhooks.New(options)
	default:
		return plain.New(options)
	}
}

func newAuthenticator(a config.Auth, keys *http.Client, now func() time.Time) (ingest.Authenticator, error) {
	switch {
	case a.OIDC != nil:
		return pubsub.NewOIDC(pubsub.OIDCOptions{
			Audience: a.OIDC.Audience, Email: a.OIDC.Email, Issuer: a.OIDC.Issuer, KeysURL: a.OIDC.KeysURL,
			Client: keys, Now: now,
		})
	case a.Header != nil:
		return ingest.NewHeader(a.Header.Name, reveal(a.Header.Secrets))
	case len(a.StandardWebhooks) > 0:
		return standardwebhooks.NewSignature(reveal(a.StandardWebhooks), now)
	case a.None:
		return ingest.None{}, nil
	default:
		return ingest.NewBearer(reveal(a.Bearer))
	}
}

// cursorKey is the same on every replica with the same configuration, and changes with the callers' tokens: a
// cursor is a short-lived position in a list.
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

// allowedHosts are the Host values that dev accepts: its open sources must not be reachable from a web page whose
// domain resolves to loopback (DNS rebinding).
func allowedHosts(cfg config.Config) []string {
	if !cfg.Dev {
		return nil
	}
	host, _, _ := net.SplitHostPort(cfg.Listen)
	return []string{"localhost", "127.0.0.1", "::1", host}
}

// gates adapts the closed gates to package api's operations handler.
type gates func() []ledger.Gate

func (g gates) Gates(context.Context) ([]ledger.Gate, error) { return g(), nil }
