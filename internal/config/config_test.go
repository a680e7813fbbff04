package config

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const signing = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA="

// environment returns a lookup function for pairs of names and values.
func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// minimal is the smallest valid configuration. Each test case replaces or adds one setting.
const minimal = `database: {url: "sqlite:///var/lib/sendonce/ledger.db"}
providers:
  mail: {kind: webhook, url: "https://mail.example.org/send"}
channels: {email: {provider: mail}}
types: {default: {}}
`

func TestParse_FillsInDefaults(t *testing.T) {
	got, err := Parse([]byte(minimal), environment())
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Listen: "127.0.0.1:8080", OpsListen: "127.0.0.1:9090",
		Database: Database{Path: "/var/lib/sendonce/ledger.db", MaxConns: 10},
		Lease:    30 * time.Second, Sweep: 5 * time.Second, Memory: 400 * 24 * time.Hour,
		LookupSchedule: []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour},
		FailoverWindow: 10 * time.Minute,
		Retention:      Retention{Sent: 30 * day, Dead: 90 * day, Dropped: 30 * day}, Redrive: Redrive{MaxRedrives: 3, MaxItems: 1000, MaxRunning: 100},
		IdleTimeout: 620 * time.Second,
		Drain:       5 * time.Second, Grace: 25 * time.Second, Limit: 256 * 1024,
		Sources: map[string]Source{},
		Providers: map[string]Provider{"mail": {
			Kind: "webhook", URL: "https://mail.example.org/send", Timeout: 10 * time.Second, Concurrency: 10,
		}},
		Channels: map[string]Channel{"email": {Provider: "mail"}},
		Types: map[string]Type{"default": {
			MaxAttempts: 6, Backoff: Backoff{Base: 5 * time.Second, Cap: 15 * time.Minute},
			Deadline: 24 * time.Hour, OnUnknown: "hold",
		}},
		Log: Log{Format: "json", Level: slog.LevelInfo},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got.Margin() != 3*time.Second {
		t.Errorf("margin of a 30s lease: %s", got.Margin())
	}
}

func TestLoad_ExampleFile(t *testing.T) {
	env := environment(
		"DATABASE_URL", "postgres://sendonce:canary-password@db.internal/sendonce?sslmode=verify-full",
		"COURSES_TOKEN", "0123456789abcdef-courses", "CAMPUS_KEY", "0123456789abcdef-campus",
		"BILLING_SIGNING_SECRET", signing, "MAIL_TOKEN", "0123456789abcdef-mail", "SMTP_PASSWORD", "hunter2",
		"CHECKOUT_TOKEN", "0123456789abcdef-checkout", "DASHBOARD_TOKEN", "0123456789abcdef-dashboard",
		"ONCALL_TOKEN_SHA256", "9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08",
	)
	c, err := Load("../../deploy/config.example.yaml", env)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Database.URL.Reveal(); !strings.HasPrefix(got, "postgres://sendonce:") {
		t.Error("the database's URL did not come from the environment")
	}
	if got := c.Providers["mail"].Headers["Authorization"].Reveal(); got != "Bearer 0123456789abcdef-mail" {
		t.Errorf("header: %q", got)
	}
	want := Provider{
		Kind: "webhook", URL: "https://mail.internal.example.org/send", Timeout: 10 * time.Second,
		Headers:  map[string]Secret{"Authorization": NewSecret("Bearer 0123456789abcdef-mail")},
		Contract: Contract{Idempotent: 24 * time.Hour}, Rate: Rate{Events: 50, Per: time.Second}, Concurrency: 20,
	}
	if diff := cmp.Diff(want, c.Providers["mail"]); diff != "" {
		t.Errorf("mail (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Source{
		Format: "standard-webhooks", Auth: Auth{StandardWebhooks: []Secret{NewSecret(signing)}}, Retries: "broker",
		TakeoverAfter: 2 * time.Minute, AnswerWithin: 14 * time.Second, MaxAge: 7 * 24 * time.Hour, Limit: 256 * 1024,
	}, c.Sources["billing"]); diff != "" {
		t.Errorf("billing (-want +got)\n%s", diff)
	}
	if got := c.Sources["reservations"].Auth.OIDC; got.Issuer != googleIssuer || got.KeysURL != googleKeys {
		t.Errorf("Google is not the default issuer: %+v", got)
	}
	if got := c.Types["seat_expiring"]; got.MaxAttempts != 4 || got.Backoff != c.Types["default"].Backoff || got.Relevance == nil {
		t.Errorf("a type does not take from default what it leaves out: %+v", got)
	}
	if got, want := c.Callers[2].Tokens[0], DigestOf("test"); got != want {
		t.Errorf("a digest in upper case is not the token's digest: %x", got)
	}
	if got := slices.Sorted(maps.Keys(c.Sources)); !slices.Equal(got, []string{"billing", "campus", "courses", "reservations", "reservations-dead"}) {
		t.Errorf("sources: %q", got)
	}
}

func TestParse_JSON(t *testing.T) {
	c, err := Parse([]byte(`{"database": {"url": "postgresql:///ledger?host=/run/postgresql"},
		"providers": {"mail": {"kind": "webhook", "url": "http://[::1]:8025/"}},
		"channels": {"email": {"provider": "mail"}}, "types": {"default": {"max_attempts": 3}}}`), environment())
	if err != nil {
		t.Fatal(err)
	}
	if c.Types["default"].MaxAttempts != 3 {
		t.Errorf("max_attempts: %d", c.Types["default"].MaxAttempts)
	}
}

func TestParse_ReportsAllFaultsWithLines(t *testing.T) {
	_, err := parse("config.yaml", []byte(`lease: 30
memory: 10d
lease: 40s
retreis: 5
sources:
  courses:
    format: plain
    auth: {bearer: {tokens: ["${MISSING}"]}}
    max_age: 500d
  Bad Name: {format: fax}
database: {url: "${EMPTY}"}
providers: {mail: {kind: webhook, url: "https://mail.example.org", timeout: 60s}}
channels: {email: {provider: post}}
types: {default: {}}
`), environment("EMPTY", ""))
	want := []string{
		`config.yaml:1: lease: "30" is not a duration`,
		`config.yaml:2: memory: 10d is shorter than 35d`,
		`config.yaml:3: lease: is set twice, first on line 1`,
		`config.yaml:4: retreis: unknown setting; known here: accept_since, `,
		`config.yaml:8: sources.courses.auth.bearer.tokens[0]: the environment variable MISSING is not set`,
		`config.yaml:9: sources.courses.max_age: 500d is longer than the memory of 10d`,
		`config.yaml:10: sources.Bad Name: a name is 1 to 64`,
		`config.yaml:10: sources.Bad Name.auth: needs exactly one of`,
		`config.yaml:10: sources.Bad Name.format: "fax" is not one of plain, pubsub, standard-webhooks`,
		`config.yaml:11: database.url: the environment variable EMPTY is empty`,
		`config.yaml:12: providers.mail.timeout: 1m and the margin of 3s do not fit into the lease of 30s`,
		`config.yaml:13: channels.email.provider: there is no provider "post"; write one of: mail`,
	}
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("%v is not a list of faults", err)
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("got %d faults, want %d:\n%s", len(got), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("fault %d:\n got %s\nwant %s…", i, got[i], want[i])
		}
	}
}

func TestExpand_ReplacesVariablesOnceAndOnlyInValues(t *testing.T) {
	env := environment("A", "alpha-alpha", "TRICK", "${A}", "N", "7", "D", "45s")
	for written, want := range map[string]string{
		"${A}-${A}":    "alpha-alpha-alpha-alpha",
		"${TRICK}":     "${A}",
		"$${A}":        "${A}",
		"$A and $ and": "$A and $ and",
		"x$${${A}":     "x${alpha-alpha",
	} {
		if got, problem := expand(written, env); got != want || problem != "" {
			t.Errorf("%s became %q (%s), want %q", written, got, problem, want)
		}
	}
	c, err := Parse([]byte("lease: ${D}\n"+strings.Replace(minimal, "default: {}", `default: {max_attempts: "${N}"}`, 1)), env)
	if err != nil || c.Lease != 45*time.Second || c.Types["default"].MaxAttempts != 7 {
		t.Errorf("numbers and durations do not come from variables: %v %s %d", err, c.Lease, c.Types["default"].MaxAttempts)
	}
}

// Editors of some systems begin a file with a byte order mark.
func TestParse_AcceptsAByteOrderMark(t *testing.T) {
	if _, err := Parse([]byte("\ufeff"+minimal), environment()); err != nil {
		t.Error(err)
	}
}
