package storetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Memory is a ledger store in memory. A write becomes visible at once, under one lock, and values are copied on the
// way in and out. Nothing outlives the process.
type Memory struct {
	clock func() time.Time

	mu        sync.Mutex
	entries   map[ledger.Identity]ledger.Entry
	payloads  map[ledger.Identity]ledger.Payload
	timelines map[ledger.Identity][]ledger.TimelineEvent
	conflicts map[ledger.Identity][]ledger.Conflict
	gates     map[string]ledger.Gate
	audit     []ledger.AuditEvent
	epochs    map[string]time.Time
	epoch     string
	lowWater  time.Time
	redrives  map[string]ledger.Redrive
	items     map[string][]ledger.RedriveItem
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty store whose clock is now.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{
		clock:     now,
		entries:   map[ledger.Identity]ledger.Entry{},
		payloads:  map[ledger.Identity]ledger.Payload{},
		timelines: map[ledger.Identity][]ledger.TimelineEvent{},
		conflicts: map[ledger.Identity][]ledger.Conflict{},
		gates:     map[string]ledger.Gate{},
		epochs:    map[string]time.Time{},
		redrives:  map[string]ledger.Redrive{},
		items:     map[string][]ledger.RedriveItem{},
	}
}

// lock acquires the mutex, unless the context has ended, and returns the ledger's now and the function that releases it.
func (m *Memory) lock(ctx context.Context) (now time.Time, unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, nil, fmt.Errorf("storetest: %w", err)
	}
	m.mu.Lock()
	return micros(m.clock()), m.mu.Unlock, nil
}

// Insert implements [Store].
func (m *Memory) Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Entry{}, err
	}
	defer unlock()
	if _, exists := m.entries[c.Entry.Identity]; exists {
		return ledger.Entry{}, ledger.ErrExists
	}
	c.Entry.FirstSeen, c.Entry.Version = now, 0
	e, err := m.write(c, now)
	if err == nil && c.Payload != nil {
		m.payloads[e.Identity] = clonePayload(*c.Payload)
	}
	return e, err
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Snapshot{}, err
	}
	defer unlock()
	return ledger.Snapshot{Entry: m.entries[id], Now: now, Epoch: m.epoch, LowWater: m.lowWater}, nil
}

// Update implements [Store].
func (m *Memory) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Entry{}, err
	}
	defer unlock()
	old, exists := m.entries[c.Entry.Identity]
	if !exists || old.Version != c.Entry.Version || !c.Entry.Updated.IsZero() && !c.Entry.Updated.Equal(old.Updated) {
		return ledger.Entry{}, ledger.ErrStale
	}
	if c.Audit != nil && m.hasAuditEvent(*c.Audit) {
		return ledger.Entry{}, fmt.Errorf("storetest: the audit event %q exists already", c.Audit.ID)
	}
	c.Entry.FirstSeen, c.Entry.SendKey, c.Entry.ContentHash = old.FirstSeen, old.SendKey, old.ContentHash
	c.Entry.NotBefore = old.NotBefore
	e, err := m.write(c, now)
	if err == nil {
		m.purge(c)
	}
	return e, err
}

// write stores the entry with its moments fixed, and its event, or nothing at all.
func (m *Memory) write(c ledger.Change, now time.Time) (ledger.Entry, error) {
	e := c.Entry
	e.Version++
	e.Updated = now
	for _, moment := range []*ledger.Moment{&e.LeaseUntil, &e.ClaimedAt, &e.Due, &e.Wake, &e.NextLookup} {
		*moment = ledger.At(moment.On(now))
	}
	for _, at := range []*time.Time{&e.NotBefore, &e.Deadline, &e.DoubtSince, &e.Published} {
		*at = micros(*at)
	}
	if err := checkConstraints(e); err != nil {
		return ledger.Entry{}, fmt.Errorf("storetest: %w", err)
	}
	m.entries[e.Identity] = e
	if c.Event != nil {
		event := *c.Event
		event.Version, event.At = e.Version, now
		event.Started, event.Finished = micros(event.Started), micros(event.Finished)
		event.Outcome.RetryAfter = event.Outcome.RetryAfter.Truncate(time.Microsecond)
		m.timelines[e.Identity] = append(m.timelines[e.Identity], event)
	}
	if c.Audit != nil {
		m.addAuditEvent(*c.Audit, now)
	}
	return e, nil
}

// checkConstraints rejects what the constraints of the SQL schemas reject.
func checkConstraints(e ledger.Entry) error {
	classes := append(ledger.DeadClasses(), "",
		ledger.ClassCredentials, ledger.ClassThrottled, ledger.ClassUnreachable, ledger.ClassUnknown)
	receiptMissing := []ledger.ReceiptMissing{"", ledger.MissingAssumed, ledger.MissingUnreadable, ledger.MissingResolved}
	switch {
	case !slices.Contains(ledger.States(), e.State):
		return fmt.Errorf("state %q", e.State)
	case !slices.Contains(classes, e.Class):
		return fmt.Errorf("class %q", e.Class)
	case !slices.Contains([]ledger.Owner{"", ledger.OwnerBroker, ledger.OwnerLedger}, e.Owner):
		return fmt.Errorf("owner %q", e.Owner)
	case !slices.Contains(receiptMissing, e.ReceiptMissing):
		return fmt.Errorf("receipt_missing %q", e.ReceiptMissing)
	case min(e.Attempts, e.BudgetUsed, e.LeaseExpirations, e.Deliveries, e.Redrives, e.LookupsNotFound) < 0:
		return fmt.Errorf("a count below zero")
	}
	return e.Check()
}

// Payload implements [Store].
func (m *Memory) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Payload{}, err
	}
	defer unlock()
	p, exists := m.payloads[id]
	if !exists {
		return ledger.Payload{}, ledger.ErrNotFound
	}
	return clonePayload(p), nil
}

// RecordConflict implements [Store].
func (m *Memory) RecordConflict(ctx context.Context, c ledger.Conflict) (bool, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	if m.entries[c.Identity].ContentHash == "" {
		return false, nil
	}
	for _, known := range m.conflicts[c.Identity] {
		if known.ContentHash == c.ContentHash {
			return false, nil
		}
	}
	c.FirstSeen = now
	m.conflicts[c.Identity] = append(m.conflicts[c.Identity], c)
	return true, nil
}

// EntryDetail implements [Store].
func (m *Memory) EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.EntryDetail{}, err
	}
	defer unlock()
	e, exists := m.entries[id]
	if !exists {
		return ledger.EntryDetail{}, ledger.ErrNotFound
	}
	detail := ledger.EntryDetail{
		Entry:     e,
		Timeline:  slices.Clone(m.timelines[id]),
		Conflicts: slices.Clone(m.conflicts[id]),
	}
	for _, audit := range m.audit {
		if audit.Identity == id {
			detail.Audit = append(detail.Audit, audit)
		}
	}
	if p, kept := m.payloads[id]; kept {
		p = clonePayload(p)
		detail.Payload = &p
	}
	return detail, nil
}

// Timeline implements [Store].
func (m *Memory) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error) {
	_, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return slices.Clone(m.timelines[id]), nil
}

// ByReminder implements [Store].
func (m *Memory) ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error) {
	return m.find(ctx, 0, compareIdentity, func(e ledger.Entry, _ time.Time) bool {
		return e.ReminderID == reminderID
	})
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	newest := func(a, b ledger.Entry) int {
		return -cmp.Or(a.FirstSeen.Compare(b.FirstSeen), compareIdentity(a, b))
	}
	return m.find(ctx, max(q.Limit, 1), newest, func(e ledger.Entry, _ time.Time) bool {
		if after := q.After; after != nil {
			position := ledger.Entry{Identity: after.Identity, FirstSeen: micros(after.FirstSeen)}
			if newest(e, position) <= 0 {
				return false
			}
		}
		return matches(q.ReminderID, e.ReminderID) && matches(q.ReservationID, e.ReservationID) &&
			matches(q.UserID, e.UserID) && matches(q.State, e.State) && matches(q.Class, e.Class) &&
			matches(q.Type, e.Type) && matches(q.Channel, e.Channel) && matches(q.Provider, e.Provider) &&
			matches(q.Code, e.Code) && (!q.Conflict || len(m.conflicts[e.Identity]) > 0) &&
			(q.From.IsZero() || !e.FirstSeen.Before(micros(q.From))) &&
			(q.To.IsZero() || e.FirstSeen.Before(micros(q.To)))
	})
}

// matches reports whether a filter is empty or equal to a value.
func matches[T comparable](filter, value T) bool {
	var any T
	return filter == any || filter == value
}

// Due implements [Store].
func (m *Memory) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, byMoment(func(e ledger.Entry) ledger.Moment { return e.Wake }),
		func(e ledger.Entry, now time.Time) bool {
			return e.Provider == provider && !e.Wake.IsZero() && !e.Wake.On(now).After(now)
		})
	return identities(found), err
}

// ExpiredLeases implements [Store].
func (m *Memory) ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, byMoment(func(e ledger.Entry) ledger.Moment { return e.LeaseUntil }),
		func(e ledger.Entry, now time.Time) bool {
			return !e.LeaseUntil.IsZero() && !e.LeaseUntil.On(now).After(now) &&
				!e.ClaimedAt.On(now).Before(now.Add(-within))
		})
	return identities(found), err
}

// WaitingProviders implements [Store].
func (m *Memory) WaitingProviders(ctx context.Context) ([]string, error) {
	found, err := m.find(ctx, 0, func(a, b ledger.Entry) int { return cmp.Compare(a.Provider, b.Provider) },
		func(e ledger.Entry, _ time.Time) bool { return !e.Wake.IsZero() })
	var providers []string
	for _, e := range found {
		providers = append(providers, e.Provider)
	}
	return slices.Compact(providers), err
}

// Backlog implements [Store].
func (m *Memory) Backlog(ctx context.Context) (ledger.Backlog, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Backlog{}, err
	}
	defer unlock()
	backlog := ledger.Backlog{Now: now, Dead: map[ledger.Class]int64{}, Ready: map[string]int64{}}
	pending := map[ledger.State]*ledger.PendingCount{}
	for _, state := range []ledger.State{ledger.Sending, ledger.Waiting, ledger.Unknown} {
		pending[state] = &ledger.PendingCount{State: state}
	}
	for _, e := range m.entries {
		if e.State == ledger.Dead {
			backlog.Dead[e.Class]++
		}
		if !e.State.Pending() {
			continue
		}
		count := pending[e.State]
		count.Count++
		var since time.Time
		switch e.State {
		case ledger.Unknown:
			since = e.DoubtSince
		case ledger.Sending:
			since = e.ClaimedAt.On(now)
		case ledger.Waiting:
			since = e.Wake.On(now)
			if !e.Due.On(now).After(now) {
				backlog.Ready[e.Provider]++
			}
		}
		if !since.After(now) && (count.Since.IsZero() || since.Before(count.Since)) {
			count.Since = since
		}
	}
	for _, state := range ledger.States() {
		if count := pending[state]; count != nil {
			backlog.Pending = append(backlog.Pending, *count)
		}
	}
	return backlog, nil
}

// Gates implements [Store].
func (m *Memory) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unlock()
	gates := make([]ledger.Gate, 0, len(m.gates))
	for _, g := range m.gates {
		gates = append(gates, g)
	}
	slices.SortFunc(gates, func(a, b ledger.Gate) int { return cmp.Compare(a.Provider, b.Provider) })
	return gates, now, nil
}

// UpdateGate implements [Store].
func (m *Memory) UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return ledger.Gate{}, err
	}
	defer unlock()
	return m.writeGate(g, now)
}

func (m *Memory) writeGate(g ledger.Gate, now time.Time) (ledger.Gate, error) {
	if m.gates[g.Provider].Version != g.Version {
		return ledger.Gate{}, ledger.ErrStale
	}
	g.Version++
	g.Updated = now
	g.ClosedUntil = ledger.At(g.ClosedUntil.On(now))
	m.gates[g.Provider] = g
	return g, nil
}

// Ping implements [Store].
func (m *Memory) Ping(ctx context.Context) error { return ctx.Err() }

// Migrate implements [Store]. There is no schema.
func (m *Memory) Migrate(ctx context.Context) error { return ctx.Err() }

// Close implements [Store]. There is nothing to close.
func (m *Memory) Close() error { return nil }

// find returns the entries that keep selects, in order, at most limit of them if that is above 0.
func (m *Memory) find(
	ctx context.Context, limit int, order func(a, b ledger.Entry) int,
	keep func(e ledger.Entry, now time.Time) bool,
) ([]ledger.Entry, error) {
	now, unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var found []ledger.Entry
	for _, e := range m.entries {
		if keep(e, now) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, order)
	if limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	return found, nil
}

// byMoment orders by a fixed moment, oldest first, then by identity.
func byMoment(moment func(ledger.Entry) ledger.Moment) func(a, b ledger.Entry) int {
	return func(a, b ledger.Entry) int {
		at, _ := moment(a).Fixed()
		other, _ := moment(b).Fixed()
		return cmp.Or(at.Compare(other), compareIdentity(a, b))
	}
}

func compareIdentity(a, b ledger.Entry) int {
	return cmp.Or(cmp.Compare(a.ReminderID, b.ReminderID), cmp.Compare(a.Type, b.Type),
		cmp.Compare(a.Channel, b.Channel))
}

func identities(entries []ledger.Entry) []ledger.Identity {
	var ids []ledger.Identity
	for _, e := range entries {
		ids = append(ids, e.Identity)
	}
	return ids
}

func clonePayload(p ledger.Payload) ledger.Payload {
	p.Content, p.Metadata, p.Raw = bytes.Clone(p.Content), bytes.Clone(p.Metadata), bytes.Clone(p.Raw)
	return p
}

// micros is t as every store stores it: in UTC, truncated to microseconds.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
