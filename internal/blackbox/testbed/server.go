package testbed

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sendonce/sendonce/db/storetest/pgserver"
)

// Server is a PostgreSQL of one test's own. Its log has each statement and each error's SQLSTATE.
type Server struct {
	// URL reaches its database "postgres" as the superuser "postgres"; each start gives it a new port.
	URL string

	t             testing.TB
	dir           string // the data are in its folder "data"
	bin           string
	owner         *syscall.SysProcAttr
	commandPrefix []string // arguments before the command line, such as env's
	running       *process
	earlierLogs   strings.Builder // the logs of earlier runs
}

// Postgres starts a new server.
func Postgres(t testing.TB) *Server {
	t.Helper()
	s := newServer(t)
	s.Start()
	return s
}

// newServer creates a server's folder, and does not start the server yet.
func newServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, dir: filepath.Join(t.TempDir(), "server")}
	maker, err := pgserver.Start(s.dir, false)
	if err != nil {
		t.Fatal(err)
	}
	s.URL = maker.URL
	s.bin = s.Query("SELECT setting FROM pg_config WHERE name = 'BINDIR'")
	if err := maker.Stop(); err != nil {
		t.Fatal(err)
	}
	s.owner = processOwner(t, s.dir)
	return s
}

// processOwner returns the attributes of a process that runs as the owner of a folder.
func processOwner(t testing.TB, dir string) *syscall.SysProcAttr {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	as := &syscall.SysProcAttr{Setpgid: true} // a terminal's ^C is for the tests
	if folder := info.Sys().(*syscall.Stat_t); os.Getuid() == 0 {
		as.Credential = &syscall.Credential{Uid: folder.Uid, Gid: folder.Gid}
	}
	return as
}

// Start starts the server on its data directory.
func (s *Server) Start() {
	s.t.Helper()
	var err error
	for range 3 { // another process may take the port first
		port := freePort(s.t)
		args := append(s.commandPrefix[:len(s.commandPrefix):len(s.commandPrefix)], filepath.Join(s.bin, "postgres"), "-D", filepath.Join(s.dir, "data"),
			"-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200",
			"-c", "lc_messages=C", "-c", "timezone=Asia/Kathmandu", "-c", "log_statement=all", "-c", "log_line_prefix=%e ",
			"-c", "fsync=off", "-c", "full_page_writes=off") // the machine stays up, whatever happens to the server
		s.running, err = startProcess(s.t, s.dir, s.owner, "INT", "database system is ready to accept", args...)
		if err == nil {
			s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
			return
		}
	}
	s.t.Fatal(fmt.Errorf("testbed: %w", err))
}

// Stop ends the server in order: what it acknowledged is on its disk.
func (s *Server) Stop() {
	s.running.stop()
	s.earlierLogs.WriteString(s.running.log.String())
}

// Kill ends it as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	// SIGQUIT is PostgreSQL's immediate shutdown; SIGKILL would leave its children to end by themselves.
	if err := syscall.Kill(s.running.pid, syscall.SIGQUIT); err != nil {
		s.t.Fatal(err)
	}
	s.Stop()
}

// Log returns everything that the server has logged, over all of its runs: a line begins with an error's
// SQLSTATE, or with 00000.
func (s *Server) Log() string { return s.earlierLogs.String() + s.running.log.String() }

// Address returns the address it listens on.
func (s *Server) Address() string {
	s.t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// Query runs a statement and returns the first column as text, one row a line.
func (s *Server) Query(statement string) string {
	s.t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		s.t.Fatal(fmt.Errorf("testbed: %w", err))
	}
	defer conn.Close(ctx)
	results, err := conn.PgConn().Exec(ctx, statement).ReadAll()
	if err != nil {
		s.t.Fatal(fmt.Errorf("testbed: %s: %w", statement, err))
	}
	var lines []string
	for _, result := range results {
		for _, row := range result.Rows {
			lines = append(lines, string(row[0]))
		}
	}
	return strings.Join(lines, "\n")
}

// Standby starts a copy that follows the server from now on, and serves reads.
func (s *Server) Standby() *Server {
	s.t.Helper()
	copied := &Server{t: s.t, dir: filepath.Join(filepath.Dir(s.dir), "standby"), bin: s.bin, owner: s.owner}
	if err := os.Mkdir(copied.dir, 0o700); err != nil {
		s.t.Fatal(err)
	}
	if as := s.owner.Credential; as != nil {
		if err := os.Chown(copied.dir, int(as.Uid), int(as.Gid)); err != nil {
			s.t.Fatal(err)
		}
	}
	backup := exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-d", s.URL, "-D", filepath.Join(copied.dir, "data"),
		"-R", "-X", "stream", "-c", "fast", "--no-sync")
	backup.Dir, backup.SysProcAttr = copied.dir, s.owner
	if out, err := backup.CombinedOutput(); err != nil {
		s.t.Fatal(fmt.Errorf("testbed: pg_basebackup: %w\n%s", err, out))
	}
	copied.Start()
	return copied
}
