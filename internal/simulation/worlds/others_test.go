package worlds_test

import (
	"errors"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// dueForTheLedger tells whether the entry stands on the worker's agenda.
func dueForTheLedger(s *state) bool {
	return s.entry != nil && s.entry.State == ledger.Waiting && moment(s.entry.Wake) <= s.now && !s.entry.Wake.IsZero()
}

// steps calls emit with every way in which the world can go on.
func (w *world) steps(s *state, emit func(step)) {
	if s.desk != nil && !w.plan.both {
		emit = w.once(emit)
	}
	for _, who := range []int{delivery, twin, worker} {
		w.visitor(s, who, emit)
	}
	w.sweeping(s, emit)
	w.asking(s, emit)
	w.cancelling(s, emit)
	if w.plan.person {
		w.deciding(s, emit)
	}
	w.reporting(s, emit)
	if s.desk != nil {
		w.lettering(s, emit)
	}
	if w.plan.moves && !s.moved {
		w.scratch = *s
		w.scratch.moved = true
		emit(step{cast, "the provider's account changes", "", false, &w.scratch})
	}
	if to := w.tick(s); to > s.now {
		w.scratch = *s
		w.scratch.now = to
		emit(step{cast, "time passes", "", true, &w.scratch})
	}
}

// tick is the next moment at which anything can be different; 0 for none.
func (w *world) tick(s *state) (next time.Duration) {
	matters := func(t time.Duration) {
		if t > s.now && (next == 0 || t < next) {
			next = t
		}
	}
	for who := range s.actors {
		if a := &s.actors[who]; a.place == calls {
			matters(a.until)
		}
	}
	if s.desk != nil {
		w.ageing(s, matters)
	}
	if s.entry != nil && s.entry.Final() {
		return next
	}
	if w.plan.deadline {
		matters(deadline)
	}
	if e := s.entry; e != nil {
		for _, m := range []ledger.Moment{e.LeaseUntil, e.Wake, e.AskAt} {
			matters(moment(m))
		}
		if s.actors[delivery].place != gone_ || s.actors[twin].place != gone_ {
			matters(moment(e.Due))
		}
		if w.plan.contract == ledger.Idempotent && e.InDoubt() && e.State != ledger.Unknown {
			matters(e.DoubtSince.Sub(noon()) + window - margin)
			for _, memory := range s.remembers {
				matters(memory.until)
			}
		}
	}
	return next
}

// sweeping finds holders that went silent.
func (w *world) sweeping(s *state, emit func(step)) {
	a := &s.actors[sweep]
	do := w.doing(s, sweep, emit)
	lapse := func(account uint8) func(*state, *actor) bool {
		return func(next *state, a *actor) bool {
			w.intend(next, sweep, ledger.Lapse(*s.entry, w.visits[sweep], w.rules[account], at(s.now)))
			return true
		}
	}
	switch {
	case a.place == writes:
		do("writes a lapse that it found before", true, func(next *state, a *actor) bool {
			w.write(next, sweep)
			*a = actor{}
			return true
		})
	case s.entry != nil && s.entry.Lapsed(at(s.now)):
		for account := range accounts[:1+count(s.moved)] {
			do("writes a lapse", true, func(next *state, a *actor) bool {
				lapse(uint8(account))(next, a)
				w.write(next, sweep)
				*a = actor{}
				return true
			})
			if w.tick(s) > s.now {
				do("finds a lapse, and pauses", false, lapse(uint8(account)))
			}
		}
	}
}

// doing is for those who leave no visit open.
func (w *world) doing(s *state, who int, emit func(step)) doing {
	return func(what string, must bool, act func(next *state, a *actor) bool) {
		next := &w.scratch
		*next = *s
		if act(next, &next.actors[who]) {
			emit(step{who, what, "", must, next})
		}
	}
}

// cancelling is one cancel, as deliver's desk makes it.
func (w *world) cancelling(s *state, emit func(step)) {
	if s.actors[cancel].place == gone_ {
		return
	}
	w.doing(s, cancel, emit)("takes effect", false, func(next *state, a *actor) bool {
		change, any := ledger.Tombstone(w.births[0].Identity, w.visits[cancel], at(s.now)), true
		if s.entry != nil {
			change, _, any = ledger.Cancel(*s.entry, w.visits[cancel])
		}
		if !any {
			return false
		}
		w.intend(next, cancel, change)
		w.write(next, cancel)
		*a = actor{place: gone_}
		next.cancelled, next.dropped = true, next.entry.State == ledger.Dropped
		return true
	})
}

// deciding is one decision of a person, who looks first and comes back later.
func (w *world) deciding(s *state, emit func(step)) {
	do := w.doing(s, person, emit)
	switch a, e := &s.actors[person], s.entry; {
	case a.place == idle && e != nil && (e.State == ledger.Unknown || e.State == ledger.Waiting && e.InDoubt()):
		do("looks at the evidence", false, func(_ *state, a *actor) bool {
			a.place, a.seen = looks, e
			return true
		})
	case a.place == looks:
		for _, verdict := range ledger.Verdicts() {
			do("says "+string(verdict), false, func(next *state, a *actor) bool {
				change, err := ledger.Resolve(*e, ledger.Resolution{
					Verdict: verdict, Version: a.seen.Version, Act: ledger.Act{By: "oncall", Why: "the provider's support said so"},
				}, at(s.now))
				if err != nil {
					*a = actor{} // and is shown what stands now
					return errors.Is(err, ledger.ErrStale)
				}
				if a.seen != e {
					next.breaks("a person's word is taken for another version than the person saw")
				}
				if verdict == ledger.VerdictNotSent {
					next.uncovered = 0
				}
				w.intend(next, person, change)
				w.write(next, person)
				*a = actor{place: gone_}
				return true
			})
		}
	}
}

// asking is a question to a provider that can be asked, as the sweep puts it.
func (w *world) asking(s *state, emit func(step)) {
	e, a := s.entry, &s.actors[asker]
	if e == nil || w.plan.contract != ledger.Lookup {
		return
	}
	do, rules := w.doing(s, asker, emit), w.rules[count(s.moved)] // what every replica will be configured for
	records := func(what string, change ledger.Change) {
		do(what, true, func(next *state, a *actor) bool {
			w.intend(next, asker, change)
			w.write(next, asker)
			*a = actor{}
			return true
		})
	}
	if a.place == looks {
		q := ledger.Inquiry{By: w.visits[asker], Provider: "mail", Finding: ledger.NotFound, Started: at(s.now), Finished: at(s.now)}
		if a.found {
			q.Finding, q.Outcome.Receipt = ledger.Found, receipts[a.receipt]
		}
		if change, any := ledger.Asked(*e, q, rules, at(s.now)); any {
			records("records the answer", change)
			return
		}
		do("has nothing to record", true, func(next *state, a *actor) bool {
			next.proven(a.found)
			*a = actor{}
			return true
		})
		return
	}
	if change, any := ledger.Arm(*e, rules); any {
		records("plans a question", change)
		return
	}
	switch {
	case e.State != ledger.Unknown || e.AskAt.IsZero() || moment(e.AskAt) > s.now:
	case !rules.CanAsk(*e):
		records("finds nobody to ask", ledger.Disarm(*e, w.visits[asker]))
	default:
		do("is told the truth", true, func(_ *state, a *actor) bool {
			*a = actor{place: looks, found: s.sends > 0, receipt: s.sends}
			return true
		})
		if s.sends > 0 && !s.lied {
			do("is told that it is not found, yet", false, func(next *state, a *actor) bool {
				next.lied = true
				*a = actor{place: looks}
				return true
			})
		}
	}
}

// reporting is the provider's own word, as late as it likes and about any of its sends.
func (w *world) reporting(s *state, emit func(step)) {
	if s.actors[report].place == gone_ {
		return
	}
	do := w.doing(s, report, emit)
	for n := range s.sends {
		change, any := ledger.Heard(*s.entry, ledger.Report{
			Identity: s.entry.Identity, Kind: ledger.ReportAccepted, Provider: "mail", Message: "e-1", Receipt: receipts[n+1], At: at(s.now),
		})
		hears := func(then place) func(*state, *actor) bool {
			return func(next *state, a *actor) bool {
				if any {
					w.intend(next, report, change)
					w.write(next, report)
				} else {
					next.proven(true)
				}
				*a = actor{place: then}
				return true
			}
		}
		do("comes", false, hears(gone_))
		if any && !s.lost {
			do("comes, and does not learn that it is written", false, func(next *state, a *actor) bool {
				next.lost = true
				return hears(idle)(next, a)
			})
		}
	}
}
