package cli

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

// process is a gateway that serves as a child.
type process struct {
	url   string
	log   string // the file that it logs to
	cmd   *exec.Cmd
	ended chan struct{}
}

// Bounds of a child's start and end.
const (
	startTimeout = 30 * time.Second
	endTimeout   = 10 * time.Second
	glance       = 50 * time.Millisecond // between two looks whether something has come about
)

// start runs the program with a configuration until it listens. The caller stops it, error or not.
func start(ctx context.Context, program, file, log string, env []string) (*process, error) {
	journal, err := os.OpenFile(log, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	defer func() { _ = journal.Close() }() // the child has its own
	p := &process{log: log, cmd: exec.Command(program, "serve", "-config", file), ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr, p.cmd.SysProcAttr = env, journal, journal, dependent()
	started := make(chan error)
	go func() {
		// A child that depends on its parent depends on the very thread that started it.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // how it ended is told by who ended it
			close(p.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	return p, p.listens(ctx)
}

// listens waits until the child says where it listens.
func (p *process) listens(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if p.url = p.address(); p.url != "" {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("rehearse: the gateway ended instead of serving:\n%s", p.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("rehearse: the gateway does not serve: %w\n%s", ctx.Err(), p.lastWords())
		case <-time.After(glance):
		}
	}
}

// address is where the child listens, by its own word; empty before that.
func (p *process) address() string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(said) {
		var serving struct{ Msg, Listen string }
		if json.Unmarshal(line, &serving) == nil && serving.Msg == "serving" {
			return "http://" + serving.Listen
		}
	}
	return ""
}

// kill ends the child as a crash would.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("rehearse: kill: %w", err)
	}
	<-p.ended
	return nil
}

// stop asks the child to end, and makes it end where it does not.
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
	_ = p.cmd.Process.Kill() // of one that has ended is an error, and does nothing
	<-p.ended
}

// lastWords are the last lines that the child logged.
func (p *process) lastWords() string {
	said, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(said), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n")))
}

// migrate prepares the ledger of a configuration.
func migrate(ctx context.Context, program, file string, env []string) error {
	cmd := exec.CommandContext(ctx, program, "migrate", "-config", file)
	cmd.Env = env
	said, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return errors.New(string(bytes.TrimSpace(said)))
	}
	return err
}
