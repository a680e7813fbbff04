package blackbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/dbtest/pgserver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Secrets of the test configuration.
const (
	queueToken   = "queue-token-0123456789"
	producer     = "producer-token-0123456789"
	supporter    = "support-token-0123456789"
	rem1Document = `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "p7@example.test", "content": {"subject": "Seat", "text": "It is held until 09:10."}}`
)

// config is a configuration file in the making; JSON is YAML.
type config map[string]any

// configure is a gateway with one queue, one webhook provider for the channels email and sms, and short
// spans, so that what happens after minutes in life happens after seconds here.
func configure(database string, p *provider) config {
	return config{
		"listen": "127.0.0.1:0", "ops_listen": "127.0.0.1:0", "drain": "0s", "grace": "10s",
		"database": map[string]any{"url": database},
		"lease":    "4s", "sweep": "1s",
		"sources": map[string]any{
			"queue": map[string]any{
				"format": "plain", "auth": map[string]any{"bearer": map[string]any{"tokens": []string{queueToken}}},
				"max_age": "7d", "takeover_after": "30s", "answer_within": "3s",
			},
		},
		"providers": map[string]any{
			"mail": map[string]any{
				"kind": "webhook", "url": p.url(), "timeout": "2s", "contract": map[string]any{"idempotent": "24h"}, "concurrency": 64,
			},
		},
		"channels": map[string]any{"email": map[string]any{"provider": "mail"}, "sms": map[string]any{"provider": "mail"}},
		"types": map[string]any{
			"default": map[string]any{"max_attempts": 4, "backoff": map[string]any{"base": "1s", "cap": "10m"}, "deadline": "1h", "on_unknown": "hold"},
		},
		"callers": []any{
			map[string]any{"name": "checkout", "role": "producer", "tokens": []string{producer}},
			map[string]any{"name": "desk", "role": "support", "tokens": []string{supporter}},
		},
	}
}

// with sets one value, by its path, in a copy.
func (c config) with(value any, path ...string) config {
	changed := maps.Clone(c)
	if len(path) == 1 {
		changed[path[0]] = value
		return changed
	}
	inner, _ := changed[path[0]].(map[string]any)
	changed[path[0]] = map[string]any(config(inner).with(value, path[1:]...))
	return changed
}

// file writes the configuration where the gateway can read it.
func (c config) file(t *testing.T) string {
	t.Helper()
	path, err := c.in(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (c config) in(dir string) (path string, err error) {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "sendonce.yaml")
	return path, os.WriteFile(path, raw, 0o600)
}

// onBoth runs a test on an embedded ledger and on PostgreSQL, each fresh.
func onBoth(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, embedded(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, shared(t)) })
}

func embedded(t *testing.T) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db")
}

// migrated is the database that the binary has migrated, and that each test on PostgreSQL gets a copy of.
var migrated = pgserver.NewTemplate(func(database string) error {
	dir, err := os.MkdirTemp("", "sendonce-migrate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, err := configure(database, &provider{address: "127.0.0.1:1"}).in(dir)
	if err != nil {
		return err
	}
	if out, err := exec.Command(binary, "migrate", "-config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
})

// shared is a migrated database of a test's own, on the PostgreSQL that all of them share.
func shared(t *testing.T) string {
	t.Helper()
	return migrated.URL(t)
}

// answer is what the gateway said.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// retryAfter is the answer's Retry-After in seconds; -1 when it is no integer.
func (a answer) retryAfter() int {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil {
		return -1
	}
	return seconds
}

func (g *gateway) call(method, path, token string, header http.Header, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.url+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	begun := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, raw, time.Since(begun)}, err
}

// client keeps enough connections for a storm, and none as long as the gateway would: a connection that is
// closed just when it is used again would look like a lost answer.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: 20 * time.Second}}

// push delivers a message to the queue's source.
func (g *gateway) push(document string) answer {
	g.t.Helper()
	a, err := g.call(http.MethodPost, "/v1/push/queue", queueToken, nil, []byte(document))
	if err != nil {
		g.t.Fatalf("push: %v", err)
	}
	return a
}

// post calls the API as the producer.
func (g *gateway) post(path, document string) answer {
	g.t.Helper()
	a, err := g.call(http.MethodPost, path, producer, http.Header{"Content-Type": {"application/json"}}, []byte(document))
	if err != nil {
		g.t.Fatalf("post %s: %v", path, err)
	}
	return a
}

// get calls the API as support.
func (g *gateway) get(path string) answer {
	g.t.Helper()
	a, err := g.call(http.MethodGet, path, supporter, nil, nil)
	if err != nil {
		g.t.Fatalf("get %s: %v", path, err)
	}
	return a
}

// entry is an entry as the API shows it.
type entry struct {
	ID             string    `json:"id"`
	ReminderID     string    `json:"reminder_id"`
	Type           string    `json:"type"`
	Channel        string    `json:"channel"`
	State          string    `json:"state"`
	Class          string    `json:"class"`
	Reason         string    `json:"reason"`
	Provider       string    `json:"provider"`
	Receipt        string    `json:"receipt"`
	ReceiptMissing string    `json:"receipt_missing"`
	Attempts       int       `json:"attempts"`
	Lapses         int       `json:"lapses"`
	Due            time.Time `json:"due"`
	Updated        time.Time `json:"updated"`
	Owner          string    `json:"owner"`
	Conflicts      int       `json:"conflicts"`
	Version        int64     `json:"version"`
}

// line is a line of a timeline.
type line struct {
	Kind     string    `json:"kind"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Outcome  string    `json:"outcome"`
	Status   int       `json:"status"`
	Number   int       `json:"number"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	At       time.Time `json:"at"`
	Text     string    `json:"text"`
}

type story struct {
	Entry     entry  `json:"entry"`
	Timeline  []line `json:"timeline"`
	Conflicts []any  `json:"conflicts"`
}

// story is all that the gateway tells of an identity; the zero story when it knows of none.
func (g *gateway) story(reminderID, typ, channel string) story {
	g.t.Helper()
	id := ledger.Identity{ReminderID: reminderID, Type: typ, Channel: channel}.EntryID()
	var a answer
	until(g.t, 15*time.Second, "the ledger can be read", func() bool {
		a = g.get("/v1/admin/entries/" + id)
		return a.status != http.StatusServiceUnavailable // a busy machine may need a second look
	})
	if a.status == http.StatusNotFound {
		return story{}
	}
	var s story
	if err := json.Unmarshal(a.body, &s); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("story of %s: %s, %v", reminderID, a, err)
	}
	return s
}

// list is every entry that a filter finds.
func (g *gateway) list(filter url.Values) []entry {
	g.t.Helper()
	var all []entry
	filter.Set("limit", "200")
	for {
		a := g.get("/v1/admin/entries?" + filter.Encode())
		var page struct {
			Items []entry `json:"items"`
			Next  string  `json:"next"`
		}
		if err := json.Unmarshal(a.body, &page); err != nil || a.status != http.StatusOK {
			g.t.Fatalf("list: %s, %v", a, err)
		}
		all = append(all, page.Items...)
		if page.Next == "" {
			return all
		}
		filter.Set("cursor", page.Next)
	}
}

// until asks again and again whether something has come about.
func until(t *testing.T, within time.Duration, what string, come func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(within); ; {
		if come() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
