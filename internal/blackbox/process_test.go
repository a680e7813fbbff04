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

// asProvider makes this test binary the provider's process instead.
const asProvider = "SENDONCE_BLACKBOX_PROVIDER"

// binary is where TestMain built the gateway. It is written once, before any test runs.
var binary string

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
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
	// Tests mostly wait for processes, so more of them than there are cores may do so at once.
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

// serveProvider tells its address on standard output and serves until standard input ends.
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
	cmd.Env = append(os.Environ(), asProvider+"=1")
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

// told makes the provider behave.
func (p *provider) told(c providertest.Control) {
	p.t.Helper()
	raw, err := json.Marshal(c)
	if err != nil {
		p.t.Fatal(err)
	}
	p.control(http.MethodPut, string(raw))
}

// plays makes it take these modes for everybody, one a call; the last one stays.
func (p *provider) plays(modes ...string) {
	p.t.Helper()
	p.told(providertest.Control{Modes: map[string][]string{"": modes}})
}

func (p *provider) counts() providertest.Counts {
	p.t.Helper()
	var counts providertest.Counts
	if err := json.Unmarshal(p.control(http.MethodGet, ""), &counts); err != nil {
		p.t.Fatal(err)
	}
	return counts
}

func (p *provider) control(method, body string) []byte {
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

// gateway is the built binary, serving.
type gateway struct {
	t      *testing.T
	url    string
	ops    string
	cmd    *exec.Cmd
	log    *journal
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

// start runs the binary and waits for its listeners. The error holds what it wrote when it ended instead.
func start(t *testing.T, args ...string) (*gateway, error) {
	t.Helper()
	g, err := launch(t, t.TempDir(), args...)
	if err != nil {
		return nil, err
	}
	return g, g.listens()
}

// listens waits until the gateway says where it listens.
func (g *gateway) listens() error {
	line, err := g.says(`"msg":"serving"`)
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
	g.url, g.ops = "http://"+at.Listen, "http://"+at.OpsListen
	return nil
}

// launch runs the binary in a folder.
func launch(t *testing.T, dir string, args ...string) (*gateway, error) {
	t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	return spawn(t, cmd)
}

// spawn runs a gateway's process until it ends, or the test does.
func spawn(t *testing.T, cmd *exec.Cmd) (*gateway, error) {
	t.Helper()
	g := &gateway{t: t, cmd: cmd, log: &journal{}, ended: make(chan struct{})}
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

// says waits for the first whole line that contains part.
func (g *gateway) says(part string) (string, error) {
	for deadline := time.After(20 * time.Second); ; {
		moved := g.log.moved() // before looking, so that no line is missed
		if line, ok := g.log.find(part); ok {
			return line, nil
		}
		select {
		case <-g.ended:
			return "", fmt.Errorf("the gateway ended: %v\n%s", g.exited, g.log.tail(50))
		case <-deadline:
			return "", fmt.Errorf("the gateway does not say %s", part)
		case <-moved:
		}
	}
}

// kill ends the process as a crash would.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.ended
}

// stop asks the process to end, and returns its exit error.
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

// run runs a command of the binary to its end.
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

// journal collects what a process writes, and wakes those who wait for it.
type journal struct {
	mu    sync.Mutex
	text  []byte
	waker chan struct{}
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, p...)
	if j.waker != nil {
		close(j.waker)
		j.waker = nil
	}
	return len(p), nil
}

// moved is closed at the next write.
func (j *journal) moved() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waker == nil {
		j.waker = make(chan struct{})
	}
	return j.waker
}

func (j *journal) lines() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Split(string(j.text), "\n")
}

// find is the first whole line that contains part.
func (j *journal) find(part string) (string, bool) {
	lines := j.lines()
	for _, line := range lines[:len(lines)-1] {
		if strings.Contains(line, part) {
			return line, true
		}
	}
	return "", false
}

func (j *journal) tail(n int) string {
	lines := j.lines()
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
