package app

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/sendonce/sendonce/internal/config"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
	"github.com/sendonce/sendonce/internal/telemetry"
)

// callerTimeout is how long a request of the API waits for its send to settle.
const callerTimeout = 20 * time.Second

// store is the union of what the components need from the ledger's store.
type store interface {
	deliver.Ledger
	deliver.DetailStore
	deliver.ReminderIndex
	reconcile.WorkLister
	reconcile.RecordStore
	reconcile.EpochStore
	provider.Gates
	redrive.RedriveStore
	redrive.DeadLetterReader
	retention.Store
	Delete(ctx context.Context, e ledger.Entry) error
	Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error)
	DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error)
	Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error)
	telemetry.BacklogCounter
	api.Lister
	api.EntryReader
	Ping(ctx context.Context) error
	CheckWrite(ctx context.Context) error
	Warnings(ctx context.Context) ([]string, error)
	Migrate(ctx context.Context) error
	Close() error
}

func openStore(ctx context.Context, cfg config.Config, traces trace.TracerProvider, now func() time.Time) (store, error) {
	if path := cfg.Database.Path; path != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return nil, fmt.Errorf("create the ledger's directory: %w", err)
		}
		return sqlite.Open(ctx, sqlite.Options{Path: path, Now: now})
	}
	options := postgresOptions(cfg)
	if traces != nil {
		options.Tracer = otelpgx.NewTracer(otelpgx.WithTracerProvider(traces), otelpgx.WithDisableSQLStatementInAttributes())
	}
	return postgres.Open(ctx, options)
}

func postgresOptions(cfg config.Config) postgres.Options {
	return postgres.Options{
		URL: cfg.Database.URL.Reveal(), MaxConns: cfg.Database.MaxConns, Pooler: cfg.Database.Pooler,
	}
}

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
