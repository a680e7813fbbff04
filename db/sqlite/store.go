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

// ErrInUse : another process serves this file.
var ErrInUse = errors.New("sqlite: another process serves this ledger")

// readers is how many connections read beside the one that writes.
const readers = 4

// Options say where the file is.
type Options struct {
	Path string           // of the database; its folder must exist
	Now  func() time.Time // the ledger's clock; nil for the machine's
}

// Store keeps the ledger's rows. It is safe for concurrent use.
type Store struct {
	now   func() time.Time
	lock  *os.File
	write *sql.DB
	read  *sql.DB
	ended atomic.Bool // the leases of an earlier process are ended
}

// Open takes the file for this process ([ErrInUse] where another has it), creates it if need be, and
// ends every lease that is still open in it: only a dead process could hold one. Where the schema is yet
// to come, [Store.Migrate] does the latter.
func Open(ctx context.Context, o Options) (*Store, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
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
	// The file holds recipients: it is made for its owner's eyes only, and SQLite gives the files
	// beside it the same rights.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("sqlite: %w", err)
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
	if current, err := s.current(ctx); err != nil || !current {
		return err
	}
	return s.endLeases(ctx)
}

// dsn names the file in a way that survives any character of its path.
func dsn(path, extra string) string {
	file := url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath()}
	return file.String() + "?" + extra + "&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)" +
		"&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
}

// Close ends all work, writes the log back into the database and gives the file to the next process.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*sql.DB{s.read, s.write} { // the last connection to close writes the log back
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(append(errs, s.lock.Close())...)
}

// endLeases lets every open lease lapse, once in the life of a store: later ones are our own.
func (s *Store) endLeases(ctx context.Context) error {
	if s.ended.Swap(true) {
		return nil
	}
	if _, err := litesql.New(s.write).EndLeases(ctx); err != nil {
		s.ended.Store(false)
		return fmt.Errorf("sqlite: end the leases of an earlier process: %w", err)
	}
	return nil
}

// commit runs one write as one transaction.
func (s *Store) commit(ctx context.Context, work func(*litesql.Queries) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrapped(err)
	}
	if err := work(litesql.New(tx)); err != nil {
		_ = tx.Rollback() // after it, or after the loss of its connection, nothing of it stands
		return wrapped(err)
	}
	return wrapped(tx.Commit())
}

// snapshot runs reads that must see one state of the database.
func (s *Store) snapshot(ctx context.Context, work func(*litesql.Queries) error) error {
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return wrapped(err)
	}
	defer func() { _ = tx.Rollback() }()
	return wrapped(work(litesql.New(tx)))
}

// wrapped is the border's one wrapping; the ledger's own refusals pass as they are.
func wrapped(err error) error {
	for _, own := range []error{nil, ledger.ErrExists, ledger.ErrStale, ledger.ErrNotFound} {
		if err == own {
			return err
		}
	}
	return fmt.Errorf("sqlite: %w", err)
}

// none turns "no row" into what it means to the caller.
func none(err, meaning error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return meaning
	}
	return err
}

// micros is the clock as the ledger keeps time.
func micros(now func() time.Time) func() time.Time {
	if now == nil {
		now = time.Now
	}
	return func() time.Time { return now().UTC().Truncate(time.Microsecond) }
}
