// Package pgserver runs PostgreSQL for tests: a private server from the machine's binaries on a loopback port, and a
// new database for each test.
//
// Invariants: a server never outlives the process that started it, however that process ends, since a small shell
// script next to it waits for the other end of a pipe to close. Without PostgreSQL the test fails with a message that
// says what to install; it is never skipped.
//
// What it does not do: it must not be used for anything but tests. Every user of the machine can log in.
package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startTimeout bounds how long a server may take to be ready, crash recovery included.
const startTimeout = time.Minute

// maxConnections is more than any test process opens. The black-box tests open the most at the same time:
//   - twelve crash cases, each with a killed gateway whose sessions the server may not have closed yet, and the gateway
//     that follows it: 12 x 2 x 10, where 10 is the default max_conns of a gateway in tests,
//   - twelve tests, each with two replicas that are being replaced by two others: 12 x 4 x 10,
//   - one or two connections of each of these tests: 2 x 24,
//
// 768 in all. A slow machine comes close to it, since connections are closed late. An unused connection costs a few
// kilobytes.
const maxConnections = "1000"

// watch is a shell script that runs a server until its standard input ends, then stops it (SIGINT is a fast shutdown)
// and removes a directory, if one is given.
const watch = `remove=$1; shift
"$@" </dev/null & pid=$!; echo "$pid"; cat >/dev/null; kill -INT "$pid" 2>/dev/null; wait "$pid"
[ -z "$remove" ] || rm -rf "$remove"`

// Server is a running PostgreSQL.
type Server struct {
	// URL is that of the database "postgres", as the superuser "postgres".
	URL string

	watcher *exec.Cmd
	alive   io.Closer // the pipe whose end stops the server
	pid     int
	done    chan error
}

// Start runs a server with its data under dir. It reuses the data of an earlier server there, with crash recovery if
// necessary. durable keeps fsync on, for tests that kill the server.
func Start(dir string, durable bool) (*Server, error) { return start(dir, durable, "") }

func start(dir string, durable bool, remove string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	owner, err := runAs(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); errors.Is(err, os.ErrNotExist) {
		initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
			"-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions")
		initdb.SysProcAttr, initdb.Dir = owner, dir
		if out, err := initdb.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("pgserver: initdb: %w\n%s", err, out)
		}
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"-c", watch, "watch", remove, filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=" + maxConnections,
		"-c", "lc_messages=C", "-c", "log_min_messages=log", "-c", "timezone=Asia/Kathmandu",
	}
	if !durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	return run(exec.Command("/bin/sh", args...), owner, dir, port)
}

// run starts the watcher and waits until the server logs that it is ready.
func run(watcher *exec.Cmd, owner *syscall.SysProcAttr, dir string, port int) (*Server, error) {
	watcher.SysProcAttr, watcher.Dir = owner, dir
	alive, err := watcher.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	pids, err := watcher.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	log, err := watcher.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	if err := watcher.Start(); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	s := &Server{
		URL:     fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port),
		watcher: watcher, alive: alive, done: make(chan error, 1),
	}
	if _, err := fmt.Fscan(pids, &s.pid); err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: no process id: %w", err), s.Stop())
	}
	ready := make(chan error, 1)
	go s.read(log, ready)
	ctx, stop := context.WithTimeout(context.Background(), startTimeout)
	defer stop()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = fmt.Errorf("pgserver: not ready after %s", startTimeout)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// read reads the server's log until the server ends.
func (s *Server) read(log io.Reader, ready chan<- error) {
	var output strings.Builder
	lines := bufio.NewScanner(log)
	isReady := false
	for lines.Scan() {
		switch {
		case isReady:
		case strings.Contains(lines.Text(), "database system is ready to accept connections"):
			isReady = true
			ready <- nil
		default:
			output.WriteString(lines.Text() + "\n")
		}
	}
	if !isReady {
		ready <- fmt.Errorf("pgserver: the server ended:\n%s", output.String())
	}
	_, _ = io.Copy(io.Discard, log)
	s.done <- s.watcher.Wait()
}

// Stop shuts the server down cleanly and waits for its end.
func (s *Server) Stop() error {
	err := s.alive.Close()
	<-s.done
	s.done <- nil
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// Kill ends the server like a crash: without a checkpoint, and every session is cut off. The next Start in the same
// directory recovers.
func (s *Server) Kill() error {
	// SIGQUIT is PostgreSQL's immediate shutdown. SIGKILL would leave its child processes running.
	if err := syscall.Kill(s.pid, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	return s.Stop()
}

// binaries returns the directory of initdb and postgres: that on the path, or the newest one that a package of the
// distribution installed.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	newest, best := -1, ""
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	for _, path := range found {
		bin := filepath.Dir(path)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && version > newest {
			newest, best = version, bin
		}
	}
	if best == "" {
		return "", errors.New("pgserver: PostgreSQL not found: install its server (Debian: postgresql; " +
			"macOS: brew install postgresql), or name one in SENDONCE_TEST_DATABASE_URL")
	}
	return best, nil
}

// runAs creates dir and makes the server's user its owner. PostgreSQL refuses to run as root: then it runs as the user
// "postgres", who needs permission to reach dir.
func runAs(dir string) (*syscall.SysProcAttr, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	attr := &syscall.SysProcAttr{Setpgid: true} // a terminal's ^C interrupts the tests, not the server
	if os.Getuid() != 0 {
		return attr, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("pgserver: running as root needs a user named postgres: %w", err)
	}
	uid, _ := strconv.Atoi(account.Uid)
	gid, _ := strconv.Atoi(account.Gid)
	if err := os.Chown(dir, uid, gid); err != nil {
		return nil, fmt.Errorf("pgserver: %w", err)
	}
	temp := filepath.Clean(os.TempDir())
	for up := filepath.Dir(dir); strings.HasPrefix(up, temp+string(filepath.Separator)); up = filepath.Dir(up) {
		if err := os.Chmod(up, 0o711); err != nil {
			return nil, fmt.Errorf("pgserver: %w", err)
		}
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("pgserver: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
