package rehearsal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a gateway that runs as a child process.
type process struct {
	url   string
	log   string // the file that it logs to
	cmd   *exec.Cmd
	ended chan struct{}
}

// Timeouts of a child process.
const (
	startTimeout = 30 * time.Second
	endTimeout   = 10 * time.Second
	pollInterval = 50 * time.Millisecond // between two checks of a condition
)

// start runs the program with a configuration until it listens. The caller stops it, error or not.
func start(ctx context.Context, program, file, log string, env []string) (*process, error) {
	logFile, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	defer func() { _ = logFile.Close() }() // the child has its own
	p := &process{log: log, cmd: exec.Command(program, "serve", "-config", file), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = env, logFile, logFile, childProcAttr()
	started := make(chan error)
	go func() {
		// The parent-death signal is bound to the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the caller that ends it reports how
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	return p, p.awaitListening(ctx)
}

// awaitListening waits until the child logs its listen address.
func (p *process) awaitListening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if p.url = p.address(); p.url != "" {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("rehearse: the gateway ended instead of serving:\n%s", p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("rehearse: the gateway does not serve: %w\n%s", ctx.Err(), p.logTail())
		case <-time.After(pollInterval):
		}
	}
}

// address returns the URL from the child's log; empty before it is logged.
func (p *process) address() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(output) {
		var serving struct{ Msg, Listen string }
		if json.Unmarshal(line, &serving) == nil && serving.Msg == "serving" {
			return "http://" + serving.Listen
		}
	}
	return ""
}

// kill ends the child like a crash.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("rehearse: kill: %w", err)
	}
	<-p.ended
	return nil
}

// stop terminates the child, and kills it if it does not end in time.
func (p *process) stop() {
	if p == nil {
		return
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err == nil {
		select {
		case <-p.ended:
		case <-time.After(endTimeout):
		}
	}
	_ = p.cmd.Process.Kill() // fails without effect if it has ended
	<-p.ended
}

// logTail returns the last lines that the child logged.
func (p *process) logTail() string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// migrate runs the migrations for a configuration.
func migrate(ctx context.Context, program, file string, env []string) error {
	cmd := exec.CommandContext(ctx, program, "migrate", "-config", file)
	cmd.Env = env
	output, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return errors.New(string(bytes.TrimSpace(output)))
	}
	return err
}
