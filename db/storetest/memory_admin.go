package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// purge deletes what the purge scope of a change names.
func (m *Memory) purge(c ledger.Change) {
	id := c.Entry.Identity
	if c.Purge != ledger.PurgeNothing {
		delete(m.payloads, id)
	}
	if c.Purge == ledger.PurgePersonalData {
		delete(m.conflicts, id)
		e := m.entries[id]
		e.ContentHash = ""
		m.entries[id] = e
	}
}

// UpdateGateByOperator implements [Store].
func (m *Memory) UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Gate{}, err
	}
	defer unlock()
	if m.hasAuditEvent(audit) {
		return ledger.Gate{}, fmt.Errorf("storetest: the audit event %q exists already", audit.ID)
	}
	g, err = m.writeGate(g, now)
	if err == nil {
		m.addAuditEvent(audit, now)
	}
	return g, err
}

// Audit implements [Store].
func (m *Memory) Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	newest := func(a, b ledger.AuditEvent) int { return -cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) }
	var found []ledger.AuditEvent
	for _, a := range m.audit {
		if matches(q.Actor, a.Actor) && matches(q.Action, a.Action) &&
			(q.From.IsZero() || !a.At.Before(micros(q.From))) && (q.To.IsZero() || a.At.Before(micros(q.To))) &&
			(q.After == nil || newest(a, ledger.AuditEvent{At: micros(q.After.At), ID: q.After.ID}) > 0) {
			found = append(found, a)
		}
	}
	slices.SortFunc(found, newest)
	return found[:min(len(found), max(q.Limit, 1))], nil
}

// DeadLetterGroups implements [Store].
func (m *Memory) DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	byTime := func(a, b ledger.Entry) int { return cmp.Or(a.Updated.Compare(b.Updated), compareIdentity(a, b)) }
	byCause := map[ledger.DeadLetterGroup][]ledger.Entry{}
	for _, e := range m.entries {
		if e.State == ledger.Dead {
			cause := ledger.DeadLetterGroup{Class: e.Class, Provider: e.Provider, Code: e.Code, Type: e.Type}
			byCause[cause] = append(byCause[cause], e)
		}
	}
	var groups []ledger.DeadLetterGroup
	for g, deadLetters := range byCause {
		first, last := slices.MinFunc(deadLetters, byTime), slices.MaxFunc(deadLetters, byTime)
		g.Count, g.FirstDead, g.LastDead, g.Sample = int64(len(deadLetters)), first.Updated, last.Updated, last.Identity
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b ledger.DeadLetterGroup) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), cmp.Compare(a.Class, b.Class), cmp.Compare(a.Provider, b.Provider),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Type, b.Type))
	})
	return groups[:min(len(groups), max(limit, 1))], nil
}

// RetentionCandidates implements [Store].
func (m *Memory) RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error) {
	oldest := func(a, b ledger.Entry) int { return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), compareIdentity(a, b)) }
	position := ledger.Entry{Identity: after.Identity, FirstSeen: micros(after.FirstSeen)}
	found, err := m.find(ctx, max(limit, 1), oldest, func(e ledger.Entry, _ time.Time) bool { return oldest(e, position) > 0 })
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var candidates []ledger.RetentionCandidate
	for _, e := range found {
		_, payload := m.payloads[e.Identity]
		candidates = append(candidates, ledger.RetentionCandidate{Entry: e, HasPayload: payload})
	}
	return candidates, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, e ledger.Entry) error {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if stored := m.entries[e.Identity]; stored.Absent() || stored.Version != e.Version || !stored.Updated.Equal(e.Updated) {
		return ledger.ErrStale
	}
	if mark := micros(e.LowWater()); mark.After(m.lowWater) {
		m.lowWater = mark
	}
	delete(m.entries, e.Identity)
	delete(m.payloads, e.Identity)
	delete(m.timelines, e.Identity)
	delete(m.conflicts, e.Identity)
	return nil
}
