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

// quiet is a log that tests may read while others write.
type quiet struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (q *quiet) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.text.Write(p)
}

func (q *quiet) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.text.String()
}

func devConfig(t *testing.T, dir string) config.Config {
	t.Helper()
	cfg, err := config.Dev("127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// running starts the program in this process and returns its address and what ends it.
func running(t *testing.T, cfg config.Config, log io.Writer) (string, func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, cfg, app.Build{Version: "test", Log: log, Ready: func(a, _ net.Addr) { listening <- a }})
	}()
	select {
	case at := <-listening:
		return "http://" + at.String(), func() error {
			cancel()
			return <-ended
		}
	case err := <-ended:
		cancel()
		t.Fatalf("it ended: %v", err)
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

const document = `{"reminder_id": "rem-1", "type": "seat_expiring", "channel": "email", "to": "ok@example.org", "content": {"text": "hello"}}`

// TestTheWholeProgramSendsOnceAndEndsInGoodOrder runs all rooms in one process, so that the race detector
// sees them together.
func TestTheWholeProgramSendsOnceAndEndsInGoodOrder(t *testing.T) {
	log := &quiet{}
	dir := t.TempDir()
	address, stop := running(t, devConfig(t, dir), log)
	var twins sync.WaitGroup
	for range 32 {
		twins.Go(func() { push(t, address, document) })
	}
	twins.Wait()
	if got := push(t, address, document); !strings.Contains(got, `"state":"sent"`) || !strings.Contains(got, `"duplicate":true`) {
		t.Errorf("after the storm: %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if sends := strings.Count(log.String(), "outcome=accepted"); sends != 1 {
		t.Errorf("%d sends", sends)
	}

	// The ledger outlives the program.
	address, stop = running(t, devConfig(t, dir), log)
	if got := push(t, address, document); !strings.Contains(got, `"duplicate":true`) {
		t.Errorf("after a restart: %s", got)
	}
	if err := stop(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAStartThatFailsLeavesNothingBehind(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	cfg := devConfig(t, dir)
	cfg.OpsListen = taken.Addr().String()
	if err := app.Run(t.Context(), cfg, app.Build{Log: io.Discard}); err == nil {
		t.Fatal("it serves on an address that is taken")
	}
	// Had the ledger or the public listener been left open, this would fail.
	_, stop := running(t, devConfig(t, dir), io.Discard)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestASecondProcessOnOneEmbeddedLedgerIsRefused(t *testing.T) {
	dir := t.TempDir()
	_, stop := running(t, devConfig(t, dir), io.Discard)
	defer func() { _ = stop() }()
	err := app.Run(t.Context(), devConfig(t, dir), app.Build{Log: io.Discard})
	if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "ledger.db")) {
		t.Errorf("the error does not name the ledger: %v", err)
	}
}

func TestWhatIsInFlightIsSettledBeforeTheEnd(t *testing.T) {
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
	log := &quiet{}
	address, stop := running(t, cfg, log)
	go push(t, address, document)
	<-called
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(release)
	if err := <-ended; err != nil || !strings.Contains(log.String(), "state=sent") {
		t.Errorf("it ended with %v\n%s", err, log)
	}
}

// TestATraceGoesThroughToTheProvider joins the rooms that the trace passes: format, HTTP, desk, adapter.
func TestATraceGoesThroughToTheProvider(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	seen := make(chan string, 1)
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("traceparent")
		_, _ = w.Write([]byte(`{"id": "r"}`))
	}))
	defer peer.Close()
	cfg := devConfig(t, t.TempDir())
	cfg.Providers["sandbox"] = config.Provider{Kind: config.KindWebhook, URL: peer.URL, Timeout: 5 * time.Second, Concurrency: 1}
	address, stop := running(t, cfg, io.Discard)
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

func TestCheckFindsWhatOnlyTheRoomsKnow(t *testing.T) {
	cfg := devConfig(t, t.TempDir())
	if err := app.Check(cfg); err != nil {
		t.Fatalf("dev's own configuration: %v", err)
	}
	cfg.Providers["mail"] = config.Provider{Kind: config.KindSMTP, SMTP: &config.SMTP{Host: "mail.example.org", From: "no address"}}
	cfg.Sources["queue"] = config.Source{Format: config.FormatPlain, Limit: 1, Auth: config.Auth{Bearer: []config.Secret{config.NewSecret("")}}}
	err := app.Check(cfg)
	if err == nil || !strings.Contains(err.Error(), "providers.mail") || !strings.Contains(err.Error(), "sources.queue") {
		t.Errorf("faults: %v", err)
	}
}

// TestAnObsoleteReminderIsNotSent joins configuration, question and desk.
func TestAnObsoleteReminderIsNotSent(t *testing.T) {
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/seats/rem-1/relevant" {
			t.Errorf("asked at %s", r.URL.Path)
		}
		_, _ = w.Write([]byte(`{"relevant": false, "reason": "the seat was given back"}`))
	}))
	defer peer.Close()
	cfg := devConfig(t, t.TempDir())
	asking := cfg.Types[config.DefaultType]
	asking.Relevance = &config.Relevance{URL: peer.URL + "/v1/seats/{reminder_id}/relevant", Timeout: 5 * time.Second, Otherwise: config.OtherwiseWait}
	cfg.Types["seat_expiring"] = asking
	log := &quiet{}
	address, stop := running(t, cfg, log)
	if got := push(t, address, document); !strings.Contains(got, `"state":"dropped"`) || !strings.Contains(got, `"reason":"obsolete"`) {
		t.Errorf("answer: %s", got)
	}
	if err := stop(); err != nil || strings.Contains(log.String(), "outcome=") {
		t.Errorf("ended with %v; somebody was called:\n%s", err, log)
	}
}
