package blackbox

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// commandPattern finds the commands that dev prints: curl with a body, or with a header.
var commandPattern = regexp.MustCompile(`(?m)^ +curl -s (?:-H '([^']+)' )?(http://[^ \n]+)(?: -d '([^']+)')?$`)

// runPrinted does what a shell and curl would do with a printed command.
func runPrinted(t *testing.T, command []string) answer {
	t.Helper()
	header, at, body := command[1], command[2], command[3]
	g := &gateway{t: t, url: at}
	method, token := http.MethodGet, ""
	if body != "" {
		method = http.MethodPost
	}
	if name, value, found := strings.Cut(header, ": "); found && name == "Authorization" {
		token = strings.TrimPrefix(value, "Bearer ")
	}
	a, err := g.call(method, "", token, nil, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// startDev runs sendonce dev in a folder, and returns the commands that it prints.
func startDev(t *testing.T, dir string) (*gateway, [][]string) {
	t.Helper()
	g, err := launch(t, dir, "dev", "-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for len(commands) < 2 {
		if _, err := g.waitForLog("curl "); err != nil {
			t.Fatal(err)
		}
		moved := g.log.changed()
		if commands = commandPattern.FindAllStringSubmatch(strings.Join(g.log.lines(), "\n"), -1); len(commands) < 2 {
			<-moved
		}
	}
	return g, commands
}

// TestDev_MainJobTakesOneCommand runs dev, pastes what it prints twice, and reads the entry's detail.
func TestDev_MainJobTakesOneCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, commands := startDev(t, dir)
	push, read := commands[0], commands[len(commands)-1]
	var reply struct {
		State     string `json:"state"`
		Duplicate bool   `json:"duplicate"`
	}
	for i := range 2 {
		a := runPrinted(t, push)
		if err := json.Unmarshal(a.body, &reply); err != nil || a.status != http.StatusOK || reply.State != "sent" || reply.Duplicate != (i == 1) {
			t.Errorf("run %d of the printed command: %s", i+1, a)
		}
	}
	site := regexp.MustCompile(`^http://[^/]+`).FindString(push[2])
	checkPrintedDetail(t, runPrinted(t, read), site, 1)
	checkHostNames(t, site)

	// A second process on the same ledger, a foreign host name, and the end of the first process.
	again, err := launch(t, dir, "dev", "-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	<-again.ended
	if output := again.log.tail(10); again.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(output, "another process serves this ledger") {
		t.Errorf("a second process: %v\n%s", again.exited, output)
	}
	if runPrinted(t, push).status != http.StatusOK {
		t.Error("the second process disturbs the first")
	}
	g.signal(syscall.SIGINT)
	<-g.ended
	if g.exited != nil {
		t.Errorf("Ctrl-C: %v", g.exited)
	}

	// After a restart it still knows the entry.
	_, commands = startDev(t, dir)
	a := runPrinted(t, commands[0])
	if err := json.Unmarshal(a.body, &reply); err != nil || !reply.Duplicate {
		t.Errorf("after a restart: %s", a)
	}
	if _, err := os.Stat(filepath.Join(dir, ".sendonce", "ledger.db")); err != nil {
		t.Error(err)
	}
}

// checkPrintedDetail checks that the response, a list or an entry's detail, shows the calls.
func checkPrintedDetail(t *testing.T, got answer, site string, calls int) {
	t.Helper()
	var list struct {
		Items []entry `json:"items"`
	}
	if json.Unmarshal(got.body, &list) == nil && len(list.Items) == 1 {
		got = runPrinted(t, []string{"", "Authorization: Bearer dev-support", site + "/v1/admin/entries/" + list.Items[0].ID, ""})
	}
	var s entryDetail
	if err := json.Unmarshal(got.body, &s); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if s.Entry.State != "sent" || s.Entry.Attempts != calls || len(s.outcomes()) != calls {
		t.Errorf("the entry's detail: %s", got)
	}
	if len(s.Timeline) == 0 || !strings.HasPrefix(s.Timeline[0].Text, "Attempt 1 at sandbox was accepted") {
		t.Errorf("the text of the first timeline event: %s", got)
	}
}

// checkHostNames checks that a request under a foreign host name that resolves to loopback is rejected.
func checkHostNames(t *testing.T, site string) {
	t.Helper()
	for host, want := range map[string]int{"evil.example": http.StatusMisdirectedRequest, "localhost": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site+"/v1/push/plain", bytes.NewReader([]byte(newReminder("host").String())))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("under host name %s: %s", host, resp.Status)
		}
	}
}

func TestCommands_ExitCodesAndOutput(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	c := configure(newSQLite(t), p)
	good := c.file(t)
	bad := c.with("1s", "lease").with(7, "colour").with("", "providers", "mail", "url").file(t)
	example, err := filepath.Abs("../../deploy/config.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secret := "0123456789abcdef0123456789abcdef"
	secrets := []string{
		"DATABASE_URL=postgres://u:canary-password@127.0.0.1/db", "COURSES_TOKEN=" + secret + "1", "CAMPUS_KEY=" + secret + "2",
		"BILLING_SIGNING_SECRET=whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "MAIL_TOKEN=" + secret + "3",
		"SMTP_PASSWORD=" + secret + "4", "CHECKOUT_TOKEN=" + secret + "5", "DASHBOARD_TOKEN=" + secret + "6",
		"ONCALL_TOKEN_SHA256=" + secret + secret,
	}
	g := serve(t, c)
	ops := strings.TrimPrefix(g.opsURL, "http://")
	for name, test := range map[string]struct {
		args     []string
		code     int
		contains []string
	}{
		"help":                     {[]string{"help"}, 0, []string{"sendonce dev", "sendonce serve"}},
		"no command":               {nil, 2, []string{"Usage"}},
		"an unknown command":       {[]string{"frobnicate"}, 2, []string{"frobnicate"}},
		"version":                  {[]string{"version"}, 0, []string{"sendonce ", "go1."}},
		"serve without file":       {[]string{"serve"}, 2, []string{"-config"}},
		"serve without the file":   {[]string{"serve", "-config", "/nowhere.yaml"}, 1, []string{"/nowhere.yaml"}},
		"a good file":              {[]string{"check-config", good}, 0, []string{"configuration is valid"}},
		"the example":              {[]string{"check-config", example}, 0, []string{"configuration is valid"}},
		"a bad file":               {[]string{"check-config", bad}, 1, []string{"lease", "colour", "providers.mail.url"}},
		"serving a bad file":       {[]string{"serve", "-config", bad}, 1, []string{"lease", "colour", "providers.mail.url"}},
		"no file":                  {[]string{"check-config"}, 2, []string{"argument"}},
		"a public address":         {[]string{"dev", "-addr", "0.0.0.0:8080"}, 1, []string{"loopback"}},
		"no address":               {[]string{"dev", "-addr", "here"}, 1, []string{"host:port"}},
		"health":                   {[]string{"health", "-addr", ops}, 0, []string{"ready"}},
		"health without a gateway": {[]string{"health", "-addr", "127.0.0.1:1"}, 1, []string{"refused"}},
		"a ledger in use":          {[]string{"serve", "-config", good}, 1, []string{"another process serves this ledger"}},
	} {
		out, code := run(t, secrets, test.args...)
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, test.code, out)
		}
		for _, word := range test.contains {
			if !strings.Contains(out, word) {
				t.Errorf("%s does not say %q:\n%s", name, word, out)
			}
		}
		if strings.Contains(out, "canary-password") || strings.Contains(out, secret) {
			t.Errorf("%s shows a secret:\n%s", name, out)
		}
	}
}
