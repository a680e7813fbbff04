package blackbox

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wholeMatrix runs every case where an ordinary run takes a selection:
//
//	go test ./internal/blackbox -run 'Killed|Stopped' -timeout 60m -args -whole
var wholeMatrix = flag.Bool("whole", false, "run every crash case, not only a selection")

// crashpointBinary is the gateway with crash points, built once, by the first test that needs it, in the
// folder of the ordinary one.
var crashpointBinary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "sendonce-crashpoints")
	build := exec.Command("go", "build", "-tags", "crashpoints", "-o", path, "github.com/sendonce/sendonce/cmd/sendonce")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway with crash points: %w\n%s", err, out)
	}
	return path, nil
})

// crashpointCommand prepares a gateway with crash points that executes the orders; see package crashpoint.
func crashpointCommand(t *testing.T, c config, orders string, env ...string) *exec.Cmd {
	t.Helper()
	path, err := crashpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "-config", c.file(t))
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "SENDONCE_CRASHPOINTS="+orders), env...)
	return cmd
}

// spawnWithOrders starts such a gateway. It may reach its point before it listens: a sweep does not wait for
// that.
func spawnWithOrders(t *testing.T, c config, orders string, env ...string) *gateway {
	t.Helper()
	g, err := spawn(t, crashpointCommand(t, c, orders, env...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// serveWithOrders starts such a gateway, and returns once it accepts deliveries.
func serveWithOrders(t *testing.T, c config, orders string, env ...string) *gateway {
	t.Helper()
	g := spawnWithOrders(t, c, orders, env...)
	g.waitServing()
	return g
}

// waitServing waits until the gateway listens, and is ready.
func (g *gateway) waitServing() {
	g.t.Helper()
	if err := g.waitListening(); err != nil {
		g.t.Fatal(err)
	}
	g.waitReady()
}

// waitKilled waits until the gateway has killed itself at a point; until then it delivers the reminder, if
// any.
func (g *gateway) waitKilled(at string, d document) {
	g.t.Helper()
	g.waitAtPoint(at, d, func() bool {
		select {
		case <-g.ended:
			return true
		default:
			return false
		}
	})
	if status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		g.t.Fatalf("it ended, but did not kill itself: %v", g.exited)
	}
	if _, found := g.log.find(fmt.Sprintf(`"point":%q`, at)); !found {
		g.t.Fatalf("its log does not name the crash point %s", at)
	}
}

// waitStopped waits until the gateway has stopped itself at a point; until then it delivers the reminder, if
// any. The channel receives the response, once the gateway has been resumed.
func (g *gateway) waitStopped(at string, d document) <-chan answer {
	g.t.Helper()
	return g.waitAtPoint(at, d, func() bool {
		_, found := g.log.find(fmt.Sprintf(`"point":%q`, at))
		return found && g.isStopped()
	})
}

// waitAtPoint delivers a reminder, and again after each nack as a queue does, until a point has been reached.
func (g *gateway) waitAtPoint(at string, d document, condition func() bool) <-chan answer {
	g.t.Helper()
	var answered <-chan answer
	if d != nil {
		answered = g.pushAsync(d)
	}
	if !eventually(30*time.Second, func() bool {
		if condition() {
			return true
		}
		select {
		case <-answered:
			answered = g.pushAsync(d)
		default:
		}
		return false
	}) {
		g.t.Fatalf("crash point %s was not reached", at)
	}
	return answered
}

// isStopped reports whether the whole process is stopped.
func (g *gateway) isStopped() bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(g.cmd.Process.Pid)).Output()
	return err == nil && strings.HasPrefix(string(out), "T")
}

func (g *gateway) resume() {
	g.t.Helper()
	g.signal(syscall.SIGCONT)
}

// fastConfig is a configuration in which leases, waits and sweeps are as short as possible.
func fastConfig(database string, p *provider) config {
	return configure(database, p).withTakeover("1s").
		with("3s", "lease").with("200ms", "sweep").with("2s", "sources", "queue", "answer_within").
		with("1900ms", "providers", "mail", "timeout").
		with(map[string]any{"base": "100ms", "cap": "10m"}, "types", "default", "backoff")
}

// newLedger returns the URL of a new ledger on a store.
func newLedger(t *testing.T, store string) string {
	t.Helper()
	if store == "sqlite" {
		return newSQLite(t)
	}
	return newPostgres(t)
}

// eventually polls a condition, slowly enough that many tests can wait at the same time, and reports whether
// it came true.
func eventually(within time.Duration, condition func() bool) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(within); ; {
		if condition() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return condition()
		}
	}
}

// TestCrashPoints_ServeOnlyInATest checks that a build with crash points serves only when told that it is a
// test, and that an ordinary build has none.
func TestCrashPoints_ServeOnlyInATest(t *testing.T) {
	t.Parallel()
	path, err := crashpointBinary()
	if err != nil {
		t.Fatal(err)
	}
	for program, has := range map[string]bool{binary: false, path: true} {
		raw, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, trace := range []string{"internal/crashpoint", "SENDONCE_CRASHPOINTS", "SENDONCE_CLOCK_OFFSET"} {
			if strings.Contains(string(raw), trace) != has {
				t.Errorf("%s contains %s: %v, want %v", filepath.Base(program), trace, !has, has)
			}
		}
		found, err := exec.Command(program, "version").Output()
		if err != nil || strings.Contains(string(found), "crash points") != has {
			t.Errorf("%s: version %s (%v)", filepath.Base(program), found, err)
		}
	}
	c := configure(newSQLite(t), &provider{address: "127.0.0.1:1"})
	for name, cmd := range map[string]*exec.Cmd{
		"without orders":          exec.Command(path, "serve", "-config", c.file(t)),
		"sendonce dev":            exec.Command(path, "dev", "-addr", "127.0.0.1:0", "-data", t.TempDir()),
		"an invalid order":        crashpointCommand(t, c, "nowhere:kill"),
		"an invalid clock offset": crashpointCommand(t, c, "none", "SENDONCE_CLOCK_OFFSET=late"),
	} {
		g, err := spawn(t, cmd)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := g.waitForLog(`"msg":"serving"`); err == nil {
			t.Errorf("%s: it serves: %s", name, line)
		}
	}
	g := serveWithOrders(t, c, "none")
	if line, err := g.waitForLog(`"msg":"serving"`); err != nil || !strings.Contains(line, "crash points") {
		t.Errorf("it serves without naming its crash points in the log: %s, %v", line, err)
	}
}
