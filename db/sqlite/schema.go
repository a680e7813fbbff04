package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the schema is older than this binary needs, or not complete.
var ErrSchema = errors.New("sqlite: the schema is out of date: run the migrations")

// ErrForeign means that the file has a table of the ledger's name that these migrations did not make.
var ErrForeign = errors.New("sqlite: the file has a table 'entries' but no table '" + versionTable + "': " +
	"another program uses it, or an earlier build of sendonce made it, which this one cannot upgrade; use another file")

// versionTable has a name of our own: the version in a table of goose's default name may be another program's.
const versionTable = "sendonce_schema_version"

// tables are all tables of the ledger.
var tables = []string{"entries", "payloads", "timeline", "conflicts", "gates", "audit", "redrives", "redrive_items", "epochs", "low_water"}

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
	versions, err := database.NewStore(database.DialectSQLite3, versionTable)
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
	return s.complete(ctx)
}

// complete reports whether every table exists: the version alone proves only that they existed once.
func (s *Store) complete(ctx context.Context) error {
	existing, err := tablesIn(ctx, s.read)
	if err != nil {
		return wrapped(err)
	}
	for _, name := range tables {
		if !existing[name] {
			return fmt.Errorf("%w: '%s' says that they ran, but there is no table %s", ErrSchema, versionTable, name)
		}
	}
	return nil
}

// foreign returns [ErrForeign] if the file has a ledger's table without the ledger's version.
func (s *Store) foreign(ctx context.Context) error {
	existing, err := tablesIn(ctx, s.write)
	if err != nil {
		return wrapped(err)
	}
	if existing["entries"] && !existing[versionTable] {
		return ErrForeign
	}
	return nil
}

func tablesIn(ctx context.Context, db *sql.DB) (map[string]bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names[name] = true
	}
	return names, rows.Err()
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
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.write, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("sqlite: migrations: %w", err)
	}
	return provider, nil
}
