package modelcheck_test

import (
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// checkVersions makes the store compare the version that was read with the stored one. Without it every other write
// is lost, and the tests fail.
const checkVersions = true

// receipts are a provider's ids for the messages that it accepted.
var receipts = [...]string{"", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}

func (s *state) violate(format string, args ...any) {
	if s.violation == "" {
		s.violation = fmt.Sprintf(format, args...)
	}
}

// version returns the stored version; 0 if there is no entry.
func (s *state) version() int64 {
	if s.entry == nil {
		return 0
	}
	return s.entry.Version
}

// write performs an actor's write in the store, which compares versions, increments them and fixes the moments, and
// checks the invariants of the write. It reports whether the write happened.
func (m *model) write(s *state, id int) bool {
	change := s.actors[id].change
	s.actors[id].change = nil
	return m.commit(s, id, change)
}

func (m *model) commit(s *state, id int, change *ledger.Change) bool {
	before := s.entry
	switch {
	case checkVersions && change.Entry.Version != s.version(), !checkVersions && change.Entry.Version == 0 && before != nil:
		return false
	case checkVersions && !change.Entry.Updated.IsZero() && !change.Entry.Updated.Equal(before.Updated):
		return false
	}
	stored := change.Entry
	stored.Version, stored.Updated = s.version()+1, at(s.now)
	for _, t := range []*ledger.Moment{&stored.LeaseUntil, &stored.ClaimedAt, &stored.Due, &stored.Wake, &stored.NextLookup} {
		*t = ledger.At(t.On(at(s.now)))
	}
	s.entry = &stored
	if err := stored.Check(); err != nil {
		s.violate("check: %v", err)
	}
	claim := stored.State == ledger.Sending && (before == nil || before.Holder != stored.Holder)
	switch {
	case claim && s.cancelled:
		s.violate("claimed after a cancel took effect")
	case claim && before != nil && before.State != ledger.Waiting:
		s.violate("claimed while it is %s", before.State)
	case claim && (stored.BudgetUsed >= m.scenario.attempts || stored.LeaseExpirations >= maxLeaseExpirations):
		s.violate("claimed with %d attempts spent and %d expired leases", stored.BudgetUsed, stored.LeaseExpirations)
	case before != nil && before.State == ledger.Sent && stored.State != ledger.Sent:
		s.violate("%s after it was sent", stored.State)
	}
	if s.redrive != nil {
		m.checkDeadLetterWrite(s, before, change, claim)
	}
	if event := change.Event; event != nil {
		m.checkEvent(s, id, event)
	}
	switch stored.State {
	case ledger.Dead, ledger.Dropped:
		if s.unriskedSends > 0 && stored.Reason != ledger.ReasonAbandoned && !s.isDeleted() {
			s.violate("%s (%s), but it was sent", stored.State, stored.Reason)
		}
	case ledger.Sent:
		if s.sends == 0 && (stored.ReceiptMissing == "" || stored.ReceiptMissing == ledger.MissingUnreadable) {
			s.violate("sent by the ledger, but not accepted by the provider")
		}
		if chosen := m.scenario.onUnknown == ledger.AssumeSent && m.scenario.contract == ledger.ContractBlind; stored.ReceiptMissing == ledger.MissingAssumed && !chosen {
			s.violate("assumed sent, but the policy does not say so")
		}
	}
	if s.acked {
		s.checkAck()
	}
	if checkVersions {
		s.invalidate(id)
	}
	return true
}

// checkEvent checks a timeline event.
func (m *model) checkEvent(s *state, id int, event *ledger.TimelineEvent) {
	proof := isProof(event)
	s.checkProof(proof)
	if event.Holder != "" && event.Kind != ledger.EventLeaseExpired {
		if s.actors[id].recorded {
			s.violate("one call is recorded twice")
		}
		s.actors[id].recorded = true
	}
	if event.Reason == ledger.ReasonRiskTaken {
		switch byLookup := event.Kind == ledger.EventLookup; {
		case m.scenario.onUnknown != ledger.Resend || m.scenario.contract == ledger.ContractIdempotent:
			s.violate("a risk is taken that the policy does not allow")
		case m.scenario.contract == ledger.ContractLookup && !byLookup:
			s.violate("a risk is taken before the last lookup")
		}
		s.unriskedSends = 0
	}
}

// invalidate moves every actor that holds an earlier version to where the failure of its write would take it.
func (s *state) invalidate(id int) {
	for other := range s.actors {
		a := &s.actors[other]
		if other == id {
			continue
		}
		switch a.phase {
		case phaseCall:
			a.entryChanged = true
		case phaseSettle:
			a.phase, a.change = phaseReload, nil
		case phaseWrite:
			s.restart(other)
		case phaseLoad:
			if other == lookup && !a.found {
				*a = actor{} // "not found" concerns the entry only as it was
			}
		}
	}
}

// checkCall checks the invariants of a call that is about to be made.
func (s *state) checkCall(m *model, id int) {
	a, e := &s.actors[id], s.entry
	switch {
	case m.scenario.deadline && s.now >= deadline:
		s.violate("calls past the deadline")
	case s.dropped:
		s.violate("calls after a cancel dropped it")
	case e.State == ledger.Sent:
		// It was proven sent by an earlier call while this one was being made.
	case e.State != ledger.Sending || e.Holder != tokens[a.token]:
		s.violate("calls while the entry is %s, held by %q", e.State, e.Holder)
	}
}

// call makes a call to the provider, which returns a receipt for a message that it accepts.
func (s *state) call(m *model, account uint8, r response) (receipt uint8) {
	if !r.accepted() {
		return 0
	}
	memory := &s.providerKeys[account]
	if m.scenario.contract == ledger.ContractIdempotent && memory.until > s.now {
		return memory.receipt
	}
	s.sends++
	s.unriskedSends++
	memory.until, memory.receipt = s.now+window, s.sends
	if s.unriskedSends > 1 {
		s.violate("sent %d times without a risk taken", s.unriskedSends)
	}
	return s.sends
}

// checkAck checks an ack. Once one was given, it is checked again after every write.
func (s *state) checkAck() {
	s.acked = true
	switch e := s.entry; {
	case e == nil && s.isDeleted():
	case e == nil:
		s.violate("acked, but there is no entry")
	case !e.Final() && e.State != ledger.Unknown && e.Owner != ledger.OwnerLedger:
		s.violate("acked, but it is %s, owned by %s", e.State, e.Owner)
	}
}

// checkProof checks the entry after proof of acceptance has reached the ledger.
func (s *state) checkProof(proof bool) {
	if proof && s.entry.State != ledger.Sent {
		s.violate("accepted by the provider, but the entry is %s", s.entry.State)
	}
}

// checkOutcome checks the entry when a task has nothing more to record.
func (m *model) checkOutcome(s *state, id int) {
	s.checkProof(s.actors[id].result == ledger.ResultAccepted)
}

// checkRest returns what is wrong with a state in which no actor has anything left to do; empty if nothing is.
func (s *state) checkRest() string {
	switch e := s.entry; {
	case e == nil && (s.acked || s.sends > 0) && !s.isDeleted():
		return "acked or sent, but there is no entry"
	case e != nil && !e.Final() && e.State != ledger.Unknown:
		return fmt.Sprintf("lost: it is %s, owned by %q, and no actor will process it", e.State, e.Owner)
	}
	return ""
}
