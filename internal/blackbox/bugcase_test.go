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

// The bug cases are reports from people who built such a system, each turned into a test by its number: B01
// to B32. In all of them the provider accepts an identity at most once.

// flavour is a provider that honours the send key or ignores it, under the contract that says so.
type flavour struct {
	name    string
	honours bool
}

func forEachFlavour(t *testing.T, test func(t *testing.T, f flavour)) {
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

// setModes sets the provider's modes by recipient, "" for all others.
func (f flavour) setModes(p *provider, modes map[string][]string) {
	p.t.Helper()
	p.setControl(providertest.Control{Idempotent: f.honours, Modes: modes})
}

// checkAcceptedOnce checks the invariant of every bug case: each send key is accepted at most once.
func (p *provider) checkAcceptedOnce() {
	p.t.Helper()
	for key, counts := range p.counts().Keys {
		if counts.Accepts > 1 || counts.Bodies > 1 {
			p.t.Errorf("key %s: accepted %d times, %d different bodies", key, counts.Accepts, counts.Bodies)
		}
	}
}

// checkCalls checks how often the provider was called for a reminder and accepted it, and the invariant.
func (p *provider) checkCalls(d document, calls, accepts int) {
	p.t.Helper()
	if got := p.countsFor(d); got.Calls != calls || got.Accepts != accepts {
		p.t.Errorf("%s: %d calls, %d accepted; want %d and %d", d["reminder_id"], got.Calls, got.Accepts, calls, accepts)
	}
	p.checkAcceptedOnce()
}

// deliver pushes a reminder once.
func (g *gateway) deliver(d document) answer {
	g.t.Helper()
	return g.push(d.String())
}

func isAck(a answer) bool { return a.status == http.StatusOK || a.status == http.StatusNoContent }

// isNack reports whether the response is a 503 with a Retry-After of 1 to 600 whole seconds.
func isNack(a answer) bool {
	return a.status == http.StatusServiceUnavailable && 1 <= a.retryAfter() && a.retryAfter() <= 600
}

// plainReply is the response body of a source with the plain format.
type plainReply struct {
	State     string `json:"state"`
	Reason    string `json:"reason"`
	Duplicate bool   `json:"duplicate"`
	Conflict  bool   `json:"conflict"`
}

func (a answer) plainReply(t *testing.T) plainReply {
	t.Helper()
	var v plainReply
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Errorf("answer %s: %v", a, err)
	}
	return v
}

// parallel runs do(0) to do(n-1) concurrently and waits for all of them.
func parallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// checkThroughout checks repeatedly that a condition holds over a span of time.
func checkThroughout(t *testing.T, span time.Duration, what string, holds func() bool) {
	t.Helper()
	started := time.Now()
	waitUntil(t, span+time.Minute, "the span ends", func() bool {
		if !holds() {
			t.Fatalf("no longer true after %v: %s", time.Since(started).Round(time.Millisecond), what)
		}
		return time.Since(started) >= span
	})
}

// checkMetric checks the value of a metric without labels.
func (g *gateway) checkMetric(name string, want int) {
	g.t.Helper()
	if got := g.metric(name); got != strconv.Itoa(want) {
		g.t.Errorf("%s is %q, want %d", name, got, want)
	}
}

// checkNotLogged checks that no line of the log contains one of the words.
func (g *gateway) checkNotLogged(words ...string) {
	g.t.Helper()
	for _, word := range words {
		if line, ok := g.log.find(word); ok {
			g.t.Errorf("the log says %s: %s", word, line)
		}
	}
}

// openDB opens the ledger's database beside the gateway.
func openDB(t *testing.T, database string) *sql.DB {
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
