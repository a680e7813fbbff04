package worlds_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// place is where an actor stands on its way: what it does next.
type place uint8

const (
	idle    place = iota // it may begin
	gone_                // it will not come again
	looks                // read the entry, and decide
	writes               // write what was decided
	calls                // call the provider, under its claim
	settles              // write what the call proved
	rereads              // read again, since that write failed or seemed to
	answers              // tell the broker; no state stops there
)

// Who is who among the actors.
const (
	delivery = iota
	twin
	worker
	sweep
	cancel
	person
	asker
	report
	cast
)

// actor is one of those who may touch the entry, and what it carries from one step to the next.
type actor struct {
	place    place
	account  uint8 // what its replica is configured for
	arrivals uint8 // of a delivery, still to come
	result   ledger.Result
	receipt  uint8          // what its call, or the answer that it carries, was told; 0 for none
	recorded bool           // the line of its own call stands in the timeline
	overtook bool           // a claim: the entry was written to since it was read
	found    bool           // the answer that it carries to the ledger
	token    uint8          // of its visit
	readAt   time.Duration  // when it read what it goes by
	until    time.Duration  // a claim's call begins before
	seen     *ledger.Entry  // its claim, or what a person goes by
	change   *ledger.Change // to be written
}

// state is a world between two steps. Times are distances from noon. Entries are never written to.
type state struct {
	now    time.Duration
	entry  *ledger.Entry // nil where there is none
	actors [cast]actor

	// The truth, of which the ledger knows what it was told.
	called    bool  // the first call, or the first slot, was made
	sends     uint8 // what the provider carried on
	uncovered uint8 // of these, since the risk of another was last taken
	remembers [len(accounts)]struct {
		until   time.Duration // the provider knows the key again; 0 for never
		receipt uint8
	}
	moved     bool // the second account is there
	acked     bool
	cancelled bool // a cancel took effect
	dropped   bool // and said that it will not be sent
	crashed   bool
	lost      bool // a commit's reply
	lied      bool // the provider did not find what it took
	fault     string

	desk *desk // of a world that begins with a dead letter; never written to
}

func at(d time.Duration) time.Time { return noon().Add(d) }

// moment is a fixed one as a distance from noon; 0 for never, since nothing that is fixed lies at noon but a
// claim's time, which is judged apart.
func moment(m ledger.Moment) time.Duration {
	t, ok := m.Fixed()
	if !ok {
		return 0
	}
	return t.Sub(noon())
}

// coder writes down what can still make a difference about a state, so that two states of which nobody could
// tell which is which are one.
type coder struct {
	plan plan
	buf  []byte
}

func (c *coder) flags(set ...bool) {
	var bits byte
	for i, on := range set {
		if on {
			bits |= 1 << i
		}
	}
	c.buf = append(c.buf, bits)
}

// ahead is how far a moment lies ahead; a past one is past.
func (c *coder) ahead(t, now time.Duration) {
	c.buf = binary.AppendUvarint(c.buf, uint64(max(t-now, 0)/time.Millisecond))
}

func (c *coder) moment(m ledger.Moment, now time.Duration) {
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

// encode is the state's key; it stands until the next one is made.
func (c *coder) encode(s *state) []byte {
	c.buf = c.buf[:0]
	c.flags(s.called, s.moved, s.acked, s.cancelled, s.dropped, s.crashed, s.lost, s.lied)
	c.buf = append(c.buf, s.sends, s.uncovered)
	if c.plan.deadline {
		c.ahead(deadline, s.now)
	}
	if c.plan.contract == ledger.Idempotent {
		for _, memory := range s.remembers {
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
	begun := len(c.buf)
	c.actor(s, delivery)
	second := len(c.buf)
	c.actor(s, twin)
	if one, other := c.buf[begun:second], c.buf[second:]; bytes.Compare(one, other) > 0 {
		swapped := slices.Concat(other, one)
		copy(c.buf[begun:], swapped)
	}
	for who := worker; who < cast; who++ {
		c.actor(s, who)
	}
	if s.desk != nil {
		c.desk(s)
	}
	return c.buf
}

// entry writes down what decides about an entry. Its holder is told with the actors, its deadline with the
// world, and its version not at all: whoever goes by an earlier one is told apart by where it stands.
func (c *coder) entry(e *ledger.Entry, now time.Duration) {
	c.buf = append(c.buf, e.State[0], byte(len(e.State)), byte(e.Spent), byte(e.Lapses), byte(e.Asked))
	c.text(string(e.Class))
	c.text(string(e.Missing))
	c.text(e.Receipt)
	c.flags(e.CancelAsked, e.InDoubt(), e.Owner == ledger.OwnerBroker, e.Owner == "", e.Reason == ledger.ReasonAbandoned,
		e.Fingerprint == accounts[1], e.Fingerprint == "", e.ContentHash == "")
	for _, m := range []ledger.Moment{e.LeaseUntil, e.Due, e.Wake, e.AskAt} {
		c.moment(m, now)
	}
	if c.plan.contract != ledger.Idempotent {
		return // from when the doubt counts decides about windows alone
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

func (c *coder) text(word string) {
	c.buf = append(c.buf, byte(len(word)))
	c.buf = append(c.buf, word...)
}

func (c *coder) actor(s *state, who int) {
	a := &s.actors[who]
	holds := a.token != 0 && s.entry != nil && s.entry.Holder == tokens[a.token]
	result := a.result
	if !holds && result != ledger.ResultAccepted {
		result = ledger.ResultUnknown // whatever a late holder learnt, if it is no proof it moves nothing
	}
	c.buf = append(c.buf, byte(a.place)|a.account<<4, a.arrivals, byte(result), a.receipt)
	c.flags(holds, a.recorded, a.overtook, a.found, who == person && a.seen != nil && a.seen == s.entry)
	switch a.place {
	case calls:
		c.ahead(a.until, s.now)
		if !fenced {
			c.entry(a.seen, s.now)
		}
	case writes, settles:
		if a.place == writes && who <= worker {
			c.ahead(a.readAt+margin, s.now)
		}
		c.change(a.change, s)
	}
}

func (c *coder) change(change *ledger.Change, s *state) {
	c.entry(&change.Entry, s.now)
	c.flags(change.Entry.Holder != "", s.entry != nil && change.Entry.Version != s.entry.Version)
	if change.Event != nil {
		c.text(string(change.Event.Kind))
		c.flags(change.Event.Reason == ledger.ReasonRiskTaken, proves(change.Event))
	}
}

// proves tells whether a line of the timeline says that the provider took the reminder.
func proves(line *ledger.Event) bool {
	switch line.Kind {
	case ledger.EventAttempt, ledger.EventLate:
		return line.Outcome.Result == ledger.ResultAccepted
	case ledger.EventLookup:
		return line.Reason == ledger.ReasonLateAcceptance || line.Reason == ledger.ReasonPossibleSecondSend
	case ledger.EventReport:
		return true // bounces are not reported here
	default:
		return false
	}
}
