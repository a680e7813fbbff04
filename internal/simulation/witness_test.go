package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// read is an entry as it stands; a witness is not subject to the trouble.
func (w *world) read(id ledger.Identity) ledger.Entry {
	seen, _ := w.store().Load(context.Background(), id)
	return seen.Entry
}

// witness sees every write.
func (w *world) witness(ctx context.Context, c ledger.Change, write func(context.Context, dbtest.Store) (ledger.Entry, error)) (ledger.Entry, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	id := c.Entry.Identity
	before := w.read(id)
	_, unkept := w.store().Payload(context.Background(), id)
	stands, err := commit(ctx, w, id, write)
	if err != nil {
		return stands, err
	}
	claimed := stands.State == ledger.Sending && stands.Holder != before.Holder
	switch {
	case stands.Version != before.Version+1:
		w.breaks("%v: version %d follows on %d", id, stands.Version, before.Version)
	case claimed && !before.Absent() && before.State != ledger.Waiting:
		w.breaks("%v: claimed, though it is %s", id, before.State)
	case claimed && before.CancelAsked:
		w.breaks("%v: claimed after a cancel", id)
	case claimed && before.InDoubt() && stands.Fingerprint != before.Fingerprint:
		w.breaks("%v: repeated in doubt at %s, doubted at %s", id, stands.Fingerprint, before.Fingerprint)
	case c.Event != nil && c.Event.Kind == ledger.EventAttempt && c.Event.Holder != before.Holder && !w.lately(id):
		w.breaks("%v: %s settles the attempt of %q", id, c.Event.Holder, before.Holder)
	case c.Act != nil && c.Forget == ledger.ForgetNothing && w.deciding(c.Act.By).version != before.Version:
		w.breaks("%v: %s saw another version than %d, and decides on it", id, c.Act.By, before.Version)
	}
	w.rememberedBy(before, stands, c, claimed)
	w.reopens(before, c, unkept)
	w.forgetsBy(before, stands, c)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case c.Event == nil:
	case c.Event.Kind != ledger.EventAttempt && before.State == ledger.Sending && stands.State == ledger.Sent:
		w.overtaken[id]++
	case stands.Reason == ledger.ReasonRiskTaken, c.Event.Origin == ledger.OriginPerson && stands.State == ledger.Waiting:
		w.risked[id]++
	}
	return stands, nil
}

// displaced tells whether proof came in while somebody held the reminder, and took it out of their hands.
func (w *world) displaced(id ledger.Identity) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.overtaken[id] > 0
}

// forgiven is how far the ledger's clock may have leapt ahead between a look at it and a call.
func (w *world) forgiven() (sum time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.leaps {
		if time.Since(l.at) <= lease {
			sum += l.by
		}
	}
	return sum
}

// called is a request on the wire.
func (w *world) called(s ledger.Shipment, route ledger.Route) {
	e, now := w.read(s.Identity), w.now().Add(-w.forgiven())
	switch {
	case w.lately(s.Identity): // its claim may be forgotten
	case s.SendKey != s.Identity.SendKey() || len(s.Content) == 0:
		w.breaks("%v: called with other content", s.Identity)
	case e.State == ledger.Sent && w.displaced(s.Identity): // proof came in the last instant
	case e.State != ledger.Sending:
		w.breaks("%v: called without a claim; it is %s", s.Identity, e.State)
	case e.Fingerprint != route.Fingerprint:
		w.breaks("%v: called at %s, claimed for %s", s.Identity, route.Fingerprint, e.Fingerprint)
	case now.After(e.Deadline):
		w.breaks("%v: called %v past its deadline", s.Identity, now.Sub(e.Deadline))
	case now.After(e.LeaseUntil.On(now).Add(-margin)):
		w.breaks("%v: called %v before the end of its lease", s.Identity, e.LeaseUntil.On(now).Sub(now))
	case e.InDoubt() && route.Contract.Kind != ledger.Idempotent:
		w.breaks("%v: repeated in doubt under a %s contract", s.Identity, route.Contract.Kind)
	case e.InDoubt() && now.After(e.DoubtSince.Add(route.Contract.Window-margin)):
		w.breaks("%v: repeated %v after the doubt began, within %v", s.Identity, now.Sub(e.DoubtSince), route.Contract.Window)
	}
	w.mu.Lock()
	met, barred := w.barred[s.Identity]
	at, dropped := w.dropped[s.Identity]
	holder, erased := w.erased[s.Identity]
	w.calls[s.Identity]++
	w.callers[e.Holder]++
	twice := w.callers[e.Holder] > 1 && !w.forgotten[s.Identity]
	if e.InDoubt() {
		w.tally.counted[doubtful]++
	}
	w.mu.Unlock()
	if twice {
		w.breaks("%v: called twice under the claim of %s", s.Identity, e.Holder)
	}
	if barred && met != e.Holder {
		w.breaks("%v: called by %s after a cancel that met %q", s.Identity, e.Holder, met)
	}
	if erased && e.State == ledger.Sending && e.Holder != holder {
		w.breaks("%v: called by %s after an erasure that met %q", s.Identity, e.Holder, holder)
	}
	if dropped {
		w.breaks("%v: called %v after a cancel dropped it", s.Identity, time.Since(at))
	}
}

// sent is a reminder that a provider carries on: another letter for the person.
func (w *world) sent(id ledger.Identity, fingerprint string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sends[id] = append(w.sends[id], send{time.Now(), fingerprint}); w.everReopened[id] {
		w.tally.counted[resent]++
	}
	return len(w.sends[id])
}

// promised checks what an ack or a 202 says at the instant in which it is given.
func (w *world) promised(id ledger.Identity, what string, reply ledger.Reply) {
	e := w.read(id)
	ours := e.Final() || e.State == ledger.Unknown || e.Owner == ledger.OwnerLedger
	if (e.Absent() || !ours || e.Version < reply.Entry.Version) && !w.lately(id) && !w.gone(id) {
		w.breaks("%v: %s, and it is %q at version %d, owned by %q", id, what, e.State, e.Version, e.Owner)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked[id] = !w.forgotten[id]
	w.tally.counted[acks]++
}

// contested checks that whoever brought other content is told.
func (w *world) contested(id ledger.Identity, hash string, reply ledger.Reply) {
	if e := w.read(id); e.ContentHash != "" && e.ContentHash != hash { // an entry that was cancelled first has none
		w.fire(contested, id.ReminderID)
		if !reply.Entry.Absent() && !reply.Conflict && !w.gone(id) {
			w.breaks("%v: other content was taken, and nobody is told", id)
		}
	} else if reply.Conflict && !w.lately(id) && !w.gone(id) {
		w.breaks("%v: a conflict is told of the same content", id)
	}
}

// overdue checks, once there is no more trouble, that nothing outlives its deadline.
func (w *world) overdue() {
	for _, id := range w.ids {
		if e, now := w.read(id), w.now(); e.State == ledger.Waiting && now.After(e.Deadline.Add(lease)) {
			w.breaks("%v: waits %v past its deadline", id, now.Sub(e.Deadline))
		}
	}
}

// rest checks where everything stands in the end.
func (w *world) rest() {
	for _, id := range w.ids {
		story, _ := w.store().Story(context.Background(), id)
		e, lines := story.Entry, story.Timeline
		w.stories = append(w.stories, told(id, story))
		w.mu.Lock()
		sent, called, acked, proven, forgot := w.sends[id], w.calls[id], w.acked[id], w.proven[id], w.forgotten[id]
		taken, overtaken := w.risked[id], w.overtaken[id]
		w.mu.Unlock()
		w.audited(id, story.Acts)
		for figure, n := range map[figure]int{
			calls: called, repeats: max(called-1, 0), sends: len(sent), seconds: max(len(sent)-1, 0), risks: taken,
		} {
			w.count(figure, n)
		}
		if e.Absent() {
			if (acked || proven || called > 0 && !forgot) && !w.gone(id) {
				w.breaks("%v: promised or called, and there is no entry", id)
			}
			if len(sent) > 1+taken && !w.elsewhere(id) {
				w.breaks("%v: sent %d times, with %d risks taken, and deleted since: %s", id, len(sent), taken, sent)
			}
			continue
		}
		w.count(entries, 1)
		accounted := w.accounted(id, lines) + w.carries(id)
		w.remains(id, story)
		w.unsent(id, story)
		switch {
		case len(sent) > 1+taken && !w.elsewhere(id):
			w.breaks("%v: sent %d times, with %d risks taken: %s", id, len(sent), taken, sent)
		case called > accounted+overtaken && !forgot:
			w.breaks("%v: %d calls, %d lines", id, called, accounted)
		case e.State == ledger.Sent && e.Missing != ledger.MissingAssumed && len(sent) == 0 && !decided(lines):
			w.breaks("%v: sent says the ledger, and nobody took it", id)
		case proven && (e.State != ledger.Sent || e.Missing == ledger.MissingAssumed || e.Missing == ledger.MissingResolved):
			w.breaks("%v: %s (%s, %s), though its provider has told that it took it", id, e.State, e.Reason, e.Missing)
		case e.State == ledger.Unknown && w.canAsk(e) && e.Asked < len(asks()):
			w.breaks("%v: unknown, and its provider is not asked; %d answers", id, e.Asked)
		case e.State == ledger.Unknown:
			w.count(unknown, 1)
		case !e.Final():
			w.breaks("%v: does not come to rest: %s, %s, owner %s, due %v", id, e.State, e.Reason, e.Owner, e.Due.On(w.now()).Sub(w.now()))
		}
		w.alarmed(id, lines)
		if !forgot {
			w.learnt(id, lines)
		}
	}
}

// decided tells whether a person had a word in it: people may be wrong.
func decided(lines []ledger.Event) bool {
	return slices.ContainsFunc(lines, func(line ledger.Event) bool {
		return line.Origin == ledger.OriginPerson && line.Reason != ledger.ReasonDiscarded && line.Reason != ledger.ReasonErased
	})
}

// accounted counts the lines that tell of calls, one for each holder.
func (w *world) accounted(id ledger.Identity, lines []ledger.Event) (n int) {
	settled := map[string]bool{}
	for _, line := range lines {
		switch line.Kind {
		case ledger.EventLapse:
			w.count(lapses, 1)
			n++
			continue
		case ledger.EventLate:
			w.count(lates, 1)
		case ledger.EventAttempt:
		default:
			continue
		}
		if settled[line.Holder] {
			w.breaks("%v: the call of %s is told twice", id, line.Holder)
		}
		settled[line.Holder] = true
		n++
	}
	return n
}

// alarmed checks that two receipts do not stand in one story without a word about it.
func (w *world) alarmed(id ledger.Identity, lines []ledger.Event) {
	receipts, alarm, reports := map[string]bool{}, false, map[string]bool{}
	for _, line := range lines {
		byCall := (line.Kind == ledger.EventAttempt || line.Kind == ledger.EventLate) && line.Outcome.Result == ledger.ResultAccepted
		byReport := line.Kind == ledger.EventReport && (line.Outcome.Cause == string(ledger.ReportAccepted) || line.Outcome.Cause == string(ledger.ReportDelivered))
		if (byCall || byReport || line.Kind == ledger.EventLookup) && line.Outcome.Receipt != "" {
			receipts[line.Outcome.Receipt] = true
		}
		alarm = alarm || line.Reason == ledger.ReasonPossibleSecondSend
	}
	for _, line := range lines {
		if line.Kind == ledger.EventReport && reports[line.Message] {
			w.breaks("%v: the report %s is told twice", id, line.Message)
		}
		reports[line.Message] = true
	}
	if alarm {
		w.count(alarms, 1)
	}
	if len(receipts) > 1 && !alarm {
		w.breaks("%v: two receipts, and nobody is told of a possible second send", id)
	}
}

// learnt checks that what a replica learnt from its calls was recorded, if it lived to do so.
func (w *world) learnt(id ledger.Identity, lines []ledger.Event) {
	for _, r := range w.everybody {
		w.mu.Lock()
		heard := w.heard[heard{id, r}]
		w.mu.Unlock()
		recorded := 0
		for _, line := range lines {
			own := strings.HasPrefix(line.Holder, r.name+".")
			if own && (line.Kind == ledger.EventAttempt || line.Kind == ledger.EventLate) {
				recorded++
			}
		}
		if recorded < heard && !r.crashed.Load() && !r.gaveUp.Load() {
			w.breaks("%v: %s learnt what became of %d calls, and recorded %d", id, r.name, heard, recorded)
		}
	}
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// told is all that the ledger says of an entry.
func told(id ledger.Identity, story ledger.Story) string {
	var b strings.Builder
	e := story.Entry
	fmt.Fprintf(&b, "   %v: %q %s by %s at %s, %d spent, doubt since %s, deadline %s", id, e.State, e.Reason, e.Owner,
		e.Fingerprint, e.Spent, clock(e.DoubtSince), clock(e.Deadline))
	for _, l := range story.Timeline {
		fmt.Fprintf(&b, "\n   %2d %s %s %s %s %s %s %s", l.Version, clock(l.At), l.Kind, l.State, l.Reason, l.Origin, l.Holder, l.Provider)
		if l.Kind != ledger.EventDecision {
			fmt.Fprintf(&b, " %s %s %s started %s", l.Outcome.Result, l.Outcome.Cause, l.Outcome.Receipt, clock(l.Started))
		}
	}
	return b.String()
}
