package config

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// The tokens and the secret of [Dev]. They are well known, so Dev listens on loopback only.
const (
	DevProducer = "dev-producer"
	DevSupport  = "dev-support"
	DevOperator = "dev-operator"
	DevAdmin    = "dev-admin"
	// DevSigningSecret signs for the source "standard-webhooks", which can't be open, since its format requires
	// a signature.
	DevSigningSecret = "whsec_c2VuZG9uY2UtZGV2LW9ubHktbm90LWEtc2VjcmV0" // sendonce-dev-only-not-a-secret
)

// devOps is the offset of the operations listener's port from the public one's: 9090 for 8080.
const devOps = 1010

// Dev returns a configuration for trying the gateway: a source for each format, a sandbox as the provider of every
// usual channel, SQLite under dataDir, and short retries. An addr that is not loopback is an error, because the
// tokens are well known.
func Dev(addr, dataDir string) (Config, error) {
	host, port, err := splitAddress(addr)
	if err != nil {
		return Config{}, errors.New("dev: the address is not host:port; write it like 127.0.0.1:8080")
	}
	if !isLoopback(host) {
		return Config{}, errors.New("dev: listens on loopback only, because its tokens are well known; use 127.0.0.1, or 'sendonce serve' with a configuration")
	}
	if dataDir == "" {
		return Config{}, errors.New("dev: the data directory is empty")
	}
	ops := 0
	if port > 0 && port+devOps < 1<<16 {
		ops = port + devOps
	}
	c := Config{
		Dev:            true,
		Listen:         addr,
		IdleTimeout:    DefaultIdleTimeout,
		OpsListen:      net.JoinHostPort(host, strconv.Itoa(ops)),
		Database:       Database{Path: filepath.Join(dataDir, "ledger.db"), MaxConns: 1},
		Lease:          10 * time.Second,
		Sweep:          time.Second,
		Memory:         400 * day,
		Retention:      Retention{Sent: 30 * day, Dead: 90 * day, Dropped: 30 * day},
		Redrive:        Redrive{MaxRedrives: 3, MaxItems: 1000, MaxRunning: 100},
		LookupSchedule: []time.Duration{time.Second, 5 * time.Second, 30 * time.Second},
		Drain:          0,
		Grace:          10 * time.Second,
		Limit:          256 << 10,
		Sources: map[string]Source{
			FormatPlain:            devSource(FormatPlain, Auth{None: true}),
			FormatPubSub:           devSource(FormatPubSub, Auth{None: true}),
			FormatStandardWebhooks: devSource(FormatStandardWebhooks, Auth{StandardWebhooks: []Secret{NewSecret(DevSigningSecret)}}),
		},
		Providers: map[string]Provider{"sandbox": {Kind: KindSandbox, Timeout: 5 * time.Second, Concurrency: 10}},
		Channels:  map[string]Channel{"email": {"sandbox"}, "sms": {"sandbox"}, "push": {"sandbox"}},
		Types: map[string]Type{DefaultType: {
			MaxAttempts: 6,
			Backoff:     Backoff{Base: time.Second, Cap: 10 * time.Second},
			Deadline:    day,
			OnUnknown:   OnUnknownHold,
		}},
		Callers: []Caller{
			{Name: DevProducer, Role: RoleProducer, Tokens: []Digest{DigestOf(DevProducer)}},
			{Name: DevSupport, Role: RoleSupport, Tokens: []Digest{DigestOf(DevSupport)}},
			{Name: DevOperator, Role: RoleOperator, Tokens: []Digest{DigestOf(DevOperator)}},
			{Name: DevAdmin, Role: RoleAdmin, Tokens: []Digest{DigestOf(DevAdmin)}},
		},
		Log: Log{Format: LogText, Level: slog.LevelInfo},
	}
	var faults Faults
	for _, f := range check(c) {
		faults = append(faults, Fault{File: "dev", Path: f.path, Problem: f.problem})
	}
	if faults != nil {
		return Config{}, faults
	}
	return c, nil
}

func devSource(format string, auth Auth) Source {
	source := Source{
		Format: format, Auth: auth, Retries: RetriesBroker, TakeoverAfter: 10 * time.Second,
		AnswerWithin: min(defaultAnswerWithin(format), 10*time.Second), Limit: 256 << 10,
	}
	if format != FormatPubSub {
		source.MaxAge = 7 * day
	}
	return source
}
