package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/blackbox/testbed"
)

// Runs the whole suite through PgBouncer in transaction mode, with more clients than server connections. No statement
// and no lock may be left on a connection, since the next transaction may get another one.
func TestPostgresStore_BehindAPooler(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	pooler, err := url.Parse(server.Pooler(5))
	if err != nil {
		t.Fatal(err)
	}
	on := func(database string) postgres.Options {
		u := *pooler
		u.Path = "/" + database
		return postgres.Options{URL: u.String(), MaxConns: 16, Pooler: true}
	}
	// Migrated once through the pooler and copied for each test. The pooler stays connected.
	server.Query("CREATE DATABASE migrated TEMPLATE template0")
	if err := migrate(on("migrated")); err != nil {
		t.Fatal(err)
	}
	server.Query("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'migrated'")
	var databases atomic.Int32
	storetest.Run(t, func(t *testing.T) storetest.Store {
		database := fmt.Sprintf("database_%d", databases.Add(1))
		if err := pgserver.Copy(server.URL, database, "migrated"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Query("DROP DATABASE " + database + " WITH (FORCE)") })
		return open(t, on(database))
	})
	if kept := server.ForbiddenSessionState(); kept != "" {
		t.Error(kept)
	}
	if !strings.Contains(server.Log(), "InsertEntry") {
		t.Error("the log contains no statement, so it proves nothing")
	}
}

// Without the pooler option, most statements fail behind a pooler; the error must name the cure, in readiness too.
func TestPostgresStore_UnconfiguredPoolerErrorNamesTheCure(t *testing.T) {
	ctx := context.Background()
	server := testbed.Postgres(t)
	pooler := server.Pooler(1)
	if err := migrate(postgres.Options{URL: server.URL}); err != nil {
		t.Fatal(err)
	}
	failed := map[string]int{}
	for range 3 {
		s, err := postgres.Open(ctx, postgres.Options{URL: pooler, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, listed := s.WaitingProviders(ctx)
		for what, err := range map[string]error{"WaitingProviders": listed, "CheckWrite": s.CheckWrite(ctx), "Ping": s.Ping(ctx)} {
			if err == nil {
				continue
			}
			failed[what]++
			if !strings.Contains(err.Error(), "pooler: true") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if failed["WaitingProviders"] == 0 || failed["CheckWrite"] == 0 {
		t.Errorf("failed: %v; nothing is proved", failed)
	}
}

// Without the pooler option a store prepares named statements on connections, and the test above would detect it.
func TestPostgresStore_UnconfiguredPoolerIsDetected(t *testing.T) {
	ctx := context.Background()
	server := testbed.Postgres(t)
	pooler := server.Pooler(1)
	if err := migrate(postgres.Options{URL: server.URL}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := postgres.Open(ctx, postgres.Options{URL: pooler, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, _ = s.WaitingProviders(ctx) // one of them prepares a statement that the other has prepared
	}
	if server.ForbiddenSessionState() == "" {
		t.Error("named statements were not detected")
	}
}
