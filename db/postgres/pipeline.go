package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
)

// pipeline gathers generated reads and runs them in one round trip. Each is called twice: once to be
// recorded, and once more to take its rows out of the answer.
type pipeline struct {
	batch pgx.Batch
}

// read queues a generated query that gives one row or many.
func (p *pipeline) read(ctx context.Context, query func(context.Context, *pgsql.Queries) error) {
	var said recorder
	_ = query(ctx, pgsql.New(&said)) // always errRecorded
	p.batch.Queue(said.sql, said.args...).Query(func(rows pgx.Rows) error {
		return query(ctx, pgsql.New(&replay{rows: rows}))
	})
}

// snapshot runs what is queued so that all of it sees one state of the database. It writes nothing, so
// that a failure half-way leaves nothing behind but a connection that the pool closes.
func (s *Store) snapshot(ctx context.Context, reads *pipeline) error {
	framed := &pgx.Batch{}
	framed.Queue("begin isolation level repeatable read read only")
	framed.QueuedQueries = append(framed.QueuedQueries, reads.batch.QueuedQueries...)
	framed.Queue("commit")
	return s.send(ctx, framed)
}

func (s *Store) send(ctx context.Context, batch *pgx.Batch) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return wrapped(err)
	}
	defer conn.Release()
	return wrapped(conn.SendBatch(ctx, batch).Close())
}

var errRecorded = errors.New("recorded, not run")

// recorder notes what a generated query would run.
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

// failed is a row that is not there.
type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// replay gives a generated query the rows that were answered to it.
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
