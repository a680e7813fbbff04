package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// DefaultAcquireTimeout is how long a unit of work waits for a connection by default.
const DefaultAcquireTimeout = 2 * time.Second

// Options configure a store.
type Options struct {
	URL            string          // connection string as for libpq: a URL or key=value pairs
	MaxConns       int             // maximum number of connections; 0 for the URL's pool_max_conns, else pgxpool's default
	AcquireTimeout time.Duration   // how long to wait for a connection; 0 for [DefaultAcquireTimeout]
	Pooler         bool            // the URL leads to a pooler in transaction mode: keep no prepared statements
	Tracer         pgx.QueryTracer // sees each query, connect and acquire; may be nil
}

// Store is a ledger store in PostgreSQL. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	schema  *sql.DB // the same pool as database/sql, to read the schema's version
	acquire time.Duration
}

// Open creates a store without connecting. [Store.Ping] reports whether the database can be used.
//
// A statement is prepared once per connection, unless there is a pooler: then only its description is cached, and it
// is sent unnamed with its arguments, so that any server connection can run it. An exec mode in the URL takes
// precedence.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := parse(o)
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s := &Store{pool: pool, schema: stdlib.OpenDBFromPool(pool), acquire: o.AcquireTimeout}
	if s.acquire <= 0 {
		s.acquire = DefaultAcquireTimeout
	}
	return s, nil
}

// Check reports what [Open] would reject in the options, the environment and the files that they name (certificates,
// password and service files).
func Check(o Options) error {
	_, err := parse(o)
	return err
}

func parse(o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", withoutURL(err))
	}
	if o.MaxConns > 0 {
		config.MaxConns = int32(min(o.MaxConns, 1<<15))
		config.MinConns = min(config.MinConns, config.MaxConns)
	}
	if o.Pooler && !namesExecMode(o.URL) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if !o.Pooler {
		config.AfterConnect = setSession
	}
	if o.Tracer != nil {
		config.ConnConfig.Tracer = o.Tracer
	}
	return config, nil
}

// withoutURL returns the error without the URL that could not be parsed, which may contain a password.
func withoutURL(err error) error {
	var invalid *pgconn.ParseConfigError
	if !errors.As(err, &invalid) {
		return err
	}
	bare := *invalid
	bare.ConnString = ""
	return errors.New("the database's URL, or a PG* variable of the environment: " + strings.TrimPrefix(bare.Error(), "cannot parse ``: "))
}

// namesExecMode reports whether the URL sets the exec mode of statements.
func namesExecMode(raw string) bool {
	const key = "default_query_exec_mode"
	if u, err := url.Parse(raw); err == nil && u.Scheme != "" {
		return u.Query().Has(key)
	}
	return strings.Contains(raw, key+"=")
}

// Close closes every connection after the work in flight has ended.
func (s *Store) Close() error {
	err := s.schema.Close()
	s.pool.Close()
	return err
}

// conn acquires a connection from the pool, and waits for it no longer than the acquire timeout.
func (s *Store) conn(ctx context.Context) (*pgxpool.Conn, error) {
	waiting, stop := context.WithTimeout(ctx, s.acquire)
	defer stop()
	conn, err := s.pool.Acquire(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		// The caller's context has not ended, so the error must not match context.DeadlineExceeded.
		return nil, fmt.Errorf("no connection within %s: %v", s.acquire, err)
	}
	return conn, err
}

// do runs one unit of work on one connection. A connection that is left inside a transaction is not reused: pgxpool
// closes it on release.
func (s *Store) do(ctx context.Context, work func(*pgsql.Queries) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer conn.Release()
	return wrapped(repeated(ctx, func() error { return work(pgsql.New(conn)) }))
}

// commit runs several statements in one transaction. After an error, also one of COMMIT, it is unknown whether they
// were written until they are read again.
func (s *Store) commit(ctx context.Context, work func(*pgsql.Queries) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return wrapped(err)
	}
	defer conn.Release()
	return wrapped(repeated(ctx, func() error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return work(pgsql.New(tx)) })
	}))
}

// maxRepeats is how often a unit of work is repeated that a conflict with another transaction has undone.
const maxRepeats = 10

// repeated repeats work that failed to serialize (40001) or was chosen to end a deadlock (40P01): both prove that
// nothing was committed. It happens at an isolation level that a database or role sets as its default.
func repeated(ctx context.Context, work func() error) error {
	for n := 0; ; n++ {
		err := work()
		if state := sqlState(err); n == maxRepeats || ctx.Err() != nil || state != "40001" && state != "40P01" {
			return err
		}
	}
}

// wrapped adds the package name to an error, once, at the package boundary. The errors of package ledger that callers
// compare are returned unchanged.
func wrapped(err error) error {
	for _, known := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == known {
			return err
		}
	}
	return fmt.Errorf("postgres: %w", withCure(err))
}

// withCure names what to do about an error whose cause is a setting of ours: a prepared statement that exists already
// (42P05) or not at all (26000) was prepared on another client's or server's connection.
func withCure(err error) error {
	if state := sqlState(err); state == "42P05" || state == "26000" {
		return fmt.Errorf("a pooler in transaction mode seems to stand before the database; set pooler: true in the "+
			"configuration's section database: %w", err)
	}
	return err
}

func sqlState(err error) string {
	var failed *pgconn.PgError
	if errors.As(err, &failed) {
		return failed.Code
	}
	return ""
}

// noRowsAs replaces the error for "no rows" by what it means to the caller.
func noRowsAs(err, meaning error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return meaning
	}
	return err
}
