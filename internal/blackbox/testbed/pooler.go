package testbed

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// Pooler starts PgBouncer in transaction mode in front of the server, with a number of connections to each of
// its databases. It returns the server's URL through it.
func (s *Server) Pooler(size int) string {
	s.t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // where an ordinary user's path does not lead
	}
	if _, err := os.Stat(program); err != nil {
		s.t.Fatal("testbed: no PgBouncer here: install it (Debian: pgbouncer)")
	}
	u, err := url.Parse(s.URL)
	if err != nil {
		s.t.Fatal(err)
	}
	for range 3 { // another process may take the port first
		port := freePort(s.t)
		settings := fmt.Sprintf(`[databases]
* = host=%s port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 500
`, u.Hostname(), u.Port(), port, size)
		file := filepath.Join(s.dir, "pgbouncer.ini")
		if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
			s.t.Fatal(err)
		}
		if _, err = startProcess(s.t, s.dir, s.owner, "TERM", "process up", program, file); err == nil {
			through := *u
			through.Host = "127.0.0.1:" + strconv.Itoa(port)
			return through.String()
		}
	}
	s.t.Fatal(fmt.Errorf("testbed: %w", err))
	return ""
}

// ForbiddenSessionState describes state that a session would need its own connection for, and must not have
// behind a pooler: an advisory lock, or a prepared statement that was not found on the connection (SQLSTATE
// 42P05, 26000, 08P01). It is empty if there was none.
func (s *Server) ForbiddenSessionState() string {
	s.t.Helper()
	if held := s.Query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); held != "0" {
		return held + " advisory locks are held"
	}
	return regexp.MustCompile(`(?im)^(42P05|26000|08P01) .*|^.*advisory_(xact_)?lock.*`).FindString(s.Log())
}
