package sqlite

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the schema is older than this binary needs.
var ErrSchema = errors.New("sqlite: the schema is out of date: run the migrations")

// Migrate upgrades the schema to the version that this binary knows.
func (s *Store) Migrate(ctx context.Context) error {
	provider, err := s.provider()
	if err != nil {
		return err
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return s.expireLeases(ctx)
}

// Ping reports whether the file can be read and has the schema that this binary needs.
func (s *Store) Ping(ctx context.Context) error {
	provider, err := s.provider()
	if err != nil {
		return err
	}
	versions, err := database.NewStore(database.DialectSQLite3, goose.DefaultTablename)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	at, err := versions.GetLatestVersion(ctx, s.read)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if at < newest(provider) {
		return ErrSchema
	}
	return nil
}

// current reports whether the schema can be used without a migration.
func (s *Store) current(ctx context.Context) (bool, error) {
	provider, err := s.provider()
	if err != nil {
		return false, err
	}
	at, err := provider.GetDBVersion(ctx)
	return at >= newest(provider), wrapped(err)
}

// newest is the latest schema version that this binary knows.
func newest(p *goose.Provider) int64 {
	sources := p.ListSources()
	return sources[len(sources)-1].Version
}

func (s *Store) provider() (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.write, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrations: %w", err)
	}
	return provider, nil
}
