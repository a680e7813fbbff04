package config

import (
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// What [Dev] lets in. All of it is well known, so Dev stays on loopback.
const (
	DevProducer = "dev-producer"
	DevSupport  = "dev-support"
	DevOperator = "dev-operator"
	DevAdmin    = "dev-admin"
	// DevSigningSecret signs for the source "standard-webhooks", which can't be open: its format is the
	// signature.
	DevSigningSecret = "whsec_c2VuZG9uY2UtZGV2LW9ubHktbm90LWEtc2VjcmV0" // sendonce-dev-only-not-a-secret
)

// devOps is how far the operations listener stands from the public one: 8080 has 9090 beside it.
const devOps = 1010

// Dev is a configuration for a first look: a source for each format, a sandbox behind every usual
// channel, SQLite under dataDir, and retries quick enough to watch. It refuses an addr that is not
// loopback, because everybody knows its tokens.
func Dev(addr, dataDir string) (Config, error) {
	host, port, err := splitAddress(addr)
	if err != nil {
		return Config{}, errors.New("dev: the address is no host:port; write it like 127.0.0.1:8080")
	}
	if !isLoopback(host) {
		return Config{}, errors.New("dev: listens on loopback only, because its tokens are well known; use 127.0.0.1, or serve with a configuration")
	}
	if dataDir == "" {
		return Config{}, errors.New("dev: the data directory has no name")
	}
	ops := 0
	if port > 0 && port+devOps < 1<<16 {
		ops = port + devOps
	}
	c := Config{
		Dev:       true,
		Listen:    addr,
		OpsListen: net.JoinHostPort(host, strconv.Itoa(ops)),
		Database:  Database{Path: filepath.Join(dataDir, "ledger.db"), MaxConns: 1},
		Lease:     10 * time.Second,
		Sweep:     time.Second,
		Memory:    400 * day,
		Retention: Retention{Sent: 30 * day, Dead: 90 * day, Dropped: 30 * day},
		Redrive:   Redrive{MaxRedrives: 3, MaxItems: 1000, MaxRunning: 100},
		Asks:      []time.Duration{time.Second, 5 * time.Second, 30 * time.Second},
		Drain:     0,
		Grace:     10 * time.Second,
		Limit:     256 << 10,
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
		AnswerWithin: min(patience(format), 10*time.Second), Limit: 256 << 10,
	}
	if format != FormatPubSub {
		source.MaxAge = 7 * day
	}
	return source
}
