package pgserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// shared is the one server of a test process. It is started by the first test that needs it and ends
// with the process; its data go with it.
var shared = sync.OnceValues(func() (string, error) {
	if given := os.Getenv("SENDONCE_TEST_DATABASE_URL"); given != "" {
		return given, nil
	}
	dir, err := os.MkdirTemp("", "sendonce-postgres-")
	if err != nil {
		return "", err
	}
	server, err := start(dir, false, dir)
	if err != nil {
		return "", err
	}
	return server.URL, nil
})

// URL is an empty database for this test alone, on the server that SENDONCE_TEST_DATABASE_URL names,
// else on a private one. It is dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	name := "sendonce_test_" + strings.ToLower(rand.Text())
	administer(t, server, "CREATE DATABASE "+name+" TEMPLATE template0")
	t.Cleanup(func() { administer(t, server, "DROP DATABASE "+name+" WITH (FORCE)") })
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		t.Fatalf("SENDONCE_TEST_DATABASE_URL must be a URL: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

func administer(t testing.TB, server, statement string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		t.Fatal(fmt.Errorf("pgserver: %w", err))
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatal(fmt.Errorf("pgserver: %s: %w", statement, err))
	}
}
