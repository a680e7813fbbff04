package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// ErrInUse means that another process serves the file.
var ErrInUse = errors.New("sqlite: another process serves this ledger")

// readers is the number of connections for reads, besides the one for writes.
const readers = 4

// Options configure a store.
type Options struct {
	Path string           // the database file; its folder must exist
	Now  func() time.Time // the ledger's clock; nil for time.Now
}

// Store is a ledger store in a SQLite file. It is safe for concurrent use.
type Store struct {
	now           func() time.Time
	lock          *os.File
	file          *os.File // locked too: its lock is the file's own, whatever its name, and whether or not lock was removed
	write         *sql.DB
	read          *sql.DB
	leasesExpired atomic.Bool // the leases of an earlier process are expired
}

// Open locks the file for this process ([ErrInUse] if another one has it), creates it if necessary, and expires every
// open lease: only a dead process can have held it. If the schema does not exist yet, [Store.Migrate] expires them.
func Open(ctx context.Context, o Options) (*Store, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	if path, err = resolve(path); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s := &Store{now: micros(o.Now)}
	if s.lock, err = lock(path + ".lock"); err != nil {
		return nil, err
	}
	if err := s.open(ctx, path); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	// The file contains recipients, so only its owner may read it. SQLite creates the files next to it with the
	// same mode.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	s.file = file // open until the connections are closed: closing it earlier would release SQLite's own locks
	if err := lockFile(file); err != nil {
		return err
	}
	driver, err := newDriver(s.now)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	s.write = sql.OpenDB(connector{driver, dsn(path, "_txlock=immediate")})
	s.write.SetMaxOpenConns(1)
	s.read = sql.OpenDB(connector{driver, dsn(path, "_pragma=query_only(1)")})
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	if err := s.write.PingContext(ctx); err != nil {
		return fmt.Errorf("sqlite: %s: %w", path, err)
	}
	if err := s.foreign(ctx); err != nil { // before the version is read, for goose makes its table where it is missing
		return err
	}
	if current, err := s.current(ctx); err != nil || !current {
		return err
	}
	return s.expireLeases(ctx)
}

// dsn is the file's URI, escaped so that its path may contain any character.
func dsn(path, extra string) string {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return file.String() + "?" + extra + "&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
}

// Close closes all connections, checkpoints the write-ahead log and unlocks the file.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} { // the last connection to close checkpoints the log
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// resolve follows symbolic links, so that every process finds the same lock, for a file that may not exist yet.
func resolve(path string) (string, error) {
	resolved, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, os.ErrNotExist) {
		return resolved, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// expireLeases expires every open lease, once per store: later ones belong to this process.
func (s *Store) expireLeases(ctx context.Context) error {
	if s.leasesExpired.Swap(true) {
		return nil
	}
	if _, err := litesql.New(s.write).ExpireAllLeases(ctx); err != nil {
		s.leasesExpired.Store(false)
		return fmt.Errorf("sqlite: expire the leases of an earlier process: %w", err)
	}
	return nil
}

// commit runs a write in one transaction.
func (s *Store) commit(ctx context.Context, work func(*litesql.Queries) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrapped(err)
	}
	if err := work(litesql.New(tx)); err != nil {
		_ = tx.Rollback() // whether it succeeds or the connection is lost, nothing is committed
		return wrapped(err)
	}
	return wrapped(tx.Commit())
}

// snapshot runs reads in one snapshot of the database.
func (s *Store) snapshot(ctx context.Context, work func(*litesql.Queries) error) error {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return wrapped(err)
	}
	defer func() { _ = tx.Rollback() }()
	return wrapped(work(litesql.New(tx)))
}

// wrapped adds the package name to an error, once, at the package boundary. The errors of package ledger that callers
// compare are returned unchanged.
func wrapped(err error) error {
	for _, known := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == known {
			return err
		}
	}
	return fmt.Errorf("sqlite: %w", err)
}

// noRowsAs replaces the error for "no rows" by what it means to the caller.
func noRowsAs(err, meaning error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return meaning
	}
	return err
}

// micros is the clock in UTC, truncated to microseconds.
func micros(now func() time.Time) func() time.Time {
	if now == nil {
		now = time.Now
	}
	return func() time.Time { return now().UTC().Truncate(time.Microsecond) }
}
