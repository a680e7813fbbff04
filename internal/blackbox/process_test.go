package blackbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// providerEnv makes this test binary run as the provider's process instead.
const providerEnv = "SENDONCE_BLACKBOX_PROVIDER"

// binary is where TestMain built the gateway. It is written once, before any test runs.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(providerEnv) != "" {
		serveProvider()
		return
	}
	os.Exit(testAll(m))
}

func testAll(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sendonce-blackbox-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sendonce")
	build := exec.Command("go", "build", "-o", binary, "github.com/sendonce/sendonce/cmd/sendonce")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the gateway: %v\n%s", err, out)
		return 1
	}
	// Tests mostly wait for processes, so more of them than there are cores may run in parallel.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if err := migrated.Drop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// serveProvider prints its address on standard output and serves until standard input ends.
func serveProvider() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	hostile := &providertest.Hostile{}
	server := &http.Server{Handler: hostile, ConnState: hostile.ConnState}
	fmt.Println(listener.Addr())
	go func() { _ = server.Serve(listener) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// provider is a hostile provider in a process of its own.
type provider struct {
	t       *testing.T
	address string
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), providerEnv+"=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return &provider{t: t, address: strings.TrimSpace(line)}
}

func (p *provider) url() string { return "http://" + p.address + "/send" }

// setControl sets the provider's behaviour.
func (p *provider) setControl(c providertest.Control) {
	p.t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.controlRequest(http.MethodPut, string(raw))
}

// setModes sets the provider's modes for all recipients, one a call; the last one stays.
func (p *provider) setModes(modes ...string) {
	p.t.Helper()
	p.setControl(providertest.Control{Modes: map[string][]string{"": modes}})
}

func (p *provider) counts() providertest.Counts {
	p.t.Helper()
	var counts providertest.Counts
	if err := json.Unmarshal(p.controlRequest(http.MethodGet, ""), &counts); err != nil {
		p.t.Fatal(err)
	}
	return counts
}

func (p *provider) controlRequest(method, body string) []byte {
	p.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+p.address+"/control", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		p.t.Fatalf("provider's control: %s %s, %v", resp.Status, raw, err)
	}
	return raw
}

// gateway is a process of the built binary that serves.
type gateway struct {
	t      *testing.T
	url    string
	opsURL string
	cmd    *exec.Cmd
	log    *logBuffer
	ended  chan struct{}
	exited error // valid once ended is closed
}

// serve starts the gateway with a configuration, and returns once it listens.
func serve(t *testing.T, c config) *gateway {
	t.Helper()
	g, err := start(t, "serve", "-config", c.file(t))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// start runs the binary and waits for its listeners. If the process ends instead, the error contains its
// output.
func start(t *testing.T, args ...string) (*gateway, error) {
	t.Helper()
	g, err := launch(t, t.TempDir(), args...)
	if err != nil {
		return nil, err
	}
	return g, g.waitListening()
}

// waitListening waits until the gateway logs its addresses.
func (g *gateway) waitListening() error {
	line, err := g.waitForLog(`"msg":"serving"`)
	if err != nil {
		return err
	}
	var at struct {
		Listen    string `json:"listen"`
		OpsListen string `json:"ops_listen"`
	}
	if err := json.Unmarshal([]byte(line), &at); err != nil {
		return err
	}
	g.url, g.opsURL = "http://"+at.Listen, "http://"+at.OpsListen
	return nil
}

// launch starts the binary in a folder.
func launch(t *testing.T, dir string, args ...string) (*gateway, error) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	return spawn(t, cmd)
}

// spawn starts a gateway's process, and kills it at the end of the test.
func spawn(t *testing.T, cmd *exec.Cmd) (*gateway, error) {
	t.Helper()
	g := &gateway{t: t, cmd: cmd, log: &logBuffer{}, ended: make(chan struct{})}
	g.cmd.Stdout = g.log
	g.cmd.Stderr = g.log
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		g.exited = g.cmd.Wait()
		close(g.ended)
	}()
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", g.log.tail(30))
		}
	})
	return g, nil
}

// waitForLog waits for the first complete log line that contains part.
func (g *gateway) waitForLog(part string) (string, error) {
	for deadline := time.After(20 * time.Second); ; {
		moved := g.log.changed() // before the search, so that no line is missed
		if line, ok := g.log.find(part); ok {
			return line, nil
		}
		select {
		case <-g.ended:
			return "", fmt.Errorf("the gateway ended: %v\n%s", g.exited, g.log.tail(50))
		case <-deadline:
			return "", fmt.Errorf("the gateway does not log %s", part)
		case <-moved:
		}
	}
}

// kill ends the process as a crash would.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// stop sends SIGTERM, waits for the process to end, and returns its exit error.
func (g *gateway) stop() error {
	g.signal(syscall.SIGTERM)
	select {
	case <-g.ended:
	case <-time.After(40 * time.Second):
		g.t.Fatal("the gateway does not end on SIGTERM")
	}
	return g.exited
}

func (g *gateway) signal(s os.Signal) {
	g.t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		g.t.Fatal(err)
	}
}

// run runs a command of the binary to its end, and returns its output and exit code.
func run(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// logBuffer collects what a process writes, and notifies those who wait for more.
type logBuffer struct {
	mu     sync.Mutex
	text   []byte
	notify chan struct{}
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if b.notify != nil {
		close(b.notify)
		b.notify = nil
	}
	return len(p), nil
}

// changed returns a channel that is closed at the next write.
func (b *logBuffer) changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.notify == nil {
		b.notify = make(chan struct{})
	}
	return b.notify
}

func (b *logBuffer) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Split(string(b.text), "\n")
}

// find returns the first complete line that contains part.
func (b *logBuffer) find(part string) (string, bool) {
	lines := b.lines()
	for _, line := range lines[:len(lines)-1] {
		if strings.Contains(line, part) {
			return line, true
		}
	}
	return "", false
}

func (b *logBuffer) tail(n int) string {
	lines := b.lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
