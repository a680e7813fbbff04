package modelcheck_test

import (
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// tokens are the holder tokens of tasks. A token that nothing refers to any more may be used again, since that
// makes no difference.
var tokens = func() (all [actorCount + 3]string) {
	for i := range all {
		all[i] = fmt.Sprintf("h%d", i)
	}
	return all
}()

// model is a scenario, and what follows from it for all of its states.
type model struct {
	scenario   scenario
	rules      [len(accounts)]ledger.Rules
	newEntries [len(accounts)]ledger.Entry
	triggers   [actorCount]ledger.Trigger

	scratch, scratch2 state // the result of a step; must be copied to be kept
}

func newModel(sc scenario) *model {
	m := &model{scenario: sc}
	for i := range accounts {
		m.rules[i], m.newEntries[i] = sc.rules(uint8(i)), sc.newEntry()
	}
	for id := range m.triggers {
		m.triggers[id] = ledger.Trigger{Origin: ledger.OriginWorker}
	}
	for _, id := range []int{delivery, secondDelivery} {
		m.triggers[id] = ledger.Trigger{Origin: ledger.OriginPush, Source: "reservations", NewEntry: &m.newEntries[0], Payload: &ledger.Payload{}}
	}
	m.triggers[sweep].Origin, m.triggers[lookup].Origin = ledger.OriginReconcile, ledger.OriginReconcile
	m.triggers[cancel] = ledger.Trigger{Origin: ledger.OriginAPI, Source: "checkout"}
	return m
}

// initial returns the initial state.
func (m *model) initial() *state {
	s := &state{}
	s.actors[delivery].deliveries, s.actors[secondDelivery].deliveries = m.scenario.deliveries[0], m.scenario.deliveries[1]
	if m.scenario.deadLetter != "" {
		m.initDeadLetter(s)
	}
	return s
}

// step is one way in which a model can go on. Steps that must happen sooner or later, if nothing else does, are
// distinguished from those that may happen.
type step struct {
	actor  int
	action string
	ending string // how the step ends
	must   bool
	next   *state
}

// makeStep makes one step of an actor: act changes next, and reports whether there is such a step.
type makeStep func(action string, must bool, act func(next *state, a *actor) bool)

// taskSteps emits the steps of a delivery or of the worker, as package deliver processes a task.
//
// A task writes its decision at once or after time has passed: anything else in between makes the write fail, or
// changes nothing that the decision depends on. It crashes right after it claimed, called or settled: before a
// claim it would leave nothing behind, and a later crash has the same effect as an earlier one.
func (m *model) taskSteps(s *state, id int, emit func(step)) {
	a := &s.actors[id]
	do := func(action string, must bool, act func(next *state, a *actor) bool) {
		next := &m.scratch
		*next = *s
		if !act(next, &next.actors[id]) {
			return
		}
		if next.actors[id].phase != phaseReply {
			emit(step{id, action, "", must, next})
			return
		}
		if !s.crashed {
			m.scratch2 = *next
			m.scratch2.crashed = true
			m.scratch2.endTask(id)
			emit(step{id, action, ", and crashes before it replies", false, &m.scratch2})
		}
		next.checkAck()
		next.actors[id] = actor{phase: phaseEnded}
		emit(step{id, action, ", and acks", must, next})
	}
	if s.entry == nil && (a.phase == phaseSettle || a.phase == phaseReload) {
		do("finds no entry to record on, and gives up", true, func(next *state, _ *actor) bool {
			next.endTask(id)
			return true
		})
		return
	}
	switch a.phase {
	case phaseIdle:
		if id != worker && a.deliveries == 0 || id == worker && !dueForWorker(s) {
			return
		}
		for account := range accounts[:1+count(s.accountChanged)] {
			m.loadSteps(s, id, "arrives", do, func(next *state, a *actor) {
				a.token, a.account = next.token(), uint8(account)
				if id != worker {
					a.deliveries--
				}
				m.load(next, id)
				if a.phase == phaseIdle && id == worker && next.called == s.called { // a refused slot is an excuse
					next.violate("the worker processes a due entry without changing it")
				}
			})
		}
	case phaseLoad:
		m.loadSteps(s, id, "loads", do, func(next *state, _ *actor) { m.load(next, id) })
	case phaseReload:
		m.loadSteps(s, id, "loads again", do, func(next *state, _ *actor) { m.reload(next, id) })
	case phaseWrite, phaseSettle:
		if a.phase == phaseSettle || a.readAt < s.now || !checkVersions {
			m.writeSteps(s, id, "writes", do, func(*state, *actor) {})
		}
	case phaseCall:
		m.callSteps(s, do, id)
	}
	if (a.phase == phaseCall || a.phase == phaseSettle) && !s.crashed {
		do("crashes", false, func(next *state, _ *actor) bool {
			next.crashed = true
			next.endTask(id)
			return true
		})
	}
}

// token returns a token that neither the entry nor any actor uses.
func (s *state) token() uint8 {
	for t := uint8(1); ; t++ {
		taken := s.entry != nil && s.entry.Holder == tokens[t]
		for id := range s.actors {
			taken = taken || s.actors[id].token == t
		}
		if !taken {
			return t
		}
	}
}

// loadSteps emits a load of the entry together with the write that follows from it, at once or later.
func (m *model) loadSteps(s *state, id int, action string, do makeStep, read func(next *state, a *actor)) {
	m.writeSteps(s, id, action, do, read)
	if checkVersions && m.tick(s) <= s.now || s.redrive != nil && !m.scenario.pauses {
		return
	}
	do(action+", and pauses", false, func(next *state, a *actor) bool {
		read(next, a)
		// What a late holder records does not depend on the time.
		return a.change != nil && (a.change.Event == nil || a.change.Event.Kind != ledger.EventLate)
	})
}

// writeSteps emits the write that follows from read, with and without the reply.
func (m *model) writeSteps(s *state, id int, action string, do makeStep, read func(next *state, a *actor)) {
	do(action, true, func(next *state, a *actor) bool {
		if read(next, a); a.change != nil {
			m.commitAndContinue(next, id)
		}
		return true
	})
	if s.replyLost {
		return
	}
	do(action+", and loses the reply", false, func(next *state, a *actor) bool {
		if read(next, a); a.change == nil {
			return false
		}
		was := a.phase
		next.replyLost = true
		if m.write(next, id); was == phaseSettle {
			a.phase = phaseReload
		} else {
			next.restart(id)
		}
		return true
	})
}

// commitAndContinue writes an actor's change, and goes on depending on the result.
func (m *model) commitAndContinue(s *state, id int) {
	a := &s.actors[id]
	was, inserted, readAt := a.phase, s.entry == nil, a.readAt
	stored := m.write(s, id)
	switch {
	case was == phaseSettle && stored:
		m.checkOutcome(s, id)
		m.reply(s, id, s.now)
	case was == phaseSettle:
		a.phase = phaseReload
	case stored && s.entry.Holder == tokens[a.token] && s.now-readAt < margin:
		m.prepareCall(s, id, readAt)
	case stored && inserted && s.entry.Holder != tokens[a.token]:
		m.reply(s, id, readAt)
	default:
		s.restart(id)
	}
}

// restart makes a task load the entry again. A task that holds nothing is as if it began anew.
func (s *state) restart(id int) {
	a := &s.actors[id]
	if a.phase, a.change = phaseLoad, nil; a.token != 0 && s.entry != nil && s.entry.Holder == tokens[a.token] {
		return
	}
	if id == delivery || id == secondDelivery {
		a.deliveries++
	}
	*a = actor{deliveries: a.deliveries}
}

// endTask ends a task: the broker redelivers a delivery, unless it has done so often enough.
func (s *state) endTask(id int) {
	left := s.actors[id].deliveries
	s.actors[id] = actor{deliveries: left}
	if id != worker && left == 0 {
		s.actors[id].phase = phaseEnded
	}
}

// load loads the entry and calls [ledger.Decide], as package deliver does.
func (m *model) load(s *state, id int) {
	a := &s.actors[id]
	a.change, a.readAt = nil, s.now
	if s.entry != nil && s.entry.State == ledger.Sending && s.entry.Holder == tokens[a.token] {
		m.prepareCall(s, id, s.now)
		return
	}
	seen, entry, trigger, now := ledger.Entry{}, m.newEntries[a.account], m.triggers[id], at(s.now)
	if s.entry != nil {
		seen, entry = *s.entry, *s.entry
	}
	facts := ledger.Facts{Holder: tokens[a.token], Wait: pause, Admission: m.scenario.admit(entry, s.lowWater(), now)}
	next := ledger.Decide(seen, trigger, facts, m.rules[a.account], now)
	if next.Action == ledger.ActionAcquireSlot {
		facts.Slot = ledger.Slot{Provider: next.Provider, Held: true}
		if m.scenario.first == respondNoSlot && !s.called {
			s.called = true
			facts.Slot = ledger.Slot{Provider: next.Provider, Reason: ledger.ReasonGateClosed, Wait: pause}
		}
		next = ledger.Decide(seen, trigger, facts, m.rules[a.account], now)
	}
	switch next.Action {
	case ledger.ActionInsert, ledger.ActionUpdate:
		m.prepareWrite(s, id, next.Change)
	case ledger.ActionDone:
		m.reply(s, id, s.now)
	default:
		s.violation = fmt.Sprintf("unexpected action %d with all facts known", next.Action)
	}
}

// prepareWrite keeps a change as the next write.
func (m *model) prepareWrite(s *state, id int, change ledger.Change) {
	if read := s.version(); change.Entry.Version != read {
		s.violation = fmt.Sprintf("a change names version %d, but %d was loaded", change.Entry.Version, read)
	}
	s.actors[id].phase, s.actors[id].change = phaseWrite, &change
}

// prepareCall sets the deadline of the call, from the time at which the entry was loaded.
func (m *model) prepareCall(s *state, id int, readAt time.Duration) {
	a := &s.actors[id]
	a.phase, a.seen = phaseCall, s.entry
	a.callBefore = readAt + ledger.CallBudget(*s.entry, lease, m.rules[a.account], at(readAt))
}

const tooLate = "is too late for its call"

// callSteps emits the call of a claim, unless it is too late for it.
func (m *model) callSteps(s *state, do makeStep, id int) {
	outcome := func(action string, r response, called bool) {
		do(action, true, func(next *state, a *actor) bool {
			if a.result = r.result(); a.result != ledger.ResultNotCalled {
				next.checkCall(m, id)
			}
			if receipt := next.call(m, a.account, r); a.result == ledger.ResultAccepted {
				a.receipt = receipt
			}
			next.called = called
			if a.entryChanged {
				a.phase = phaseReload
			} else {
				m.prepareSettle(next, id, a.seen)
			}
			return true
		})
	}
	if s.redrive != nil && !s.redrive.hasPayload && s.now < s.actors[id].callBefore {
		outcome("finds no payload", respondNotCalled, s.called)
	}
	switch {
	case s.now >= s.actors[id].callBefore:
		outcome(tooLate, respondNotCalled, s.called)
	case !s.called:
		outcome("calls: "+m.scenario.first.String(), m.scenario.first, true)
	default:
		for _, r := range m.scenario.laterResponses() {
			outcome("calls: "+r.String(), r, true)
		}
	}
}

// attempt returns what a task knows about its call.
func (m *model) attempt(s *state, id int) ledger.Attempt {
	a := &s.actors[id]
	return ledger.Attempt{
		Trigger: m.triggers[id], Holder: tokens[a.token], Provider: "mail", Wait: pause,
		Started: at(s.now), Finished: at(s.now), Outcome: ledger.Outcome{Result: a.result, Receipt: receipts[a.receipt]},
	}
}

func (m *model) prepareSettle(s *state, id int, held *ledger.Entry) {
	a := &s.actors[id]
	change := ledger.Settle(*held, m.attempt(s, id), m.rules[a.account], at(s.now))
	a.phase, a.change, a.seen = phaseSettle, &change, nil
}

// reload does what the deliverer's settle does after any error.
func (m *model) reload(s *state, id int) {
	a := &s.actors[id]
	switch e := s.entry; {
	case e.State == ledger.Sending && e.Holder == tokens[a.token]:
		m.prepareSettle(s, id, e)
	case a.recorded:
		m.checkOutcome(s, id)
		m.reply(s, id, s.now)
	default:
		change := ledger.SettleLate(*e, m.attempt(s, id))
		a.phase, a.change = phaseSettle, &change
	}
}

// reply ends a task with the reply that follows from the entry. A nack takes effect at once; what is acked must
// stay as promised.
func (m *model) reply(s *state, id int, readAt time.Duration) {
	seen := ledger.Entry{}
	if s.entry != nil {
		seen = *s.entry
	}
	if id != worker && ledger.ReplyFor(seen, at(readAt)).Ack {
		s.actors[id] = actor{phase: phaseReply, deliveries: s.actors[id].deliveries}
		return
	}
	s.endTask(id)
}

func count(on bool) int {
	if on {
		return 1
	}
	return 0
}
