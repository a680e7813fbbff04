package blackbox

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	_ "modernc.org/sqlite"             // registers "sqlite"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// The bug cases are reports from people who did this job, each turned into a test by its number: B01 to
// B32. In all of them the provider accepts an identity at most once.

// flavour is a provider that honours the send key or ignores it, under the contract that says so.
type flavour struct {
	name    string
	honours bool
}

func onFlavours(t *testing.T, test func(t *testing.T, f flavour)) {
	t.Helper()
	for _, f := range []flavour{{"honours the key", true}, {"ignores the key", false}} {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func (f flavour) contract() map[string]any {
	if f.honours {
		return map[string]any{"idempotent": "24h"}
	}
	return map[string]any{"blind": true}
}

func (f flavour) configure(database string, p *provider) config {
	return configure(database, p).with(f.contract(), "providers", "mail", "contract")
}

// plays tells the provider its modes by recipient, "" for everybody else.
func (f flavour) plays(p *provider, modes map[string][]string) {
	p.t.Helper()
	p.told(providertest.Control{Idempotent: f.honours, Modes: modes})
}

// acceptsOnce checks the invariant of every case.
func (p *provider) acceptsOnce() {
	p.t.Helper()
	for key, tally := range p.counts().Keys {
		if tally.Accepts > 1 || tally.Bodies > 1 {
			p.t.Errorf("key %s: accepted %d times, %d different bodies", key, tally.Accepts, tally.Bodies)
		}
	}
}

// saw checks how often a reminder was sent and accepted, and the invariant with it.
func (p *provider) saw(d document, calls, accepts int) {
	p.t.Helper()
	if got := p.tally(d); got.Calls != calls || got.Accepts != accepts {
		p.t.Errorf("%s: %d calls, %d accepted; want %d and %d", d["reminder_id"], got.Calls, got.Accepts, calls, accepts)
	}
	p.acceptsOnce()
}

// bring delivers a reminder.
func (g *gateway) bring(d document) answer {
	g.t.Helper()
	return g.push(d.String())
}

func isAck(a answer) bool { return a.status == http.StatusOK || a.status == http.StatusNoContent }

// isNack : 503 that says when to come back, in whole seconds of 1 to 600.
func isNack(a answer) bool {
	return a.status == http.StatusServiceUnavailable && 1 <= a.retryAfter() && a.retryAfter() <= 600
}

// verdict is what a plain source answers with.
type verdict struct {
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Duplicate bool   `json:"duplicate"`
	Conflict  bool   `json:"conflict"`
}

func (a answer) verdict(t *testing.T) verdict {
	t.Helper()
	var v verdict
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Errorf("answer %s: %v", a, err)
	}
	return v
}

// parallel runs n at once and waits for all.
func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// throughout checks again and again that something stays so.
func throughout(t *testing.T, span time.Duration, what string, stays func() bool) {
	t.Helper()
	begun := time.Now()
	until(t, span+time.Minute, "the span ends", func() bool {
		if !stays() {
			t.Fatalf("no longer so after %v: %s", time.Since(begun).Round(time.Millisecond), what)
		}
		return time.Since(begun) >= span
	})
}

// counted checks a metric that has no labels.
func (g *gateway) counted(name string, want int) {
	g.t.Helper()
	if got := g.metric(name); got != strconv.Itoa(want) {
		g.t.Errorf("%s is %q, want %d", name, got, want)
	}
}

// neverLogs checks that no line of the log holds one of the words.
func (g *gateway) neverLogs(words ...string) {
	g.t.Helper()
	for _, word := range words {
		if line, ok := g.log.find(word); ok {
			g.t.Errorf("the log says %s: %s", word, line)
		}
	}
}

// rows opens the ledger beside the gateway.
func rows(t *testing.T, database string) *sql.DB {
	t.Helper()
	driver, source := "pgx", database
	if path, embedded := strings.CutPrefix(database, "sqlite://"); embedded {
		driver, source = "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
