package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// ErrWrong : the rehearsal came to its end, and something was doubled, lost or left unexplained.
var ErrWrong = errors.New("rehearse: not everything was right; see the verdict")

// errEnded : somebody ended the rehearsal.
var errEnded = errors.New("rehearse: ended before the verdict")

// databaseVariable hands the rehearsal's database to the child, so that its password stands in no file.
const databaseVariable = "SENDONCE_REHEARSAL_DATABASE"

// Rehearsal walks the dangerous path with a gateway of its own.
type Rehearsal struct {
	Setting
	Contract string   // the only one to walk; empty for each in use
	RealTime bool     // wait as long as the setting says
	Keep     bool     // leave the folder behind
	Program  string   // the gateway's binary
	Environ  []string // what it runs in
	Database string   // see [RehearsalDatabase]; empty for an embedded ledger
	Out      io.Writer
	Progress io.Writer
}

// Run walks, tells and judges. The error is [ErrWrong] where a verdict is bad, and another one where it did
// not come to a verdict.
func (r Rehearsal) Run(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "sendonce-rehearsal-")
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	defer func() {
		if r.Keep {
			fmt.Fprintf(r.Progress, "kept: %s\n", folder)
			return
		}
		_ = os.RemoveAll(folder) // what can't be removed is in the system's folder for such things
	}()
	setting := r.Setting
	if !r.RealTime {
		setting = setting.shortened()
	}
	tell := &teller{out: r.Out, progress: r.Progress}
	wrong := 0
	walks := setting.passages(r.Contract)
	for i, p := range walks {
		w := &walk{Rehearsal: r, setting: setting, folder: filepath.Join(folder, fmt.Sprint(i+1)), teller: tell}
		findings, err := w.make(ctx, p)
		switch {
		case ctx.Err() != nil:
			return errEnded
		case err != nil:
			return err
		}
		if len(findings) > 0 {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%w (%d of %d walks)", ErrWrong, wrong, len(walks))
	}
	return nil
}

// walk is one passage with all that it needs.
type walk struct {
	Rehearsal
	*teller
	setting  Setting
	folder   string
	run      run
	file     string // the gateway's configuration
	env      []string
	provider *stage
	gateway  *process
	starts   int
	broker   *broker
	desk     *desk
	history  history
	reminder string
	batch    batch     // of the second part
	granted  time.Time // the deadline that its redrives grant
}

// make walks from beginning to end, in two parts of which each has its verdict.
func (w *walk) make(ctx context.Context, p passage) ([]string, error) {
	w.history.passage = p
	defer func() { w.gateway.stop() }()
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	defer w.provider.close()
	for _, step := range []func(context.Context) error{w.crash, w.comeBack, w.settle, w.again, w.look} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	findings := judge(w.history)
	w.verdict(findings, w.history.praise)
	if !p.redriven {
		return findings, nil
	}
	more, err := w.redriveTwice(ctx)
	return append(findings, more...), err
}

// prepare draws names, opens the provider, writes the configuration and starts the gateway.
func (w *walk) prepare(ctx context.Context) (err error) {
	w.run = run{
		name: "rehearsal-" + strings.ToLower(rand.Text()[:10]), brokerToken: rand.Text(), personToken: rand.Text(),
	}
	w.reminder = w.run.name
	p := w.history.passage
	if w.provider, err = openStage(p.Contract, w.reminder); err != nil {
		return err
	}
	w.run.provider = w.provider.url
	if err := os.Mkdir(w.folder, 0o700); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	w.run.database = "sqlite://" + filepath.Join(w.folder, "ledger.db")
	w.env = clean(w.Environ)
	if w.Database != "" {
		w.run.database = "${" + databaseVariable + "}"
		w.env = append(w.env, databaseVariable+"="+w.Database)
	}
	raw, err := json.MarshalIndent(w.setting.derived(p, w.run), "", "  ")
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	w.file = filepath.Join(w.folder, "sendonce.yaml")
	if err := os.WriteFile(w.file, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	if w.Database != "" {
		if err := migrate(ctx, w.Program, w.file, w.env); err != nil {
			return fmt.Errorf("rehearse: prepare the rehearsal's ledger: %w\n"+
				"a rehearsal keeps its entries in a database of its own, beside the configured one and with %q behind its name; "+
				"create it once, for the same user (createdb), and let one rehearsal use it at a time", err, rehearsalSuffix)
		}
	}
	w.introduce(w)
	return w.serve(ctx)
}

// clean is an environment in which a child reports to nobody and goes through nobody.
func clean(environ []string) []string {
	var kept []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "OTEL_") || strings.HasSuffix(strings.ToUpper(name), "_PROXY") {
			continue
		}
		kept = append(kept, variable)
	}
	return kept
}

// serve starts a gateway on the walk's ledger.
func (w *walk) serve(ctx context.Context) (err error) {
	w.starts++
	log := filepath.Join(w.folder, fmt.Sprintf("gateway-%d.log", w.starts))
	if w.gateway, err = start(ctx, w.Program, w.file, log, w.env); err != nil {
		return err
	}
	w.desk, err = openDesk(w.gateway.url, w.run.personToken, direct(10*time.Second))
	return err
}

// patience is how long a walk waits for what has to come about by itself.
func (w *walk) patience() time.Duration {
	return 3*w.setting.Lease + 2*w.setting.Sweep + 2*w.history.policy.Base + time.Minute
}
