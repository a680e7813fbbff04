package telemetry

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/sendonce/sendonce/internal/ledger"
)

// rulesDir is the directory of the alert rules, relative to this package.
const rulesDir = "../../deploy"

func TestAlerts_PassPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is missing: install Prometheus (Debian, Ubuntu: apt-get install prometheus; macOS: brew install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = rulesDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(rulesDir, "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

func TestAlerts_EachHasAnActionAndTests(t *testing.T) {
	tests, err := os.ReadFile(filepath.Join(rulesDir, "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		for _, key := range []string{"summary", "description", "action"} {
			if r.Annotations[key] == "" {
				t.Errorf("%s has no %s", r.Alert, key)
			}
		}
		if !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) {
			t.Errorf("%s has severity %q", r.Alert, r.Labels["severity"])
		}
		checks := regexp.MustCompile(`alertname: `+r.Alert+`\n\s+exp_alerts:(.*)`).FindAllStringSubmatch(string(tests), -1)
		var fires, silent bool
		for _, c := range checks {
			silent = silent || strings.TrimSpace(c[1]) == "[]"
			fires = fires || strings.TrimSpace(c[1]) == ""
		}
		if !fires || !silent {
			t.Errorf("%s needs a test in which it fires (%v) and one in which it does not (%v)", r.Alert, fires, silent)
		}
	}
}

func TestAlerts_EachMetricNamedIsScraped(t *testing.T) {
	h := newHarness(t)
	h.gauges.set(ledger.Backlog{Now: time.Now()}, time.Now(), time.Hour)
	h.Providers(func() []ledger.Gate { return nil }, func() map[string]int { return nil })
	h.Failovers(func() ledger.Failover { return ledger.Failover{} })
	scraped := h.scraped()

	selector := regexp.MustCompile(`(sendonce_\w+)(?:\{(\w+)(=~?)"([^"]+)"\})?`)
	for _, rule := range rules(t) {
		found := selector.FindAllStringSubmatch(rule.Expr, -1)
		if len(found) == 0 {
			t.Errorf("%s names no sendonce metric", rule.Alert)
		}
		for _, f := range found {
			if f[2] == "" {
				f[4] = "" // any series of that name
			}
			for value := range strings.SplitSeq(f[4], "|") {
				if !has(scraped, f[1], f[2], value) {
					t.Errorf("%s: no scraped series matches %s", rule.Alert, f[0])
				}
			}
		}
	}
}

func has(scraped map[string]float64, metric, label, value string) bool {
	for series := range scraped {
		name, labels, _ := strings.Cut(series, "{")
		if name == metric && (label == "" || strings.Contains(","+labels, ","+label+`="`+value+`"`)) {
			return true
		}
	}
	return false
}

// runbook is the path of the on-call runbook, relative to this package.
const runbook = "../../docs/runbook.md"

func TestRunbook_HasExactlyOneHeadingPerAlert(t *testing.T) {
	page := read(t, runbook)
	headings := map[string]bool{}
	for _, heading := range regexp.MustCompile(`(?m)^#{2,} +(Sendonce\w+)\s*$`).FindAllStringSubmatch(page, -1) {
		headings[heading[1]] = true
	}
	for _, r := range rules(t) {
		if !headings[r.Alert] {
			t.Errorf("%s has no heading in the runbook", r.Alert)
		}
		delete(headings, r.Alert)
	}
	for name := range headings {
		t.Errorf("the runbook has a heading for %s, but there is no such rule", name)
	}
}

func TestRunbook_NamesOnlyMetricsThatExist(t *testing.T) {
	metricName := regexp.MustCompile(`\bsendonce_\w+`)
	known := map[string]bool{}
	add := func(names []string) {
		for _, name := range names {
			known[name] = true
		}
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			add(metricName.FindAllString(read(t, file), -1))
		}
	}
	for _, r := range rules(t) {
		add(metricName.FindAllString(r.Expr, -1))
	}
	add([]string{"sendonce_schema_version"}) // a table
	named := metricName.FindAllString(read(t, runbook), -1)
	if len(known) == 0 || len(named) == 0 {
		t.Fatalf("%d metrics are known, %d are named", len(known), len(named))
	}
	for _, name := range named {
		if !known[name] {
			t.Errorf("the runbook names %s, which does not exist", name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
