// Package sandbox is a provider without a network, for trying the gateway out: the recipient's name chooses
// what happens. It keeps the promise of an idempotent contract, and answers for every send key that it knows,
// within the life of its process.
//
//	ok@…                     accepted, like any other name
//	refuse@…                 refused
//	gone@…                   the address is no more
//	credentials@…            our credentials are wrong
//	throttle@…               throttled once for 2 s, then accepted
//	unreachable@…            unreachable twice, then accepted
//	timeout-after-accept@…   accepted, but the first answer is lost; asked later, it is found
//	timeout@…                lost on its way, every time; asked later, it is not found
//
// What it does not do: it sends nothing, and forgets everything with its process.
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

// memory bounds how many keys are remembered; the oldest is forgotten first.
const memory = 100_000

// Provider is a sandbox.
type Provider struct {
	route ledger.Route

	mu    sync.Mutex
	keys  map[string]*key
	order []string // a ring of the remembered keys, oldest at next
	next  int
	sends int
}

type key struct {
	calls int
	taken bool
}

// New makes a sandbox. Its contract is idempotent for 24 h where c is the zero contract.
func New(name string, c ledger.Contract) *Provider {
	if c == (ledger.Contract{}) {
		c = ledger.Contract{Kind: ledger.Idempotent, Window: 24 * time.Hour}
	}
	return &Provider{
		keys: map[string]*key{},
		route: ledger.Route{
			Provider: name, Contract: c,
			Fingerprint: provider.Fingerprint("sandbox", name, provider.ContractWord(c)),
		},
	}
}

// Route is the sandbox as configured.
func (p *Provider) Route() ledger.Route { return p.route }

// Sends is how many messages were taken; a repeat of one under its key is not another.
func (p *Provider) Sends() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sends
}

// Send does what the recipient's name says.
func (p *Provider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	if ctx.Err() != nil {
		return ledger.Outcome{Result: ledger.ResultNotCalled, Cause: outbound.CauseNotDialled}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.remember(s.SendKey)
	k.calls++
	word, _, _ := strings.Cut(strings.ToLower(s.Recipient), "@")
	switch {
	case word == "refuse":
		return answered(ledger.ResultRefused, 422, "content_refused")
	case word == "gone":
		return answered(ledger.ResultGone, 410, "no_such_recipient")
	case word == "credentials":
		return answered(ledger.ResultCredentials, 401, "bad_token")
	case word == "throttle" && k.calls == 1:
		o := answered(ledger.ResultThrottled, 429, "slow_down")
		o.RetryAfter = 2 * time.Second
		return o
	case word == "timeout":
		return ledger.Outcome{Cause: outbound.CauseTimeout}
	case word == "unreachable" && k.calls <= 2:
		return ledger.Outcome{Result: ledger.ResultUnreachable, Cause: outbound.CauseRefused}
	}
	if !k.taken || p.route.Contract.Kind != ledger.Idempotent {
		k.taken = true
		p.sends++
	}
	if word == "timeout-after-accept" && k.calls == 1 {
		return ledger.Outcome{Cause: outbound.CauseTimeout}
	}
	return taken(s.SendKey)
}

// Ask tells whether the message under a key was taken.
func (p *Provider) Ask(ctx context.Context, sendKey string) (ledger.Finding, ledger.Outcome) {
	if ctx.Err() != nil {
		return ledger.Unanswered, ledger.Outcome{Cause: outbound.CauseNotDialled}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.keys[sendKey]; k == nil || !k.taken {
		return ledger.NotFound, answered(ledger.ResultUnknown, 404, "")
	}
	return ledger.Found, taken(sendKey)
}

func taken(sendKey string) ledger.Outcome {
	o := answered(ledger.ResultAccepted, 200, "")
	o.Receipt = "sandbox-" + sendKey[:min(12, len(sendKey))]
	return o
}

func answered(result ledger.Result, status int, code string) ledger.Outcome {
	return ledger.Outcome{Result: result, Status: status, Code: code, Cause: outbound.CauseStatus}
}

// remember finds a key, or makes room for it.
func (p *Provider) remember(name string) *key {
	if known := p.keys[name]; known != nil {
		return known
	}
	if len(p.order) < memory {
		p.order = append(p.order, name)
	} else {
		delete(p.keys, p.order[p.next])
		p.order[p.next] = name
		p.next = (p.next + 1) % memory
	}
	made := &key{}
	p.keys[name] = made
	return made
}
