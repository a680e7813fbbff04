package dbtest

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

// Memory is a ledger store in memory. All of a write becomes visible at once, under one lock, and what
// goes in and comes out is copied. It forgets everything when the process ends.
type Memory struct {
	clock func() time.Time

	mu        sync.Mutex
	entries   map[ledger.Identity]ledger.Entry
	payloads  map[ledger.Identity]ledger.Payload
	timelines map[ledger.Identity][]ledger.Event
	conflicts map[ledger.Identity][]ledger.Conflict
	gates     map[string]ledger.Gate
	acts      []ledger.Act
	epochs    map[string]time.Time
	epoch     string
	redrives  map[string]ledger.Redrive
	items     map[string][]ledger.RedriveItem
}

var _ Store = (*Memory)(nil)

// NewMemory is an empty store whose ledger's now is now().
func NewMemory(now func() time.Time) *Memory {
	return &Memory{
		clock:     now,
		entries:   map[ledger.Identity]ledger.Entry{},
		payloads:  map[ledger.Identity]ledger.Payload{},
		timelines: map[ledger.Identity][]ledger.Event{},
		conflicts: map[ledger.Identity][]ledger.Conflict{},
		gates:     map[string]ledger.Gate{},
		epochs:    map[string]time.Time{},
		redrives:  map[string]ledger.Redrive{},
		items:     map[string][]ledger.RedriveItem{},
	}
}

// enter takes the lock, unless the context has ended; leave gives it back.
func (m *Memory) enter(ctx context.Context) (now time.Time, leave func(), err error) {
	if err := ctx.Err(); err != nil {
		return time.Time{}, nil, fmt.Errorf("dbtest: %w", err)
	}
	m.mu.Lock()
	return micros(m.clock()), m.mu.Unlock, nil
}

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Entry{}, err
	}
	defer leave()
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
func (m *Memory) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Reading{}, err
	}
	defer leave()
	return ledger.Reading{Entry: m.entries[id], Now: now, Epoch: m.epoch}, nil
}

// Swap implements [Store].
func (m *Memory) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Entry{}, err
	}
	defer leave()
	old, exists := m.entries[c.Entry.Identity]
	if !exists || old.Version != c.Entry.Version || !c.Entry.Updated.IsZero() && !c.Entry.Updated.Equal(old.Updated) {
		return ledger.Entry{}, ledger.ErrStale
	}
	if c.Act != nil && m.acted(*c.Act) {
		return ledger.Entry{}, fmt.Errorf("dbtest: the act %q stands already", c.Act.ID)
	}
	c.Entry.FirstSeen, c.Entry.SendKey, c.Entry.ContentHash = old.FirstSeen, old.SendKey, old.ContentHash
	c.Entry.NotBefore = old.NotBefore
	e, err := m.write(c, now)
	if err == nil {
		m.forget(c)
	}
	return e, err
}

// write stores the entry with its moments fixed, and its event, or nothing at all.
func (m *Memory) write(c ledger.Change, now time.Time) (ledger.Entry, error) {
	e := c.Entry
	e.Version++
	e.Updated = now
	for _, moment := range []*ledger.Moment{&e.LeaseUntil, &e.ClaimedAt, &e.Due, &e.Wake, &e.AskAt} {
		*moment = ledger.At(moment.On(now))
	}
	for _, at := range []*time.Time{&e.NotBefore, &e.Deadline, &e.DoubtSince, &e.Published} {
		*at = micros(*at)
	}
	if err := constrain(e); err != nil {
		return ledger.Entry{}, fmt.Errorf("dbtest: %w", err)
	}
	m.entries[e.Identity] = e
	if c.Event != nil {
		event := *c.Event
		event.Version, event.At = e.Version, now
		event.Started, event.Finished = micros(event.Started), micros(event.Finished)
		event.Outcome.RetryAfter = event.Outcome.RetryAfter.Truncate(time.Microsecond)
		m.timelines[e.Identity] = append(m.timelines[e.Identity], event)
	}
	if c.Act != nil {
		m.record(*c.Act, now)
	}
	return e, nil
}

// constrain refuses what the schemas of the SQL stores refuse.
func constrain(e ledger.Entry) error {
	classes := append(ledger.DeadClasses(), "",
		ledger.ClassCredentials, ledger.ClassThrottled, ledger.ClassUnreachable, ledger.ClassUnknown)
	missings := []ledger.Missing{"", ledger.MissingAssumed, ledger.MissingUnread, ledger.MissingResolved}
	switch {
	case !slices.Contains(ledger.States(), e.State):
		return fmt.Errorf("state %q", e.State)
	case !slices.Contains(classes, e.Class):
		return fmt.Errorf("class %q", e.Class)
	case !slices.Contains([]ledger.Owner{"", ledger.OwnerBroker, ledger.OwnerLedger}, e.Owner):
		return fmt.Errorf("owner %q", e.Owner)
	case !slices.Contains(missings, e.Missing):
		return fmt.Errorf("missing %q", e.Missing)
	case min(e.Attempts, e.Spent, e.Lapses, e.Deliveries, e.Redrives, e.Asked) < 0:
		return fmt.Errorf("a count below zero")
	}
	return e.Check()
}

// Payload implements [Store].
func (m *Memory) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Payload{}, err
	}
	defer leave()
	p, exists := m.payloads[id]
	if !exists {
		return ledger.Payload{}, ledger.ErrNotFound
	}
	return clonePayload(p), nil
}

// RecordConflict implements [Store].
func (m *Memory) RecordConflict(ctx context.Context, c ledger.Conflict) (bool, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return false, err
	}
	defer leave()
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

// Story implements [Store].
func (m *Memory) Story(ctx context.Context, id ledger.Identity) (ledger.Story, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Story{}, err
	}
	defer leave()
	e, exists := m.entries[id]
	if !exists {
		return ledger.Story{}, ledger.ErrNotFound
	}
	story := ledger.Story{
		Entry:     e,
		Timeline:  slices.Clone(m.timelines[id]),
		Conflicts: slices.Clone(m.conflicts[id]),
	}
	for _, act := range m.acts {
		if act.Identity == id {
			story.Acts = append(story.Acts, act)
		}
	}
	if p, kept := m.payloads[id]; kept {
		p = clonePayload(p)
		story.Payload = &p
	}
	return story, nil
}

// Timeline implements [Store].
func (m *Memory) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	_, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
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
			place := ledger.Entry{Identity: after.Identity, FirstSeen: micros(after.FirstSeen)}
			if newest(e, place) <= 0 {
				return false
			}
		}
		return narrows(q.ReminderID, e.ReminderID) && narrows(q.ReservationID, e.ReservationID) &&
			narrows(q.UserID, e.UserID) && narrows(q.State, e.State) && narrows(q.Class, e.Class) &&
			narrows(q.Type, e.Type) && narrows(q.Channel, e.Channel) && narrows(q.Provider, e.Provider) &&
			narrows(q.Code, e.Code) && (!q.Conflict || len(m.conflicts[e.Identity]) > 0) &&
			(q.From.IsZero() || !e.FirstSeen.Before(micros(q.From))) &&
			(q.To.IsZero() || e.FirstSeen.Before(micros(q.To)))
	})
}

func narrows[T comparable](asked, has T) bool {
	var any T
	return asked == any || asked == has
}

// Due implements [Store].
func (m *Memory) Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, by(func(e ledger.Entry) ledger.Moment { return e.Wake }),
		func(e ledger.Entry, now time.Time) bool {
			return e.Provider == provider && !e.Wake.IsZero() && !e.Wake.On(now).After(now)
		})
	return identities(found), err
}

// Lapsed implements [Store].
func (m *Memory) Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error) {
	found, err := m.find(ctx, limit, by(func(e ledger.Entry) ledger.Moment { return e.LeaseUntil }),
		func(e ledger.Entry, now time.Time) bool {
			return !e.LeaseUntil.IsZero() && !e.LeaseUntil.On(now).After(now) &&
				!e.ClaimedAt.On(now).Before(now.Add(-within))
		})
	return identities(found), err
}

// Lanes implements [Store].
func (m *Memory) Lanes(ctx context.Context) ([]string, error) {
	found, err := m.find(ctx, 0, func(a, b ledger.Entry) int { return cmp.Compare(a.Provider, b.Provider) },
		func(e ledger.Entry, _ time.Time) bool { return !e.Wake.IsZero() })
	var lanes []string
	for _, e := range found {
		lanes = append(lanes, e.Provider)
	}
	return slices.Compact(lanes), err
}

// Census implements [Store].
func (m *Memory) Census(ctx context.Context) (ledger.Census, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Census{}, err
	}
	defer leave()
	census := ledger.Census{Now: now, Dead: map[ledger.Class]int64{}, Ready: map[string]int64{}}
	pending := map[ledger.State]*ledger.PendingCount{}
	for _, state := range []ledger.State{ledger.Sending, ledger.Waiting, ledger.Unknown} {
		pending[state] = &ledger.PendingCount{State: state}
	}
	for _, e := range m.entries {
		if e.State == ledger.Dead {
			census.Dead[e.Class]++
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
				census.Ready[e.Provider]++
			}
		}
		if !since.After(now) && (count.Since.IsZero() || since.Before(count.Since)) {
			count.Since = since
		}
	}
	for _, state := range ledger.States() {
		if count := pending[state]; count != nil {
			census.Pending = append(census.Pending, *count)
		}
	}
	return census, nil
}

// Gates implements [Store].
func (m *Memory) Gates(ctx context.Context) ([]ledger.Gate, time.Time, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer leave()
	gates := make([]ledger.Gate, 0, len(m.gates))
	for _, g := range m.gates {
		gates = append(gates, g)
	}
	slices.SortFunc(gates, func(a, b ledger.Gate) int { return cmp.Compare(a.Provider, b.Provider) })
	return gates, now, nil
}

// SwapGate implements [Store].
func (m *Memory) SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return ledger.Gate{}, err
	}
	defer leave()
	return m.moveGate(g, now)
}

func (m *Memory) moveGate(g ledger.Gate, now time.Time) (ledger.Gate, error) {
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

// Migrate implements [Store]; there is no schema.
func (m *Memory) Migrate(ctx context.Context) error { return ctx.Err() }

// Close implements [Store]; there is nothing to close.
func (m *Memory) Close() error { return nil }

// find is every entry that keep wants, in order, cut to limit where that is above 0.
func (m *Memory) find(
	ctx context.Context, limit int, order func(a, b ledger.Entry) int,
	keep func(e ledger.Entry, now time.Time) bool,
) ([]ledger.Entry, error) {
	now, leave, err := m.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
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

// by orders by a fixed moment, the oldest first, then by identity.
func by(moment func(ledger.Entry) ledger.Moment) func(a, b ledger.Entry) int {
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

// micros is t as every store keeps it.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
