package dbtest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// forget takes out what a change says is to go.
func (m *Memory) forget(c ledger.Change) {
	id := c.Entry.Identity
	if c.Forget != ledger.ForgetNothing {
		delete(m.payloads, id)
	}
	if c.Forget == ledger.ForgetPerson {
		delete(m.conflicts, id)
		e := m.entries[id]
		e.ContentHash = ""
		m.entries[id] = e
	}
}

// SteerGate implements [Store].
func (m *Memory) SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Gate{}, err
	}
	defer leave()
	if m.acted(act) {
		return ledger.Gate{}, fmt.Errorf("dbtest: the act %q stands already", act.ID)
	}
	g, err = m.moveGate(g, now)
	if err == nil {
		m.record(act, now)
	}
	return g, err
}

// Audit implements [Store].
func (m *Memory) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.Act, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	newest := func(a, b ledger.Act) int { return -cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) }
	var found []ledger.Act
	for _, a := range m.acts {
		if narrows(q.By, a.By) && narrows(q.Verb, a.Verb) &&
			(q.From.IsZero() || !a.At.Before(micros(q.From))) && (q.To.IsZero() || a.At.Before(micros(q.To))) &&
			(q.After == nil || newest(a, ledger.Act{At: micros(q.After.At), ID: q.After.ID}) > 0) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, newest)
	return found[:min(len(found), max(q.Limit, 1))], nil
}

// Groups implements [Store].
func (m *Memory) Groups(ctx context.Context, limit int) ([]ledger.Group, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	died := func(a, b ledger.Entry) int { return cmp.Or(a.Updated.Compare(b.Updated), compareIdentity(a, b)) }
	byCause := map[ledger.Group][]ledger.Entry{}
	for _, e := range m.entries {
		if e.State == ledger.Dead {
			cause := ledger.Group{Class: e.Class, Provider: e.Provider, Code: e.Code, Type: e.Type}
			byCause[cause] = append(byCause[cause], e)
		}
	}
	var groups []ledger.Group
	for g, letters := range byCause {
		first, last := slices.MinFunc(letters, died), slices.MaxFunc(letters, died)
		g.Count, g.FirstDied, g.LastDied, g.Sample = int64(len(letters)), first.Updated, last.Updated, last.Identity
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b ledger.Group) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Provider, b.Provider),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Type, b.Type))
	})
	return groups[:min(len(groups), max(limit, 1))], nil
}

// Kept implements [Store].
func (m *Memory) Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error) {
	oldest := func(a, b ledger.Entry) int { return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), compareIdentity(a, b)) }
	place := ledger.Entry{Identity: after.Identity, FirstSeen: micros(after.FirstSeen)}
	found, err := m.find(ctx, max(limit, 1), oldest, func(e ledger.Entry, _ time.Time) bool { return oldest(e, place) > 0 })
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []ledger.Kept
	for _, e := range found {
		_, payload := m.payloads[e.Identity]
		kept = append(kept, ledger.Kept{Entry: e, Payload: payload})
	}
	return kept, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, e ledger.Entry) error {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if stands := m.entries[e.Identity]; stands.Absent() || stands.Version != e.Version || !stands.Updated.Equal(e.Updated) {
		return ledger.ErrStale
	}
	delete(m.entries, e.Identity)
	delete(m.payloads, e.Identity)
	delete(m.timelines, e.Identity)
	delete(m.conflicts, e.Identity)
	return nil
}
