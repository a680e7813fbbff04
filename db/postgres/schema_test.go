package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/db/storetest/pgserver"
)

// A schema may hold the version table of another program that also uses goose. Its version must not be taken for the
// ledger's: the migrations would report success without creating a table.
func TestMigrate_AnotherProgramsVersionIsNotTheLedgers(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	rows(t, url, `CREATE TABLE goose_db_version (id int, version_id bigint NOT NULL, is_applied boolean NOT NULL, tstamp timestamp DEFAULT now())`)
	rows(t, url, `INSERT INTO goose_db_version VALUES (1, 0, true), (2, 99, true)`)
	s := open(t, postgres.Options{URL: url})
	if err := s.Ping(context.Background()); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("before the migrations: %v, want ErrSchema", err)
	}
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(context.Background()); err != nil {
		t.Errorf("after the migrations: %v", err)
	}
	if _, err := s.Insert(context.Background(), claimed(identity("r"))); err != nil {
		t.Error(err)
	}
}

func TestPing_EveryMissingTableIsNamed(t *testing.T) {
	t.Parallel()
	url := migrated.URL(t)
	s := open(t, postgres.Options{URL: url})
	names := strings.Fields(rows(t, url, "SELECT tablename::text FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'sendonce_schema%'"))
	if len(names) < 9 {
		t.Fatalf("only the tables %v", names)
	}
	for _, name := range names {
		rows(t, url, "ALTER TABLE "+name+" RENAME TO hidden")
		if err := s.Ping(context.Background()); !errors.Is(err, postgres.ErrSchema) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		rows(t, url, "ALTER TABLE hidden RENAME TO "+name)
	}
	if err := s.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// A read-only database and a table that is locked answer every read.
func TestCheckWrite_FailsWhereNothingCanBeRecordedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	url := migrated.URL(t)
	if err := open(t, postgres.Options{URL: url}).CheckWrite(context.Background()); err != nil {
		t.Error(err)
	}
	if left := rows(t, url, "SELECT reminder_id FROM entries UNION ALL SELECT reminder_id FROM payloads UNION ALL SELECT reminder_id FROM timeline"); left != "" {
		t.Errorf("it left %s", left)
	}
	rows(t, url, "DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$")
	s := open(t, postgres.Options{URL: url})
	if err := s.Ping(context.Background()); err != nil {
		t.Errorf("Ping: %v", err)
	}
	if err := s.CheckWrite(context.Background()); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a read-only database: %v", err)
	}
}

func TestMigrate_RefusesALedgerOfAnEarlierBuild(t *testing.T) {
	t.Parallel()
	url := migrated.URL(t)
	rows(t, url, "ALTER TABLE sendonce_schema_version RENAME TO goose_db_version")
	s := open(t, postgres.Options{URL: url})
	for what, err := range map[string]error{"Migrate": s.Migrate(context.Background()), "Ping": s.Ping(context.Background())} {
		if !errors.Is(err, postgres.ErrForeign) || !strings.Contains(err.Error(), "earlier build") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
