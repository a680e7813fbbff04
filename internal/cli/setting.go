package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The contracts of a provider, as a configuration writes them.
const (
	Idempotent = "idempotent"
	Lookup     = "lookup"
	Blind      = "blind"
)

// Contracts lists them.
func Contracts() []string { return []string{Idempotent, Lookup, Blind} }

// What becomes of an unknown outcome at a blind provider, as a configuration writes it.
const (
	hold       = "hold"
	assumeSent = "assume_sent"
	resend     = "resend"
)

// Setting is what a rehearsal takes over from a configuration.
type Setting struct {
	Lease    time.Duration
	Sweep    time.Duration
	Memory   time.Duration
	Promises []Promise         // of the providers that channels lead to
	Types    map[string]Policy // holds "default"
}

// Promise is what a provider promises about repeats.
type Promise struct {
	Contract string
	Window   time.Duration // of an idempotent one
	Timeout  time.Duration // of one call
}

// Policy is that of one type of reminder.
type Policy struct {
	MaxAttempts int
	Base, Cap   time.Duration // of the backoff
	Deadline    time.Duration
	OnUnknown   string
}

// passage is one walk to be made: a promise, and the type whose policy goes with it.
type passage struct {
	Promise
	kind     string
	policy   Policy
	unused   bool // no provider of the configuration makes the promise
	redriven bool // a batch is redriven too: once for each contract, since the policies make no difference to it
}

const defaultType = "default"

// passages are the walks that a setting asks for: each contract in use once, and a blind one once for each
// policy that some type has for it. only is the one contract that is asked for, in use or not; empty for all.
func (s Setting) passages(only string) []passage {
	var all []passage
	for _, contract := range Contracts() {
		promise, used := s.promise(contract)
		if only != "" && contract != only || only == "" && !used {
			continue
		}
		policies := map[string]bool{}
		for _, kind := range s.kinds() {
			policy := s.Types[kind]
			if contract != Blind {
				policy.OnUnknown = "" // makes no difference
			}
			if !policies[policy.OnUnknown] {
				policies[policy.OnUnknown] = true
				all = append(all, passage{promise, kind, s.Types[kind], !used, len(policies) == 1})
			}
		}
	}
	return all
}

// promise is the first of a contract, or the usual one where nobody makes it.
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

// kinds are the types' names, the default first.
func (s Setting) kinds() []string {
	return slices.SortedFunc(maps.Keys(s.Types), func(a, b string) int {
		if (a == defaultType) != (b == defaultType) {
			return map[bool]int{true: -1, false: 1}[a == defaultType]
		}
		return cmp.Compare(a, b)
	})
}

// Spans that are short enough to watch.
const (
	shortLease = 3 * time.Second
	shortSweep = 500 * time.Millisecond
	shortBase  = 500 * time.Millisecond
	shortCap   = 2 * time.Second
)

// shortened is the setting with its waits cut down. What a promise or a deadline says stays, since they
// decide what is right.
func (s Setting) shortened() Setting {
	s.Lease, s.Sweep = min(s.Lease, shortLease), min(s.Sweep, shortSweep)
	types := map[string]Policy{}
	for kind, p := range s.Types {
		p.Base, p.Cap = min(p.Base, shortBase), min(p.Cap, shortCap)
		types[kind] = p
	}
	s.Types = types
	return s
}

// timeout is the longest that a call may take within the lease, and no longer than the provider's own.
func (s Setting) timeout(p Promise) time.Duration {
	margin := max(time.Second, s.Lease/10)
	return min(p.Timeout, (s.Lease-margin)*3/4).Truncate(time.Millisecond)
}

// derived is the configuration of a rehearsal's gateway, to be written as JSON, which is YAML.
func (s Setting) derived(p passage, run run) map[string]any {
	contract := map[string]any{Blind: true}
	switch p.Contract {
	case Idempotent:
		contract = map[string]any{Idempotent: p.Window.String()}
	case Lookup:
		contract = map[string]any{Lookup: run.provider + lookupPath}
	}
	types := map[string]any{}
	for kind, policy := range s.Types {
		types[kind] = map[string]any{
			"max_attempts": policy.MaxAttempts, "deadline": policy.Deadline.String(), "on_unknown": policy.OnUnknown,
			"backoff": map[string]any{"base": policy.Base.String(), "cap": policy.Cap.String()},
		}
	}
	timeout := s.timeout(p.Promise)
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
		"callers":  []any{map[string]any{"name": run.name, "role": "operator", "tokens": []string{run.personToken}}},
		"log":      map[string]any{"format": "json"},
	}
}

// run is what a walk draws for itself.
type run struct {
	name        string // of its source, provider and channel, so that nothing of another run leads there
	provider    string // the address of its own provider
	database    string // as the configuration is to name it
	brokerToken string
	personToken string
}

// headline says what is rehearsed.
func (p passage) headline() string {
	promise := "contract " + p.Contract
	if p.Contract == Idempotent {
		promise += fmt.Sprintf(" (keys known for %s)", short(p.Window))
	}
	if p.Contract == Blind {
		promise += ", on_unknown " + p.policy.OnUnknown
	}
	if p.unused {
		promise += ", which no channel's provider has"
	}
	return promise + ", type " + p.kind
}
