package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/db/storetest/pgserver"
)

// migrated is the template that most tests copy their database from.
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

// open opens a store over a migrated database.
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

func TestPostgresStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return open(t, postgres.Options{URL: migrated.URL(t), MaxConns: 16})
	})
}

func TestPostgresStore_EpochChanges(t *testing.T) {
	storetest.RunEpochChanges(t, func(t *testing.T) storetest.Store {
		return open(t, postgres.Options{URL: migrated.URL(t), MaxConns: 8})
	})
}
