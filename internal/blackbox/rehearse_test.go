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

// trap is an address that nobody may call.
type trap struct {
	address string
	calls   atomic.Int64
}

func setTrap(t *testing.T) *trap {
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
			t.Errorf("what the configuration names was called %d times", n)
		}
	})
	return set
}

// rehearsing is a configuration of which everything real is a trap.
func rehearsing(t *testing.T, database string, contract map[string]any) config {
	t.Helper()
	real := setTrap(t)
	c := configure(database, &provider{address: real.address}).with(contract, "providers", "mail", "contract")
	return c.with("30s", "lease").with("10s", "providers", "mail", "timeout").
		with(map[string]any{"authorization": "canary-header"}, "providers", "mail", "headers").
		with(map[string]any{"url": "http://" + real.address + "/{reminder_id}", "timeout": "1s"}, "types", "default", "relevance")
}

// besides makes the database that a rehearsal keeps its entries in.
func besides(t *testing.T, database string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/") + "_rehearsal"
	statement(t, database, "CREATE DATABASE "+name)
	t.Cleanup(func() { statement(t, database, "DROP DATABASE "+name+" WITH (FORCE)") })
}

func statement(t *testing.T, database, text string) {
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

// untouched checks that nothing came or went in the configured database.
func untouched(t *testing.T, database string) {
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

// TestTheDangerousPathIsRehearsed : under each contract, and nothing real is touched.
func TestTheDangerousPathIsRehearsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contract map[string]any
		policy   string
		code     int
		says     []string
	}{
		"idempotent": {map[string]any{"idempotent": "24h"}, "hold", 0, []string{"recognises it, takes nothing", "Verdict: right. Called twice under one key, taken once"}},
		"lookup":     {map[string]any{"lookup": "LOOKUP"}, "hold", 0, []string{"is asked what became of the key", "Verdict: right. Called once, taken once; asked"}},
		"blind":      {map[string]any{"blind": true}, "hold", 0, []string{"finds it listed: unknown", "Verdict: right. Called once, taken once; listed for a person, who settled it"}},
		"assumed":    {map[string]any{"blind": true}, "assume_sent", 0, []string{"Verdict: right. Called once, taken once; assumed"}},
		"resent":     {map[string]any{"blind": true}, "resend", 1, []string{"takes a SECOND message", "Verdict: WRONG", "DOUBLED: the person got it 2 times", "(1 of 1 walks)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, database string) {
				t.Parallel()
				if c.contract["lookup"] != nil {
					c.contract = map[string]any{"lookup": "http://" + setTrap(t).address + "/"}
				}
				postgres := strings.HasPrefix(database, "postgres")
				if postgres {
					besides(t, database)
				}
				folder := t.TempDir()
				file := rehearsing(t, database, c.contract).with(c.policy, "types", "default", "on_unknown").file(t)
				out, code := rehearsed(t, []string{"TMPDIR=" + folder}, "-config", file, "-keep")
				if code != c.code {
					t.Errorf("exit code %d, want %d\n%s", code, c.code, out)
				}
				for _, words := range append(c.says, "ended with kill -9", "shortened (-real-time keeps them): lease 3s for 30s",
					"3 dead letters redriven over a kill -9, each taken once; redriven once more, all skipped as already_sent") {
					if !strings.Contains(out, words) {
						t.Errorf("it does not say %q:\n%s", words, out)
					}
				}
				nowhere(t, folder, "canary-header", database)
				if postgres {
					untouched(t, database)
				} else if _, err := os.Stat(strings.TrimPrefix(database, "sqlite://")); err == nil {
					t.Error("the configured ledger is there")
				}
			})
		})
	}
}

// rehearsed runs a rehearsal to its end: several waits of a lease, on a machine that has much to do.
func rehearsed(t *testing.T, env []string, args ...string) (string, int) {
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

// nowhere checks that no file that is left behind shows what it must not.
func nowhere(t *testing.T, folder string, secrets ...string) {
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

func TestARehearsalOnPostgreSQLSaysWhichDatabaseItLacks(t *testing.T) {
	t.Parallel()
	database := shared(t)
	out, code := rehearsed(t, nil, "-config", rehearsing(t, database, map[string]any{"blind": true}).file(t))
	if code != 1 || !strings.Contains(out, "_rehearsal") || !strings.Contains(out, "createdb") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	untouched(t, database)
}

// TestCtrlCEndsTheRehearsalAndItsGateway : in the middle of a wait that takes half a minute.
func TestCtrlCEndsTheRehearsalAndItsGateway(t *testing.T) {
	database := shared(t)
	besides(t, database)
	folder := t.TempDir()
	file := rehearsing(t, database, map[string]any{"blind": true}).file(t)
	t.Setenv("TMPDIR", folder)
	g, err := launch(t, folder, "rehearse", "-real-time", "-config", file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.says("the broker holds the message back"); err != nil {
		t.Fatal(err)
	}
	line, err := g.says("serves")
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.Fields(line)[2])
	if err != nil || syscall.Kill(child, 0) != nil {
		t.Fatalf("the gateway is not there: %q, %v", line, err)
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
		t.Error("the gateway lives on")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestARunningGatewayIsRehearsed : by push and over REST, and without a sandbox not at all.
func TestARunningGatewayIsRehearsed(t *testing.T) {
	t.Parallel()
	g, commands := dev(t, t.TempDir())
	at, err := url.Parse(commands[0][2])
	if err != nil {
		t.Fatal(err)
	}
	site := "http://" + at.Host
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"over REST": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer"}, 0, []string{
			"Verdict: right. The timeline tells of one send", "Verdict: right. 2 dead letters redriven, each tried once more and dead again",
			"left out  the end of the process, and a letter that is sent when it is redriven", "discards rehearsal-",
		}},
		"by push": {[]string{"-token", "dev-operator", "-source", "plain", "-source-token", "any"}, 0, []string{
			"Verdict: right. The timeline tells of one send", "Verdict: right. 2 dead letters redriven",
		}},
		"another contract": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer", "-contract", "blind"}, 1, []string{"the provider's contract is not blind"}},
		"a wrong token":    {[]string{"-token", "dev-operator", "-producer-token", "nobody"}, 1, []string{"401"}},
		"no operator":      {[]string{"-token", "dev-support", "-producer-token", "dev-producer"}, 1, []string{"give one of role operator, in -token or in $SENDONCE_TOKEN"}},
		"no channel": {[]string{"-token", "dev-operator", "-producer-token", "dev-producer", "-channel", "fax"}, 1, []string{
			"LOST: the provider took it, and the ledger says dead (unroutable)", "the rest of the part needs a sandbox",
		}},
	} {
		out, code := rehearsed(t, nil, append([]string{"-url", site}, c.args...)...)
		for _, words := range c.says {
			if code != c.code || !strings.Contains(out, words) {
				t.Errorf("%s: exit code %d, want %d and %q\n%s", name, code, c.code, words, out)
			}
		}
	}
	if err := g.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

// forgetful is a store that keeps a redriven entry dead when it is sent.
const forgetful = `
CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF NEW.state = 'sent' AND NEW.redrives > 0 THEN
		NEW.state := 'dead'; NEW.class := 'recipient'; NEW.receipt := ''; NEW.missing := '';
	END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER forget BEFORE UPDATE ON entries FOR EACH ROW EXECUTE FUNCTION forget()`

// TestARehearsedRedriveThatIsDoubledIsFoundOut : at a store that forgets what was sent, the second batch sends again.
func TestARehearsedRedriveThatIsDoubledIsFoundOut(t *testing.T) {
	t.Parallel()
	database := shared(t)
	besides(t, database)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Path += "_rehearsal"
	if out, code := run(t, nil, "migrate", "-config", configure(u.String(), &provider{address: "127.0.0.1:1"}).file(t)); code != 0 {
		t.Fatalf("migrate: %s", out)
	}
	statement(t, u.String(), forgetful)
	out, code := rehearsed(t, nil, "-config", rehearsing(t, database, map[string]any{"blind": true}).file(t))
	for _, words := range []string{
		"Verdict: right. Called once, taken once", "DOUBLED: the person got rehearsal-", "DOUBLED: the second redrive called the provider 3 times",
		"UNEXPLAINED: the redrive's report says 0 sent, and the provider took 3", "(1 of 1 walks)",
	} {
		if !strings.Contains(out, words) {
			t.Errorf("it does not say %q", words)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit code %d\n%s", code, out)
	}
	untouched(t, database)
}

// lying stands before a gateway, and changes what comes and goes.
func lying(t *testing.T, site *url.URL, ask func(r *http.Request), answer func(said string) string) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(site)
			ask(r.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			said, err := io.ReadAll(r.Body)
			if err != nil || !strings.HasPrefix(r.Request.URL.Path, "/v1/admin/redrives") {
				r.Body = io.NopCloser(bytes.NewReader(said))
				return err
			}
			told := answer(string(said))
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(told)), int64(len(told))
			r.Header.Set("Content-Length", strconv.Itoa(len(told)))
			return nil
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// TestARehearsedGatewayWhoseRedrivesLieIsFoundOut : one that forgets keys, and one whose reports are made up.
func TestARehearsedGatewayWhoseRedrivesLieIsFoundOut(t *testing.T) {
	t.Parallel()
	g, commands := dev(t, t.TempDir())
	at, err := url.Parse(commands[0][2])
	if err != nil {
		t.Fatal(err)
	}
	site := &url.URL{Scheme: "http", Host: at.Host}
	honest, same := func(*http.Request) {}, func(said string) string { return said }
	for name, c := range map[string]struct {
		ask    func(r *http.Request)
		answer func(said string) string
		says   string
	}{
		"no key is kept": {
			func(r *http.Request) { r.Header.Del("Idempotency-Key") }, same,
			"DOUBLED: the same request under the same Idempotency-Key was laid out as another redrive",
		},
		"what was sent is put to work": {
			honest, func(said string) string { return strings.ReplaceAll(said, `"already_sent"`, `"reopened"`) },
			"DOUBLED: the redrive put to work what it had to skip",
		},
		"a refusal counts as sent": {
			honest, func(said string) string { return strings.ReplaceAll(said, `"failed":{"permanent":2}`, `"failed":{}`) },
			"UNEXPLAINED: the redrive's report says 0 refused again",
		},
	} {
		out, code := rehearsed(t, nil, "-url", lying(t, site, c.ask, c.answer), "-token", "dev-operator", "-producer-token", "dev-producer")
		if code != 1 || !strings.Contains(out, "Verdict: right. The timeline") || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit code %d, want 1 and %q\n%s", name, code, c.says, out)
		}
	}
	if err := g.stop(); err != nil {
		t.Errorf("exit: %v", err)
	}
}

func TestARehearsalThatIsMisreadSaysSo(t *testing.T) {
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
