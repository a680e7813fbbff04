package pgserver

import (
	"os"
	"sync"
	"testing"
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
// else on a private one. It is dropped when the test ends. [Template.URL] is one that has been migrated.
func URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return copyOf(t, server, "template0")
}
