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

	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Tokens and a body for the test configuration.
const (
	queueToken    = "queue-token-0123456789"
	producerToken = "producer-token-0123456789"
	supportToken  = "support-token-0123456789"
	rem1Document  = `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "p7@example.test", "content": {"subject": "Seat", "text": "It is held until 09:10."}}`
)

// config is a configuration file as a tree of values; JSON is YAML.
type config map[string]any

// configure returns a configuration with one queue, one webhook provider for the channels email and sms, and
// short intervals, so that what takes minutes in production takes seconds here.
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
			map[string]any{"name": "checkout", "role": "producer", "tokens": []string{producerToken}},
			map[string]any{"name": "dashboard", "role": "support", "tokens": []string{supportToken}},
		},
	}
}

// with returns a copy with one value set, by its path.
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

// file writes the configuration to a file, and returns its path.
func (c config) file(t *testing.T) string {
	t.Helper()
	path, err := c.writeTo(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (c config) writeTo(dir string) (path string, err error) {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "sendonce.yaml")
	return path, os.WriteFile(path, raw, 0o600)
}

// forEachStore runs a test on SQLite and on PostgreSQL, each with a new ledger.
func forEachStore(t *testing.T, test func(t *testing.T, database string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, newSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, newPostgres(t)) })
}

func newSQLite(t *testing.T) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "ledger.db")
}

// migrated is the template database that the binary has migrated; each test on PostgreSQL gets a copy of it.
var migrated = pgserver.NewTemplate(func(database string) error {
	dir, err := os.MkdirTemp("", "sendonce-migrate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file, err := configure(database, &provider{address: "127.0.0.1:1"}).writeTo(dir)
	if err != nil {
		return err
	}
	if out, err := exec.Command(binary, "migrate", "-config", file).CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	return nil
})

// newPostgres returns a migrated database of the test's own, on the PostgreSQL server that all tests share.
func newPostgres(t *testing.T) string {
	t.Helper()
	return migrated.URL(t)
}

// answer is the gateway's response to a request.
type answer struct {
	status int
	header http.Header
	body   []byte
	took   time.Duration
}

func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, a.body) }

// retryAfter returns the response's Retry-After in seconds; -1 when it is no integer.
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
	started := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, raw, time.Since(started)}, err
}

// client keeps enough idle connections for a storm, and drops them sooner than the gateway does: a connection
// that is closed just when it is reused would look like a lost response.
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
	a, err := g.call(http.MethodPost, path, producerToken, http.Header{"Content-Type": {"application/json"}}, []byte(document))
	if err != nil {
		g.t.Fatalf("post %s: %v", path, err)
	}
	return a
}

// get calls the API as support.
func (g *gateway) get(path string) answer {
	g.t.Helper()
	a, err := g.call(http.MethodGet, path, supportToken, nil, nil)
	if err != nil {
		g.t.Fatalf("get %s: %v", path, err)
	}
	return a
}

// entry is an entry as the API shows it.
type entry struct {
	ID               string    `json:"id"`
	ReminderID       string    `json:"reminder_id"`
	Type             string    `json:"type"`
	Channel          string    `json:"channel"`
	State            string    `json:"state"`
	Class            string    `json:"class"`
	Reason           string    `json:"reason"`
	Provider         string    `json:"provider"`
	Receipt          string    `json:"receipt"`
	ReceiptMissing   string    `json:"receipt_missing"`
	Attempts         int       `json:"attempts"`
	LeaseExpirations int       `json:"lease_expirations"`
	Due              time.Time `json:"due"`
	Updated          time.Time `json:"updated"`
	Owner            string    `json:"owner"`
	Conflicts        int       `json:"conflicts"`
	Version          int64     `json:"version"`
}

// timelineEvent is an event of a timeline as the API shows it.
type timelineEvent struct {
	Kind     string    `json:"kind"`
	State    string    `json:"state"`
	Reason   string    `json:"reason"`
	Outcome  string    `json:"outcome"`
	Status   int       `json:"status"`
	Attempt  int       `json:"attempt"`
	Started  time.Time `json:"started"`
	Finished time.Time `json:"finished"`
	At       time.Time `json:"at"`
	Text     string    `json:"text"`
}

type entryDetail struct {
	Entry     entry           `json:"entry"`
	Timeline  []timelineEvent `json:"timeline"`
	Conflicts []any           `json:"conflicts"`
}

// entryDetail returns the detail of the entry with an identity; the zero value when there is none.
func (g *gateway) entryDetail(reminderID, typ, channel string) entryDetail {
	g.t.Helper()
	id := ledger.Identity{ReminderID: reminderID, Type: typ, Channel: channel}.EntryID()
	var a answer
	waitUntil(g.t, 15*time.Second, "the ledger is readable", func() bool {
		a = g.get("/v1/admin/entries/" + id)
		return a.status != http.StatusServiceUnavailable // a busy machine may need a second read
	})
	if a.status == http.StatusNotFound {
		return entryDetail{}
	}
	var s entryDetail
	if err := json.Unmarshal(a.body, &s); err != nil || a.status != http.StatusOK {
		g.t.Fatalf("detail of %s: %s, %v", reminderID, a, err)
	}
	return s
}

// list returns every entry that matches a filter.
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

// waitUntil polls a condition until it is true, or fails the test.
func waitUntil(t *testing.T, within time.Duration, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(within); ; {
		if condition() {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
