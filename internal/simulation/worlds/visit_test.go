package worlds_test

import (
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// tokens are what visits draw. One that nobody goes by any more may be drawn again: nothing could tell.
var tokens = func() (all [cast + 3]string) {
	for i := range all {
		all[i] = fmt.Sprintf("h%d", i)
	}
	return all
}()

// world is a plan, and what follows from it once for all of its states.
type world struct {
	plan   plan
	rules  [len(accounts)]ledger.Rules
	births [len(accounts)]ledger.Entry
	visits [cast]ledger.Visit

	scratch, other state // that a step leads to; whoever keeps it copies it
}

func newWorld(p plan) *world {
	w := &world{plan: p}
	for i := range accounts {
		w.rules[i], w.births[i] = p.rules(uint8(i)), p.birth()
	}
	for who := range w.visits {
		w.visits[who] = ledger.Visit{Origin: ledger.OriginWorker}
	}
	for _, who := range []int{delivery, twin} {
		w.visits[who] = ledger.Visit{Origin: ledger.OriginPush, Source: "reservations", Birth: &w.births[0], Payload: &ledger.Payload{}}
	}
	w.visits[sweep].Origin, w.visits[asker].Origin = ledger.OriginReconcile, ledger.OriginReconcile
	w.visits[cancel] = ledger.Visit{Origin: ledger.OriginAPI, Source: "checkout"}
	return w
}

// begins is every world's first state.
func (w *world) begins() *state {
	s := &state{}
	s.actors[delivery].arrivals, s.actors[twin].arrivals = w.plan.arrivals[0], w.plan.arrivals[1]
	if w.plan.letters != "" {
		w.letter(s)
	}
	return s
}

// step is one way in which a world can go on. What must happen sooner or later, if nothing else does, is told
// from what may.
type step struct {
	who  int
	what string
	how  string // it ends
	must bool
	next *state
}

// doing makes one way to go on of an actor: act moves next, and tells whether there is such a way.
type doing func(what string, must bool, act func(next *state, a *actor) bool)

// visitor is a step of a delivery or the worker, as deliver's desk walks it.
//
// It writes at once what it read and decided, or after time has passed: whatever else may come in between
// makes the write fail, or moves nothing that the decision goes by. It vanishes right after it claimed,
// called or settled: before a claim it would leave nothing behind, and later is the same as sooner.
func (w *world) visitor(s *state, who int, emit func(step)) {
	a := &s.actors[who]
	do := func(what string, must bool, act func(next *state, a *actor) bool) {
		next := &w.scratch
		*next = *s
		if !act(next, &next.actors[who]) {
			return
		}
		if next.actors[who].place != answers {
			emit(step{who, what, "", must, next})
			return
		}
		if !s.crashed {
			w.other = *next
			w.other.crashed = true
			w.other.released(who)
			emit(step{who, what, ", and vanishes before it answers", false, &w.other})
		}
		next.promised()
		next.actors[who] = actor{place: gone_}
		emit(step{who, what, ", and acks", must, next})
	}
	if s.entry == nil && (a.place == settles || a.place == rereads) {
		do("finds nothing to record on, and gives up", true, func(next *state, _ *actor) bool {
			next.released(who)
			return true
		})
		return
	}
	switch a.place {
	case idle:
		if who != worker && a.arrivals == 0 || who == worker && !dueForTheLedger(s) {
			return
		}
		for account := range accounts[:1+count(s.moved)] {
			w.reading(s, who, "comes", do, func(next *state, a *actor) {
				a.token, a.account = next.token(), uint8(account)
				if who != worker {
					a.arrivals--
				}
				w.look(next, who)
				if a.place == idle && who == worker && next.called == s.called { // a slot that it was refused excuses it
					next.breaks("the worker visits in vain what is due")
				}
			})
		}
	case looks:
		w.reading(s, who, "reads", do, func(next *state, _ *actor) { w.look(next, who) })
	case rereads:
		w.reading(s, who, "reads again", do, func(next *state, _ *actor) { w.reread(next, who) })
	case writes, settles:
		if a.place == settles || a.readAt < s.now || !fenced {
			w.writing(s, who, "writes", do, func(*state, *actor) {})
		}
	case calls:
		w.calling(s, do, who)
	}
	if (a.place == calls || a.place == settles) && !s.crashed {
		do("vanishes", false, func(next *state, _ *actor) bool {
			next.crashed = true
			next.released(who)
			return true
		})
	}
}

// token is one that neither the entry nor any visitor goes by.
func (s *state) token() uint8 {
	for t := uint8(1); ; t++ {
		taken := s.entry != nil && s.entry.Holder == tokens[t]
		for who := range s.actors {
			taken = taken || s.actors[who].token == t
		}
		if !taken {
			return t
		}
	}
}

// reading is a look at the entry, and the write that follows from it, at once or later.
func (w *world) reading(s *state, who int, what string, do doing, read func(next *state, a *actor)) {
	w.writing(s, who, what, do, read)
	if fenced && w.tick(s) <= s.now || s.desk != nil && !w.plan.pauses {
		return
	}
	do(what+", and pauses", false, func(next *state, a *actor) bool {
		read(next, a)
		// What a late holder records does not go by the time.
		return a.change != nil && (a.change.Event == nil || a.change.Event.Kind != ledger.EventLate)
	})
}

// writing is what read leaves to be written, with and without the reply.
func (w *world) writing(s *state, who int, what string, do doing, read func(next *state, a *actor)) {
	do(what, true, func(next *state, a *actor) bool {
		if read(next, a); a.change != nil {
			w.carryOn(next, who)
		}
		return true
	})
	if s.lost {
		return
	}
	do(what+", and does not learn that it wrote", false, func(next *state, a *actor) bool {
		if read(next, a); a.change == nil {
			return false
		}
		was := a.place
		next.lost = true
		if w.write(next, who); was == settles {
			a.place = rereads
		} else {
			next.again(who)
		}
		return true
	})
}

// carryOn writes, and goes on by what came of it.
func (w *world) carryOn(s *state, who int) {
	a := &s.actors[who]
	was, born, readAt := a.place, s.entry == nil, a.readAt
	stands := w.write(s, who)
	switch {
	case was == settles && stands:
		w.learnt(s, who)
		w.reply(s, who, s.now)
	case was == settles:
		a.place = rereads
	case stands && s.entry.Holder == tokens[a.token] && s.now-readAt < margin:
		w.claimed(s, who, readAt)
	case stands && born && s.entry.Holder != tokens[a.token]:
		w.reply(s, who, readAt)
	default:
		s.again(who)
	}
}

// again sends a visitor back to its reading. Where it holds nothing, it is as if it came anew.
func (s *state) again(who int) {
	a := &s.actors[who]
	if a.place, a.change = looks, nil; a.token != 0 && s.entry != nil && s.entry.Holder == tokens[a.token] {
		return
	}
	if who == delivery || who == twin {
		a.arrivals++
	}
	*a = actor{arrivals: a.arrivals}
}

// released ends a visit: a delivery's broker brings it again, unless it has done so often enough.
func (s *state) released(who int) {
	left := s.actors[who].arrivals
	s.actors[who] = actor{arrivals: left}
	if who != worker && left == 0 {
		s.actors[who].place = gone_
	}
}

// look reads the entry and asks the heart what to do, as deliver's attend does.
func (w *world) look(s *state, who int) {
	a := &s.actors[who]
	a.change, a.readAt = nil, s.now
	if s.entry != nil && s.entry.State == ledger.Sending && s.entry.Holder == tokens[a.token] {
		w.claimed(s, who, s.now)
		return
	}
	seen, subject, visit, now := ledger.Entry{}, w.births[a.account], w.visits[who], at(s.now)
	if s.entry != nil {
		seen, subject = *s.entry, *s.entry
	}
	facts := ledger.Facts{Holder: tokens[a.token], Wait: pause, Admission: w.plan.admit(subject, now)}
	met := ledger.Meet(seen, visit, facts, w.rules[a.account], now)
	if met.Verb == ledger.TakeSlot {
		facts.Slot = ledger.Slot{Provider: met.Provider, Held: true}
		if w.plan.first == noSlot && !s.called {
			s.called = true
			facts.Slot = ledger.Slot{Provider: met.Provider, Reason: ledger.ReasonGateClosed, Wait: pause}
		}
		met = ledger.Meet(seen, visit, facts, w.rules[a.account], now)
	}
	switch met.Verb {
	case ledger.Create, ledger.Swap:
		w.intend(s, who, met.Change)
	case ledger.Answer:
		w.reply(s, who, s.now)
	default:
		s.fault = fmt.Sprintf("asks for %d where nothing is left to ask", met.Verb)
	}
}

// intend keeps a change to be written next.
func (w *world) intend(s *state, who int, change ledger.Change) {
	if read := s.version(); change.Entry.Version != read {
		s.fault = fmt.Sprintf("a change names version %d, and %d was read", change.Entry.Version, read)
	}
	s.actors[who].place, s.actors[who].change = writes, &change
}

// claimed fixes the deadline of the call, by when the entry was read.
func (w *world) claimed(s *state, who int, readAt time.Duration) {
	a := &s.actors[who]
	a.place, a.seen = calls, s.entry
	a.until = readAt + ledger.CallBudget(*s.entry, lease, w.rules[a.account], at(readAt))
}

const tooLate = "is too late to call"

// calling is the call of a claim that stands, unless it is too late for it.
func (w *world) calling(s *state, do doing, who int) {
	outcome := func(what string, m mood, called bool) {
		do(what, true, func(next *state, a *actor) bool {
			if a.result = m.result(); a.result != ledger.ResultNotCalled {
				next.mayCall(w, who)
			}
			if receipt := next.call(w, a.account, m); a.result == ledger.ResultAccepted {
				a.receipt = receipt
			}
			next.called = called
			if a.overtook {
				a.place = rereads
			} else {
				w.settling(next, who, a.seen)
			}
			return true
		})
	}
	if s.desk != nil && !s.desk.kept && s.now < s.actors[who].until {
		outcome("finds nothing to send", notCalled, s.called)
	}
	switch {
	case s.now >= s.actors[who].until:
		outcome(tooLate, notCalled, s.called)
	case !s.called:
		outcome("calls: "+w.plan.first.String(), w.plan.first, true)
	default:
		for _, m := range w.plan.laterMoods() {
			outcome("calls: "+m.String(), m, true)
		}
	}
}

// attempt is what a visitor knows of its call.
func (w *world) attempt(s *state, who int) ledger.Attempt {
	a := &s.actors[who]
	return ledger.Attempt{
		Visit: w.visits[who], Holder: tokens[a.token], Provider: "mail", Wait: pause,
		Started: at(s.now), Finished: at(s.now), Outcome: ledger.Outcome{Result: a.result, Receipt: receipts[a.receipt]},
	}
}

func (w *world) settling(s *state, who int, held *ledger.Entry) {
	a := &s.actors[who]
	change := ledger.Settle(*held, w.attempt(s, who), w.rules[a.account], at(s.now))
	a.place, a.change, a.seen = settles, &change, nil
}

// reread is what deliver's settle does after any error.
func (w *world) reread(s *state, who int) {
	a := &s.actors[who]
	switch e := s.entry; {
	case e.State == ledger.Sending && e.Holder == tokens[a.token]:
		w.settling(s, who, e)
	case a.recorded:
		w.learnt(s, who)
		w.reply(s, who, s.now)
	default:
		change := ledger.Late(*e, w.attempt(s, who))
		a.place, a.change = settles, &change
	}
}

// reply ends a visit with what follows from where the entry stands. A nack is told at once; what is acked
// must stay what was promised.
func (w *world) reply(s *state, who int, readAt time.Duration) {
	seen := ledger.Entry{}
	if s.entry != nil {
		seen = *s.entry
	}
	if who != worker && ledger.ReplyFor(seen, at(readAt)).Ack {
		s.actors[who] = actor{place: answers, arrivals: s.actors[who].arrivals}
		return
	}
	s.released(who)
}

func count(on bool) int {
	if on {
		return 1
	}
	return 0
}
