package worlds_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// letters is what happens to a dead letter beside its redrives.
type letters string

const (
	push    letters = "push" // nothing but the delivery that comes in every world
	discard letters = "discard"
	erase   letters = "erase"
	purge   letters = "purge"
	memory  letters = "memory" // its entry is deleted, once it is older than the memory
)

// Who is who at the desk; cast is time itself.
const (
	redrive = cast + 1 + iota
	other
	forgets
)

// kept is how long what is at rest is kept, or the entry itself.
const kept = 40 * time.Second

// letterPlans are the worlds that begin with a dead letter and two redrives: one a redrive, or, as shared, two
// replicas at one item. In the whole set another delivery comes in all of them and visitors pause wherever they may;
// and where two replicas share, a crash and a lost reply may meet.
func letterPlans(all bool) (list []plan) {
	p := plan{attempts: 1, deadline: true}
	for _, p.letters = range []letters{push, discard, erase, purge, memory} {
		for _, p.contract = range []ledger.ContractKind{ledger.Idempotent, ledger.Lookup, ledger.Blind} {
			for _, p.onUnknown = range []ledger.OnUnknown{ledger.Hold, ledger.AssumeSent, ledger.Resend} {
				for _, p.shared = range []bool{false, true} {
					p.pauses, p.both = all, false
					p.arrivals[0] = uint8(count(all || p.letters == push || p.letters == memory))
					ordinary := p.shared == (p.letters == push || p.letters == erase)
					ordinary = ordinary && (p.contract != ledger.Lookup || p.onUnknown == ledger.Hold) // one attempt leaves no more to decide
					if p.attempts = 1; p.contract == ledger.Lookup && p.onUnknown == ledger.Resend {
						p.attempts = 2
					}
					if p.letters == erase && !p.shared {
						p.arrivals[0] = 0 // what is erased meets no delivery otherwise than what is discarded
					}
					asHold := p.undecided() || p.contract == ledger.Lookup && p.onUnknown == ledger.AssumeSent
					if asHold || p.shared && p.letters == memory || !all && !ordinary {
						continue
					}
					list = append(list, p)
					if p.both, p.arrivals[0] = true, 0; all && p.shared {
						list = append(list, p)
					}
				}
			}
		}
	}
	return list
}

// desk is where the redrives of a dead letter stand, and whoever forgets it.
type desk struct {
	turns    [2]turn
	redrives [2]struct {
		version int64  // of the letter as it was laid out; 0 before that
		line    bool   // its own line stands in the timeline
		put     uint8  // times that it put the letter to work
		result  string // of its item
	}
	forgets struct {
		place place
		seen  *ledger.Entry
		takes ledger.Ageing
	}
	kept   bool // the payload is
	buried bool // the entry was deleted
}

// turn is one replica's way with one item.
type turn struct {
	place  place
	seen   *ledger.Entry
	readAt time.Duration
	change *ledger.Change
	result string
}

// once lets a crash or a lost reply happen, and not both.
func (w *world) once(emit func(step)) func(step) {
	return func(st step) {
		if st.next.crashed != st.next.lost {
			st.next.crashed, st.next.lost = true, true
		}
		emit(st)
	}
}

func (s *state) buried() bool { return s.desk != nil && s.desk.buried }

// letter makes a dead letter the beginning: refused once at its provider, so it has nothing of a doubt.
func (w *world) letter(s *state) {
	e := w.plan.birth()
	e.State, e.Class, e.Reason, e.Owner = ledger.Dead, ledger.ClassExhausted, ledger.ReasonBudgetSpent, ledger.OwnerLedger
	e.Provider, e.Fingerprint, e.Attempts, e.Spent = "mail", accounts[0], w.plan.attempts, w.plan.attempts
	e.Version, e.UserID, e.Deliveries = 1, "u-77", 1
	e.FirstSeen, e.Updated = noon(), noon().Add(time.Microsecond)
	s.entry, s.called = &e, true
	s.desk = &desk{kept: true}
	s.desk.redrives[0].version = 1
	for _, who := range []int{cancel, person, report} {
		s.actors[who].place = gone_
	}
}

// lettering is what the desk may do next.
func (w *world) lettering(s *state, emit func(step)) {
	for i := range s.desk.turns {
		w.turning(s, i, emit)
	}
	w.forgetting(s, emit)
}

// atDesk makes one way to go on at the desk, which moves a copy.
func (w *world) atDesk(s *state, who int, emit func(step)) func(what string, must bool, act func(next *state, d *desk)) {
	return func(what string, must bool, act func(next *state, d *desk)) {
		next, d := &w.scratch, *s.desk
		*next = *s
		next.desk = &d
		act(next, &d)
		emit(step{who, what, "", must, next})
	}
}

// item is the one of a turn.
func (w *world) item(i int) int {
	if w.plan.shared {
		return 0
	}
	return i
}

// turning is one item's turn, as the desk of internal/redrive gives it: read the entry; read what else is needed and
// decide; write; settle the item.
func (w *world) turning(s *state, i int, emit func(step)) {
	do := w.atDesk(s, redrive+i, emit)
	t, r := s.desk.turns[i], s.desk.redrives[w.item(i)]
	switch t.place {
	case idle:
		switch {
		case r.result != "":
		case r.version > 0:
			do("reads", true, func(_ *state, d *desk) { d.turns[i] = turn{place: looks, seen: s.entry, readAt: s.now} })
		case s.entry != nil && w.plan.letters != memory && (s.entry.State == ledger.Dead || w.plan.letters == discard):
			// By a filter where it is dead, and by its name in any state.
			do("is laid out", false, func(_ *state, d *desk) { d.redrives[i].version = s.entry.Version })
		}
	case looks:
		w.puts(s, i, do)
	case settles:
		do("settles the item", true, func(next *state, d *desk) { w.itemSettled(next, d, i) })
		if !s.crashed {
			do("vanishes before it settles the item", false, func(next *state, d *desk) {
				next.crashed = true
				d.turns[i] = turn{}
			})
		}
	}
}

// puts decides and writes at once: whatever else came in between would make the write fail. With and without the reply.
func (w *world) puts(s *state, i int, do func(string, bool, func(*state, *desk))) {
	for _, learns := range []bool{true, false} {
		probe := *s.desk
		if w.decide(&probe, i); !learns && (s.lost || probe.turns[i].change == nil) {
			continue
		}
		do("decides"+map[bool]string{false: ", writes, and does not learn that"}[learns], learns, func(next *state, d *desk) {
			next.lost = next.lost || !learns
			w.decide(d, i)
			change := d.turns[i].change
			if d.turns[i].change = nil; change == nil {
				return
			}
			wrote := w.commit(next, redrive+i, change)
			if d.turns[i] = (turn{}); wrote && learns {
				d.turns[i] = turn{place: settles, result: ledger.ItemReopened}
			}
		})
	}
}

// decide is the desk's: what was done before is known by its line, and else the heart says.
func (w *world) decide(d *desk, i int) {
	t, n := &d.turns[i], w.item(i)
	r, e := &d.redrives[n], ledger.Entry{}
	if t.seen != nil {
		e = *t.seen
	}
	t.place, t.seen, t.change = settles, nil, nil
	if e.Version != r.version && !e.Absent() && r.line {
		t.result = ledger.ItemReopened
		return
	}
	by := ledger.Reopening{Redrive: names[redrive+n], By: "oncall", Version: r.version, Permanent: n == 1, Most: 3, Kept: d.kept}
	by.Admission = w.plan.admit(by.Granted(e), at(t.readAt))
	change, skip := ledger.Reopen(e, by, w.rules[0], at(t.readAt))
	if t.result = string(skip); skip == "" {
		t.change = &change
	}
}

// itemSettled is the book: the first result stands.
func (w *world) itemSettled(s *state, d *desk, i int) {
	t, r := &d.turns[i], &d.redrives[w.item(i)]
	if t.place = gone_; r.result != "" {
		return
	}
	r.result = t.result
	switch reopened := r.result == ledger.ItemReopened; {
	case reopened && r.put != 1:
		s.breaks("an item says reopened, and was put to work %d times", r.put)
	case !reopened && r.put > 0 && !w.plan.shared && !d.buried:
		s.breaks("an item says %s, and was put to work", r.result)
	}
}

// forgetting is the one who discards, erases or purges.
func (w *world) forgetting(s *state, emit func(step)) {
	do, f, e := w.atDesk(s, forgets, emit), s.desk.forgets, s.entry
	reads := func(what string, takes ledger.Ageing) {
		do(what, false, func(_ *state, d *desk) { d.forgets.place, d.forgets.seen, d.forgets.takes = looks, e, takes })
	}
	writes := func(what string, change ledger.Change, then func(next *state, d *desk)) {
		for _, learns := range []bool{true, false} {
			if !learns && s.lost {
				continue
			}
			do(what+map[bool]string{false: ", and does not learn of it"}[learns], learns, func(next *state, d *desk) {
				next.lost = next.lost || !learns
				d.forgets.place, d.forgets.seen = idle, nil
				if w.commit(next, forgets, &change) {
					then(next, d)
					if learns {
						d.forgets.place = gone_
					}
				}
			})
		}
	}
	act := ledger.Act{By: "oncall", Why: "they asked"}
	switch {
	case f.place == gone_ || f.place == idle && e == nil:
	case f.place == idle && w.plan.letters == discard && e.State == ledger.Dead, f.place == idle && w.plan.letters == erase && e.UserID != "":
		reads("looks", ledger.AgeingNone)
	case f.place == idle && w.plan.letters != discard && w.plan.letters != erase:
		if takes := w.keeps().Aged(ledger.Kept{Entry: *e, Payload: s.desk.kept}, at(s.now)); takes != ledger.AgeingNone {
			reads("finds what has aged", takes)
		}
	case f.place == idle:
	case e == nil || f.seen.Version != e.Version && w.plan.letters != discard:
		do("finds that it has moved on", true, func(_ *state, d *desk) { d.forgets.place, d.forgets.seen = idle, nil })
	case w.plan.letters == discard:
		change, err := ledger.Discard(*e, f.seen.Version, act)
		if err != nil {
			do("is refused", true, func(_ *state, d *desk) { d.forgets.place, d.forgets.seen = idle, nil })
			return
		}
		writes("discards", change, func(next *state, _ *desk) {
			if f.seen != e {
				next.breaks("a discard is taken for another version than the person saw")
			}
			next.cancelled, next.dropped = true, true
		})
	case w.plan.letters == erase:
		writes("erases", ledger.Erase(*f.seen, act), func(next *state, _ *desk) {
			next.cancelled, next.dropped = !e.Final() || e.State == ledger.Dead, next.entry.State == ledger.Dropped
		})
	case f.takes == ledger.AgeingPayload:
		writes("takes the payload", ledger.Purge(*f.seen), func(*state, *desk) {})
	default:
		do("deletes the entry", true, func(next *state, d *desk) {
			w.young(next, *e)
			next.entry, next.acked = nil, false
			d.forgets.place, d.forgets.seen, d.kept, d.buried = gone_, nil, false, true
			for who := range next.actors {
				next.actors[who].recorded = false // the timeline is gone
			}
			next.overtakes(forgets)
		})
	}
}

// keeps is how long the world keeps what.
func (w *world) keeps() ledger.Retention {
	switch w.plan.letters {
	case purge:
		return ledger.Retention{Sent: kept, Dead: kept, Dropped: kept}
	case memory:
		return ledger.Retention{Entry: kept}
	default:
		return ledger.Retention{}
	}
}

// young breaks where something that is not at rest, or not yet for long enough, is forgotten.
func (w *world) young(s *state, e ledger.Entry) {
	if age := at(s.now).Sub(e.Updated); !e.Final() || age < kept {
		s.breaks("forgotten while it is %s, %v after its last write", e.State, age)
	}
}

// lettered holds a write to what is promised of dead letters; before is what stood.
func (w *world) lettered(s *state, before *ledger.Entry, change *ledger.Change, claim bool) {
	d := s.desk
	if before == nil {
		again := *d
		again.kept = change.Payload != nil
		s.desk, d = &again, &again
		if d.buried && s.entry.State != ledger.Dropped {
			s.breaks("comes again after its entry was deleted, and is %s", s.entry.State)
		}
		return
	}
	if claim && !d.kept {
		s.breaks("claimed, and what it says is gone")
	}
	switch line := change.Event; {
	case change.Forget != ledger.ForgetNothing:
		d.kept = false // its writer's own copy
		if change.Forget == ledger.ForgetPayload {
			w.young(s, *before)
		} else if s.entry.UserID != "" {
			s.breaks("erased, and its person is there")
		}
	case line != nil && line.Origin == ledger.OriginRedrive:
		n := 0
		if line.Message == names[other] {
			n = 1
		}
		r := &d.redrives[n]
		r.put++
		r.line = true
		switch {
		case before.State != ledger.Dead || before.InDoubt():
			s.breaks("redriven while it is %s", before.State)
		case before.Version != r.version:
			s.breaks("redriven at version %d, laid out at %d", before.Version, r.version)
		case r.put > 1:
			s.breaks("put to work twice by one redrive")
		case !d.kept:
			s.breaks("redriven, and what it says is gone")
		case before.Class == ledger.ClassPermanent && n == 0:
			s.breaks("redriven, though refused for good and not asked for by name")
		}
	}
}

// ageing is when anything is next forgotten, and when a redrive comes too late.
func (w *world) ageing(s *state, matters func(time.Duration)) {
	e, d := s.entry, s.desk
	if e == nil || !e.Final() {
		return
	}
	if (w.plan.letters == memory || w.plan.letters == purge && d.kept) && d.forgets.place == idle {
		matters((e.Updated.Sub(noon()) + kept + time.Millisecond - 1).Truncate(time.Millisecond))
	}
	if e.State == ledger.Dead && w.plan.deadline {
		matters(deadline)
	}
}

// desk writes down what can still make a difference at the desk: of a result only whether it is there, of an item
// that has one nothing else, and of a reading that has passed only what it leads to.
func (c *coder) desk(s *state) {
	d, e := s.desk, s.entry
	c.flags(d.kept, d.buried, e != nil && e.UserID == "" && c.plan.letters == erase)
	if e != nil && e.Final() && (c.plan.letters == memory || c.plan.letters == purge && d.kept) {
		c.ahead(e.Updated.Sub(noon())+kept, s.now)
	}
	for i := range d.redrives {
		switch r := &d.redrives[i]; {
		case r.result != "" && !c.plan.shared:
			c.buf = append(c.buf, 9)
		default:
			c.flags(r.line, r.version == 0, e != nil && r.version == e.Version, r.result != "", r.put > 0, r.put > 1)
			if c.plan.letters == memory {
				c.buf = binary.AppendVarint(c.buf, r.version)
			}
		}
	}
	if c.plan.letters == memory && e != nil {
		c.buf = binary.AppendVarint(c.buf, e.Version) // it is counted anew after a deletion
	}
	begun := len(c.buf)
	c.turn(s, 0)
	second := len(c.buf)
	c.turn(s, 1)
	if one, two := c.buf[begun:second], c.buf[second:]; c.plan.shared && bytes.Compare(one, two) > 0 {
		swapped := slices.Concat(two, one)
		copy(c.buf[begun:], swapped)
	}
	f := &d.forgets
	c.buf = append(c.buf, byte(f.place), byte(f.takes))
	c.flags(f.seen == e)
}

func (c *coder) turn(s *state, i int) {
	t, n := &s.desk.turns[i], i
	if c.plan.shared {
		n = 0
	}
	place := t.place
	if place == idle && s.desk.redrives[n].result != "" {
		place = gone_
	}
	c.buf = append(c.buf, byte(place))
	if place != looks {
		c.flags(place == settles && t.result == ledger.ItemReopened)
		return
	}
	c.flags(t.seen == s.entry, t.seen == nil, t.seen != nil && t.seen.Version == s.desk.redrives[n].version, t.readAt >= deadline,
		t.seen != nil && t.seen.Class == ledger.ClassPermanent, t.seen != nil && t.seen.State == ledger.Dead)
}
