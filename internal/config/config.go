// Package config reads one YAML file and the environment into one checked [Config].
//
// It is used at the start of the program: [Load] reads a file, [Dev] is a configuration without one. A Config never
// changes afterwards; a new configuration takes a rolling restart.
//
// Invariants:
//
//   - an unknown or repeated key is an error, never ignored: a misspelt limit would be no limit;
//   - all faults are reported at once ([Faults]), each with its line, its path and what to do;
//   - a value from the environment or in a [Secret] is never shown, neither in a fault nor by printing;
//   - a Config that is returned without an error satisfies the guarantees that depend on configuration: a call
//     fits into its lease, the ledger remembers for long enough, and no source is open to everybody.
//
// What it does not do: it opens no connection, does not read the environment itself (the caller passes a lookup
// function), and uses no types of other packages; package app translates.
package config

import (
	"log/slog"
	"time"
)

// Config is everything that can be configured, with its defaults filled in.
type Config struct {
	Dev          bool // made by [Dev]: sources are open and secrets are well known
	AllowSandbox bool // a sandbox provider is intended, although this is not dev

	Listen      string // host:port of the public listener
	OpsListen   string // host:port of health, metrics and pprof
	AdminListen string // host:port of the admin API; empty to serve it on Listen
	Pprof       bool
	IdleTimeout time.Duration // of an idle connection to a listener; longer than load balancers keep theirs, so that they close first

	Database Database
	Lease    time.Duration // how long a holder's claim lasts
	Sweep    time.Duration // interval of the sweep for expired leases and orphaned entries
	Memory   time.Duration // how long the ledger keeps final entries
	Drain    time.Duration // how long to keep answering after SIGTERM, until load balancers have noticed
	Grace    time.Duration // how long sends in flight may take after that

	LookupSchedule []time.Duration // waits before each lookup of a send
	FailoverWindow time.Duration   // how old the commits may be that a failover loses; 0 for none

	Retention Retention
	Redrive   Redrive

	AcceptSince time.Time // messages published earlier are dropped, not sent; zero for no cut-over
	Limit       int64     // bytes of one opened message, for sources without a limit of their own

	Sources   map[string]Source
	Providers map[string]Provider
	Channels  map[string]Channel
	Types     map[string]Type // contains "default"
	Callers   []Caller
	Log       Log
	OTLP      OTLP
}

// DefaultType is the type whose policy applies to every type that is not configured.
const DefaultType = "default"

// Margin is the safety margin at the end of leases and windows: a tenth of the lease, at least one second.
func (c Config) Margin() time.Duration { return max(time.Second, c.Lease/10) }

// Database says where the ledger lives: exactly one of URL and Path is set.
type Database struct {
	URL      Secret // postgres:// or postgresql://; a Secret, since it may hold a password
	Path     string // the SQLite file
	MaxConns int    // PostgreSQL connections of this replica
	Pooler   bool   // a transaction pooler is used: no prepared statements are kept on a connection
}

// Retention is how long the payloads of final entries are kept, counted from the last write.
type Retention struct {
	Sent    time.Duration
	Dead    time.Duration // as long as a dead letter may be redriven
	Dropped time.Duration
}

// Redrive limits redrives.
type Redrive struct {
	MaxRedrives int // of one dead letter; after that it is parked
	MaxItems    int // of one redrive
	MaxRunning  int // running redrives
}

// The formats of a source.
const (
	FormatPlain            = "plain"
	FormatPubSub           = "pubsub"
	FormatStandardWebhooks = "standard-webhooks"
)

// The owners of the retries of what a source delivers and is proven unsent.
const (
	RetriesBroker = "broker"
	RetriesLedger = "ledger"
)

// Source is one sender of deliveries, at /v1/push/{its name}.
type Source struct {
	Format        string
	Auth          Auth
	Retries       string
	TakeoverAfter time.Duration // how long after the due time the ledger waits for a silent broker
	AnswerWithin  time.Duration // timeout of the reply: a longer send goes on, and the redelivery gets its result
	MaxAge        time.Duration // how long its sender repeats a message; set where the format has no publish time
	Limit         int64         // bytes of one opened message
	DeadLetter    bool          // it delivers what its broker dead-lettered
}

// Auth is how a source authenticates: exactly one field is set. Every list of secrets can be rotated: it contains
// the old and the new secret until the sender has switched.
type Auth struct {
	OIDC             *OIDC
	Bearer           []Secret
	Header           *HeaderAuth
	StandardWebhooks []Secret // whsec_ followed by the base64 of 24 to 64 bytes
	None             bool
}

// OIDC verifies the token of a Pub/Sub push subscription or of another OpenID issuer.
type OIDC struct {
	Audience string
	Email    string // the service account that pushes
	Issuer   string
	KeysURL  string
}

// HeaderAuth compares one header with a list of secrets.
type HeaderAuth struct {
	Name    string
	Secrets []Secret
}

// The kinds of providers.
const (
	KindWebhook = "webhook"
	KindSMTP    = "smtp"
	KindSandbox = "sandbox"
)

// Provider is one service that sends reminders.
type Provider struct {
	Kind        string
	URL         string            // of a webhook
	Headers     map[string]Secret // added to every request of a webhook
	Signing     Secret            // of a webhook: signs each request by Standard Webhooks; not set for unsigned
	Events      []Secret          // of a webhook: the secrets that sign its status events; nil for no events
	Timeout     time.Duration     // of one call
	Contract    Contract
	Rate        Rate // zero for no limit
	Concurrency int  // calls in flight, per replica
	SMTP        *SMTP
	Insecure    bool // unencrypted connections to another host are intended
}

// Contract is what a provider guarantees about repeats. The zero value is blind, or the sandbox's own for a sandbox.
type Contract struct {
	Idempotent time.Duration // how long a repeated key is recognised; zero if it is not
	Lookup     string        // URL for the lookup of a send key; [LookupItself] for a sandbox
}

// LookupItself is the lookup of a sandbox, which has no URL and does its own lookups.
const LookupItself = "itself"

// The encryption of SMTP.
const (
	TLSStart    = "starttls"
	TLSImplicit = "implicit"
	TLSNone     = "none"
)

// SMTP is the relay of a provider of kind smtp.
type SMTP struct {
	Host     string
	Port     int
	Username string
	Password Secret
	TLS      string
	From     string // an address, with or without a name
	Helo     string // the name in EHLO; empty for the domain of From
}

// Rate is a number of events per duration; zero for no limit.
type Rate struct {
	Events int
	Per    time.Duration
}

// PerSecond returns the rate in events per second; 0 for no limit.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Events) / r.Per.Seconds()
}

// Channel is the routing of a channel.
type Channel struct {
	Provider string
}

// The policies for an unknown outcome at a blind provider.
const (
	OnUnknownHold       = "hold"
	OnUnknownAssumeSent = "assume_sent"
	OnUnknownResend     = "resend"
)

// Type is the policy of one type of reminder. Settings that a type leaves out come from the default type.
type Type struct {
	MaxAttempts int
	Backoff     Backoff
	Deadline    time.Duration // counted from not_before, else from the time from which its age is counted
	OnUnknown   string
	Relevance   *Relevance // nil for no check
}

// Backoff is min(Base * 2^(n-1), Cap) after the n-th attempt, before jitter.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// The policies for a relevance check without an answer.
const (
	OnNoAnswerWait = "wait"
	OnNoAnswerSend = "send"
)

// Relevance is the check whether a reminder is still wanted.
type Relevance struct {
	URL        string // contains {reservation_id} or {reminder_id}; may contain {type} and {channel}
	Headers    map[string]Secret
	Timeout    time.Duration
	OnNoAnswer string
	Insecure   bool // unencrypted connections to another host are intended
}

// The roles of callers. Operator includes support and admin includes operator; producer is separate.
const (
	RoleProducer = "producer"
	RoleSupport  = "support"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Caller is a client of the API. Only digests of its tokens are kept.
type Caller struct {
	Name   string
	Role   string
	Tokens []Digest
}

// The formats of the log.
const (
	LogJSON = "json"
	LogText = "text"
)

// Log is the format and level of the log.
type Log struct {
	Format string
	Level  slog.Level
}

// OTLP says which signals are exported over OTLP. It follows from the standard OTEL_* variables, from which the
// exporters read all other settings themselves (https://opentelemetry.io/docs/specs/otel/protocol/exporter/).
type OTLP struct {
	Traces   bool
	Metrics  bool
	Warnings []string // why a signal is not exported although its endpoint is set, where the operator may not intend it
}
