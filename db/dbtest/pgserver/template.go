package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Template is a database that is prepared once in a test process and copied for each test: a copy costs a
// tenth of the migrations.
type Template struct {
	prepare func(url string) error

	once sync.Once
	name string
	err  error
}

// NewTemplate is a template whose database prepare migrates, when a test asks for the first copy. prepare
// must leave no connection open: a database that has one cannot be copied.
func NewTemplate(prepare func(url string) error) *Template { return &Template{prepare: prepare} }

// URL is a copy for this test alone. It is dropped when the test ends.
func (m *Template) URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if m.once.Do(func() { m.err = m.create(server) }); m.err != nil {
		t.Fatal(m.err)
	}
	return copyOf(t, server, m.name)
}

// create makes the database, and lets nobody connect to it any more.
func (m *Template) create(server string) error {
	name := newName()
	url, err := on(server, name)
	if err != nil {
		return err
	}
	if err := Copy(server, name, "template0"); err != nil {
		return err
	}
	m.name = name
	if err := m.prepare(url); err != nil {
		return fmt.Errorf("pgserver: prepare the template: %w", err)
	}
	return administer(server, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
}

// Drop removes the database. A package's TestMain calls it last, for the sake of a server that
// SENDONCE_TEST_DATABASE_URL names; a private one goes as a whole.
func (m *Template) Drop() error {
	if m.name == "" {
		return nil
	}
	server, err := shared()
	if err != nil {
		return err
	}
	return administer(server, "DROP DATABASE "+m.name+" WITH (FORCE)")
}

// copyOf makes a database for this test alone, and drops it when the test ends.
func copyOf(t testing.TB, server, template string) string {
	t.Helper()
	name := newName()
	url, err := on(server, name)
	if err == nil {
		err = Copy(server, name, template)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := administer(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return url
}

// Copy makes a database from a template, on the server whose URL is given.
func Copy(server, name, template string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	defer conn.Close(ctx)
	statement := "CREATE DATABASE " + name + " TEMPLATE " + template
	// Where another way is known, since PostgreSQL 15, it is the default: it writes each page to the log, and
	// takes four times as long.
	var others bool
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int >= 150000").Scan(&others); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if others {
		statement += " STRATEGY file_copy"
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("pgserver: %s: %w", statement, err)
	}
	return nil
}

func newName() string { return "sendonce_test_" + strings.ToLower(rand.Text()) }

// on is the URL of another database of a server.
func on(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return "", errors.New("pgserver: SENDONCE_TEST_DATABASE_URL must be a URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

func administer(server, statement string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("pgserver: %s: %w", statement, err)
	}
	return nil
}
