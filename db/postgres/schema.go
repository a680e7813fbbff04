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

// ErrSchema : the schema is older than this binary needs.
var ErrSchema = errors.New("postgres: the schema is out of date: run the migrations")

// Migrate brings the schema to the version that this binary knows. Of several processes that do so at
// once one works and the others wait, by a row in a table: session locks do not pass a pooler. Since it
// holds several connections at once, it takes none from the pool.
func (s *Store) Migrate(ctx context.Context) error {
	own := stdlib.OpenDB(*s.pool.Config().ConnConfig)
	defer own.Close()
	provider, err := provider(own)
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

// Ping tells whether the database can be reached and holds the schema that this binary needs. A newer
// schema is right too: migrations let the old binary run beside the new one.
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
