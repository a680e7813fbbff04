package worlds_test

import (
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// fenced : the store compares what was read with what stands. Without it every other write is a lost one, and
// the tests fail.
const fenced = true

// receipts are a provider's ids for what it carried on.
var receipts = [...]string{"", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}

func (s *state) breaks(format string, args ...any) {
	if s.fault == "" {
		s.fault = fmt.Sprintf(format, args...)
	}
}

// version is the one that stands; 0 where there is no entry.
func (s *state) version() int64 {
	if s.entry == nil {
		return 0
	}
	return s.entry.Version
}

// write is the store: it compares versions, raises them, and fixes the moments. What the write says is held
// to the promises. It tells whether it happened.
func (w *world) write(s *state, who int) bool {
	change := s.actors[who].change
	s.actors[who].change = nil
	return w.commit(s, who, change)
}

func (w *world) commit(s *state, who int, change *ledger.Change) bool {
	before := s.entry
	switch {
	case fenced && change.Entry.Version != s.version(), !fenced && change.Entry.Version == 0 && before != nil:
		return false
	case fenced && !change.Entry.Updated.IsZero() && !change.Entry.Updated.Equal(before.Updated):
		return false
	}
	stands := change.Entry
	stands.Version, stands.Updated = s.version()+1, at(s.now)
	for _, m := range []*ledger.Moment{&stands.LeaseUntil, &stands.ClaimedAt, &stands.Due, &stands.Wake, &stands.AskAt} {
		*m = ledger.At(m.On(at(s.now)))
	}
	s.entry = &stands
	if err := stands.Check(); err != nil {
		s.breaks("check: %v", err)
	}
	claim := stands.State == ledger.Sending && (before == nil || before.Holder != stands.Holder)
	switch {
	case claim && s.cancelled:
		s.breaks("claimed after a cancel took effect")
	case claim && before != nil && before.State != ledger.Waiting:
		s.breaks("claimed while it is %s", before.State)
	case claim && (stands.Spent >= w.plan.attempts || stands.Lapses >= lapses):
		s.breaks("claimed with %d attempts spent and after %d lapses", stands.Spent, stands.Lapses)
	case before != nil && before.State == ledger.Sent && stands.State != ledger.Sent:
		s.breaks("%s after it was sent", stands.State)
	}
	if s.desk != nil {
		w.lettered(s, before, change, claim)
	}
	if line := change.Event; line != nil {
		w.told(s, who, line)
	}
	switch stands.State {
	case ledger.Dead, ledger.Dropped:
		if s.uncovered > 0 && stands.Reason != ledger.ReasonAbandoned && !s.buried() {
			s.breaks("%s (%s), and it was sent", stands.State, stands.Reason)
		}
	case ledger.Sent:
		if s.sends == 0 && (stands.Missing == "" || stands.Missing == ledger.MissingUnread) {
			s.breaks("sent says the ledger, and nobody took it")
		}
		if chosen := w.plan.onUnknown == ledger.AssumeSent && w.plan.contract == ledger.Blind; stands.Missing == ledger.MissingAssumed && !chosen {
			s.breaks("assumed sent, and nobody chose that")
		}
	}
	if s.acked {
		s.promised()
	}
	if fenced {
		s.overtakes(who)
	}
	return true
}

// told takes in what the timeline says.
func (w *world) told(s *state, who int, line *ledger.Event) {
	proof := proves(line)
	s.proven(proof)
	if line.Holder != "" && line.Kind != ledger.EventLapse {
		if s.actors[who].recorded {
			s.breaks("one call is told twice")
		}
		s.actors[who].recorded = true
	}
	if line.Reason == ledger.ReasonRiskTaken {
		switch asked := line.Kind == ledger.EventLookup; {
		case w.plan.onUnknown != ledger.Resend || w.plan.contract == ledger.Idempotent:
			s.breaks("a risk is taken that nobody chose")
		case w.plan.contract == ledger.Lookup && !asked:
			s.breaks("a risk is taken, and the provider was not asked to the end")
		}
		s.uncovered = 0
	}
}

// overtakes sends whoever goes by an earlier version where the failure of its write would send it.
func (s *state) overtakes(who int) {
	for other := range s.actors {
		a := &s.actors[other]
		if other == who {
			continue
		}
		switch a.place {
		case calls:
			a.overtook = true
		case settles:
			a.place, a.change = rereads, nil
		case writes:
			s.again(other)
		case looks:
			if other == asker && !a.found {
				*a = actor{} // what is not found is said of the entry as it stood
			}
		}
	}
}

// mayCall holds a call that is about to be made to the promises.
func (s *state) mayCall(w *world, who int) {
	a, e := &s.actors[who], s.entry
	switch {
	case w.plan.deadline && s.now >= deadline:
		s.breaks("calls past the deadline")
	case s.dropped:
		s.breaks("calls after a cancel dropped it")
	case e.State == ledger.Sent:
		// It was proven sent by an earlier call while this one was being made.
	case e.State != ledger.Sending || e.Holder != tokens[a.token]:
		s.breaks("calls while the entry is %s, held by %q", e.State, e.Holder)
	}
}

// call is a request at the provider, who answers with its receipt for what it takes.
func (s *state) call(w *world, account uint8, m mood) (receipt uint8) {
	if !m.takes() {
		return 0
	}
	memory := &s.remembers[account]
	if w.plan.contract == ledger.Idempotent && memory.until > s.now {
		return memory.receipt
	}
	s.sends++
	s.uncovered++
	memory.until, memory.receipt = s.now+window, s.sends
	if s.uncovered > 1 {
		s.breaks("sent %d times, and nobody took the risk", s.uncovered)
	}
	return s.sends
}

// promised is an ack. What was promised once is held to after every write.
func (s *state) promised() {
	s.acked = true
	switch e := s.entry; {
	case e == nil && s.buried():
	case e == nil:
		s.breaks("acked, and there is no entry")
	case !e.Final() && e.State != ledger.Unknown && e.Owner != ledger.OwnerLedger:
		s.breaks("acked, and it is %s, owned by %s", e.State, e.Owner)
	}
}

// proven holds the ledger to proof that has just reached it.
func (s *state) proven(proof bool) {
	if proof && s.entry.State != ledger.Sent {
		s.breaks("accepted says the provider, and the entry is %s", s.entry.State)
	}
}

// learnt is a visitor that has nothing more to record.
func (w *world) learnt(s *state, who int) { s.proven(s.actors[who].result == ledger.ResultAccepted) }

// rests tells what is wrong with a state in which nobody has anything left to do.
func (s *state) rests() string {
	switch e := s.entry; {
	case e == nil && (s.acked || s.sends > 0) && !s.buried():
		return "acked or sent, and there is no entry"
	case e != nil && !e.Final() && e.State != ledger.Unknown:
		return fmt.Sprintf("lost: it is %s, owned by %q, and nobody will come", e.State, e.Owner)
	}
	return ""
}
