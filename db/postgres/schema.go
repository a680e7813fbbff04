package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the schema is older than this binary needs.
var ErrSchema = errors.New("postgres: the schema is out of date: run the migrations")

// Migrate upgrades the schema to the version that this binary knows. Of several processes that do so at once, one
// migrates and the others wait for a row in a lock table, since session locks do not work through a pooler. It needs
// several connections at once, so it takes none from the pool.
func (s *Store) Migrate(ctx context.Context) error {
	db := stdlib.OpenDB(*s.pool.Config().ConnConfig)
	defer db.Close()
	provider, err := provider(db)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

// Ping reports whether the database can be reached and has the schema that this binary needs. A newer schema is
// accepted: migrations keep the previous binary working, so that old and new replicas can run at the same time.
func (s *Store) Ping(ctx context.Context) error {
	provider, err := provider(s.schema)
	if err != nil {
		return err
	}
	sources := provider.ListSources()
	ctx, stop := context.WithTimeout(ctx, s.acquire)
	defer stop()
	versions, err := database.NewStore(database.DialectPostgres, goose.DefaultTablename)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := s.pool.Ping(ctx); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	at, err := versions.GetLatestVersion(ctx, s.schema)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if at < sources[len(sources)-1].Version {
		return ErrSchema
	}
	return nil
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableLockTimeout(time.Second, 60),
		lock.WithTableUnlockTimeout(time.Second, 30),
	)
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	return provider, nil
}
