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
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// DefaultAcquireTimeout is how long a unit of work waits for a connection where nothing else is said.
const DefaultAcquireTimeout = 2 * time.Second

// Options say how to reach the database.
type Options struct {
	URL            string          // as libpq reads it: a URL or key=value pairs
	MaxConns       int             // connections at most; 0 leaves it to the URL's pool_max_conns, else to pgxpool
	AcquireTimeout time.Duration   // how long to wait for one of them; 0 for [DefaultAcquireTimeout]
	Pooler         bool            // a pooler in transaction mode stands between: keep no prepared statements
	Tracer         pgx.QueryTracer // sees each query, connect and acquire; may be nil
}

// Store keeps the ledger's rows. It is safe for concurrent use.
type Store struct {
	pool    *pgxpool.Pool
	schema  *sql.DB // over the same pool, to ask for the schema's version
	acquire time.Duration
}

// Open prepares a store; it does not dial. [Store.Ping] tells whether the database can be used.
//
// A statement is prepared once per connection, unless a pooler stands between: then only its
// description is cached, and it travels unnamed with its arguments, so that any server connection can
// run it. An exec mode that the URL names wins.
func Open(ctx context.Context, o Options) (*Store, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if o.MaxConns > 0 {
		config.MaxConns = int32(min(o.MaxConns, 1<<15))
		config.MinConns = min(config.MinConns, config.MaxConns)
	}
	if o.Pooler && !namesExecMode(o.URL) {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	if o.Tracer != nil {
		config.ConnConfig.Tracer = o.Tracer
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

// namesExecMode tells whether the URL itself says how statements are to be executed.
func namesExecMode(raw string) bool {
	const key = "default_query_exec_mode"
	if u, err := url.Parse(raw); err == nil && u.Scheme != "" {
		return u.Query().Has(key)
	}
	return strings.Contains(raw, key+"=")
}

// Close gives back every connection; it waits for the work in flight.
func (s *Store) Close() error {
	err := s.schema.Close()
	s.pool.Close()
	return err
}

// conn takes a connection from the pool, and waits for it no longer than it may.
func (s *Store) conn(ctx context.Context) (*pgxpool.Conn, error) {
	waiting, stop := context.WithTimeout(ctx, s.acquire)
	defer stop()
	conn, err := s.pool.Acquire(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		// The caller's own time has not ended: that must not be read out of the error.
		return nil, fmt.Errorf("no connection within %s: %v", s.acquire, err)
	}
	return conn, err
}

// do runs one unit of work on one connection. A connection that is left inside a transaction does not
// come back to the pool: pgxpool closes it on release.
func (s *Store) do(ctx context.Context, work func(*pgsql.Queries) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer conn.Release()
	return wrapped(work(pgsql.New(conn)))
}

// commit runs several statements as one transaction. Where it fails, at COMMIT too, what was written is
// unknown until it is read again.
func (s *Store) commit(ctx context.Context, work func(*pgsql.Queries) error) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return wrapped(err)
	}
	defer conn.Release()
	return wrapped(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return work(pgsql.New(tx)) }))
}

// wrapped is the border's one wrapping; the ledger's own refusals pass as they are.
func wrapped(err error) error {
	for _, own := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == own {
			return err
		}
	}
	return fmt.Errorf("postgres: %w", err)
}

// none turns "no row" into what it means to the caller.
func none(err, meaning error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return meaning
	}
	return err
}
