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

	"github.com/sendonce/sendonce/db/dbtest/pgserver"
)

// Server is a PostgreSQL of one test's own. Its log tells each statement and each error's SQLSTATE.
type Server struct {
	// URL reaches its database "postgres" as the superuser "postgres"; each start gives it a new port.
	URL string

	t       testing.TB
	dir     string // the data are in its folder "data"
	bin     string
	owner   *syscall.SysProcAttr
	before  []string // words before the command line, such as env's
	running *process
	told    strings.Builder // the logs of earlier runs
}

// Postgres starts a new server.
func Postgres(t testing.TB) *Server {
	t.Helper()
	s := fresh(t)
	s.Start()
	return s
}

// fresh makes a server's folder, and leaves the server to be started.
func fresh(t testing.TB) *Server {
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
	s.owner = ownerOf(t, s.dir)
	return s
}

// ownerOf is who has to run what works in a folder.
func ownerOf(t testing.TB, dir string) *syscall.SysProcAttr {
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

// Start starts the server over what is on its disk.
func (s *Server) Start() {
	s.t.Helper()
	var err error
	for range 3 { // somebody may take the port first
		port := freePort(s.t)
		args := append(s.before[:len(s.before):len(s.before)], filepath.Join(s.bin, "postgres"), "-D", filepath.Join(s.dir, "data"),
			"-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=200",
			"-c", "lc_messages=C", "-c", "timezone=Asia/Kathmandu", "-c", "log_statement=all", "-c", "log_line_prefix=%e ",
			"-c", "fsync=off", "-c", "full_page_writes=off") // the machine stays, whatever becomes of the server
		s.running, err = begin(s.t, s.dir, s.owner, "INT", "database system is ready to accept", args...)
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
	s.told.WriteString(s.running.log.String())
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

// Log is all that the server has said, over all of its runs: a line begins with an error's SQLSTATE, or with
// 00000.
func (s *Server) Log() string { return s.told.String() + s.running.log.String() }

// Address is where it listens.
func (s *Server) Address() string {
	s.t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	return u.Host
}

// Query runs a statement and gives the first column as text, one row a line.
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
