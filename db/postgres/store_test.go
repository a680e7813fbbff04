package postgres_test

import (
	"context"
	"testing"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/db/postgres"
)

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
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPostgresIsAStore(t *testing.T) {
	dbtest.Run(t, func(t *testing.T) dbtest.Store {
		return open(t, postgres.Options{URL: pgserver.URL(t), MaxConns: 16})
	})
}

func TestPostgresNoticesThatItChanged(t *testing.T) {
	dbtest.RunNotices(t, func(t *testing.T) dbtest.Store {
		return open(t, postgres.Options{URL: pgserver.URL(t), MaxConns: 8})
	})
}
