// Package testbed builds failing environments out of the machine's own packages: a PostgreSQL whose clock can
// be moved, a standby that can be promoted, and PgBouncer in front of either.
//
// Invariants: what it starts never outlives the test, nor the process that started it, however that ends; as
// root it runs as the owner of the data, since none of these programs would run as root. Where a program is
// missing the test fails and says what to install; it is never skipped.
//
// What it does not do: a plain PostgreSQL is pgserver's, and its folders and binaries are taken from there.
package testbed

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long a program may take to be ready.
const startTimeout = time.Minute

// watchScript runs a program to its end. When its own standard input ends first, it stops the program by a signal.
const watchScript = `signal=$1; shift; exec 3<&0
"$@" </dev/null 3<&- & pid=$!; echo "$pid"
(cat <&3; kill -"$signal" "$pid") >/dev/null 2>&1 & keeper=$!
wait "$pid"; kill "$keeper"`

// process is a program that runs during the test.
type process struct {
	log      *logBuffer
	stopPipe io.Closer // the pipe whose end stops it
	pid      int
	ended    chan struct{}
}

// startProcess starts a program in a folder, and returns once its log says that it is ready.
func startProcess(t testing.TB, dir string, owner *syscall.SysProcAttr, signal, ready string, args ...string) (*process, error) {
	t.Helper()
	watcher := exec.Command("/bin/sh", append([]string{"-c", watchScript, "watch", signal}, args...)...)
	p := &process{log: &logBuffer{}, ended: make(chan struct{})}
	watcher.Dir, watcher.SysProcAttr, watcher.Stderr = dir, owner, p.log
	var err error
	if p.stopPipe, err = watcher.StdinPipe(); err != nil {
		return nil, err
	}
	pid, err := watcher.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := watcher.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.stop)
	_, err = fmt.Fscan(pid, &p.pid)
	go func() {
		defer close(p.ended)
		_ = watcher.Wait() // killed or stopped: its log has the details
	}()
	if err != nil {
		return nil, fmt.Errorf("no process id: %w", err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(startTimeout); !strings.Contains(p.log.String(), ready); {
		select {
		case <-tick.C:
		case <-p.ended:
			return nil, fmt.Errorf("%s ended:\n%s", args[0], p.log)
		case <-deadline:
			return nil, fmt.Errorf("%s is not ready after %s:\n%s", args[0], startTimeout, p.log)
		}
	}
	return p, nil
}

// stop ends the program in order, and waits for it.
func (p *process) stop() {
	_ = p.stopPipe.Close()
	<-p.ended
}

// logBuffer keeps what a program writes.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// freePort returns a port that nobody listens on now; another process may take it before it is used.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
