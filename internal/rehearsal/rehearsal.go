package rehearsal

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

// ErrWrong means that the rehearsal was completed and something was sent twice, lost or left unexplained.
var ErrWrong = errors.New("rehearse: not everything was right; see the verdict")

// errInterrupted means that the rehearsal was interrupted.
var errInterrupted = errors.New("rehearse: ended before the verdict")

// databaseVariable passes the URL of the rehearsal's database to the child process, so that its password is in no file.
const databaseVariable = "SENDONCE_REHEARSAL_DATABASE"

// Rehearsal runs the scenarios with its own gateway process.
type Rehearsal struct {
	Setting
	Contract string   // the only contract to rehearse; empty for each in use
	RealTime bool     // keep the durations of the setting
	Keep     bool     // keep the folder
	Program  string   // the gateway's binary
	Environ  []string // its environment
	Database string   // see [RehearsalDatabase]; empty for an embedded ledger
	Out      io.Writer
	Progress io.Writer
}

// Run runs each scenario and prints its steps and verdict. It returns [ErrWrong] if a verdict is bad, and another error
// if there is no verdict.
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
		_ = os.RemoveAll(folder) // what remains is in the folder for temporary files
	}()
	setting := r.Setting
	if !r.RealTime {
		setting = setting.shortened()
	}
	out := &printer{out: r.Out, progress: r.Progress}
	wrong := 0
	variants := setting.variants(r.Contract)
	for i, variant := range variants {
		sc := &scenario{Rehearsal: r, setting: setting, folder: filepath.Join(folder, fmt.Sprint(i+1)), printer: out}
		findings, err := sc.run(ctx, variant)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return err
		}
		if len(findings) > 0 {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%w (%d of %d scenarios)", ErrWrong, wrong, len(variants))
	}
	return nil
}

// scenario is the run of one variant.
type scenario struct {
	Rehearsal
	*printer
	setting     Setting
	folder      string
	config      runConfig
	file        string // the gateway's configuration
	env         []string
	provider    *fakeProvider
	gateway     *process
	starts      int
	broker      *broker
	adminClient *adminClient
	history     history
	reminder    string
	batch       batch     // of the second part
	deadline    time.Time // that its redrives set
}

// run runs both parts of the scenario; each has its verdict.
func (sc *scenario) run(ctx context.Context, p variant) ([]string, error) {
	sc.history.variant = p
	defer func() { sc.gateway.stop() }()
	if err := sc.prepare(ctx); err != nil {
		return nil, err
	}
	defer sc.provider.close()
	for _, step := range []func(context.Context) error{sc.crash, sc.restart, sc.settle, sc.deliverAgain, sc.printResult} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	findings := judge(sc.history)
	sc.verdict(findings, sc.history.summary)
	if !p.redriven {
		return findings, nil
	}
	more, err := sc.redriveTwice(ctx)
	return append(findings, more...), err
}

// prepare chooses names, starts the fake provider, writes the configuration and starts the gateway.
func (sc *scenario) prepare(ctx context.Context) (err error) {
	sc.config = runConfig{
		name: "rehearsal-" + strings.ToLower(rand.Text()[:10]), brokerToken: rand.Text(), operatorToken: rand.Text(),
	}
	sc.reminder = sc.config.name
	p := sc.history.variant
	if sc.provider, err = newFakeProvider(p.Contract, sc.reminder); err != nil {
		return err
	}
	sc.config.provider = sc.provider.url
	if err := os.Mkdir(sc.folder, 0o700); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	sc.config.database = "sqlite://" + filepath.Join(sc.folder, "ledger.db")
	sc.env = childEnv(sc.Environ)
	if sc.Database != "" {
		sc.config.database = "${" + databaseVariable + "}"
		sc.env = append(sc.env, databaseVariable+"="+sc.Database)
	}
	raw, err := json.MarshalIndent(sc.setting.gatewayConfig(p, sc.config), "", "  ")
	if err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	sc.file = filepath.Join(sc.folder, "sendonce.yaml")
	if err := os.WriteFile(sc.file, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("rehearse: %w", err)
	}
	if sc.Database != "" {
		if err := migrate(ctx, sc.Program, sc.file, sc.env); err != nil {
			return fmt.Errorf("rehearse: prepare the rehearsal's ledger: %w\n"+
				"a rehearsal keeps its entries in a separate database, named like the configured one with %q appended; "+
				"create it once, for the same user (createdb), and run one rehearsal at a time", err, rehearsalSuffix)
		}
	}
	sc.header(sc)
	return sc.serve(ctx)
}

// childEnv removes the variables for OpenTelemetry exporters and proxies from an environment.
func childEnv(environ []string) []string {
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

// serve starts a gateway on the ledger of the scenario.
func (sc *scenario) serve(ctx context.Context) (err error) {
	sc.starts++
	log := filepath.Join(sc.folder, fmt.Sprintf("gateway-%d.log", sc.starts))
	if sc.gateway, err = start(ctx, sc.Program, sc.file, log, sc.env); err != nil {
		return err
	}
	sc.adminClient, err = newAdminClient(sc.gateway.url, sc.config.operatorToken, directClient(10*time.Second))
	return err
}

// timeout is how long the scenario waits for the gateway to do something by itself.
func (sc *scenario) timeout() time.Duration {
	return 3*sc.setting.Lease + 2*sc.setting.Sweep + 2*sc.history.policy.Base + time.Minute
}
