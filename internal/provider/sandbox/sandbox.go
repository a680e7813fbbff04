// Package sandbox is a provider without a network, for trying out the gateway: the recipient's local part chooses
// the outcome. For the lifetime of the process it honours an idempotent contract and answers lookups for the send
// keys that it remembers.
//
//	ok@…                     accepted, like any other name
//	refuse@…                 refused
//	gone@…                   the address no longer exists
//	credentials@…            our credentials are wrong
//	throttle@…               throttled once for 2 s, then accepted
//	unreachable@…            unreachable twice, then accepted
//	defer@…                  deferred twice, then accepted
//	timeout-after-accept@…   accepted, but the first response is lost; a later lookup finds it
//	timeout@…                the request is lost, every time; a later lookup does not find it
//
// What it does not do: it sends nothing, and keeps nothing beyond its process.
package sandbox

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// maxKeys is how many send keys are remembered; beyond it, the oldest is dropped.
const maxKeys = 100_000

// Provider is a sandbox.
type Provider struct {
	route ledger.Route

	mu    sync.Mutex
	keys  map[string]*key
	order []string // ring buffer of the remembered keys; once full, the oldest is at next
	next  int
	sends int
}

// key is what is remembered about a send key.
type key struct {
	calls    int
	accepted bool
}

// New returns a sandbox provider. If c is the zero contract, its contract is idempotent for 24 h.
func New(name string, c ledger.Contract) *Provider {
	if c == (ledger.Contract{}) {
		c = ledger.Contract{Kind: ledger.ContractIdempotent, Window: 24 * time.Hour}
	}
	return &Provider{
		keys: map[string]*key{},
		route: ledger.Route{
			Provider: name, Contract: c,
			Fingerprint: provider.Fingerprint("sandbox", name, provider.ContractPart(c)),
		},
	}
}

// Route returns the provider's route as configured.
func (p *Provider) Route() ledger.Route { return p.route }

// Sends returns how many messages were accepted. Under an idempotent contract, a repeated send key does not count
// again.
func (p *Provider) Sends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends
}

// Send returns the outcome that the recipient's local part selects.
func (p *Provider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	if ctx.Err() != nil {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.remember(s.SendKey)
	k.calls++
	name, _, _ := strings.Cut(strings.ToLower(s.Recipient), "@")
	switch {
	case name == "refuse":
		return response(ledger.ResultRefused, 422, "content_refused")
	case name == "gone":
		return response(ledger.ResultGone, 410, "no_such_recipient")
	case name == "credentials":
		return response(ledger.ResultCredentials, 401, "bad_token")
	case name == "throttle" && k.calls == 1:
		o := response(ledger.ResultThrottled, 429, "slow_down")
		o.RetryAfter = 2 * time.Second
		return o
	case name == "timeout":
		return ledger.Outcome{Cause: outbound.CauseTimeout}
	case name == "defer" && k.calls <= 2:
		return response(ledger.ResultDeferred, 450, "4.2.1")
	case name == "unreachable" && k.calls <= 2:
		return ledger.Outcome{Result: ledger.ResultUnreachable, Cause: outbound.CauseRefused}
	}
	if !k.accepted || p.route.Contract.Kind != ledger.ContractIdempotent {
		k.accepted = true
		p.sends++
	}
	if name == "timeout-after-accept" && k.calls == 1 {
		return ledger.Outcome{Cause: outbound.CauseTimeout}
	}
	return accepted(s.SendKey)
}

// Lookup reports whether the message under a send key was accepted.
func (p *Provider) Lookup(ctx context.Context, sendKey string) (ledger.LookupResult, ledger.Outcome) {
	if ctx.Err() != nil {
		return ledger.LookupUnanswered, ledger.Outcome{Cause: outbound.CauseNotDialled}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.keys[sendKey]; k == nil || !k.accepted {
		return ledger.LookupNotFound, response(ledger.ResultUnknown, 404, "")
	}
	return ledger.LookupFound, accepted(sendKey)
}

func accepted(sendKey string) ledger.Outcome {
	o := response(ledger.ResultAccepted, 200, "")
	o.Receipt = "sandbox-" + sendKey[:min(12, len(sendKey))]
	return o
}

func response(result ledger.Result, status int, code string) ledger.Outcome {
	return ledger.Outcome{Result: result, Status: status, Code: code, Cause: outbound.CauseStatus}
}

// remember returns the record of a send key, and creates it if there is none.
func (p *Provider) remember(sendKey string) *key {
	if k := p.keys[sendKey]; k != nil {
		return k
	}
	if len(p.order) < maxKeys {
		p.order = append(p.order, sendKey)
	} else {
		delete(p.keys, p.order[p.next])
		p.order[p.next] = sendKey
		p.next = (p.next + 1) % maxKeys
	}
	k := &key{}
	p.keys[sendKey] = k
	return k
}
