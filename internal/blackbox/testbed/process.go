// Package testbed builds surroundings that go wrong out of the machine's own packages: a PostgreSQL whose
// clock can be moved, a standby that can be promoted, and PgBouncer before either.
//
// Invariants: what it starts never outlives the test, nor the process that started it, however that ends;
// as root it runs as the owner of the data, since none of these programs would run as root. Where a program
// is missing the test fails and says what to install; it is never skipped.
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

// watch runs a program to its end. When its own standard input ends first, it stops the program by a signal.
const watch = `signal=$1; shift; exec 3<&0
"$@" </dev/null 3<&- & pid=$!; echo "$pid"
(cat <&3; kill -"$signal" "$pid") >/dev/null 2>&1 & keeper=$!
wait "$pid"; kill "$keeper"`

// process is a program that runs beside the test.
type process struct {
	log   *journal
	alive io.Closer // the pipe whose end stops it
	pid   int
	ended chan struct{}
}

// begin starts a program in a folder, and returns once its log says that it is ready.
func begin(t testing.TB, dir string, owner *syscall.SysProcAttr, signal, ready string, args ...string) (*process, error) {
	t.Helper()
	watcher := exec.Command("/bin/sh", append([]string{"-c", watch, "watch", signal}, args...)...)
	p := &process{log: &journal{}, ended: make(chan struct{})}
	watcher.Dir, watcher.SysProcAttr, watcher.Stderr = dir, owner, p.log
	var err error
	if p.alive, err = watcher.StdinPipe(); err != nil {
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
		_ = watcher.Wait() // killed or stopped: its log tells more
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
	_ = p.alive.Close()
	<-p.ended
}

// journal keeps what a program writes.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// freePort is a port that nobody listens on now; somebody else may take it before it is used.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
