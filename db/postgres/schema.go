package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrSchema means that the schema is older than this binary needs, or not complete.
var ErrSchema = errors.New("postgres: the schema is out of date: run the migrations")

// ErrForeign means that the schema has a table of the ledger's name that these migrations did not make.
var ErrForeign = errors.New("postgres: the schema has a table 'entries' but no table '" + versionTable + "': " +
	"another program uses it, or an earlier build of sendonce made it, which this one cannot upgrade; use an empty schema or database")

// versionTable and lockTable have names of our own: goose's default names may belong to another program in the same
// schema, whose version would be taken for the ledger's.
const (
	versionTable = "sendonce_schema_version"
	lockTable    = "sendonce_schema_lock"
)

// tables are all tables of the ledger.
var tables = []string{"entries", "payloads", "timeline", "conflicts", "gates", "audit", "redrives", "redrive_items", "epochs", "low_water"}

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
	if foreign, err := isForeign(ctx, db); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	} else if foreign {
		return ErrForeign
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
	versions, err := database.NewStore(database.DialectPostgres, versionTable)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if err := s.pool.Ping(ctx); err != nil {
		return wrapped(err)
	}
	at, err := versions.GetLatestVersion(ctx, s.schema)
	if err != nil {
		if foreign, foreignErr := isForeign(ctx, s.schema); foreignErr == nil && foreign {
			return ErrForeign
		}
		if state := sqlState(err); state == "42P05" || state == "26000" {
			return wrapped(err)
		}
		return fmt.Errorf("%w: %w", ErrSchema, err)
	}
	if at < sources[len(sources)-1].Version {
		return ErrSchema
	}
	return s.complete(ctx)
}

// complete reports whether every table can be found: the version alone proves only that they existed once.
func (s *Store) complete(ctx context.Context) error {
	missing, err := s.pool.Query(ctx, "SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NULL", tables)
	if err != nil {
		return wrapped(err)
	}
	names, err := pgx.CollectRows(missing, pgx.RowTo[string])
	if err != nil {
		return wrapped(err)
	}
	if len(names) > 0 {
		return fmt.Errorf("%w: '%s' says that they ran, but there is no table %s; was it dropped, or is search_path another one?",
			ErrSchema, versionTable, strings.Join(names, ", "))
	}
	return nil
}

// isForeign reports whether the schema has a ledger's table without the ledger's version.
func isForeign(ctx context.Context, db *sql.DB) (foreign bool, err error) {
	err = db.QueryRowContext(ctx, "SELECT to_regclass('entries') IS NOT NULL AND to_regclass('"+versionTable+"') IS NULL").Scan(&foreign)
	return foreign, err
}

func provider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName(lockTable),
		lock.WithTableLockTimeout(time.Second, 60),
		lock.WithTableUnlockTimeout(time.Second, 30),
	)
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithLocker(locker), goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("postgres: migrations: %w", err)
	}
	return provider, nil
}
