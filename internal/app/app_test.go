package app_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/app"
	"github.com/sendonce/sendonce/internal/config"
)

// logBuffer is a log that a test may read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func devConfig(t *testing.T, dir string) config.Config {
	t.Helper()
	cfg, err := config.Dev("127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// start runs the gateway in this process, and returns its address and a function that stops it.
func start(t *testing.T, cfg config.Config, log io.Writer) (string, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, stopped := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		stopped <- app.Run(ctx, cfg, app.Build{Version: "test", Log: log, Ready: func(a, _ net.Addr) { listening <- a }})
	}()
	select {
	case at := <-listening:
		return "http://" + at.String(), func() error {
			cancel()
			return <-stopped
		}
	case err := <-stopped:
		cancel()
		t.Fatalf("the gateway stopped: %v", err)
		return "", nil
	}
}

func push(t *testing.T, address, document string) string {
	t.Helper()
	resp, err := http.Post(address+"/v1/push/plain", "application/json", strings.NewReader(document))
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

const document = `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "ok@example.org", "content": {"text": "helo"}}`

// TestRun_SendsOnceAndShutsDownCleanly runs all components in one process, so that the race
// detector sees them together.
func TestRun_SendsOnceAndShutsDownCleanly(t *testing.T) {
	log := &logBuffer{}
	dir := t.TempDir()
	address, stop := start(t, devConfig(t, dir), log)
	var duplicates sync.WaitGroup
	for range 32 {
		duplicates.Go(func() { push(t, address, document) })
	}
	duplicates.Wait()
	if got := push(t, address, document); !strings.Contains(got, `"state":"sent"`) || !strings.Contains(got, `"duplicate":true`) {
		t.Errorf("after 32 concurrent deliveries: %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("it stopped with %v", err)
	}
	if sends := strings.Count(log.String(), "outcome=accepted"); sends != 1 {
		t.Errorf("%d sends", sends)
	}

	// The ledger outlives the program.
	address, stop = start(t, devConfig(t, dir), log)
	if got := push(t, address, document); !strings.Contains(got, `"duplicate":true`) {
		t.Errorf("after a restart: %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("it stopped with %v", err)
	}
}

func TestRun_FailedStartReleasesEverything(t *testing.T) {
	inUse, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	dir := t.TempDir()
	cfg := devConfig(t, dir)
	cfg.OpsListen = inUse.Addr().String()
	if err := app.Run(t.Context(), cfg, app.Build{Log: io.Discard}); err == nil {
		t.Fatal("it serves on an address that is in use")
	}
	// Had the ledger or the public listener been left open, this would fail.
	_, stop := start(t, devConfig(t, dir), io.Discard)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestRun_SecondProcessOnOneSQLiteFileFails(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, devConfig(t, dir), io.Discard)
	defer func() { _ = stop() }()
	err := app.Run(t.Context(), devConfig(t, dir), app.Build{Log: io.Discard})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ledger.db")) {
		t.Errorf("the error does not name the ledger: %v", err)
	}
}

func TestRun_SettlesSendsInFlightBeforeItStops(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	peer := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(called)
		<-release
		_, _ = w.Write([]byte(`{"id": "kept"}`))
	}), ReadHeaderTimeout: time.Second}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = peer.Serve(listener) }()
	defer peer.Close()

	dir := t.TempDir()
	cfg := devConfig(t, dir)
	cfg.Providers["sandbox"] = config.Provider{Kind: config.KindWebhook, URL: "http://" + listener.Addr().String(), Timeout: 5 * time.Second, Concurrency: 1}
	log := &logBuffer{}
	address, stop := start(t, cfg, log)
	go push(t, address, document)
	<-called
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(release)
	if err := <-stopped; err != nil || !strings.Contains(log.String(), "state=sent") {
		t.Errorf("it stopped with %v\n%s", err, log)
	}
}

// TestRun_PropagatesTheTraceToTheProvider covers the components that the trace passes: format, HTTP, deliverer, adapter.
func TestRun_PropagatesTheTraceToTheProvider(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	seen := make(chan string, 1)
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("traceparent")
		_, _ = w.Write([]byte(`{"id": "r"}`))
	}))
	defer peer.Close()
	cfg := devConfig(t, t.TempDir())
	cfg.Providers["sandbox"] = config.Provider{Kind: config.KindWebhook, URL: peer.URL, Timeout: 5 * time.Second, Concurrency: 1}
	address, stop := start(t, cfg, io.Discard)
	defer func() { _ = stop() }()

	envelope := `{"message": {"messageId": "1", "publishTime": "` + time.Now().UTC().Format(time.RFC3339) + `",
		"data": "` + base64.StdEncoding.EncodeToString([]byte(document)) + `",
		"attributes": {"googclient_traceparent": "00-` + trace + `-b7ad6b7169203331-01"}}, "subscription": "projects/p/subscriptions/s"}`
	resp, err := http.Post(address+"/v1/push/pubsub", "application/json", strings.NewReader(envelope))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got := <-seen; resp.StatusCode != http.StatusNoContent || !strings.HasPrefix(got, "00-"+trace+"-") {
		t.Errorf("status %d, the provider saw traceparent %q", resp.StatusCode, got)
	}
}

func TestCheck_FindsFaultsOfProvidersAndSources(t *testing.T) {
	cfg := devConfig(t, t.TempDir())
	if err := app.Check(cfg); err != nil {
		t.Fatalf("the configuration of dev: %v", err)
	}
	cfg.Providers["mail"] = config.Provider{Kind: config.KindSMTP, SMTP: &config.SMTP{Host: "mail.example.org", From: "no address"}}
	cfg.Sources["queue"] = config.Source{Format: config.FormatPlain, Limit: 1, Auth: config.Auth{Bearer: []config.Secret{config.NewSecret("")}}}
	err := app.Check(cfg)
	if err == nil || !strings.Contains(err.Error(), "providers.mail") || !strings.Contains(err.Error(), "sources.queue") {
		t.Errorf("faults: %v", err)
	}
}

// The configuration's own check advises insecure: true; no other rule may refuse it then.
func TestCheck_SMTPWithoutTLSIsAllowedWhereItIsIntended(t *testing.T) {
	cfg := devConfig(t, t.TempDir())
	mail := config.Provider{Kind: config.KindSMTP, SMTP: &config.SMTP{
		Host: "mail.internal", Port: 25, TLS: config.TLSNone, From: "support@example.org", Username: "u", Password: config.NewSecret("p"),
	}}
	for _, mail.Insecure = range []bool{false, true} {
		cfg.Providers["mail"] = mail
		if err := app.Check(cfg); (err == nil) != mail.Insecure {
			t.Errorf("insecure %t: %v", mail.Insecure, err)
		}
	}
}

// What serve would refuse in the database's URL, check-config must report, without the password.
func TestCheck_ReadsTheDatabaseURLAsTheStoreDoes(t *testing.T) {
	cfg := devConfig(t, t.TempDir())
	for options, word := range map[string]string{
		"":                                      "",
		"sslmode=disable&pool_max_conns=4":      "",
		"sslmode=verify-ful":                    "sslmode",
		"sslmode=verify-full&sslrootcert=/none": "CA file",
		"pool_max_conns=abc":                    "pool_max_conns",
		"connect_timeout=5s":                    "connect_timeout",
		"target_session_attrs=writable":         "target_session_attrs",
		"default_query_exec_mode=often":         "default_query_exec_mode",
		"pool_max_conn_lifetime=long":           "pool_max_conn_lifetime",
	} {
		cfg.Database = config.Database{URL: config.NewSecret("postgres://user:canary@127.0.0.1:1/ledger?" + options), MaxConns: 4}
		err := app.Check(cfg)
		if (err == nil) != (word == "") || err != nil && (!strings.Contains(err.Error(), word) || !strings.Contains(err.Error(), "database.url")) {
			t.Errorf("%s: %v", options, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: the password is shown: %v", options, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if served := app.Run(ctx, cfg, app.Build{Log: io.Discard}); (err == nil) != (served == nil) {
			t.Errorf("%s: check says %v, serve %v", options, err, served)
		}
	}
}

// TestRun_ObsoleteReminderIsNotSent covers configuration, relevance check and deliverer.
func TestRun_ObsoleteReminderIsNotSent(t *testing.T) {
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/seats/rem-1/relevant" {
			t.Errorf("relevance requested at %s", r.URL.Path)
		}
		_, _ = w.Write([]byte(`{"relevant": false, "reason": "the seat was released"}`))
	}))
	defer peer.Close()
	cfg := devConfig(t, t.TempDir())
	withRelevance := cfg.Types[config.DefaultType]
	withRelevance.Relevance = &config.Relevance{URL: peer.URL + "/v1/seats/{reminder_id}/relevant", Timeout: 5 * time.Second, OnNoAnswer: config.OnNoAnswerWait}
	cfg.Types["seat_expiring"] = withRelevance
	log := &logBuffer{}
	address, stop := start(t, cfg, log)
	if got := push(t, address, document); !strings.Contains(got, `"state":"dropped"`) || !strings.Contains(got, `"reason":"obsolete"`) {
		t.Errorf("reply: %s", got)
	}
	if err := stop(); err != nil || strings.Contains(log.String(), "outcome=") {
		t.Errorf("stopped with %v; the provider was called:\n%s", err, log)
	}
}
