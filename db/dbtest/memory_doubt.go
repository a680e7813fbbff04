package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Asks implements [Store].
func (m *Memory) Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, by(func(e ledger.Entry) ledger.Moment { return e.AskAt }),
		func(e ledger.Entry, now time.Time) bool {
			return e.Provider == provider && !e.AskAt.IsZero() && !e.AskAt.On(now).After(now)
		})
	return identities(found), err
}

// Unknown implements [Store].
func (m *Memory) Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error) {
	oldest := func(a, b ledger.Entry) int {
		return cmp.Or(a.DoubtSince.Compare(b.DoubtSince), compareIdentity(a, b))
	}
	place := ledger.Entry{Identity: after.Identity, DoubtSince: after.Since}
	return m.find(ctx, max(limit, 1), oldest, func(e ledger.Entry, _ time.Time) bool {
		return e.State == ledger.Unknown && oldest(e, place) > 0
	})
}

// Record implements [Store].
func (m *Memory) Record(ctx context.Context, a ledger.Act) error {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if m.acted(a) {
		return fmt.Errorf("dbtest: the act %q stands already", a.ID)
	}
	m.record(a, now)
	return nil
}

// acted tells whether the audit has an act of this id on the same entry.
func (m *Memory) acted(a ledger.Act) bool {
	return slices.ContainsFunc(m.acts, func(known ledger.Act) bool { return known.Identity == a.Identity && known.ID == a.ID })
}

func (m *Memory) record(a ledger.Act, now time.Time) {
	a.At = now
	m.acts = append(m.acts, a)
}

// Move makes the store a different database of the same rows, as a promoted standby is.
func (m *Memory) Move(epoch string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch = epoch
}

// Epoch implements [Store].
func (m *Memory) Epoch(ctx context.Context) (string, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return m.epoch, nil
}

// Notice implements [Store].
func (m *Memory) Notice(ctx context.Context, epoch string, again bool) (time.Time, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer leave()
	switch _, known := m.epochs[epoch]; {
	case known && again, !known && len(m.epochs) > 0:
		m.epochs[epoch] = now
	case !known:
		m.epochs[epoch] = time.Time{}
	}
	return m.epochs[epoch], nil
}
