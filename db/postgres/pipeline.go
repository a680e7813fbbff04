package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
)

// pipeline collects generated queries and runs them in one round trip. Each is called twice: first to record its SQL
// and arguments, then to scan the rows of its result.
type pipeline struct {
	batch pgx.Batch
}

// read queues a generated query that returns rows.
func (p *pipeline) read(ctx context.Context, query func(context.Context, *pgsql.Queries) error) {
	var recorded recorder
	_ = query(ctx, pgsql.New(&recorded)) // always errRecorded
	p.batch.Queue(recorded.sql, recorded.args...).Query(func(rows pgx.Rows) error {
		return query(ctx, pgsql.New(&replay{rows: rows}))
	})
}

// snapshot runs the queued queries in one snapshot of the database. They write nothing, so a failure half-way leaves
// only a connection behind, which the pool closes.
func (s *Store) snapshot(ctx context.Context, reads *pipeline) error {
	transaction := &pgx.Batch{}
	transaction.Queue("begin isolation level repeatable read read only")
	transaction.QueuedQueries = append(transaction.QueuedQueries, reads.batch.QueuedQueries...)
	transaction.Queue("commit")
	return s.send(ctx, transaction)
}

func (s *Store) send(ctx context.Context, batch *pgx.Batch) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return wrapped(err)
	}
	defer conn.Release()
	return wrapped(repeated(ctx, func() error { return conn.SendBatch(ctx, batch).Close() }))
}

var errRecorded = errors.New("recorded, not run")

// recorder records what a generated query would run.
type recorder struct {
	sql  string
	args []any
}

func (r *recorder) note(sql string, args []any) error {
	r.sql, r.args = sql, args
	return errRecorded
}

// Exec implements pgsql.DBTX.
func (r *recorder) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, r.note(sql, args)
}

// Query implements pgsql.DBTX.
func (r *recorder) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	return nil, r.note(sql, args)
}

// QueryRow implements pgsql.DBTX.
func (r *recorder) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	return failed{r.note(sql, args)}
}

// failed is a row whose Scan returns an error.
type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// replay returns received rows to a generated query.
type replay struct{ rows pgx.Rows }

// Exec implements pgsql.DBTX; a pipeline of reads has none.
func (r *replay) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errRecorded
}

// Query implements pgsql.DBTX.
func (r *replay) Query(context.Context, string, ...any) (pgx.Rows, error) { return r.rows, nil }

// QueryRow implements pgsql.DBTX.
func (r *replay) QueryRow(context.Context, string, ...any) pgx.Row { return firstRow{r.rows} }

// firstRow scans the first of some rows.
type firstRow struct{ rows pgx.Rows }

func (f firstRow) Scan(into ...any) error {
	defer f.rows.Close()
	if !f.rows.Next() {
		if err := f.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := f.rows.Scan(into...); err != nil {
		return err
	}
	f.rows.Close()
	return f.rows.Err()
}
