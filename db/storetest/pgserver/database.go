package pgserver

import (
	"os"
	"sync"
	"testing"
)

// shared is the server of a test process. It is started by the first test that needs it, and is stopped and removed with
// its data when the process ends.
var shared = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("SENDONCE_TEST_DATABASE_URL"); url != "" {
		return url, nil
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

// URL creates an empty database for this test, on the server that SENDONCE_TEST_DATABASE_URL names, otherwise on a
// private one, and returns its URL. It is dropped when the test ends. [Template.URL] returns a migrated one.
func URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return testCopy(t, server, "template0")
}
