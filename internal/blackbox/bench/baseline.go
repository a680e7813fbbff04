package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver that the gateway uses too
)

// The minimum work of a first delivery, in a table with the gateway's own columns, constraints and indexes.
// Each statement is a transaction of its own.
const (
	newKey = `\set i :i + 1
\set n :round * 1000000000000 + :client_id * 1000000000 + :i
`
	readEntry = `SELECT * FROM entries
WHERE reminder_id = 'rem-' || :n AND type = 'seat_expiring' AND channel = 'email';
`
	claimAndSettle = `INSERT INTO entries (reminder_id, type, channel, send_key, content_hash, state, version, reason,
    provider, holder, lease_until, claimed_at, deadline, first_seen, updated, published, source)
VALUES ('rem-' || :n, 'seat_expiring', 'email', repeat('a', 64), repeat('b', 64), 'sending', 1, 'claimed',
    'mail', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ', now() + interval '30 s', now(), now() + interval '1 day',
    now(), now(), now(), 'queue');
UPDATE entries SET state = 'sent', version = 2, reason = 'accepted', receipt = 'fake-1', holder = '',
    lease_until = NULL, attempts = 1, budget_used = 1, deliveries = 1, updated = now()
WHERE reminder_id = 'rem-' || :n AND type = 'seat_expiring' AND channel = 'email' AND version = 1;
`
	readSent = `\set n random(1, :sent)
SELECT * FROM entries
WHERE reminder_id = 'rem-' || lpad(:n::text, 12, '0') AND type = 'seat_expiring' AND channel = 'email';
`
)

// The output of pgbench, since PostgreSQL 14.
var (
	pgbenchRate = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)$`)
	pgbenchDone = regexp.MustCompile(`(?m)^number of transactions actually processed: ([0-9]+)`)
)

// bench runs a script with PostgreSQL's own load generator. Its time limit includes connecting, so it gets a
// second more, and more again where a busy machine spends that and half of the span on connecting.
func (e *environment) bench(ctx context.Context, database, script string, clients int, variables ...string) (sample, error) {
	file := filepath.Join(e.dir, "script.pgbench")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return sample{}, err
	}
	args := []string{"-n", "-M", "prepared", "-f", file, "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(2, clients))}
	for _, v := range variables {
		args = append(args, "-D", v)
	}
	for ; ; e.connecting *= 2 {
		cmd := exec.CommandContext(ctx, e.pgbench, append(args, "-T", strconv.Itoa(e.seconds+e.connecting), database)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return sample{}, fmt.Errorf("pgbench: %w\n%s", err, out)
		}
		s := parsePgbench(string(out))
		if s.elapsed >= e.span()/2 {
			return s, nil
		}
		if e.connecting > 30 {
			return sample{}, fmt.Errorf("pgbench did not get to work:\n%s", out)
		}
	}
}

// parsePgbench returns the result that pgbench prints; the zero sample where there is none.
func parsePgbench(out string) sample {
	rate, done := pgbenchRate.FindStringSubmatch(out), pgbenchDone.FindStringSubmatch(out)
	if rate == nil || done == nil {
		return sample{}
	}
	tps, _ := strconv.ParseFloat(rate[1], 64)
	n, _ := strconv.Atoi(done[1])
	if n == 0 || tps == 0 {
		return sample{}
	}
	return sample{done: n, elapsed: time.Duration(float64(n) / tps * float64(time.Second))}
}

// sqliteBaseline is the same work on an SQLite file that a gateway migrated, through the same driver.
type sqliteBaseline struct {
	write, read *sql.DB
	claim       *sql.Stmt
	settle      *sql.Stmt
	selectEntry *sql.Stmt
	ids         atomic.Int64
}

// sqliteReaders is the number of connections that the gateway reads with.
const sqliteReaders = 4

func openSQLiteBaseline(ctx context.Context, file string) (*sqliteBaseline, error) {
	f := &sqliteBaseline{}
	dsn := "file:" + file + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	for _, db := range []**sql.DB{&f.write, &f.read} {
		opened, err := sql.Open("sqlite", dsn)
		if err != nil {
			return nil, err
		}
		*db = opened
	}
	f.write.SetMaxOpenConns(1)
	f.read.SetMaxOpenConns(sqliteReaders)
	f.read.SetMaxIdleConns(sqliteReaders)
	for statement, on := range map[**sql.Stmt]struct {
		db   *sql.DB
		text string
	}{
		&f.claim: {f.write, `INSERT INTO entries (reminder_id, type, channel, send_key, content_hash, state, version, reason,
			provider, holder, lease_until, claimed_at, deadline, first_seen, updated, published, source)
			VALUES (?1, 'seat_expiring', 'email', ?2, ?2, 'sending', 1, 'claimed', 'mail', 'ABCDEFGHIJKLMNOPQRSTUVWXYZ',
			?3 + 30000000, ?3, ?3 + 86400000000, ?3, ?3, ?3, 'queue')`},
		&f.settle: {f.write, `UPDATE entries SET state = 'sent', version = 2, reason = 'accepted', receipt = 'fake-1',
			holder = '', lease_until = NULL, attempts = 1, budget_used = 1, deliveries = 1, updated = ?2
			WHERE reminder_id = ?1 AND type = 'seat_expiring' AND channel = 'email' AND version = 1`},
		&f.selectEntry: {f.read, `SELECT * FROM entries WHERE reminder_id = ?1 AND type = 'seat_expiring' AND channel = 'email'`},
	} {
		prepared, err := on.db.PrepareContext(ctx, on.text)
		if err != nil {
			return nil, err
		}
		*statement = prepared
	}
	return f, nil
}

func (b *sqliteBaseline) close() error {
	_ = b.read.Close()
	return b.write.Close()
}

// version returns the version of the engine and of its driver.
func (b *sqliteBaseline) version(ctx context.Context) string {
	var engine string
	_ = b.read.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&engine)
	return fmt.Sprintf("SQLite %s (modernc.org/sqlite %s, WAL, synchronous FULL)", engine, driverVersion())
}

// commits measures one writer that inserts and updates, one commit each.
func (b *sqliteBaseline) commits(ctx context.Context, span time.Duration) (sample, error) {
	const key64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	return repeat(ctx, 1, span, func(int) error {
		n := b.ids.Add(1)
		if _, err := b.claim.ExecContext(ctx, reminderID(n), key64, time.Now().UnixMicro()); err != nil {
			return err
		}
		_, err := b.settle.ExecContext(ctx, reminderID(n), time.Now().UnixMicro())
		return err
	})
}

// reads measures reads of sent entries by their key, on as many connections as the gateway uses.
func (b *sqliteBaseline) reads(ctx context.Context, span time.Duration) (sample, error) {
	return repeat(ctx, sqliteReaders, span, func(int) error {
		rows, err := b.selectEntry.QueryContext(ctx, reminderID(rand.Int64N(b.ids.Load())+1))
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if !rows.Next() {
			return fmt.Errorf("no entry: %w", rows.Err())
		}
		return rows.Scan(values...)
	})
}

func reminderID(n int64) string { return fmt.Sprintf("rem-%012d", n) }
