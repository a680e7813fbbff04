package modelcheck_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// phase is what an actor does next.
type phase uint8

const (
	phaseIdle   phase = iota // may begin
	phaseEnded               // will not come again
	phaseLoad                // load the entry, and decide
	phaseWrite               // write what was decided
	phaseCall                // call the provider, under its claim
	phaseSettle              // record the outcome of the call
	phaseReload              // load again, since that write failed or seemed to
	phaseReply               // reply to the broker; no state stops here
)

// The actors.
const (
	delivery = iota
	secondDelivery
	worker
	sweep
	cancel
	operator
	lookup
	statusEvent
	actorCount
)

// actor is one of those who may write the entry, with what it keeps from one step to the next.
type actor struct {
	phase        phase
	account      uint8 // that its replica is configured for
	deliveries   uint8 // of a delivery: how often it may still arrive
	result       ledger.Result
	receipt      uint8          // of its call, or of the lookup result that it is to record; 0 for none
	recorded     bool           // the event of its own call is in the timeline
	entryChanged bool           // for a claim: the entry was written since it was read
	found        bool           // the lookup result that it is to record
	token        uint8          // of its task
	readAt       time.Duration  // when it loaded the entry that it acts on
	callBefore   time.Duration  // the latest start of a claim's call
	seen         *ledger.Entry  // its claim, or what an operator saw
	change       *ledger.Change // to be written
}

// state is the state of a model between two steps. Times are durations since noon. Entries are never modified.
type state struct {
	now    time.Duration
	entry  *ledger.Entry // nil if there is none
	actors [actorCount]actor

	// The truth, of which the ledger knows only what it was told.
	called        bool  // the first call was made, or the first slot requested
	sends         uint8 // what the provider accepted
	unriskedSends uint8 // of these, since the risk of another was last taken
	providerKeys  [len(accounts)]struct {
		until   time.Duration // the provider recognises the key; 0 for never
		receipt uint8
	}
	accountChanged bool // the second account is in use
	acked          bool
	cancelled      bool // a cancel took effect
	dropped        bool // and reported that the reminder will not be sent
	crashed        bool
	replyLost      bool // of a commit
	notFoundOnce   bool // the provider did not find what it had accepted
	violation      string

	redrive *redriveState // of a scenario that begins with a dead letter; never modified
}

func at(d time.Duration) time.Time { return noon().Add(d) }

// moment returns a fixed moment as a duration since noon; 0 for never, since no fixed moment is at noon except a
// claim's time, which is handled separately.
func moment(m ledger.Moment) time.Duration {
	t, ok := m.Fixed()
	if !ok {
		return 0
	}
	return t.Sub(noon())
}

// encoder encodes what can still make a difference about a state, so that states that nothing can distinguish are
// one.
type encoder struct {
	scenario scenario
	buf      []byte
}

func (c *encoder) flags(set ...bool) {
	var bits byte
	for i, on := range set {
		if on {
			bits |= 1 << i
		}
	}
	c.buf = append(c.buf, bits)
}

// ahead encodes how far a time is ahead; all past times are alike.
func (c *encoder) ahead(t, now time.Duration) {
	c.buf = binary.AppendUvarint(c.buf, uint64(max(t-now, 0)/time.Millisecond))
}

func (c *encoder) moment(m ledger.Moment, now time.Duration) {
	switch span, ok := m.Span(); {
	case m.IsZero():
		c.buf = append(c.buf, 0)
	case ok:
		c.buf = append(c.buf, 1)
		c.buf = binary.AppendUvarint(c.buf, uint64(span/time.Millisecond))
	default:
		c.buf = append(c.buf, 2)
		c.ahead(moment(m), now)
	}
}

// encode returns the state's encoding; it is valid until the next call.
func (c *encoder) encode(s *state) []byte {
	c.buf = c.buf[:0]
	c.flags(s.called, s.accountChanged, s.acked, s.cancelled, s.dropped, s.crashed, s.replyLost, s.notFoundOnce)
	c.buf = append(c.buf, s.sends, s.unriskedSends)
	if c.scenario.deadline {
		c.ahead(deadline, s.now)
	}
	if c.scenario.contract == ledger.ContractIdempotent {
		for _, memory := range s.providerKeys {
			c.ahead(memory.until, s.now)
			if memory.until > s.now {
				c.buf = append(c.buf, memory.receipt)
			}
		}
	}
	if s.entry == nil {
		c.buf = append(c.buf, 0)
	} else {
		c.entry(s.entry, s.now)
	}
	start := len(c.buf)
	c.actor(s, delivery)
	second := len(c.buf)
	c.actor(s, secondDelivery)
	if one, other := c.buf[start:second], c.buf[second:]; bytes.Compare(one, other) > 0 {
		swapped := slices.Concat(other, one)
		copy(c.buf[start:], swapped)
	}
	for id := worker; id < actorCount; id++ {
		c.actor(s, id)
	}
	if s.redrive != nil {
		c.redrive(s)
	}
	return c.buf
}

// entry encodes what matters about an entry. Its holder is encoded with the actors and its deadline with the state.
// Its version is not encoded: an actor that holds an earlier one is recognised by its phase.
func (c *encoder) entry(e *ledger.Entry, now time.Duration) {
	c.buf = append(c.buf, e.State[0], byte(len(e.State)), byte(e.BudgetUsed), byte(e.LeaseExpirations), byte(e.LookupsNotFound))
	c.text(string(e.Class))
	c.text(string(e.ReceiptMissing))
	c.text(e.Receipt)
	c.flags(e.CancelRequested, e.InDoubt(), e.Owner == ledger.OwnerBroker, e.Owner == "", e.Reason == ledger.ReasonAbandoned,
		e.Fingerprint == accounts[1], e.Fingerprint == "", e.ContentHash == "")
	for _, m := range []ledger.Moment{e.LeaseUntil, e.Due, e.Wake, e.NextLookup} {
		c.moment(m, now)
	}
	if c.scenario.contract != ledger.ContractIdempotent {
		return // the start of the doubt matters only for windows
	}
	if e.State == ledger.Sending && !e.InDoubt() {
		if _, ok := e.ClaimedAt.Span(); ok {
			c.ahead(0, 0)
		} else {
			c.ahead(moment(e.ClaimedAt)+window, now)
		}
	}
	if e.InDoubt() {
		c.ahead(e.DoubtSince.Sub(noon())+window, now)
	}
}

func (c *encoder) text(word string) {
	c.buf = append(c.buf, byte(len(word)))
	c.buf = append(c.buf, word...)
}

func (c *encoder) actor(s *state, id int) {
	a := &s.actors[id]
	holds := a.token != 0 && s.entry != nil && s.entry.Holder == tokens[a.token]
	result := a.result
	if !holds && result != ledger.ResultAccepted {
		result = ledger.ResultUnknown // the outcome of a late holder changes nothing unless it is proof
	}
	c.buf = append(c.buf, byte(a.phase)|a.account<<4, a.deliveries, byte(result), a.receipt)
	c.flags(holds, a.recorded, a.entryChanged, a.found, id == operator && a.seen != nil && a.seen == s.entry)
	switch a.phase {
	case phaseCall:
		c.ahead(a.callBefore, s.now)
		if !checkVersions {
			c.entry(a.seen, s.now)
		}
	case phaseWrite, phaseSettle:
		if a.phase == phaseWrite && id <= worker {
			c.ahead(a.readAt+margin, s.now)
		}
		c.change(a.change, s)
	}
}

func (c *encoder) change(change *ledger.Change, s *state) {
	c.entry(&change.Entry, s.now)
	c.flags(change.Entry.Holder != "", s.entry != nil && change.Entry.Version != s.entry.Version)
	if change.Event != nil {
		c.text(string(change.Event.Kind))
		c.flags(change.Event.Reason == ledger.ReasonRiskTaken, isProof(change.Event))
	}
}

// isProof reports whether a timeline event proves that the provider accepted the message.
func isProof(line *ledger.TimelineEvent) bool {
	switch line.Kind {
	case ledger.EventAttempt, ledger.EventLate:
		return line.Outcome.Result == ledger.ResultAccepted
	case ledger.EventLookup:
		return line.Reason == ledger.ReasonLateAcceptance || line.Reason == ledger.ReasonPossibleSecondSend
	case ledger.EventStatus:
		return true // bounces do not occur here
	default:
		return false
	}
}
