package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// maxConnections leaves the private PostgreSQL connections for the gateway beside as many clients.
const maxConnections = 150

const sourceToken = "bench-token-0123456789"

// environment holds everything that runs while cells are measured.
type environment struct {
	options
	dir      string
	server   *pgserver.Server
	provider string // host:port
	postgres *gateway
	sqlite   *gateway
	// Databases of the gateway, and for the baseline alone, with the same schema.
	postgresURL, baselineURL string
	baseline                 *sqliteBaseline

	connecting int // seconds that pgbench gets for connecting; grows when needed
	closers    []func() error
}

// gateway is a process of the built binary, and the number of reminders delivered to it.
type gateway struct {
	address string
	pid     int
	ids     atomic.Int64
}

// open starts everything. After an error, close ends what was started.
func open(ctx context.Context, o options) (*environment, error) {
	e := &environment{options: o, connecting: 1}
	var err error
	if e.dir, err = os.MkdirTemp("", "sendonce-bench-"); err != nil {
		return e, err
	}
	e.closers = append(e.closers, func() error { return os.RemoveAll(e.dir) })
	if e.server, err = pgserver.Start(filepath.Join(e.dir, "postgres"), true); err != nil {
		return e, err
	}
	e.closers = append(e.closers, e.server.Stop)
	if err := e.startProvider(); err != nil {
		return e, err
	}
	if e.postgresURL, err = e.createDatabase(ctx, "gateway"); err != nil {
		return e, err
	}
	if e.baselineURL, err = e.createDatabase(ctx, "baseline"); err != nil {
		return e, err
	}
	baselineFile := filepath.Join(e.dir, "baseline.db")
	for _, database := range []string{e.postgresURL, e.baselineURL, "sqlite://" + baselineFile} {
		if err := e.migrate(ctx, database); err != nil {
			return e, err
		}
	}
	if e.baseline, err = openSQLiteBaseline(ctx, baselineFile); err != nil {
		return e, err
	}
	e.closers = append(e.closers, e.baseline.close)
	if e.postgres, err = e.serve(ctx, e.postgresURL, nil); err != nil {
		return e, err
	}
	e.sqlite, err = e.serve(ctx, "sqlite://"+filepath.Join(e.dir, "ledger.db"), nil)
	return e, err
}

// close ends everything in reverse order.
func (e *environment) close() error {
	var errs []error
	for i := len(e.closers) - 1; i >= 0; i-- {
		errs = append(errs, e.closers[i]())
	}
	return errors.Join(errs...)
}

func (e *environment) startProvider() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, providerCommand)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	e.closers = append(e.closers, func() error {
		_ = stdin.Close()
		return cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	e.provider = strings.TrimSpace(line)
	return err
}

func (e *environment) createDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, e.server.URL)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", err
	}
	u, err := url.Parse(e.server.URL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

type object = map[string]any

// configure writes a configuration with all defaults, except for the provider's concurrency, since no sender
// shall wait for a slot, and the given changes. JSON is YAML.
func (e *environment) configure(database, listen, ops string, changes object) (string, error) {
	settings := object{
		"listen": listen, "ops_listen": ops, "drain": "0s",
		"database": object{"url": database},
		"sources": object{"queue": object{
			"format": "plain", "auth": object{"bearer": object{"tokens": []string{sourceToken}}}, "max_age": "7d",
		}},
		"providers": object{"mail": object{
			"kind": "webhook", "url": "http://" + e.provider + "/send", "timeout": "10s",
			"contract": object{"idempotent": "24h"}, "concurrency": max(e.connections, 64),
		}},
		"channels": object{"email": object{"provider": "mail"}},
		"types":    object{"default": object{"max_attempts": 6, "deadline": "24h"}},
	}
	maps.Copy(settings, changes)
	raw, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(e.dir, "*.yaml")
	if err != nil {
		return "", err
	}
	_, err = file.Write(raw)
	return file.Name(), errors.Join(err, file.Close())
}

func (e *environment) migrate(ctx context.Context, database string) error {
	file, err := e.configure(database, "127.0.0.1:0", "127.0.0.1:0", nil)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, e.gateway, "migrate", "-config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
}

// serve starts a gateway and waits until it is ready. Its log is enabled, and is written to the null device.
func (e *environment) serve(ctx context.Context, database string, changes object) (*gateway, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file, err := e.configure(database, listen, ops, changes)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(e.gateway, "serve", "-config", file)
	if err := cmd.Start(); err != nil { // without Stdout and Stderr it writes to the null device
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	e.closers = append(e.closers, func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			return errors.New("the gateway does not end on SIGTERM")
		}
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		resp, err := http.Get("http://" + ops + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return &gateway{address: listen, pid: cmd.Process.Pid}, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline:
			return nil, fmt.Errorf("the gateway is not ready: %w", errors.Join(err, ctx.Err()))
		}
	}
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// reconcile compares the number of acks with the number of messages that the provider accepted.
func (e *environment) reconcile(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.provider+"/control", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var counts providertest.Counts
	if err := json.NewDecoder(resp.Body).Decode(&counts); err != nil {
		return err
	}
	if acked := int(e.postgres.ids.Load() + e.sqlite.ids.Load()); counts.Calls != acked || counts.Accepts != acked {
		return fmt.Errorf("%d reminders were acked, and the provider saw %d calls and accepted %d", acked, counts.Calls, counts.Accepts)
	}
	return nil
}

// machine describes what the figures were measured on.
func (e *environment) machine(ctx context.Context) string {
	parts := []string{fmt.Sprintf("%d cores%s", runtime.NumCPU(), processorName()), runtime.GOOS + "/" + runtime.GOARCH, runtime.Version()}
	if conn, err := pgx.Connect(ctx, e.server.URL); err == nil {
		defer conn.Close(ctx)
		var version, fsync, commit, buffers string
		row := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync'),
			current_setting('synchronous_commit'), current_setting('shared_buffers')`)
		if row.Scan(&version, &fsync, &commit, &buffers) == nil {
			parts = append(parts, fmt.Sprintf("PostgreSQL %s (fsync %s, synchronous_commit %s, shared_buffers %s)", version, fsync, commit, buffers))
		}
	}
	if e.baseline != nil {
		parts = append(parts, e.baseline.version(ctx))
	}
	return strings.Join(parts, ", ")
}

func processorName() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	_, rest, found := bytes.Cut(info, []byte("model name"))
	if !found {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	return " (" + strings.TrimLeft(string(line), "\t :") + ")"
}

// driverVersion returns the version of the linked SQLite driver.
func driverVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range info.Deps {
		if dep.Path == "modernc.org/sqlite" {
			return dep.Version
		}
	}
	return ""
}
