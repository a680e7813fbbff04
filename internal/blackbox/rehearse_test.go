package blackbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// trap is an address that must not be called.
type trap struct {
	address string
	calls   atomic.Int64
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	set := &trap{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			set.calls.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		if n := set.calls.Load(); n > 0 {
			t.Errorf("a configured address was called %d times", n)
		}
	})
	return set
}

// rehearsalConfig is a configuration in which every real address is a trap.
func rehearsalConfig(t *testing.T, database string, contract map[string]any) config {
	t.Helper()
	real := newTrap(t)
	c := configure(database, &provider{address: real.address}).with(contract, "providers", "mail", "contract")
	return c.with("30s", "lease").with("10s", "providers", "mail", "timeout").
		with(map[string]any{"authorization": "canary-header"}, "providers", "mail", "headers").
		with(map[string]any{"url": "http://" + real.address + "/{reminder_id}", "timeout": "1s"}, "types", "default", "relevance")
}

// createRehearsalDatabase creates the database in which a rehearsal keeps its entries.
func createRehearsalDatabase(t *testing.T, database string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/") + "_rehearsal"
	execSQL(t, database, "CREATE DATABASE "+name)
	t.Cleanup(func() { execSQL(t, database, "DROP DATABASE "+name+" WITH (FORCE)") })
}

func execSQL(t *testing.T, database, text string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), text); err != nil {
		t.Fatal(err)
	}
}

// checkNoEntries checks that the configured database is still empty.
func checkNoEntries(t *testing.T, database string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var entries int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM entries").Scan(&entries); err != nil || entries != 0 {
		t.Errorf("%d entries in the configured database, %v", entries, err)
	}
}

// TestRehearse_EveryContract runs a rehearsal under each contract, and checks that nothing real is touched.
func TestRehearse_EveryContract(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contract map[string]any
		policy   string
		code     int
		contains []string
	}{
		"idempotent": {map[string]any{"idempotent": "24h"}, "hold", 0, []string{"recognises it, accepts no second message", "Verdict: right. Called twice with one key, accepted once"}},
		"lookup":     {map[string]any{"lookup": "LOOKUP"}, "hold", 0, []string{"gets a lookup of the key", "Verdict: right. Called once, accepted once; looked up"}},
		"blind":      {map[string]any{"blind": true}, "hold", 0, []string{"finds it listed: unknown", "Verdict: right. Called once, accepted once; listed for an operator, who resolved it"}},
		"assumed":    {map[string]any{"blind": true}, "assume_sent", 0, []string{"Verdict: right. Called once, accepted once; assumed"}},
		"resent":     {map[string]any{"blind": true}, "resend", 1, []string{"accepts a SECOND message", "Verdict: WRONG", "DOUBLED: the recipient got it 2 times", "(1 of 1 scenarios)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachStore(t, func(t *testing.T, database string) {
				t.Parallel()
				if c.contract["lookup"] != nil {
					c.contract = map[string]any{"lookup": "http://" + newTrap(t).address + "/"}
				}
				postgres := strings.HasPrefix(database, "postgres")
				if postgres {
					createRehearsalDatabase(t, database)
				}
				folder := t.TempDir()
				file := rehearsalConfig(t, database, c.contract).with(c.policy, "types", "default", "on_unknown").file(t)
				out, code := runRehearsal(t, []string{"TMPDIR=" + folder}, "-config", file, "-keep")
				if code != c.code {
					t.Errorf("exit code %d, want %d\n%s", code, c.code, out)
				}
				for _, words := range append(c.contains, "ended with kill -9", "shortened (-real-time keeps them): lease 3s for 30s",
					"3 dead letters redriven over a kill -9, each accepted once; redriven once more, all skipped as already_sent") {
					if !strings.Contains(out, words) {
						t.Errorf("it does not say %q:\n%s", words, out)
					}
				}
				checkFilesHide(t, folder, "canary-header", database)
				if postgres {
					checkNoEntries(t, database)
				} else if _, err := os.Stat(strings.TrimPrefix(database, "sqlite://")); err == nil {
					t.Error("the configured ledger was created")
				}
			})
		})
	}
}

// runRehearsal runs a rehearsal to its end: several lease times, possibly on a busy machine.
func runRehearsal(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"rehearse"}, args...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), env...), t.TempDir()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// checkFilesHide checks that no file that is left behind contains a secret.
func checkFilesHide(t *testing.T, folder string, secrets ...string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(raw, []byte(secret)) {
				t.Errorf("%s shows %s", path, secret)
			}
		}
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("%d files are kept, %v", files, err)
	}
}

func TestRehearse_NamesTheMissingDatabase(t *testing.T) {
	t.Parallel()
	database := newPostgres(t)
	out, code := runRehearsal(t, nil, "-config", rehearsalConfig(t, database, map[string]any{"blind": true}).file(t))
	if code != 1 || !strings.Contains(out, "_rehearsal") || !strings.Contains(out, "createdb") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	checkNoEntries(t, database)
}

// TestRehearse_InterruptEndsItAndItsGateway interrupts it during a wait of half a minute.
func TestRehearse_InterruptEndsItAndItsGateway(t *testing.T) {
	database := newPostgres(t)
	createRehearsalDatabase(t, database)
	folder := t.TempDir()
	file := rehearsalConfig(t, database, map[string]any{"blind": true}).file(t)
	t.Setenv("TMPDIR", folder)
	g, err := launch(t, folder, "rehearse", "-real-time", "-config", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.waitForLog("the broker holds the message back"); err != nil {
		t.Fatal(err)
	}
	line, err := g.waitForLog("serves")
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.Fields(line)[2])
	if err != nil || syscall.Kill(child, 0) != nil {
		t.Fatalf("the gateway does not run: %q, %v", line, err)
	}
	g.signal(os.Interrupt)
	select {
	case <-g.ended:
	case <-time.After(20 * time.Second):
		t.Fatal("it does not end")
	}
	if code := g.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(g.log.tail(3), "ended before the verdict") {
		t.Errorf("exit code %d\n%s", code, g.log.tail(10))
	}
	if err := syscall.Kill(child, 0); err == nil {
		t.Error("the gateway still runs")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRehearse_RunningGateway rehearses by push and over REST, and checks that a rehearsal without a sandbox
// is refused.
func TestRehearse_RunningGateway(t *testing.T) {
	t.Parallel()
	g, commands := startDev(t, t.TempDir())
	at, err := url.Parse(commands[0][2])
	if err != nil {
		t.Fatal(err)
	}
	site := "http://" + at.Host
	for name, c := range map[string]struct {
		args     []string
		code     int
		contains []string
	}{
		"over REST": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer"}, 0, []string{
			"Verdict: right. The timeline shows one send", "Verdict: right. 2 dead letters redriven, each tried once more and dead again",
			"left out  the end of the process, and a dead letter that is sent when it is redriven", "discards rehearsal-",
		}},
		"by push": {[]string{"-token", "dev-operator", "-source", "plain", "-source-token", "any"}, 0, []string{
			"Verdict: right. The timeline shows one send", "Verdict: right. 2 dead letters redriven",
		}},
		"another contract": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer", "-contract", "blind"}, 1, []string{"the provider's contract is not blind"}},
		"a wrong token":    {[]string{"-token", "dev-operator", "-producer-token", "nobody"}, 1, []string{"401"}},
		"no operator":      {[]string{"-token", "dev-support", "-producer-token", "dev-producer"}, 1, []string{"give one of role operator, in -token or in $SENDONCE_TOKEN"}},
		"no channel": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer", "-channel", "fax"}, 1, []string{
			"LOST: the provider accepted it, and its state is dead (unroutable)", "the rest of the part needs a sandbox",
		}},
	} {
		out, code := runRehearsal(t, nil, append([]string{"-url", site}, c.args...)...)
		for _, words := range c.contains {
			if code != c.code || !strings.Contains(out, words) {
				t.Errorf("%s: exit code %d, want %d and %q\n%s", name, code, c.code, words, out)
			}
		}
	}
	if err := g.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// forgetfulTrigger makes the store keep a redriven entry dead when it is sent.
const forgetfulTrigger = `
CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.state = 'sent' AND NEW.redrives > 0 THEN
		NEW.state := 'dead'; NEW.class := 'recipient'; NEW.receipt := ''; NEW.receipt_missing := '';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER forget BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION forget()`

// TestRehearse_FindsADoubledRedrive uses a store that forgets what was sent, so that the second redrive sends
// again.
func TestRehearse_FindsADoubledRedrive(t *testing.T) {
	t.Parallel()
	database := newPostgres(t)
	createRehearsalDatabase(t, database)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Path += "_rehearsal"
	if out, code := run(t, nil, "migrate", "-config", configure(u.String(), &provider{address: "127.0.0.1:1"}).file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	execSQL(t, u.String(), forgetfulTrigger)
	out, code := runRehearsal(t, nil, "-config", rehearsalConfig(t, database, map[string]any{"blind": true}).file(t))
	for _, words := range []string{
		"Verdict: right. Called once, accepted once", "DOUBLED: the recipient got rehearsal-", "DOUBLED: the second redrive called the provider 3 times",
		"UNEXPLAINED: the redrive's report says 0 sent, and the provider accepted 3", "(1 of 1 scenarios)",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("it does not say %q", words)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit code %d\n%s", code, out)
	}
	checkNoEntries(t, database)
}

// startTamperingProxy starts a proxy in front of a gateway that changes requests and responses.
func startTamperingProxy(t *testing.T, site *url.URL, changeRequest func(r *http.Request), changeResponse func(body string) string) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(site)
			changeRequest(r.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			body, err := io.ReadAll(r.Body)
			if err != nil || !strings.HasPrefix(r.Request.URL.Path, "/v1/admin/redrives") {
				r.Body = io.NopCloser(bytes.NewReader(body))
				return err
			}
			changed := changeResponse(string(body))
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(changed)), int64(len(changed))
			r.Header.Set("Content-Length", strconv.Itoa(len(changed)))
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// TestRehearse_FindsATamperedRedriveReport drops the idempotency key, and falsifies reports.
func TestRehearse_FindsATamperedRedriveReport(t *testing.T) {
	t.Parallel()
	g, commands := startDev(t, t.TempDir())
	at, err := url.Parse(commands[0][2])
	if err != nil {
		t.Fatal(err)
	}
	site := &url.URL{Scheme: "http", Host: at.Host}
	honest, same := func(*http.Request) {}, func(body string) string { return body }
	for name, c := range map[string]struct {
		changeRequest  func(r *http.Request)
		changeResponse func(body string) string
		contains       string
	}{
		"the key is dropped": {
			func(r *http.Request) { r.Header.Del("Idempotency-Key") }, same,
			"DOUBLED: the same request with the same Idempotency-Key created another redrive",
		},
		"sent items count as redriven": {
			honest, func(body string) string { return strings.ReplaceAll(body, `"already_sent"`, `"redriven"`) },
			"DOUBLED: the redrive redrove an entry that it had to skip",
		},
		"a refusal counts as sent": {
			honest, func(body string) string { return strings.ReplaceAll(body, `"failed":{"permanent":2}`, `"failed":{}`) },
			"UNEXPLAINED: the redrive's report says 0 refused again",
		},
	} {
		out, code := runRehearsal(t, nil, "-url", startTamperingProxy(t, site, c.changeRequest, c.changeResponse), "-token", "dev-operator", "-producer-token", "dev-producer")
		if code != 1 || !strings.Contains(out, "Verdict: right. The timeline") || !strings.Contains(out, c.contains) {
			t.Errorf("%s: exit code %d, want 1 and %q\n%s", name, code, c.contains, out)
		}
	}
	if err := g.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestRehearse_InvalidFlagsPrintTheUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"-config", "x", "-url", "http://x"},
		{"-config", "x", "-contract", "none"},
		{"-config", "x", "y"},
		{"-config", "x", "-source", "y"},
		{"-url", "x", "-token", "y", "-producer-token", "z"},
		{"-url", "http://x"},
		{"-url", "http://x", "-token", "y"},
		{"-url", "http://x", "-token", "y", "-source", "z"},
		{"-url", "http://x", "-token", "y", "-producer-token", "z", "-keep"},
	} {
		if out, code := run(t, nil, append([]string{"rehearse"}, args...)...); code != 2 || !strings.Contains(out, "Usage:") {
			t.Errorf("%q: exit code %d\n%s", args, code, out)
		}
	}
	if out, code := run(t, []string{"SENDONCE_TOKEN=canary-token"}, "rehearse", "-h"); code != 0 || strings.Contains(out, "canary") {
		t.Errorf("help: exit code %d\n%s", code, out)
	}
}
