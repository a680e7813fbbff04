package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// DueLookups implements [Store].
func (m *Memory) DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, byMoment(func(e ledger.Entry) ledger.Moment { return e.NextLookup }),
		func(e ledger.Entry, now time.Time) bool {
			return e.Provider == provider && !e.NextLookup.IsZero() && !e.NextLookup.On(now).After(now)
		})
	return identities(found), err
}

// Unknown implements [Store].
func (m *Memory) Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error) {
	oldest := func(a, b ledger.Entry) int {
		return cmp.Or(a.DoubtSince.Compare(b.DoubtSince), compareIdentity(a, b))
	}
	position := ledger.Entry{Identity: after.Identity, DoubtSince: after.Since}
	return m.find(ctx, max(limit, 1), oldest, func(e ledger.Entry, _ time.Time) bool {
		return e.State == ledger.Unknown && oldest(e, position) > 0
	})
}

// RecordAudit implements [Store].
func (m *Memory) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if m.hasAuditEvent(a) {
		return fmt.Errorf("storetest: the audit event %q exists already", a.ID)
	}
	m.addAuditEvent(a, now)
	return nil
}

// hasAuditEvent reports whether an audit event with this id exists for the same entry.
func (m *Memory) hasAuditEvent(a ledger.AuditEvent) bool {
	return slices.ContainsFunc(m.audit, func(known ledger.AuditEvent) bool { return known.Identity == a.Identity && known.ID == a.ID })
}

func (m *Memory) addAuditEvent(a ledger.AuditEvent, now time.Time) {
	a.At = now
	m.audit = append(m.audit, a)
}

// SetEpoch changes the epoch of the store and keeps its rows, as promoting a standby does.
func (m *Memory) SetEpoch(epoch string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
}

// Epoch implements [Store].
func (m *Memory) Epoch(ctx context.Context) (string, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return m.epoch, nil
}

// RecordEpoch implements [Store].
func (m *Memory) RecordEpoch(ctx context.Context, epoch string, again bool) (time.Time, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer unlock()
	switch _, known := m.epochs[epoch]; {
	case known && again, !known && len(m.epochs) > 0:
		m.epochs[epoch] = now
	case !known:
		m.epochs[epoch] = time.Time{}
	}
	return m.epochs[epoch], nil
}
