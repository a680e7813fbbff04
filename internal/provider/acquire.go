package provider

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// maxGateTries limits how often a gate change is tried again after another replica changed the gate first.
const maxGateTries = 3

// Acquire requests a slot at a provider. It waits until ctx ends for a free slot of the concurrency limit and a token
// of the rate limit, but does not wait for the gate to open. ctx should be short: it limits how long the caller
// waits for the slot, not the call itself.
//
// With a slot it returns the slot's release function, to be called when the call is over. Release frees the slot,
// updates the gate with the call's outcome, and returns how long the gate is closed from then on (0 if it is open).
// Its wait argument is the delay that the policy chose after this outcome, clamped. A release with
// [ledger.ResultNotCalled] frees the slot and leaves the gate as it is, except that after a probe that made no call
// the next call may probe. Only the first call of release has an effect. Without a slot the release function is nil.
func (p *Pool) Acquire(ctx context.Context, name string) (ledger.Slot, func(o ledger.Outcome, wait time.Duration) time.Duration) {
	m := p.members[name]
	if m == nil {
		return ledger.Slot{Provider: name, Reason: ledger.ReasonNoCapacity, Wait: time.Minute}, nil
	}
	if !p.loaded.Load() {
		_ = p.Refresh(ctx)
	}
	if status := p.status(m); !status.Open {
		return closedSlot(name, status), nil
	}
	wait, ok := m.acquire(ctx, p.o.Now)
	if !ok {
		return ledger.Slot{Provider: name, Reason: ledger.ReasonNoCapacity, Wait: wait}, nil
	}
	admitted := false
	defer func() {
		if !admitted { // also after a panic in the store
			<-m.slots
		}
	}()
	status, probe := p.admit(ctx, m) // it may have closed while we waited for the slot
	if !status.Open {
		return closedSlot(name, status), nil
	}
	admitted = true
	var (
		once   sync.Once
		closed time.Duration
	)
	return ledger.Slot{Provider: name, Held: true}, func(o ledger.Outcome, wait time.Duration) time.Duration {
		once.Do(func() {
			defer func() { <-m.slots }()
			// Limited in total: settling the outcome waits for this, and must finish within its lease.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*p.o.Write)
			defer cancel()
			closed = p.record(ctx, m, o.Result, wait, probe)
		})
		return closed
	}
}

func closedSlot(name string, status ledger.GateStatus) ledger.Slot {
	return ledger.Slot{Provider: name, Reason: ledger.ReasonGateClosed, Wait: status.Wait}
}

// admit checks the gate. If the gate is open for a single probe, the probe belongs to the replica that first writes
// the gate as half-open. probe is the version of that write if it was ours, and 0 otherwise.
func (p *Pool) admit(ctx context.Context, m *member) (status ledger.GateStatus, probe int64) {
	m.mu.Lock()
	now := p.ledgerNow()
	before := m.gate
	status = before.Status(now)
	if !status.Probe {
		m.mu.Unlock()
		return status, 0
	}
	halfOpen := before.HalfOpen(p.o.Rules)
	m.gate, m.unsaved = atFixedTime(halfOpen, now), true // so that no other call of this replica probes
	m.mu.Unlock()

	written, err := p.write(ctx, halfOpen)
	if err == nil {
		p.applyWritten(m, written)
		return status, written.Version
	}
	if errors.Is(err, ledger.ErrStale) {
		_ = p.reload(ctx, m) // if that fails too, the gate stays closed here until the next refresh
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now = p.ledgerNow()
	if m.unsaved {
		// We do not know whether the write was stored: no call of this replica probes before the next refresh.
		before.ClosedUntil = ledger.In(p.o.Refresh)
		m.gate = atFixedTime(before, now)
	}
	status = m.gate.Status(now)
	// If the gate is open again, another replica's probe succeeded meanwhile; the caller tries again after Wait.
	return ledger.GateStatus{Wait: max(status.Wait, p.o.Refresh), Class: status.Class}, 0
}

// record updates the gate with a call's result. It changes the local gate at once, so that many calls that fail
// together close it only once, and then writes it for all replicas if the store can be reached.
func (p *Pool) record(ctx context.Context, m *member, result ledger.Result, wait time.Duration, probe int64) time.Duration {
	m.mu.Lock()
	consecutive := m.countUnreachable(result)
	for range maxGateTries {
		now := p.ledgerNow()
		next, changed := m.gate.OnResult(result, wait, consecutive, probe > 0, p.o.Rules, now)
		if probe > 0 && m.gate.Version == probe && result == ledger.ResultNotCalled {
			next.ClosedUntil, changed = ledger.Moment{}, true // the probe made no call: the next call may probe
		}
		if !changed {
			break
		}
		if next.Failures > m.gate.Failures {
			m.unreachable = 0
		}
		m.gate, m.unsaved = atFixedTime(next, now), true
		gate := m.gate
		m.mu.Unlock()

		written, err := p.write(ctx, next)
		if err == nil {
			p.applyWritten(m, written)
			p.o.OnGateChange(gate)
			m.mu.Lock()
			break
		}
		if errors.Is(err, ledger.ErrStale) {
			err = p.reload(ctx, m)
		} else {
			p.o.OnGateChange(gate)
		}
		m.mu.Lock()
		if err != nil {
			break // changed locally, at least; the next refresh brings the store's gate
		}
	}
	defer m.mu.Unlock()
	return m.gate.Status(p.ledgerNow()).Wait
}

// applyWritten adopts a gate as it was written, unless a newer one is known.
func (p *Pool) applyWritten(m *member, written ledger.Gate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if written.Version >= m.gate.Version {
		m.gate, m.unsaved = atFixedTime(written, p.ledgerNow()), false
	}
}

func (p *Pool) write(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Write)
	defer cancel()
	return p.gates.UpdateGate(ctx, g)
}

// reload adopts the stored gate after the store reported ours as stale, even if the stored version is lower: after
// a database restore, the local gate would otherwise be impossible to write ever again.
func (p *Pool) reload(ctx context.Context, m *member) error {
	ctx, cancel := context.WithTimeout(ctx, p.o.Write)
	defer cancel()
	gates, now, err := p.gates.Gates(ctx)
	if err != nil {
		return err
	}
	stored := ledger.Gate{Provider: m.route.Provider}
	for _, gate := range gates {
		if gate.Provider == stored.Provider {
			stored = gate
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gate, m.unsaved = atFixedTime(stored, now), false
	return nil
}
