package provider

import (
	"context"
	"errors"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Pause stops all calls to a provider until [Pool.Resume]. The change is committed together with its audit event,
// and the other replicas see it within the refresh interval. If the provider is paused already, nothing is written.
// Pause returns [ledger.ErrNotFound] for a provider that is not configured.
func (p *Pool) Pause(ctx context.Context, name string, audit ledger.AuditEvent) (ledger.Gate, error) {
	return p.changeByOperator(ctx, name, func(g ledger.Gate) (ledger.Gate, ledger.AuditEvent, bool) {
		next, event := g.Pause(audit)
		return next, event, !g.Paused
	})
}

// Resume allows calls to a provider again, and also opens a gate that calls have closed. In all else it behaves
// like [Pool.Pause].
func (p *Pool) Resume(ctx context.Context, name string, audit ledger.AuditEvent) (ledger.Gate, error) {
	return p.changeByOperator(ctx, name, func(g ledger.Gate) (ledger.Gate, ledger.AuditEvent, bool) {
		next, event := g.Resume(audit)
		return next, event, g.Paused || !g.ClosedUntil.IsZero() || g.Failures > 0
	})
}

// maxOperatorTries limits how often an operator's change is tried again after a call changed the gate first.
const maxOperatorTries = 8

// changeByOperator applies change to the stored gate and writes it with its audit event. Nothing is written if change
// reports no change.
func (p *Pool) changeByOperator(ctx context.Context, name string, change func(ledger.Gate) (_ ledger.Gate, _ ledger.AuditEvent, changed bool)) (ledger.Gate, error) {
	m := p.members[name]
	if m == nil {
		return ledger.Gate{}, ledger.ErrNotFound
	}
	for range maxOperatorTries {
		if err := p.reload(ctx, m); err != nil {
			return ledger.Gate{}, err
		}
		m.mu.Lock()
		gate := m.gate
		m.mu.Unlock()
		next, audit, changed := change(gate)
		if !changed {
			return gate, nil
		}
		audit.ID = p.o.Token()
		stored, err := p.gates.UpdateGateByOperator(ctx, next, audit)
		if err == nil {
			p.applyWritten(m, stored)
		}
		if !errors.Is(err, ledger.ErrStale) {
			return stored, err
		}
	}
	return ledger.Gate{}, ledger.ErrStale
}
