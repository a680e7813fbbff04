package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/internal/ledger"
)

// execute runs statements on a file that no store has open.
func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// The version of another program that also uses goose must not be taken for the ledger's.
func TestMigrate_AnotherProgramsVersionIsNotTheLedgers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	execute(t, path, `CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TIMESTAMP)`,
		`INSERT INTO goose_db_version VALUES (1, 0, 1, ''), (2, 99, 1, '')`)
	s := open(t, path, nil)
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestPing_EveryMissingTableIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path, nil)
	for _, name := range []string{"entries", "payloads", "timeline", "conflicts", "gates", "audit", "redrives", "redrive_items", "epochs", "low_water"} {
		execute(t, path, "ALTER TABLE "+name+" RENAME TO hidden")
		if err := s.Ping(context.Background()); !errors.Is(err, sqlite.ErrSchema) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		execute(t, path, "ALTER TABLE hidden RENAME TO "+name)
	}
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// A full file and a write lock that somebody else holds answer every read.
func TestCheckWrite_FailsWhereNothingCanBeRecordedAndLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	s := open(t, path, nil)
	for range 3 {
		if err := s.CheckWrite(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := s.List(t.Context(), ledger.Query{Limit: 10}); err != nil || len(all) > 0 {
		t.Errorf("it left %v, %v", all, err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.CheckWrite(ctx); err == nil {
		t.Error("the write lock is held, and a write is said to be possible")
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckWrite(t.Context()); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

func TestOpen_RefusesALedgerOfAnEarlierBuild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	execute(t, path, "CREATE TABLE entries (reminder_id TEXT)", "CREATE TABLE goose_db_version (id INTEGER)")
	_, err := sqlite.Open(context.Background(), sqlite.Options{Path: path})
	if !errors.Is(err, sqlite.ErrForeign) || !strings.Contains(err.Error(), "earlier build") {
		t.Errorf("Open: %v", err)
	}
}
