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

// crashing is the gateway with crash points, built once, by the first test that needs it, beside the
// ordinary one.
var crashing = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(binary), "sendonce-crashpoints")
	build := exec.Command("go", "build", "-tags", "crashpoints", "-o", path, "github.com/sendonce/sendonce/cmd/sendonce")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the gateway with crash points: %w\n%s", err, out)
	}
	return path, nil
})

// rigged prepares a gateway that does to itself what the orders say; see package crashpoint.
func rigged(t *testing.T, c config, orders string, env ...string) *exec.Cmd {
	t.Helper()
	path, err := crashing()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "serve", "-config", c.file(t))
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "SENDONCE_CRASHPOINTS="+orders), env...)
	return cmd
}

// spawnRigged starts it. It may come to its point before it listens: a sweep does not wait for that.
func spawnRigged(t *testing.T, c config, orders string, env ...string) *gateway {
	t.Helper()
	g, err := spawn(t, rigged(t, c, orders, env...))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// serveRigged starts it, and returns once it can be brought something.
func serveRigged(t *testing.T, c config, orders string, env ...string) *gateway {
	t.Helper()
	g := spawnRigged(t, c, orders, env...)
	g.awake()
	return g
}

// awake waits until the gateway listens, and is ready.
func (g *gateway) awake() {
	g.t.Helper()
	if err := g.listens(); err != nil {
		g.t.Fatal(err)
	}
	g.ready()
}

// killed waits until the gateway has killed itself at a point; it is brought a reminder until then, if any.
func (g *gateway) killed(at string, d document) {
	g.t.Helper()
	g.met(at, d, func() bool {
		select {
		case <-g.ended:
			return true
		default:
			return false
		}
	})
	if status, ok := g.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		g.t.Fatalf("it ended, but not by its own hand: %v", g.exited)
	}
	if _, said := g.log.find(fmt.Sprintf(`"point":%q`, at)); !said {
		g.t.Fatalf("it does not say that it ended at %s", at)
	}
}

// stopped waits until the gateway has stopped itself at a point; it is brought a reminder until then, if any.
// What comes is the answer to it, once it has been continued.
func (g *gateway) stopped(at string, d document) <-chan answer {
	g.t.Helper()
	return g.met(at, d, func() bool {
		_, said := g.log.find(fmt.Sprintf(`"point":%q`, at))
		return said && g.asleep()
	})
}

// met brings a reminder, as a queue does again after each nack, until a point has been met.
func (g *gateway) met(at string, d document, come func() bool) <-chan answer {
	g.t.Helper()
	var answered <-chan answer
	if d != nil {
		answered = g.pushes(d)
	}
	if !awaited(30*time.Second, func() bool {
		if come() {
			return true
		}
		select {
		case <-answered:
			answered = g.pushes(d)
		default:
		}
		return false
	}) {
		g.t.Fatalf("nothing passed %s", at)
	}
	return answered
}

// asleep tells whether the process is stopped as a whole.
func (g *gateway) asleep() bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(g.cmd.Process.Pid)).Output()
	return err == nil && strings.HasPrefix(string(out), "T")
}

func (g *gateway) continues() {
	g.t.Helper()
	g.signal(syscall.SIGCONT)
}

// hasty is a configuration in which leases, waits and sweeps are as short as may be.
func hasty(database string, p *provider) config {
	return configure(database, p).takeover("1s").
		with("3s", "lease").with("200ms", "sweep").with("2s", "sources", "queue", "answer_within").
		with("1900ms", "providers", "mail", "timeout").
		with(map[string]any{"base": "100ms", "cap": "10m"}, "types", "default", "backoff")
}

// on is a fresh ledger.
func on(t *testing.T, store string) string {
	t.Helper()
	if store == "sqlite" {
		return embedded(t)
	}
	return shared(t)
}

// awaited asks now and then, so that many can wait at once, whether something has come about.
func awaited(within time.Duration, come func() bool) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(within); ; {
		if come() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return come()
		}
	}
}

// TestOnlyATestCanServeWithCrashPoints : and an ordinary build has none.
func TestOnlyATestCanServeWithCrashPoints(t *testing.T) {
	t.Parallel()
	path, err := crashing()
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
				t.Errorf("%s: %s is in it: %v, want %v", filepath.Base(program), trace, !has, has)
			}
		}
		said, err := exec.Command(program, "version").Output()
		if err != nil || strings.Contains(string(said), "crash points") != has {
			t.Errorf("%s says that it is %s (%v)", filepath.Base(program), said, err)
		}
	}
	c := configure(embedded(t), &provider{address: "127.0.0.1:1"})
	for name, cmd := range map[string]*exec.Cmd{
		"nobody says that it is a test": exec.Command(path, "serve", "-config", c.file(t)),
		"a first look":                  exec.Command(path, "dev", "-addr", "127.0.0.1:0", "-data", t.TempDir()),
		"an order without meaning":      rigged(t, c, "nowhere:kill"),
		"a clock without meaning":       rigged(t, c, "none", "SENDONCE_CLOCK_OFFSET=late"),
	} {
		g, err := spawn(t, cmd)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := g.says(`"msg":"serving"`); err == nil {
			t.Errorf("%s: it serves: %s", name, line)
		}
	}
	g := serveRigged(t, c, "none")
	if line, err := g.says(`"msg":"serving"`); err != nil || !strings.Contains(line, "crash points") {
		t.Errorf("it serves without a word about its crash points: %s, %v", line, err)
	}
}
