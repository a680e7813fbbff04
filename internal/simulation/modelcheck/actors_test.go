package modelcheck_test

import (
	"errors"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// dueForWorker reports whether the worker's list of due entries has the entry.
func dueForWorker(s *state) bool {
	return s.entry != nil && s.entry.State == ledger.Waiting && moment(s.entry.Wake) <= s.now && !s.entry.Wake.IsZero()
}

// steps calls emit with every step that can follow on a state.
func (m *model) steps(s *state, emit func(step)) {
	if s.redrive != nil && !m.scenario.crashAndLoss {
		emit = m.limitFaults(emit)
	}
	for _, id := range []int{delivery, secondDelivery, worker} {
		m.taskSteps(s, id, emit)
	}
	m.sweepSteps(s, emit)
	m.lookupSteps(s, emit)
	m.cancelSteps(s, emit)
	if m.scenario.operator {
		m.operatorSteps(s, emit)
	}
	m.statusSteps(s, emit)
	if s.redrive != nil {
		m.redriveSteps(s, emit)
	}
	if m.scenario.accountChanges && !s.accountChanged {
		m.scratch = *s
		m.scratch.accountChanged = true
		emit(step{actorCount, "the provider's account changes", "", false, &m.scratch})
	}
	if to := m.tick(s); to > s.now {
		m.scratch = *s
		m.scratch.now = to
		emit(step{actorCount, "time passes", "", true, &m.scratch})
	}
}

// tick returns the next time at which anything can be different; 0 if there is none.
func (m *model) tick(s *state) (next time.Duration) {
	matters := func(t time.Duration) {
		if t > s.now && (next == 0 || t < next) {
			next = t
		}
	}
	for id := range s.actors {
		if a := &s.actors[id]; a.phase == phaseCall {
			matters(a.callBefore)
		}
	}
	if s.redrive != nil {
		m.retentionMoments(s, matters)
	}
	if s.entry != nil && s.entry.Final() {
		return next
	}
	if m.scenario.deadline {
		matters(deadline)
	}
	if e := s.entry; e != nil {
		for _, t := range []ledger.Moment{e.LeaseUntil, e.Wake, e.NextLookup} {
			matters(moment(t))
		}
		if s.actors[delivery].phase != phaseEnded || s.actors[secondDelivery].phase != phaseEnded {
			matters(moment(e.Due))
		}
		if m.scenario.contract == ledger.ContractIdempotent && e.InDoubt() && e.State != ledger.Unknown {
			matters(e.DoubtSince.Sub(noon()) + window - margin)
			for _, memory := range s.providerKeys {
				matters(memory.until)
			}
		}
	}
	return next
}

// sweepSteps emits the steps of the sweep, which ends expired leases.
func (m *model) sweepSteps(s *state, emit func(step)) {
	a := &s.actors[sweep]
	do := m.stepMaker(s, sweep, emit)
	expire := func(account uint8) func(*state, *actor) bool {
		return func(next *state, a *actor) bool {
			m.prepareWrite(next, sweep, ledger.ExpireLease(*s.entry, m.triggers[sweep], m.rules[account], at(s.now)))
			return true
		}
	}
	switch {
	case a.phase == phaseWrite:
		do("writes an expired lease that it found before", true, func(next *state, a *actor) bool {
			m.write(next, sweep)
			*a = actor{}
			return true
		})
	case s.entry != nil && s.entry.LeaseExpired(at(s.now)):
		for account := range accounts[:1+count(s.accountChanged)] {
			do("writes an expired lease", true, func(next *state, a *actor) bool {
				expire(uint8(account))(next, a)
				m.write(next, sweep)
				*a = actor{}
				return true
			})
			if m.tick(s) > s.now {
				do("finds an expired lease, and pauses", false, expire(uint8(account)))
			}
		}
	}
}

// stepMaker returns a makeStep for actors that leave no task open.
func (m *model) stepMaker(s *state, id int, emit func(step)) makeStep {
	return func(action string, must bool, act func(next *state, a *actor) bool) {
		next := &m.scratch
		*next = *s
		if act(next, &next.actors[id]) {
			emit(step{id, action, "", must, next})
		}
	}
}

// cancelSteps emits the step of the one cancel, as package deliver performs it.
func (m *model) cancelSteps(s *state, emit func(step)) {
	if s.actors[cancel].phase == phaseEnded {
		return
	}
	m.stepMaker(s, cancel, emit)("takes effect", false, func(next *state, a *actor) bool {
		change, any := ledger.Tombstone(m.newEntries[0].Identity, m.triggers[cancel], at(s.now)), true
		if s.entry != nil {
			change, _, any = ledger.Cancel(*s.entry, m.triggers[cancel])
		}
		if !any {
			return false
		}
		m.prepareWrite(next, cancel, change)
		m.write(next, cancel)
		*a = actor{phase: phaseEnded}
		next.cancelled, next.dropped = true, next.entry.State == ledger.Dropped
		return true
	})
}

// operatorSteps emits the steps of the one decision of an operator, who looks first and decides later.
func (m *model) operatorSteps(s *state, emit func(step)) {
	do := m.stepMaker(s, operator, emit)
	switch a, e := &s.actors[operator], s.entry; {
	case a.phase == phaseIdle && e != nil && (e.State == ledger.Unknown || e.State == ledger.Waiting && e.InDoubt()):
		do("looks at the timeline", false, func(_ *state, a *actor) bool {
			a.phase, a.seen = phaseLoad, e
			return true
		})
	case a.phase == phaseLoad:
		for _, verdict := range ledger.Verdicts() {
			do("says "+string(verdict), false, func(next *state, a *actor) bool {
				change, err := ledger.Resolve(*e, ledger.Resolution{
					Verdict: verdict, Version: a.seen.Version, Audit: ledger.AuditEvent{Actor: "oncall", Reason: "confirmed by the provider"},
				}, at(s.now))
				if err != nil {
					*a = actor{} // and is shown the entry as it is now
					return errors.Is(err, ledger.ErrStale)
				}
				if a.seen != e {
					next.violate("a decision is applied to a version that the operator did not see")
				}
				if verdict == ledger.VerdictNotSent {
					next.unriskedSends = 0
				}
				m.prepareWrite(next, operator, change)
				m.write(next, operator)
				*a = actor{phase: phaseEnded}
				return true
			})
		}
	}
}

// lookupSteps emits the steps of a lookup at a provider that supports lookups, as the reconciler makes it.
func (m *model) lookupSteps(s *state, emit func(step)) {
	e, a := s.entry, &s.actors[lookup]
	if e == nil || m.scenario.contract != ledger.ContractLookup {
		return
	}
	do, rules := m.stepMaker(s, lookup, emit), m.rules[count(s.accountChanged)] // every replica will be configured for this account
	records := func(action string, change ledger.Change) {
		do(action, true, func(next *state, a *actor) bool {
			m.prepareWrite(next, lookup, change)
			m.write(next, lookup)
			*a = actor{}
			return true
		})
	}
	if a.phase == phaseLoad {
		q := ledger.Lookup{Trigger: m.triggers[lookup], Provider: "mail", Result: ledger.LookupNotFound, Started: at(s.now), Finished: at(s.now)}
		if a.found {
			q.Result, q.Outcome.Receipt = ledger.LookupFound, receipts[a.receipt]
		}
		if change, any := ledger.RecordLookup(*e, q, rules, at(s.now)); any {
			records("records the result", change)
			return
		}
		do("has nothing to record", true, func(next *state, a *actor) bool {
			next.checkProof(a.found)
			*a = actor{}
			return true
		})
		return
	}
	if change, any := ledger.ScheduleLookup(*e, rules); any {
		records("schedules a lookup", change)
		return
	}
	switch {
	case e.State != ledger.Unknown || e.NextLookup.IsZero() || moment(e.NextLookup) > s.now:
	case !rules.CanLookup(*e):
		records("cancels the lookups", ledger.CancelLookup(*e, m.triggers[lookup]))
	default:
		do("gets the true result", true, func(_ *state, a *actor) bool {
			*a = actor{phase: phaseLoad, found: s.sends > 0, receipt: s.sends}
			return true
		})
		if s.sends > 0 && !s.notFoundOnce {
			do("gets not found for an accepted message", false, func(next *state, a *actor) bool {
				next.notFoundOnce = true
				*a = actor{phase: phaseLoad}
				return true
			})
		}
	}
}

// statusSteps emits the status events of the provider, at any time and about any of its sends.
func (m *model) statusSteps(s *state, emit func(step)) {
	if s.actors[statusEvent].phase == phaseEnded {
		return
	}
	do := m.stepMaker(s, statusEvent, emit)
	for n := range s.sends {
		change, any := ledger.RecordStatus(*s.entry, ledger.StatusEvent{
			Identity: s.entry.Identity, Kind: ledger.StatusAccepted, Provider: "mail", MessageID: "e-1", Receipt: receipts[n+1], At: at(s.now),
		})
		record := func(then phase) func(*state, *actor) bool {
			return func(next *state, a *actor) bool {
				if any {
					m.prepareWrite(next, statusEvent, change)
					m.write(next, statusEvent)
				} else {
					next.checkProof(true)
				}
				*a = actor{phase: then}
				return true
			}
		}
		do("arrives", false, record(phaseEnded))
		if any && !s.replyLost {
			do("arrives, and loses the reply", false, func(next *state, a *actor) bool {
				next.replyLost = true
				return record(phaseIdle)(next, a)
			})
		}
	}
}
