package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/sendonce/sendonce/internal/ledger"
)

// CreateRedrive implements [Store].
func (m *Memory) CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer leave()
	if m.acted(act) {
		return ledger.Redrive{}, fmt.Errorf("dbtest: the act %q stands already", act.ID)
	}
	for _, known := range m.redrives {
		if known.ID == r.ID || known.By == r.By && known.Key == r.Key {
			return ledger.Redrive{}, ledger.ErrExists
		}
	}
	r.Version, r.Created, r.Updated = 1, now, now
	r.Deadline = micros(r.Deadline)
	m.redrives[r.ID] = r
	for _, item := range items {
		item.Redrive = r.ID
		m.items[r.ID] = append(m.items[r.ID], item)
	}
	m.record(act, now)
	return r, nil
}

// Redrive implements [Store].
func (m *Memory) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return m.redriveWhere(ctx, func(r ledger.Redrive) bool { return r.ID == id })
}

// RedriveByKey implements [Store].
func (m *Memory) RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error) {
	return m.redriveWhere(ctx, func(r ledger.Redrive) bool { return r.By == by && r.Key == key })
}

func (m *Memory) redriveWhere(ctx context.Context, is func(ledger.Redrive) bool) (ledger.Redrive, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer leave()
	for _, r := range m.redrives {
		if is(r) {
			return r, nil
		}
	}
	return ledger.Redrive{}, ledger.ErrNotFound
}

// Redrives implements [Store].
func (m *Memory) Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error) {
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
	_, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
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

// SwapRedrive implements [Store].
func (m *Memory) SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Redrive{}, err
	}
	defer leave()
	stands, exists := m.redrives[r.ID]
	if !exists || stands.Version != r.Version {
		return ledger.Redrive{}, ledger.ErrStale
	}
	if act != nil && m.acted(*act) {
		return ledger.Redrive{}, fmt.Errorf("dbtest: the act %q stands already", act.ID)
	}
	stands.State, stands.Holder = r.State, r.Holder
	stands.LeaseUntil, stands.Finished = ledger.At(r.LeaseUntil.On(now)), ledger.At(r.Finished.On(now))
	stands.Version++
	stands.Updated = now
	m.redrives[r.ID] = stands
	if act != nil {
		m.record(*act, now)
	}
	return stands, nil
}

// RedriveItems implements [Store].
func (m *Memory) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	items := slices.Clone(m.items[id])
	for i, item := range items {
		e := m.entries[item.Identity]
		items[i].Standing = ledger.Standing{State: e.State, Class: e.Class, Reason: e.Reason}
	}
	return items, nil
}

// SettleItem implements [Store].
func (m *Memory) SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if m.redrives[item.Redrive].Holder != holder {
		return ledger.ErrStale
	}
	for i, stands := range m.items[item.Redrive] {
		if stands.Place == item.Place && stands.Result == "" {
			stands.Result, stands.Became, stands.At = item.Result, item.Became, now
			m.items[item.Redrive][i] = stands
			return nil
		}
	}
	return ledger.ErrStale
}
