// Package config turns one YAML file and the environment into one checked [Config].
//
// It is for the program's start: [Load] a file, or [Dev] for a first look without one. The result never
// changes afterwards; a new configuration is a rolling restart.
//
// Invariants:
//
//   - an unknown or repeated key is refused, never ignored: a misspelt limit is no limit;
//   - all faults are told at once ([Faults]), each with its line, where it stands and what to do;
//   - what comes from the environment or is a [Secret] is never shown, in no fault and no print;
//   - a Config that is returned without an error keeps the promises that depend on configuration: a call
//     fits into its lease, the ledger remembers for long enough, nobody unknown can push.
//
// What it does not do: it opens no connection, reads no environment by itself (the caller passes a lookup
// in), and holds no types of other rooms; the app translates.
package config

import (
	"log/slog"
	"time"
)

// Config is everything that can be configured, with its defaults filled in.
type Config struct {
	Dev          bool // made by [Dev]: sources are open and secrets are well known
	AllowSandbox bool // a sandbox provider is meant, although this is not dev

	Listen      string // host:port of the public listener
	OpsListen   string // host:port of health, metrics and pprof
	AdminListen string // host:port of the admin API; empty to serve it on Listen
	Pprof       bool

	Database Database
	Lease    time.Duration // how long a holder may be at work
	Sweep    time.Duration // between two looks for what nobody else brings back
	Memory   time.Duration // how long the ledger remembers what is final
	Drain    time.Duration // how long to keep answering after SIGTERM, while balancers take notice
	Grace    time.Duration // how long sends in flight may take after that

	Asks           []time.Duration // waits before each question to a lookup provider whether it took a send
	FailoverWindow time.Duration   // how long before the database changed under us commits may be forgotten; 0 for never

	Retention Retention
	Redrive   Redrive

	AcceptSince time.Time // published earlier: dropped, not sent; zero for no cut-over
	Limit       int64     // bytes of one opened message, for sources that say nothing else

	Sources   map[string]Source
	Providers map[string]Provider
	Channels  map[string]Channel
	Types     map[string]Type // holds "default"
	Callers   []Caller
	Log       Log
	OTLP      OTLP
}

// DefaultType is the type that stands for every type which is not configured.
const DefaultType = "default"

// Margin is the safety at the end of leases and windows: a tenth of the lease, at least one second.
func (c Config) Margin() time.Duration { return max(time.Second, c.Lease/10) }

// Database says where the ledger lives: exactly one of URL and Path is set.
type Database struct {
	URL      Secret // postgres:// or postgresql://; a Secret, since it may hold a password
	Path     string // the SQLite file
	MaxConns int    // PostgreSQL connections of this replica
	Pooler   bool   // a transaction pooler stands between: no prepared statements kept on a connection
}

// Retention is how long what reminders said is kept, counted from the last write.
type Retention struct {
	Sent    time.Duration
	Dead    time.Duration // as long as a dead letter may be put to work again
	Dropped time.Duration
}

// Redrive bounds what operators put to work again.
type Redrive struct {
	MaxRedrives int // of one dead letter; then it is parked
	MaxItems    int // of one redrive
	MaxRunning  int // redrives under way
}

// The formats of a source.
const (
	FormatPlain            = "plain"
	FormatPubSub           = "pubsub"
	FormatStandardWebhooks = "standard-webhooks"
)

// Who retries what a source brings and is proven unsent.
const (
	RetriesBroker = "broker"
	RetriesLedger = "ledger"
)

// Source is one place that pushes deliveries, at /v1/push/{its name}.
type Source struct {
	Format        string
	Auth          Auth
	Retries       string
	TakeoverAfter time.Duration // how long after its due a silent broker is waited for
	AnswerWithin  time.Duration // its patience: a longer send goes on and is answered by the redelivery
	MaxAge        time.Duration // its retention; set where the format gives no publish time
	Limit         int64         // bytes of one opened message
	DeadLetter    bool          // it brings what its broker gave up on
}

// Auth is how a source proves itself: exactly one field is set. Every list of secrets rotates: old and
// new stand side by side until the sender has changed over.
type Auth struct {
	OIDC             *OIDC
	Bearer           []Secret
	Header           *HeaderAuth
	StandardWebhooks []Secret // whsec_ and base64 of 24 to 64 bytes
	None             bool
}

// OIDC checks the token of a Pub/Sub push subscription or of another OpenID issuer.
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

// Provider is one way out.
type Provider struct {
	Kind        string
	URL         string            // of a webhook
	Headers     map[string]Secret // added to every request of a webhook
	Signing     Secret            // of a webhook: signs each request by Standard Webhooks; not set for unsigned
	Events      []Secret          // of a webhook: what the events that it tells us are signed with; nil for none
	Timeout     time.Duration     // of one call
	Contract    Contract
	Rate        Rate // zero for no limit of our own
	Concurrency int  // calls in flight, per replica
	SMTP        *SMTP
	Insecure    bool // plain text to another host is meant
}

// Contract is what a provider promises about repeats; the zero value is blind.
type Contract struct {
	Idempotent time.Duration // how long the same key is recognised; zero when it is not
	Lookup     string        // where to ask what became of a send key; [LookupItself] for a sandbox
}

// LookupItself is the lookup of a sandbox: it has no address, and answers by itself.
const LookupItself = "itself"

// The ways in which SMTP is encrypted.
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
	Hello    string // the name in EHLO; empty for the domain of From
}

// Rate is so many events per span; zero for no limit.
type Rate struct {
	Events int
	Per    time.Duration
}

// PerSecond is the rate as events per second; 0 for no limit.
func (r Rate) PerSecond() float64 {
	if r.Per <= 0 {
		return 0
	}
	return float64(r.Events) / r.Per.Seconds()
}

// Channel says where a channel leads.
type Channel struct {
	Provider string
}

// What becomes of an unknown outcome at a blind provider.
const (
	OnUnknownHold       = "hold"
	OnUnknownAssumeSent = "assume_sent"
	OnUnknownResend     = "resend"
)

// Type is the policy of one type of reminder. What a type leaves out it takes from the default.
type Type struct {
	MaxAttempts int
	Backoff     Backoff
	Deadline    time.Duration // from not_before, else from the moment that its age counts from
	OnUnknown   string
	Relevance   *Relevance // nil: nobody is asked
}

// Backoff is min(Base * 2^(n-1), Cap) after the n-th attempt, before jitter.
type Backoff struct {
	Base time.Duration
	Cap  time.Duration
}

// What becomes of a reminder when nobody says whether it is still wanted.
const (
	OtherwiseWait = "wait"
	OtherwiseSend = "send"
)

// Relevance is the question 'is it still wanted?'.
type Relevance struct {
	URL       string // names {reservation_id} or {reminder_id}; may name {type} and {channel}
	Headers   map[string]Secret
	Timeout   time.Duration
	Otherwise string
	Insecure  bool // plain text to another host is meant
}

// The roles of callers. Support, operator and admin each hold the one before; producer stands apart.
const (
	RoleProducer = "producer"
	RoleSupport  = "support"
	RoleOperator = "operator"
	RoleAdmin    = "admin"
)

// Caller is one who may use the API. Its tokens are kept as digests alone.
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

// Log says how the log is written.
type Log struct {
	Format string
	Level  slog.Level
}

// OTLP tells which signals leave over OTLP. It follows from the standard OTEL_* variables, which the
// exporters read the rest from by themselves (https://opentelemetry.io/docs/specs/otel/protocol/exporter/).
type OTLP struct {
	Traces  bool
	Metrics bool
}
