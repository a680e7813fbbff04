package rehearsal

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The contracts of a provider, as in a configuration.
const (
	Idempotent = "idempotent"
	Lookup     = "lookup"
	Blind      = "blind"
)

// Contracts returns all contracts.
func Contracts() []string { return []string{Idempotent, Lookup, Blind} }

// The policies for an unknown outcome of a blind provider, as in a configuration.
const (
	hold       = "hold"
	assumeSent = "assume_sent"
	resend     = "resend"
)

// Setting is what a rehearsal takes from a configuration.
type Setting struct {
	Lease    time.Duration
	Sweep    time.Duration
	Memory   time.Duration
	Promises []Promise         // of the providers that channels use
	Types    map[string]Policy // by type name, always with "default"
}

// Promise is what a provider promises about repeats.
type Promise struct {
	Contract string
	Window   time.Duration // of an idempotent contract
	Timeout  time.Duration // of one call
}

// Policy is the policy of one type of reminder.
type Policy struct {
	MaxAttempts int
	Base, Cap   time.Duration // of the backoff
	Deadline    time.Duration
	OnUnknown   string
}

// variant is a scenario to run: a promise, and a type with its policy.
type variant struct {
	Promise
	typeName string
	policy   Policy
	unused   bool // no provider of the configuration has this contract
	redriven bool // a batch is redriven too: once per contract, since the policies make no difference to it
}

const defaultType = "default"

// variants returns the scenarios of a setting: each contract in use once, and a blind one once for each policy that some
// type has for it. only is the one contract to rehearse, in use or not; empty for all in use.
func (s Setting) variants(only string) []variant {
	var all []variant
	for _, contract := range Contracts() {
		promise, used := s.promise(contract)
		if only != "" && contract != only || only == "" && !used {
			continue
		}
		policies := map[string]bool{}
		for _, typeName := range s.typeNames() {
			policy := s.Types[typeName]
			if contract != Blind {
				policy.OnUnknown = "" // makes no difference
			}
			if !policies[policy.OnUnknown] {
				policies[policy.OnUnknown] = true
				all = append(all, variant{promise, typeName, s.Types[typeName], !used, len(policies) == 1})
			}
		}
	}
	return all
}

// promise returns the first promise with a contract, or a default if no provider has the contract.
func (s Setting) promise(contract string) (_ Promise, used bool) {
	for _, p := range s.Promises {
		if p.Contract == contract {
			return p, true
		}
	}
	p := Promise{Contract: contract, Timeout: 10 * time.Second}
	if contract == Idempotent {
		p.Window = 24 * time.Hour
	}
	return p, false
}

// typeNames returns the names of the types, the default first.
func (s Setting) typeNames() []string {
	return slices.SortedFunc(maps.Keys(s.Types), func(a, b string) int {
		if (a == defaultType) != (b == defaultType) {
			return map[bool]int{true: -1, false: 1}[a == defaultType]
		}
		return cmp.Compare(a, b)
	})
}

// Durations that are short enough to wait for.
const (
	shortLease = 3 * time.Second
	shortSweep = 500 * time.Millisecond
	shortBase  = 500 * time.Millisecond
	shortCap   = 2 * time.Second
)

// shortened returns the setting with shorter waits. Promises and deadlines are kept, since the expected result depends on
// them.
func (s Setting) shortened() Setting {
	s.Lease, s.Sweep = min(s.Lease, shortLease), min(s.Sweep, shortSweep)
	types := map[string]Policy{}
	for typeName, p := range s.Types {
		p.Base, p.Cap = min(p.Base, shortBase), min(p.Cap, shortCap)
		types[typeName] = p
	}
	s.Types = types
	return s
}

// callTimeout is the longest time for a call that fits in the lease, and at most the timeout of the provider.
func (s Setting) callTimeout(p Promise) time.Duration {
	margin := max(time.Second, s.Lease/10)
	return min(p.Timeout, (s.Lease-margin)*3/4).Truncate(time.Millisecond)
}

// gatewayConfig is the configuration of the rehearsal's gateway, to be written as JSON, which is valid YAML.
func (s Setting) gatewayConfig(p variant, run runConfig) map[string]any {
	contract := map[string]any{Blind: true}
	switch p.Contract {
	case Idempotent:
		contract = map[string]any{Idempotent: p.Window.String()}
	case Lookup:
		contract = map[string]any{Lookup: run.provider + lookupPath}
	}
	types := map[string]any{}
	for typeName, policy := range s.Types {
		types[typeName] = map[string]any{
			"max_attempts": policy.MaxAttempts, "deadline": policy.Deadline.String(), "on_unknown": policy.OnUnknown,
			"backoff": map[string]any{"base": policy.Base.String(), "cap": policy.Cap.String()},
		}
	}
	timeout := s.callTimeout(p.Promise)
	return map[string]any{
		"listen": "127.0.0.1:0", "ops_listen": "127.0.0.1:0", "drain": "0s", "grace": (timeout + time.Second).String(),
		"database": map[string]any{"url": run.database, "max_conns": 4},
		"lease":    s.Lease.String(), "sweep": s.Sweep.String(), "memory": s.Memory.String(),
		"sources": map[string]any{run.name: map[string]any{
			"format": "plain", "auth": map[string]any{"bearer": map[string]any{"tokens": []string{run.brokerToken}}},
			"max_age": "24h", "answer_within": s.Lease.String(),
		}},
		"providers": map[string]any{run.name: map[string]any{
			"kind": "webhook", "url": run.provider + sendPath, "timeout": timeout.String(), "contract": contract,
		}},
		"channels": map[string]any{run.name: map[string]any{"provider": run.name}},
		"types":    types,
		"callers":  []any{map[string]any{"name": run.name, "role": "operator", "tokens": []string{run.operatorToken}}},
		"log":      map[string]any{"format": "json"},
	}
}

// runConfig has the names, addresses and tokens of one scenario.
type runConfig struct {
	name          string // of its source, provider and channel, so that no entry of another run uses them
	provider      string // the URL of the fake provider
	database      string // as the configuration names it
	brokerToken   string
	operatorToken string
}

// headline describes the variant.
func (p variant) headline() string {
	promise := "contract " + p.Contract
	if p.Contract == Idempotent {
		promise += fmt.Sprintf(" (keys known for %s)", formatDuration(p.Window))
	}
	if p.Contract == Blind {
		promise += ", on_unknown " + p.policy.OnUnknown
	}
	if p.unused {
		promise += ", which the provider of no channel has"
	}
	return promise + ", type " + p.typeName
}
