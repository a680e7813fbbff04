package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sendonce/sendonce/internal/ledger"
)

// InsertRedrive implements [Store].
func (m *Memory) InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer unlock()
	if m.hasAuditEvent(audit) {
		return ledger.Redrive{}, fmt.Errorf("storetest: the audit event %q exists already", audit.ID)
	}
	for _, known := range m.redrives {
		if known.ID == r.ID || known.Actor == r.Actor && known.IdempotencyKey == r.IdempotencyKey {
			return ledger.Redrive{}, ledger.ErrExists
		}
	}
	r.Version, r.Created, r.Updated = 1, now, now
	r.Deadline = micros(r.Deadline)
	m.redrives[r.ID] = r
	for _, item := range items {
		item.RedriveID = r.ID
		m.items[r.ID] = append(m.items[r.ID], item)
	}
	m.addAuditEvent(audit, now)
	return r, nil
}

// Redrive implements [Store].
func (m *Memory) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return m.redriveWhere(ctx, func(r ledger.Redrive) bool { return r.ID == id })
}

// RedriveByKey implements [Store].
func (m *Memory) RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error) {
	return m.redriveWhere(ctx, func(r ledger.Redrive) bool { return r.Actor == actor && r.IdempotencyKey == key })
}

func (m *Memory) redriveWhere(ctx context.Context, match func(ledger.Redrive) bool) (ledger.Redrive, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer unlock()
	for _, r := range m.redrives {
		if match(r) {
			return r, nil
		}
	}
	return ledger.Redrive{}, ledger.ErrNotFound
}

// Redrives implements [Store].
func (m *Memory) Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error) {
	newest := func(a, b ledger.Redrive) int { return -older(a, b) }
	return m.redrivesWhere(ctx, limit, newest, func(r ledger.Redrive) bool {
		return after == nil || newest(r, ledger.Redrive{Created: micros(after.Created), ID: after.ID}) > 0
	})
}

// IdleRedrives implements [Store].
func (m *Memory) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	now := micros(m.clock())
	return m.redrivesWhere(ctx, limit, older, func(r ledger.Redrive) bool {
		return r.State == ledger.RedriveRunning && !r.LeaseUntil.On(now).After(now)
	})
}

// RunningRedrives implements [Store].
func (m *Memory) RunningRedrives(ctx context.Context) (int, error) {
	running, err := m.redrivesWhere(ctx, 1<<30, older, func(r ledger.Redrive) bool { return r.State == ledger.RedriveRunning })
	return len(running), err
}

func (m *Memory) redrivesWhere(
	ctx context.Context, limit int, order func(a, b ledger.Redrive) int, keep func(ledger.Redrive) bool,
) ([]ledger.Redrive, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []ledger.Redrive
	for _, r := range m.redrives {
		if keep(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, order)
	return found[:min(len(found), max(limit, 1))], nil
}

func older(a, b ledger.Redrive) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// UpdateRedrive implements [Store].
func (m *Memory) UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer unlock()
	stored, exists := m.redrives[r.ID]
	if !exists || stored.Version != r.Version {
		return ledger.Redrive{}, ledger.ErrStale
	}
	if audit != nil && m.hasAuditEvent(*audit) {
		return ledger.Redrive{}, fmt.Errorf("storetest: the audit event %q exists already", audit.ID)
	}
	stored.State, stored.Holder = r.State, r.Holder
	stored.LeaseUntil, stored.Finished = ledger.At(r.LeaseUntil.On(now)), ledger.At(r.Finished.On(now))
	stored.Version++
	stored.Updated = now
	m.redrives[r.ID] = stored
	if audit != nil {
		m.addAuditEvent(*audit, now)
	}
	return stored, nil
}

// RedriveItems implements [Store].
func (m *Memory) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	items := slices.Clone(m.items[id])
	for i, item := range items {
		e := m.entries[item.Identity]
		items[i].Current = ledger.StateSummary{State: e.State, Class: e.Class, Reason: e.Reason}
	}
	return items, nil
}

// SetItemResult implements [Store].
func (m *Memory) SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if r := m.redrives[item.RedriveID]; r.Holder != holder && r.State != ledger.RedriveCancelled {
		return ledger.ErrStale
	}
	for i, stored := range m.items[item.RedriveID] {
		if stored.Position == item.Position && stored.Result == "" {
			stored.Result, stored.ReparsedAs, stored.At = item.Result, item.ReparsedAs, now
			m.items[item.RedriveID][i] = stored
			return nil
		}
	}
	return ledger.ErrStale
}
