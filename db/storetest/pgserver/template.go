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

// Template is a database that is prepared once per test process and copied for each test. A copy takes a tenth of the
// time of the migrations.
type Template struct {
	prepare func(url string) error

	once sync.Once
	name string
	err  error
}

// NewTemplate returns a template that calls prepare to migrate its database when a test needs the first copy. prepare
// must leave no connection open: a database with open connections cannot be copied.
func NewTemplate(prepare func(url string) error) *Template { return &Template{prepare: prepare} }

// URL creates a copy for this test and returns its URL. It is dropped when the test ends.
func (tpl *Template) URL(t testing.TB) string {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if tpl.once.Do(func() { tpl.err = tpl.create(server) }); tpl.err != nil {
		t.Fatal(tpl.err)
	}
	return testCopy(t, server, tpl.name)
}

// create creates and prepares the database, then forbids connections to it.
func (tpl *Template) create(server string) error {
	name := newName()
	url, err := databaseURL(server, name)
	if err != nil {
		return err
	}
	if err := Copy(server, name, "template0"); err != nil {
		return err
	}
	tpl.name = name
	if err := tpl.prepare(url); err != nil {
		return fmt.Errorf("pgserver: prepare the template: %w", err)
	}
	return execute(server, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
}

// Drop drops the database. The TestMain of a package calls it last, to clean up a server that
// SENDONCE_TEST_DATABASE_URL names; a private server is removed as a whole.
func (tpl *Template) Drop() error {
	if tpl.name == "" {
		return nil
	}
	server, err := shared()
	if err != nil {
		return err
	}
	return execute(server, "DROP DATABASE "+tpl.name+" WITH (FORCE)")
}

// testCopy creates a database for this test, and drops it when the test ends.
func testCopy(t testing.TB, server, template string) string {
	t.Helper()
	name := newName()
	url, err := databaseURL(server, name)
	if err == nil {
		err = Copy(server, name, template)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return url
}

// Copy creates a database from a template on the server with the given URL.
func Copy(server, name, template string) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	defer conn.Close(ctx)
	statement := "CREATE DATABASE " + name + " TEMPLATE " + template
	// Since PostgreSQL 15 the default strategy is wal_log, which writes each page to the WAL and takes four times as
	// long.
	var strategies bool
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int >= 150000").Scan(&strategies); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if strategies {
		statement += " STRATEGY file_copy"
	}
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("pgserver: %s: %w", statement, err)
	}
	return nil
}

func newName() string { return "sendonce_test_" + strings.ToLower(rand.Text()) }

// databaseURL returns the URL of another database of a server.
func databaseURL(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return "", errors.New("pgserver: SENDONCE_TEST_DATABASE_URL must be a URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}

func execute(server, statement string) error {
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
