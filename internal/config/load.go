package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile is the maximum size of the file in bytes.
const maxFile = 1 << 20

// Load reads and checks the file at path; env looks up a variable, as os.LookupEnv does. The error is [Faults]
// unless the file could not be read.
func Load(path string, env func(string) (string, bool)) (Config, error) {
	file, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	defer func() { _ = file.Close() }() // opened for reading only
	raw, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	return parse(path, raw, env)
}

// Parse reads and checks a configuration; its faults name the file "config".
func Parse(raw []byte, env func(string) (string, bool)) (Config, error) {
	return parse("config", raw, env)
}

func parse(name string, raw []byte, env func(string) (string, bool)) (Config, error) {
	body, fault := document(name, raw)
	if fault != nil {
		return Config{}, Faults{*fault}
	}
	r := &reader{file: name, env: env, corrections: map[string]string{}}
	c := r.config(body)
	c.OTLP = readOTLP(env)
	faults := r.faults
	for _, f := range check(c) {
		if !r.knownFaulty(f.path) {
			faults = append(faults, Fault{File: name, Line: r.lineOf(f.path), Path: f.path, Problem: f.problem})
		}
	}
	if len(faults) > 0 {
		return Config{}, faults.sorted()
	}
	return c, nil
}

// document returns the only YAML document of a file. Repeated keys are allowed here, so that they are reported
// together with all other faults.
func document(name string, raw []byte) (ast.Node, *Fault) {
	if len(raw) > maxFile {
		return nil, &Fault{File: name, Problem: fmt.Sprintf("is larger than %d bytes", maxFile)}
	}
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")) // a byte order mark, allowed by YAML 1.2.2, 5.2
	file, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		fault := &Fault{File: name, Problem: "is not YAML"}
		var syntaxErr yaml.Error
		if errors.As(err, &syntaxErr) { // its Error() would show lines of the file, which may contain a secret
			fault.Line, fault.Problem = syntaxErr.GetToken().Position.Line, "is not YAML: "+syntaxErr.GetMessage()
		}
		return nil, fault
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if body != nil {
			return nil, &Fault{File: name, Line: lineOf(doc.Body), Problem: "a second document begins here; keep one"}
		}
		body = doc.Body
	}
	if body == nil {
		return nil, &Fault{File: name, Problem: "is empty"}
	}
	return body, nil
}

// config reads the document, and again for each level at which a setting is misspelt, with the spelling corrected:
// so one typo is one fault, and does not make another setting look as if it were missing.
func (r *reader) config(body ast.Node) Config {
	for {
		r.lines, r.faults, r.faulty = map[string]int{}, nil, map[string]bool{}
		corrections := len(r.corrections)
		c := readConfig(r.section("", body))
		if len(r.corrections) == corrections {
			return c
		}
	}
}

// DefaultIdleTimeout is longer than the 600 s for which Google's load balancers keep an idle connection: if the server
// closed first, a request that is already on its way would fail.
const DefaultIdleTimeout = 620 * time.Second

func readConfig(s *section) Config {
	c := Config{
		AllowSandbox:   s.boolean("allow_sandbox"),
		Listen:         s.text("listen", "127.0.0.1:8080"),
		OpsListen:      s.text("ops_listen", "127.0.0.1:9090"),
		AdminListen:    s.text("admin_listen", ""),
		Pprof:          s.boolean("pprof"),
		IdleTimeout:    s.duration("idle_timeout", DefaultIdleTimeout),
		Database:       readDatabase(s.child("database")),
		Lease:          s.duration("lease", 30*time.Second),
		Sweep:          s.duration("sweep", 5*time.Second),
		Memory:         s.duration("memory", 400*day),
		Drain:          s.duration("drain", 5*time.Second),
		Grace:          s.duration("grace", 25*time.Second),
		LookupSchedule: s.durations("lookup_schedule", defaultLookupSchedule()),
		AcceptSince:    s.timestamp("accept_since"),
		Limit:          s.size("limit", 256<<10),
		Sources:        map[string]Source{},

		FailoverWindow: s.duration("failover_window", 10*time.Minute),
		Providers:      map[string]Provider{},
		Channels:       map[string]Channel{},
		Log:            readLog(s.child("log")),
		Redrive:        readRedrive(s.child("redrive")),
	}
	c.Retention = readRetention(s.child("retention"), c.Memory)
	s.each("sources", func(name string, entry *section) { c.Sources[name] = readSource(entry, c) })
	s.each("providers", func(name string, entry *section) { c.Providers[name] = readProvider(entry) })
	s.each("channels", func(name string, entry *section) {
		c.Channels[name] = Channel{Provider: read(entry, "provider", "", func(v string) (string, error) {
			if _, ok := c.Providers[v]; !ok {
				return "", fmt.Errorf("there is no provider %q; write one of: %s", v, keysOf(c.Providers))
			}
			return v, nil
		})}
		entry.done()
	})
	c.Types = readTypes(s.child("types"))
	for i, node := range s.items("callers") {
		c.Callers = append(c.Callers, readCaller(s.r.section(s.item("callers", i), node)))
	}
	s.done()
	return c
}

// defaultLookupSchedule covers the time that a provider's own records may take to become complete.
func defaultLookupSchedule() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour}
}

// readRetention uses defaults that are limited by a short memory.
func readRetention(s *section, memory time.Duration) Retention {
	keep := Retention{
		Sent:    s.duration("sent", min(30*day, memory)),
		Dead:    s.duration("dead", max(redriveHorizon, min(90*day, memory-afterRedrive))),
		Dropped: s.duration("dropped", min(30*day, memory)),
	}
	s.done()
	return keep
}

func readRedrive(s *section) Redrive {
	r := Redrive{
		MaxRedrives: s.integer("max_redrives", 3),
		MaxItems:    s.integer("max_items", 1000),
		MaxRunning:  s.integer("max_running", 100),
	}
	s.done()
	return r
}

func readDatabase(s *section) Database {
	d := Database{MaxConns: s.integer("max_conns", 10), Pooler: s.boolean("pooler")}
	url := s.secret("url")
	if path, ok := strings.CutPrefix(url.Reveal(), "sqlite://"); ok {
		d.Path = path
	} else {
		d.URL = url
	}
	s.done()
	return d
}

func readLog(s *section) Log {
	levels := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}
	l := Log{
		Format: s.choice("format", LogJSON, LogJSON, LogText),
		Level:  levels[s.choice("level", "info", "debug", "info", "warn", "error")],
	}
	s.done()
	return l
}

func readSource(s *section, c Config) Source {
	format := s.choice("format", "", FormatPlain, FormatPubSub, FormatStandardWebhooks)
	source := Source{
		Format:        format,
		Auth:          readAuth(s.child("auth")),
		Retries:       s.choice("retries", RetriesBroker, RetriesBroker, RetriesLedger),
		TakeoverAfter: s.duration("takeover_after", 2*time.Minute),
		AnswerWithin:  s.duration("answer_within", min(defaultAnswerWithin(format), c.Lease)),
		MaxAge:        s.duration("max_age", 0),
		Limit:         s.size("limit", c.Limit),
		DeadLetter:    s.boolean("deadletter"),
	}
	s.done()
	return source
}

// defaultAnswerWithin is how long the senders of a format wait for a reply, less a second for the way back. Pub/Sub's
// acknowledgement deadline is 10 s unless the subscription sets another (cloud.google.com/pubsub/docs, "Push
// subscriptions"); Standard Webhooks recommends 15 to 30 s (spec/standard-webhooks.md of its repository); for plain
// senders nothing is known.
func defaultAnswerWithin(format string) time.Duration {
	if format == FormatStandardWebhooks {
		return 14 * time.Second
	}
	return 9 * time.Second
}

func readAuth(s *section) Auth {
	a := Auth{None: s.boolean("none")}
	if s.has("oidc") {
		a.OIDC = readOIDC(s.child("oidc"))
	}
	if s.has("bearer") {
		bearer := s.child("bearer")
		a.Bearer = append([]Secret{}, bearer.secrets("tokens")...)
		bearer.done()
	}
	if s.has("header") {
		header := s.child("header")
		a.Header = &HeaderAuth{Name: header.text("name", ""), Secrets: header.secrets("secrets")}
		header.done()
	}
	if s.has("standard_webhooks") {
		webhooks := s.child("standard_webhooks")
		a.StandardWebhooks = append([]Secret{}, webhooks.secrets("secrets")...)
		webhooks.done()
	}
	s.done()
	return a
}

// Google's issuer and keys: https://developers.google.com/identity/openid-connect/openid-connect.
const (
	googleIssuer = "https://accounts.google.com"
	googleKeys   = "https://www.googleapis.com/oauth2/v3/certs"
)

func readOIDC(s *section) *OIDC {
	o := &OIDC{Audience: s.text("audience", ""), Email: s.text("email", ""), Issuer: s.text("issuer", googleIssuer)}
	keys := ""
	if o.Issuer == googleIssuer {
		keys = googleKeys
	}
	o.KeysURL = s.text("keys_url", keys)
	s.done()
	return o
}

func readProvider(s *section) Provider {
	p := Provider{
		Kind:        s.choice("kind", "", KindWebhook, KindSMTP, KindSandbox),
		URL:         s.text("url", ""),
		Timeout:     s.duration("timeout", 10*time.Second),
		Rate:        read(s, "rate", Rate{}, parseRate),
		Concurrency: s.integer("concurrency", 10),
		Insecure:    s.boolean("insecure"),
	}
	p.Headers = readHeaders(s.child("headers"))
	p.Signing = s.secret("signing_secret")
	if s.has("events") {
		events := s.child("events")
		p.Events = append([]Secret{}, events.secrets("secrets")...)
		events.done()
	}
	if s.has("smtp") {
		p.SMTP = readSMTP(s.child("smtp"))
	}
	p.Contract = readContract(s.child("contract"))
	s.done()
	return p
}

func readHeaders(s *section) map[string]Secret {
	var headers map[string]Secret
	for _, name := range s.keys {
		if headers == nil {
			headers = map[string]Secret{}
		}
		headers[name] = s.secret(name)
	}
	return headers
}

func readContract(s *section) Contract {
	c := Contract{Idempotent: s.duration("idempotent", 0), Lookup: s.text("lookup", "")}
	blind := s.boolean("blind")
	if len(s.keys) > 1 {
		s.r.fault(s.path, s.r.lineOf(s.path), "must be exactly one of idempotent, lookup and blind")
	}
	if s.has("blind") && !blind {
		s.r.fault(s.at("blind"), s.r.lineOf(s.at("blind")), "can only be true; leave the contract out, or write idempotent or lookup")
	}
	s.done()
	return c
}

func readSMTP(s *section) *SMTP {
	m := &SMTP{
		Host:     s.text("host", ""),
		Username: s.text("username", ""),
		Password: s.secret("password"),
		TLS:      s.choice("tls", TLSStart, TLSStart, TLSImplicit, TLSNone),
		From:     s.text("from", ""),
		Helo:     s.text("helo", ""),
	}
	m.Port = s.integer("port", map[string]int{TLSStart: 587, TLSImplicit: 465, TLSNone: 25}[m.TLS])
	s.done()
	return m
}

func readTypes(s *section) map[string]Type {
	types := map[string]Type{}
	fallback := Type{
		MaxAttempts: 6,
		Backoff:     Backoff{Base: 5 * time.Second, Cap: 15 * time.Minute},
		Deadline:    day,
		OnUnknown:   OnUnknownHold,
	}
	if s.has(DefaultType) {
		fallback = readType(s.child(DefaultType), fallback)
		types[DefaultType] = fallback
	}
	for _, name := range s.keys {
		if name != DefaultType {
			types[name] = readType(s.child(name), fallback)
		}
	}
	return types
}

func readType(s *section, fallback Type) Type {
	backoff := s.child("backoff")
	t := Type{
		MaxAttempts: s.integer("max_attempts", fallback.MaxAttempts),
		Backoff: Backoff{
			Base: backoff.duration("base", fallback.Backoff.Base),
			Cap:  backoff.duration("cap", fallback.Backoff.Cap),
		},
		Deadline:  s.duration("deadline", fallback.Deadline),
		OnUnknown: s.choice("on_unknown", fallback.OnUnknown, OnUnknownHold, OnUnknownAssumeSent, OnUnknownResend),
		Relevance: fallback.Relevance,
	}
	backoff.done()
	if s.has("relevance") {
		relevance := s.child("relevance")
		t.Relevance = &Relevance{
			URL:        relevance.text("url", ""),
			Headers:    readHeaders(relevance.child("headers")),
			Timeout:    relevance.duration("timeout", 2*time.Second),
			OnNoAnswer: relevance.choice("on_no_answer", OnNoAnswerWait, OnNoAnswerWait, OnNoAnswerSend),
			Insecure:   relevance.boolean("insecure"),
		}
		relevance.done()
	}
	s.done()
	return t
}

// readCaller keeps digests only, so weak tokens are reported here, while they are known.
func readCaller(s *section) Caller {
	c := Caller{
		Name: s.text("name", ""),
		Role: s.choice("role", "", RoleProducer, RoleSupport, RoleOperator, RoleAdmin),
	}
	for i, token := range s.secrets("tokens") {
		at := s.item("tokens", i)
		if strings.HasPrefix(token.Reveal(), digestPrefix) {
			digest, ok := parseDigest(token.Reveal())
			if !ok {
				s.r.fault(at, s.r.lineOf(at), "is not a digest; write sha256: followed by 64 hex digits")
			}
			c.Tokens = append(c.Tokens, digest)
			continue
		}
		if problem := weak(token); problem != "" && !s.r.faulty[at] {
			s.r.fault(at, s.r.lineOf(at), "%s", problem)
		}
		c.Tokens = append(c.Tokens, DigestOf(token.Reveal()))
	}
	s.done()
	return c
}
