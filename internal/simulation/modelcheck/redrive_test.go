package modelcheck_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// deadLetterEvent is what happens to a dead letter besides its redrives.
type deadLetterEvent string

const (
	eventDelivery deadLetterEvent = "delivery" // nothing but the delivery that occurs in every scenario
	eventDiscard  deadLetterEvent = "discard"
	eventErase    deadLetterEvent = "erase"
	eventPurge    deadLetterEvent = "purge"
	eventDelete   deadLetterEvent = "delete" // its entry is deleted, once it is older than the memory
	eventForget   deadLetterEvent = "forget" // the same, but whoever delivers it again is configured with a longer memory
)

// The actors of a redrive; actorCount is time itself.
const (
	firstRedrive = actorCount + 1 + iota
	secondRedrive
	retention
)

// deletesEntry reports whether the entry is deleted once it is old enough.
func (event deadLetterEvent) deletesEntry() bool { return event == eventDelete || event == eventForget }

// retentionPeriod is how long payloads of final entries are kept, or the entries themselves.
const retentionPeriod = 40 * time.Second

// deadLetterScenarios returns the scenarios that begin with a dead letter. Either two redrives process it, or two
// replicas process one shared item. In the whole set, another delivery arrives in all of them and actors pause
// wherever they can; and where two replicas share an item, a crash and a lost reply may occur together.
func deadLetterScenarios(all bool) (list []scenario) {
	p := scenario{attempts: 1, deadline: true}
	for _, p.deadLetter = range []deadLetterEvent{eventDelivery, eventDiscard, eventErase, eventPurge, eventDelete, eventForget} {
		for _, p.contract = range []ledger.ContractKind{ledger.ContractIdempotent, ledger.ContractLookup, ledger.ContractBlind} {
			for _, p.onUnknown = range []ledger.OnUnknown{ledger.Hold, ledger.AssumeSent, ledger.Resend} {
				for _, p.sharedItem = range []bool{false, true} {
					p.pauses, p.crashAndLoss = all, false
					p.deliveries[0] = uint8(count(all || p.deadLetter == eventDelivery || p.deadLetter.deletesEntry()))
					ordinary := p.sharedItem == (p.deadLetter == eventDelivery || p.deadLetter == eventErase)
					ordinary = ordinary && (p.contract != ledger.ContractLookup || p.onUnknown == ledger.Hold) // one attempt leaves nothing more to decide
					if p.attempts = 1; p.contract == ledger.ContractLookup && p.onUnknown == ledger.Resend {
						p.attempts = 2
					}
					if p.deadLetter == eventErase && !p.sharedItem {
						p.deliveries[0] = 0 // to a delivery, an erased entry is like a discarded one
					}
					asHold := p.equivalentToHold() || p.contract == ledger.ContractLookup && p.onUnknown == ledger.AssumeSent
					if asHold || p.sharedItem && p.deadLetter.deletesEntry() || !all && !ordinary {
						continue
					}
					list = append(list, p)
					if p.crashAndLoss, p.deliveries[0] = true, 0; all && p.sharedItem {
						list = append(list, p)
					}
				}
			}
		}
	}
	return list
}

// redriveState is the state of the redrives of a dead letter, and of its retention.
type redriveState struct {
	tasks    [2]itemTask
	redrives [2]struct {
		version  int64  // of the dead letter when the redrive was created; 0 before
		event    bool   // its event is in the timeline
		redriven uint8  // how often it redrove the dead letter
		result   string // of its item
	}
	retention struct {
		phase  phase
		seen   *ledger.Entry
		action ledger.ExpiryAction
	}
	hasPayload bool // the payload is stored
	deleted    bool // the entry was deleted
	lowWater   time.Time
}

// itemTask is one replica's work on one item.
type itemTask struct {
	phase  phase
	seen   *ledger.Entry
	readAt time.Duration
	change *ledger.Change
	result string
}

// limitFaults lets a crash or a lost reply happen, but not both.
func (m *model) limitFaults(emit func(step)) func(step) {
	return func(st step) {
		if st.next.crashed != st.next.replyLost {
			st.next.crashed, st.next.replyLost = true, true
		}
		emit(st)
	}
}

func (s *state) isDeleted() bool { return s.redrive != nil && s.redrive.deleted }

// lowWater returns the low-water mark of the store.
func (s *state) lowWater() time.Time {
	if s.redrive == nil {
		return time.Time{}
	}
	return s.redrive.lowWater
}

// initDeadLetter makes a dead letter the initial state: refused once by its provider, so it is not in doubt.
func (m *model) initDeadLetter(s *state) {
	e := m.scenario.newEntry()
	e.State, e.Class, e.Reason, e.Owner = ledger.Dead, ledger.ClassExhausted, ledger.ReasonBudgetSpent, ledger.OwnerLedger
	e.Provider, e.Fingerprint, e.Attempts, e.BudgetUsed = "mail", accounts[0], m.scenario.attempts, m.scenario.attempts
	e.Version, e.UserID, e.Deliveries = 1, "u-77", 1
	e.FirstSeen, e.Updated = noon(), noon().Add(time.Microsecond)
	s.entry, s.called = &e, true
	s.redrive = &redriveState{hasPayload: true}
	s.redrive.redrives[0].version = 1
	for _, id := range []int{cancel, operator, statusEvent} {
		s.actors[id].phase = phaseEnded
	}
}

// redriveSteps emits the steps of the redrives and of the retention.
func (m *model) redriveSteps(s *state, emit func(step)) {
	for i := range s.redrive.tasks {
		m.itemSteps(s, i, emit)
	}
	m.retentionSteps(s, emit)
}

// redriveStepMaker returns a function that makes one step of a redrive on a copy of its state.
func (m *model) redriveStepMaker(s *state, id int, emit func(step)) func(action string, must bool, act func(next *state, d *redriveState)) {
	return func(action string, must bool, act func(next *state, d *redriveState)) {
		next, d := &m.scratch, *s.redrive
		*next = *s
		next.redrive = &d
		act(next, &d)
		emit(step{id, action, "", must, next})
	}
}

// itemOf returns the item of a task.
func (m *model) itemOf(i int) int {
	if m.scenario.sharedItem {
		return 0
	}
	return i
}

// itemSteps emits the steps of one item, as internal/redrive processes it: load the entry; load what else is
// needed, and decide; write; set the item's result.
func (m *model) itemSteps(s *state, i int, emit func(step)) {
	do := m.redriveStepMaker(s, firstRedrive+i, emit)
	t, r := s.redrive.tasks[i], s.redrive.redrives[m.itemOf(i)]
	switch t.phase {
	case phaseIdle:
		switch {
		case r.result != "":
		case r.version > 0:
			do("loads", true, func(_ *state, d *redriveState) { d.tasks[i] = itemTask{phase: phaseLoad, seen: s.entry, readAt: s.now} })
		case s.entry != nil && !m.scenario.deadLetter.deletesEntry() && (s.entry.State == ledger.Dead || m.scenario.deadLetter == eventDiscard):
			// By a filter if it is dead, and by name in any state.
			do("is created", false, func(_ *state, d *redriveState) { d.redrives[i].version = s.entry.Version })
		}
	case phaseLoad:
		m.decideSteps(s, i, do)
	case phaseSettle:
		do("sets the item result", true, func(next *state, d *redriveState) { m.setItemResult(next, d, i) })
		if !s.crashed {
			do("crashes before it sets the item result", false, func(next *state, d *redriveState) {
				next.crashed = true
				d.tasks[i] = itemTask{}
			})
		}
	}
}

// decideSteps decides and writes at once, since anything in between would make the write fail; with and without the
// reply.
func (m *model) decideSteps(s *state, i int, do func(string, bool, func(*state, *redriveState))) {
	for _, gotReply := range []bool{true, false} {
		probe := *s.redrive
		if m.decideItem(&probe, i); !gotReply && (s.replyLost || probe.tasks[i].change == nil) {
			continue
		}
		do("decides"+map[bool]string{false: ", writes, and loses the reply"}[gotReply], gotReply, func(next *state, d *redriveState) {
			next.replyLost = next.replyLost || !gotReply
			m.decideItem(d, i)
			change := d.tasks[i].change
			if d.tasks[i].change = nil; change == nil {
				return
			}
			wrote := m.commit(next, firstRedrive+i, change)
			if d.tasks[i] = (itemTask{}); wrote && gotReply {
				d.tasks[i] = itemTask{phase: phaseSettle, result: ledger.ItemRedriven}
			}
		})
	}
}

// decideItem decides as the redriver does: a redrive done before is recognised by its timeline event, otherwise
// package ledger decides.
func (m *model) decideItem(d *redriveState, i int) {
	t, n := &d.tasks[i], m.itemOf(i)
	r, e := &d.redrives[n], ledger.Entry{}
	if t.seen != nil {
		e = *t.seen
	}
	t.phase, t.seen, t.change = phaseSettle, nil, nil
	if e.Version != r.version && !e.Absent() && r.event {
		t.result = ledger.ItemRedriven
		return
	}
	rules := ledger.RedriveRules{RedriveID: actorNames[firstRedrive+n], Actor: "oncall", Version: r.version, Permanent: n == 1, MaxRedrives: 3, HasPayload: d.hasPayload}
	rules.Admission = m.scenario.admit(rules.WithDeadline(e), d.lowWater, at(t.readAt))
	change, skip := ledger.RedriveEntry(e, rules, m.rules[0], at(t.readAt))
	if t.result = string(skip); skip == "" {
		t.change = &change
	}
}

// setItemResult stores the result of an item: the first result stays.
func (m *model) setItemResult(s *state, d *redriveState, i int) {
	t, r := &d.tasks[i], &d.redrives[m.itemOf(i)]
	if t.phase = phaseEnded; r.result != "" {
		return
	}
	r.result = t.result
	switch redriven := r.result == ledger.ItemRedriven; {
	case redriven && r.redriven != 1:
		s.violate("an item with the result redriven was redriven %d times", r.redriven)
	case !redriven && r.redriven > 0 && !m.scenario.sharedItem && !d.deleted:
		s.violate("an item with the result %s was redriven", r.result)
	}
}

// retentionSteps emits the steps of whoever discards, erases or purges.
func (m *model) retentionSteps(s *state, emit func(step)) {
	do, f, e := m.redriveStepMaker(s, retention, emit), s.redrive.retention, s.entry
	load := func(action string, expiry ledger.ExpiryAction) {
		do(action, false, func(_ *state, d *redriveState) {
			d.retention.phase, d.retention.seen, d.retention.action = phaseLoad, e, expiry
		})
	}
	write := func(action string, change ledger.Change, then func(next *state, d *redriveState)) {
		for _, gotReply := range []bool{true, false} {
			if !gotReply && s.replyLost {
				continue
			}
			do(action+map[bool]string{false: ", and loses the reply"}[gotReply], gotReply, func(next *state, d *redriveState) {
				next.replyLost = next.replyLost || !gotReply
				d.retention.phase, d.retention.seen = phaseIdle, nil
				if m.commit(next, retention, &change) {
					then(next, d)
					if gotReply {
						d.retention.phase = phaseEnded
					}
				}
			})
		}
	}
	act := ledger.AuditEvent{Actor: "oncall", Reason: "on request"}
	switch {
	case f.phase == phaseEnded || f.phase == phaseIdle && e == nil:
	case f.phase == phaseIdle && m.scenario.deadLetter == eventDiscard && e.State == ledger.Dead, f.phase == phaseIdle && m.scenario.deadLetter == eventErase && e.UserID != "":
		load("looks", ledger.ExpireNothing)
	case f.phase == phaseIdle && m.scenario.deadLetter != eventDiscard && m.scenario.deadLetter != eventErase:
		if expiry := m.retention().Expiry(ledger.RetentionCandidate{Entry: *e, HasPayload: s.redrive.hasPayload}, at(s.now)); expiry != ledger.ExpireNothing {
			load("finds it expired", expiry)
		}
	case f.phase == phaseIdle:
	case e == nil || f.seen.Version != e.Version && m.scenario.deadLetter != eventDiscard:
		do("finds that it has changed", true, func(_ *state, d *redriveState) { d.retention.phase, d.retention.seen = phaseIdle, nil })
	case m.scenario.deadLetter == eventDiscard:
		change, err := ledger.Discard(*e, f.seen.Version, act)
		if err != nil {
			do("is refused", true, func(_ *state, d *redriveState) { d.retention.phase, d.retention.seen = phaseIdle, nil })
			return
		}
		write("discards", change, func(next *state, _ *redriveState) {
			if f.seen != e {
				next.violate("a discard is applied to a version that the operator did not see")
			}
			next.cancelled, next.dropped = true, true
		})
	case m.scenario.deadLetter == eventErase:
		write("erases", ledger.Erase(*f.seen, act), func(next *state, _ *redriveState) {
			next.cancelled, next.dropped = !e.Final() || e.State == ledger.Dead, next.entry.State == ledger.Dropped
		})
	case f.action == ledger.ExpirePayload:
		write("purges the payload", ledger.Purge(*f.seen), func(*state, *redriveState) {})
	default:
		do("deletes the entry", true, func(next *state, d *redriveState) {
			m.checkAge(next, *e)
			d.lowWater = e.LowWater()
			next.entry, next.acked = nil, false
			d.retention.phase, d.retention.seen, d.hasPayload, d.deleted = phaseEnded, nil, false, true
			for id := range next.actors {
				next.actors[id].recorded = false // the timeline is deleted
			}
			next.invalidate(retention)
		})
	}
}

// retention returns the retention of the scenario.
func (m *model) retention() ledger.Retention {
	switch m.scenario.deadLetter {
	case eventPurge:
		return ledger.Retention{Sent: retentionPeriod, Dead: retentionPeriod, Dropped: retentionPeriod}
	case eventDelete, eventForget:
		return ledger.Retention{Entry: retentionPeriod}
	default:
		return ledger.Retention{}
	}
}

// checkAge reports a violation if an entry is purged that is not final, or not for long enough.
func (m *model) checkAge(s *state, e ledger.Entry) {
	if age := at(s.now).Sub(e.Updated); !e.Final() || age < retentionPeriod {
		s.violate("purged while it is %s, %v after its last write", e.State, age)
	}
}

// checkDeadLetterWrite checks the invariants of a write in a scenario with a dead letter; before is the stored
// entry.
func (m *model) checkDeadLetterWrite(s *state, before *ledger.Entry, change *ledger.Change, claim bool) {
	d := s.redrive
	if before == nil {
		again := *d
		again.hasPayload = change.Payload != nil
		s.redrive, d = &again, &again
		if d.deleted && s.entry.State != ledger.Dropped {
			s.violate("delivered again after its entry was deleted, and is %s", s.entry.State)
		}
		return
	}
	if claim && !d.hasPayload {
		s.violate("claimed without a payload")
	}
	switch event := change.Event; {
	case change.Purge != ledger.PurgeNothing:
		d.hasPayload = false // on the writer's own copy of the state
		if change.Purge == ledger.PurgePayload {
			m.checkAge(s, *before)
		} else if s.entry.UserID != "" {
			s.violate("erased, but its user is stored")
		}
	case event != nil && event.Origin == ledger.OriginRedrive:
		n := 0
		if event.MessageID == actorNames[secondRedrive] {
			n = 1
		}
		r := &d.redrives[n]
		r.redriven++
		r.event = true
		switch {
		case before.State != ledger.Dead || before.InDoubt():
			s.violate("redriven while it is %s", before.State)
		case before.Version != r.version:
			s.violate("redriven at version %d, created at %d", before.Version, r.version)
		case r.redriven > 1:
			s.violate("redriven twice by one redrive")
		case !d.hasPayload:
			s.violate("redriven without a payload")
		case before.Class == ledger.ClassPermanent && n == 0:
			s.violate("redriven although permanently refused and not requested explicitly")
		}
	}
}

// retentionMoments calls matters with the next time at which something expires, and at which a redrive comes too
// late.
func (m *model) retentionMoments(s *state, matters func(time.Duration)) {
	e, d := s.entry, s.redrive
	if e == nil || !e.Final() {
		return
	}
	if (m.scenario.deadLetter.deletesEntry() || m.scenario.deadLetter == eventPurge && d.hasPayload) && d.retention.phase == phaseIdle {
		matters((e.Updated.Sub(noon()) + retentionPeriod + time.Millisecond - 1).Truncate(time.Millisecond))
	}
	if e.State == ledger.Dead && m.scenario.deadline {
		matters(deadline)
	}
}

// redrive encodes what can still make a difference for the redrives: of a result only whether it exists, of a
// finished item nothing else, and of an outdated read only what follows from it.
func (c *encoder) redrive(s *state) {
	d, e := s.redrive, s.entry
	c.flags(d.hasPayload, d.deleted, e != nil && e.UserID == "" && c.scenario.deadLetter == eventErase)
	if e != nil && e.Final() && (c.scenario.deadLetter.deletesEntry() || c.scenario.deadLetter == eventPurge && d.hasPayload) {
		c.ahead(e.Updated.Sub(noon())+retentionPeriod, s.now)
	}
	for i := range d.redrives {
		switch r := &d.redrives[i]; {
		case r.result != "" && !c.scenario.sharedItem:
			c.buf = append(c.buf, 9)
		default:
			c.flags(r.event, r.version == 0, e != nil && r.version == e.Version, r.result != "", r.redriven > 0, r.redriven > 1)
			if c.scenario.deadLetter.deletesEntry() {
				c.buf = binary.AppendVarint(c.buf, r.version)
			}
		}
	}
	if c.scenario.deadLetter.deletesEntry() && e != nil {
		c.buf = binary.AppendVarint(c.buf, e.Version) // it starts anew after a deletion
	}
	start := len(c.buf)
	c.itemTask(s, 0)
	second := len(c.buf)
	c.itemTask(s, 1)
	if one, two := c.buf[start:second], c.buf[second:]; c.scenario.sharedItem && bytes.Compare(one, two) > 0 {
		swapped := slices.Concat(two, one)
		copy(c.buf[start:], swapped)
	}
	f := &d.retention
	c.buf = append(c.buf, byte(f.phase), byte(f.action))
	c.flags(f.seen == e)
}

func (c *encoder) itemTask(s *state, i int) {
	t, n := &s.redrive.tasks[i], i
	if c.scenario.sharedItem {
		n = 0
	}
	place := t.phase
	if place == phaseIdle && s.redrive.redrives[n].result != "" {
		place = phaseEnded
	}
	c.buf = append(c.buf, byte(place))
	if place != phaseLoad {
		c.flags(place == phaseSettle && t.result == ledger.ItemRedriven)
		return
	}
	c.flags(t.seen == s.entry, t.seen == nil, t.seen != nil && t.seen.Version == s.redrive.redrives[n].version, t.readAt >= deadline,
		t.seen != nil && t.seen.Class == ledger.ClassPermanent, t.seen != nil && t.seen.State == ledger.Dead)
}
