package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/internal/blackbox/testbed"
)

// TestPostgresIsAStoreBehindAPooler : the whole suite through PgBouncer in transaction mode, by more clients
// than there are connections to the server. No statement and no lock is left on a connection that the next
// transaction may not get again.
func TestPostgresIsAStoreBehindAPooler(t *testing.T) {
	t.Parallel()
	server := testbed.Postgres(t)
	through, err := url.Parse(server.Pooler(5))
	if err != nil {
		t.Fatal(err)
	}
	on := func(database string) postgres.Options {
		u := *through
		u.Path = "/" + database
		return postgres.Options{URL: u.String(), MaxConns: 16, Pooler: true}
	}
	// Migrated once, through the pooler, and copied for each test. The pooler stays connected.
	server.Query("CREATE DATABASE migrated TEMPLATE template0")
	if err := migrate(on("migrated")); err != nil {
		t.Fatal(err)
	}
	server.Query("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = 'migrated'")
	var databases atomic.Int32
	dbtest.Run(t, func(t *testing.T) dbtest.Store {
		database := fmt.Sprintf("database_%d", databases.Add(1))
		if err := pgserver.Copy(server.URL, database, "migrated"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Query("DROP DATABASE " + database + " WITH (FORCE)") })
		return open(t, on(database))
	})
	if kept := server.KeptOnAConnection(); kept != "" {
		t.Error(kept)
	}
	if !strings.Contains(server.Log(), "CreateEntry") {
		t.Error("the log tells of no statement, so it proves nothing")
	}
}

// Not told of its pooler, a store keeps statements by name on connections, and the test above would say so.
func TestAStoreThatDoesNotKnowOfItsPoolerIsFoundOut(t *testing.T) {
	ctx := context.Background()
	server := testbed.Postgres(t)
	through := server.Pooler(1)
	if err := migrate(postgres.Options{URL: server.URL}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s, err := postgres.Open(ctx, postgres.Options{URL: through, MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		_, _ = s.Lanes(ctx) // one of them prepares what the other has prepared
	}
	if server.KeptOnAConnection() == "" {
		t.Error("nobody minded")
	}
}
