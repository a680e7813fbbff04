package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/db/postgres"
)

// migrated is the database that most tests get a copy of.
var migrated = pgserver.NewTemplate(func(url string) error { return migrate(postgres.Options{URL: url}) })

func TestMain(m *testing.M) {
	code := m.Run()
	if err := migrated.Drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func migrate(o postgres.Options) error {
	s, err := postgres.Open(context.Background(), o)
	if err != nil {
		return err
	}
	return errors.Join(s.Migrate(context.Background()), s.Close())
}

// open opens a store over a database that has been migrated.
func open(t *testing.T, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestPostgresIsAStore(t *testing.T) {
	t.Parallel()
	dbtest.Run(t, func(t *testing.T) dbtest.Store {
		return open(t, postgres.Options{URL: migrated.URL(t), MaxConns: 16})
	})
}

func TestPostgresNoticesThatItChanged(t *testing.T) {
	dbtest.RunNotices(t, func(t *testing.T) dbtest.Store {
		return open(t, postgres.Options{URL: migrated.URL(t), MaxConns: 8})
	})
}
