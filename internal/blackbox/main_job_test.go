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

// pasted finds what dev prints to be pasted: curl with a body, or with a header.
var pasted = regexp.MustCompile(`(?m)^ +curl -s (?:-H '([^']+)' )?(http://[^ \n]+)(?: -d '([^']+)')?$`)

// paste does what a shell and curl would do with a printed command.
func paste(t *testing.T, command []string) answer {
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

// dev runs the first look in a folder, and returns the commands that it prints.
func dev(t *testing.T, dir string) (*gateway, [][]string) {
	t.Helper()
	g, err := launch(t, dir, "dev", "-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var commands [][]string
	for len(commands) < 2 {
		if _, err := g.says("curl "); err != nil {
			t.Fatal(err)
		}
		moved := g.log.moved()
		if commands = pasted.FindAllStringSubmatch(strings.Join(g.log.lines(), "\n"), -1); len(commands) < 2 {
			<-moved
		}
	}
	return g, commands
}

// TestTheMainJobIsDoneByOneCommand : dev, what it prints pasted twice, and the story asked for.
func TestTheMainJobIsDoneByOneCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, commands := dev(t, dir)
	push, look := commands[0], commands[len(commands)-1]
	var told struct {
		State     string `json:"state"`
		Duplicate bool   `json:"duplicate"`
	}
	for i := range 2 {
		a := paste(t, push)
		if err := json.Unmarshal(a.body, &told); err != nil || a.status != http.StatusOK || told.State != "sent" || told.Duplicate != (i == 1) {
			t.Errorf("pasted for the %d. time: %s", i+1, a)
		}
	}
	site := regexp.MustCompile(`^http://[^/]+`).FindString(push[2])
	storyOf(t, paste(t, look), site, 1)
	foreign(t, site)

	// A second process on the same ledger, a stranger's address, and the first one's end.
	again, err := launch(t, dir, "dev", "-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	<-again.ended
	if said := again.log.tail(10); again.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(said, "another process serves this ledger") {
		t.Errorf("a second process: %v\n%s", again.exited, said)
	}
	if paste(t, push).status != http.StatusOK {
		t.Error("the first process minds the second")
	}
	g.signal(syscall.SIGINT)
	<-g.ended
	if g.exited != nil {
		t.Errorf("Ctrl-C: %v", g.exited)
	}

	// What it knew it knows the next day.
	_, commands = dev(t, dir)
	a := paste(t, commands[0])
	if err := json.Unmarshal(a.body, &told); err != nil || !told.Duplicate {
		t.Errorf("pasted after a restart: %s", a)
	}
	if _, err := os.Stat(filepath.Join(dir, ".sendonce", "ledger.db")); err != nil {
		t.Error(err)
	}
}

// storyOf checks that what look found, a list or a story, tells of one call.
func storyOf(t *testing.T, looked answer, site string, calls int) {
	t.Helper()
	var list struct {
		Items []entry `json:"items"`
	}
	if json.Unmarshal(looked.body, &list) == nil && len(list.Items) == 1 {
		looked = paste(t, []string{"", "Authorization: Bearer dev-support", site + "/v1/admin/entries/" + list.Items[0].ID, ""})
	}
	var s story
	if err := json.Unmarshal(looked.body, &s); err != nil {
		t.Fatalf("%s: %v", looked, err)
	}
	if s.Entry.State != "sent" || s.Entry.Attempts != calls || len(s.outcomes()) != calls {
		t.Errorf("the story: %s", looked)
	}
	if len(s.Timeline) == 0 || !strings.HasPrefix(s.Timeline[0].Text, "Attempt 1 at sandbox was accepted") {
		t.Errorf("the story does not read like one: %s", looked)
	}
}

// foreign checks that a page which points a name of its own at loopback is turned away.
func foreign(t *testing.T, site string) {
	t.Helper()
	for host, want := range map[string]int{"evil.example": http.StatusMisdirectedRequest, "localhost": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site+"/v1/push/plain", bytes.NewReader([]byte(remind("host").String())))
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
			t.Errorf("called by the name %s: %s", host, resp.Status)
		}
	}
}

func TestCommandsEndWithACodeAndAWordThatHelps(t *testing.T) {
	t.Parallel()
	p := startProvider(t)
	c := configure(embedded(t), p)
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
		"SMTP_PASSWORD=" + secret + "4", "CHECKOUT_TOKEN=" + secret + "5", "DESK_TOKEN=" + secret + "6",
		"ONCALL_TOKEN_SHA256=" + secret + secret,
	}
	g := serve(t, c)
	ops := strings.TrimPrefix(g.ops, "http://")
	for name, test := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"help":                {[]string{"help"}, 0, []string{"sendonce dev", "sendonce serve"}},
		"no command":          {nil, 2, []string{"Usage"}},
		"an unknown command":  {[]string{"frobnicate"}, 2, []string{"frobnicate"}},
		"version":             {[]string{"version"}, 0, []string{"sendonce ", "go1."}},
		"serve without file":  {[]string{"serve"}, 2, []string{"-config"}},
		"serve without it":    {[]string{"serve", "-config", "/nowhere.yaml"}, 1, []string{"/nowhere.yaml"}},
		"a good file":         {[]string{"check-config", good}, 0, []string{"fit to serve"}},
		"the example":         {[]string{"check-config", example}, 0, []string{"fit to serve"}},
		"a bad file":          {[]string{"check-config", bad}, 1, []string{"lease", "colour", "providers.mail.url"}},
		"serving a bad file":  {[]string{"serve", "-config", bad}, 1, []string{"lease", "colour", "providers.mail.url"}},
		"no file":             {[]string{"check-config"}, 2, []string{"argument"}},
		"a stranger's reach":  {[]string{"dev", "-addr", "0.0.0.0:8080"}, 1, []string{"loopback"}},
		"no address":          {[]string{"dev", "-addr", "here"}, 1, []string{"host:port"}},
		"health":              {[]string{"health", "-addr", ops}, 0, []string{"ready"}},
		"health of nobody":    {[]string{"health", "-addr", "127.0.0.1:1"}, 1, []string{"refused"}},
		"the ledger is taken": {[]string{"serve", "-config", good}, 1, []string{"another process serves this ledger"}},
	} {
		out, code := run(t, secrets, test.args...)
		if code != test.code {
			t.Errorf("%s: exit code %d, want %d\n%s", name, code, test.code, out)
		}
		for _, word := range test.says {
			if !strings.Contains(out, word) {
				t.Errorf("%s does not say %q:\n%s", name, word, out)
			}
		}
		if strings.Contains(out, "canary-password") || strings.Contains(out, secret) {
			t.Errorf("%s shows a secret:\n%s", name, out)
		}
	}
}
