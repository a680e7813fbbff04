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

	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// maxConnections leaves the private PostgreSQL room for the gateway beside as many clients.
const maxConnections = 150

const sourceToken = "bench-token-0123456789"

// laboratory is everything that runs while cells are measured.
type laboratory struct {
	options
	dir      string
	server   *pgserver.Server
	provider string // host:port
	postgres *gateway
	sqlite   *gateway
	// Databases of the gateway, and for the floor alone, with the same schema.
	postgresURL, floorURL string
	floor                 *sqliteFloor

	connecting int // seconds that pgbench gets for that; grows with need
	closers    []func() error
}

// gateway is the built binary, serving, and what has been delivered to it.
type gateway struct {
	address string
	pid     int
	ids     atomic.Int64
}

// open starts everything. What stands after an error is closed by close too.
func open(ctx context.Context, o options) (*laboratory, error) {
	l := &laboratory{options: o, connecting: 1}
	var err error
	if l.dir, err = os.MkdirTemp("", "sendonce-bench-"); err != nil {
		return l, err
	}
	l.closers = append(l.closers, func() error { return os.RemoveAll(l.dir) })
	if l.server, err = pgserver.Start(filepath.Join(l.dir, "postgres"), true); err != nil {
		return l, err
	}
	l.closers = append(l.closers, l.server.Stop)
	if err := l.startProvider(); err != nil {
		return l, err
	}
	if l.postgresURL, err = l.createDatabase(ctx, "gateway"); err != nil {
		return l, err
	}
	if l.floorURL, err = l.createDatabase(ctx, "floor"); err != nil {
		return l, err
	}
	floorFile := filepath.Join(l.dir, "floor.db")
	for _, database := range []string{l.postgresURL, l.floorURL, "sqlite://" + floorFile} {
		if err := l.migrate(ctx, database); err != nil {
			return l, err
		}
	}
	if l.floor, err = openSQLiteFloor(ctx, floorFile); err != nil {
		return l, err
	}
	l.closers = append(l.closers, l.floor.close)
	if l.postgres, err = l.serve(ctx, l.postgresURL, nil); err != nil {
		return l, err
	}
	l.sqlite, err = l.serve(ctx, "sqlite://"+filepath.Join(l.dir, "ledger.db"), nil)
	return l, err
}

// close ends everything, the last first.
func (l *laboratory) close() error {
	var errs []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	return errors.Join(errs...)
}

func (l *laboratory) startProvider() error {
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
	l.closers = append(l.closers, func() error {
		_ = stdin.Close()
		return cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	l.provider = strings.TrimSpace(line)
	return err
}

func (l *laboratory) createDatabase(ctx context.Context, name string) (string, error) {
	conn, err := pgx.Connect(ctx, l.server.URL)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", err
	}
	u, err := url.Parse(l.server.URL)
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

type object = map[string]any

// configure writes a configuration that leaves everything as it is by default, but for the provider's
// concurrency, since no sender shall wait for a slot, and what is to be changed. JSON is YAML.
func (l *laboratory) configure(database, listen, ops string, changes object) (string, error) {
	settings := object{
		"listen": listen, "ops_listen": ops, "drain": "0s",
		"database": object{"url": database},
		"sources": object{"queue": object{
			"format": "plain", "auth": object{"bearer": object{"tokens": []string{sourceToken}}}, "max_age": "7d",
		}},
		"providers": object{"mail": object{
			"kind": "webhook", "url": "http://" + l.provider + "/send", "timeout": "10s",
			"contract": object{"idempotent": "24h"}, "concurrency": max(l.connections, 64),
		}},
		"channels": object{"email": object{"provider": "mail"}},
		"types":    object{"default": object{"max_attempts": 6, "deadline": "24h"}},
	}
	maps.Copy(settings, changes)
	raw, err := json.Marshal(settings)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(l.dir, "*.yaml")
	if err != nil {
		return "", err
	}
	_, err = file.Write(raw)
	return file.Name(), errors.Join(err, file.Close())
}

func (l *laboratory) migrate(ctx context.Context, database string) error {
	file, err := l.configure(database, "127.0.0.1:0", "127.0.0.1:0", nil)
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, l.gateway, "migrate", "-config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
}

// serve starts a gateway and waits until it is ready. Its log is on, and goes where no disk is.
func (l *laboratory) serve(ctx context.Context, database string, changes object) (*gateway, error) {
	listen, err := freeAddress()
	if err != nil {
		return nil, err
	}
	ops, err := freeAddress()
	if err != nil {
		return nil, err
	}
	file, err := l.configure(database, listen, ops, changes)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(l.gateway, "serve", "-config", file)
	if err := cmd.Start(); err != nil { // without Stdout and Stderr it writes to the null device
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	l.closers = append(l.closers, func() error {
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

// reconcile compares what the gateways acked with what the provider took.
func (l *laboratory) reconcile(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.provider+"/control", nil)
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
	if acked := int(l.postgres.ids.Load() + l.sqlite.ids.Load()); counts.Calls != acked || counts.Accepts != acked {
		return fmt.Errorf("%d reminders were acked, and the provider saw %d calls and accepted %d", acked, counts.Calls, counts.Accepts)
	}
	return nil
}

// machine is what the figures were measured on.
func (l *laboratory) machine(ctx context.Context) string {
	parts := []string{fmt.Sprintf("%d cores%s", runtime.NumCPU(), processorName()), runtime.GOOS + "/" + runtime.GOARCH, runtime.Version()}
	if conn, err := pgx.Connect(ctx, l.server.URL); err == nil {
		defer conn.Close(ctx)
		var version, fsync, commit, buffers string
		row := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('fsync'),
			current_setting('synchronous_commit'), current_setting('shared_buffers')`)
		if row.Scan(&version, &fsync, &commit, &buffers) == nil {
			parts = append(parts, fmt.Sprintf("PostgreSQL %s (fsync %s, synchronous_commit %s, shared_buffers %s)", version, fsync, commit, buffers))
		}
	}
	if l.floor != nil {
		parts = append(parts, l.floor.version(ctx))
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

// driverVersion is the SQLite driver's, as it was linked.
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
