package ledger

import "time"

// Verb is what a visit does next.
type Verb uint8

const (
	// Answer : nothing more is to be done; answer from where the entry stands.
	Answer Verb = iota
	// AskRelevance : find out whether the reminder is still wanted, then meet again.
	AskRelevance
	// TakeSlot : take a slot at Step.Provider, then meet again.
	TakeSlot
	// Create : write Step.Change as a new entry. If that is the visitor's claim, sending under its own
	// token, it calls; what was born at rest it answers from.
	Create
	// Swap : write Step.Change over what was read. If that is the visitor's claim, it calls; else it reads
	// again, and meets what stands.
	Swap
)

// Step is the next thing that a visit does.
type Step struct {
	Verb     Verb
	Provider string        // with TakeSlot
	Change   Change        // with the writes
	Reason   Reason        // with Answer: why nothing is done, where the entry's reason does not tell
	Wait     time.Duration // with Answer: when it is worth coming back, where the entry does not tell
}

// Meet decides what a visit does with the entry that it found, by what is known so far. It is asked
// again after every step until the visit answers or calls; now and e are always of one reading.
func Meet(e Entry, v Visit, f Facts, r Rules, now time.Time) Step {
	step := meet(e, v, f, r, now)
	if step.Verb == Swap && v.Origin != OriginWorker && !f.Counted {
		step.Change.Entry.Deliveries++ // by the way: a delivery that writes nothing is not worth a write
	}
	return step
}

func meet(e Entry, v Visit, f Facts, r Rules, now time.Time) Step {
	switch {
	case e.Absent() && v.Birth == nil:
		return Step{Verb: Answer}
	case v.GaveUp:
		return inherit(e, v, f, r)
	case v.Origin == OriginRedrive && !e.Absent():
		return Step{Verb: Answer} // what could be read at last stands already
	case e.Absent():
		return bear(*v.Birth, v, f, r, now)
	case e.Lapsed(now):
		return Step{Verb: Swap, Change: Lapse(e, v, r, now)}
	case e.State == Waiting && dueFor(e, v, now):
		return take(e, v, f, r, now)
	case v.Origin == OriginAPI && e.BrokerRetries():
		return swap(takeOver(e, ReasonRequested), decision(v))
	default:
		return Step{Verb: Answer}
	}
}

// inherit takes in what its broker gave up on: as a dead letter, or, where there is an entry, by ending the
// wait for a broker that will not come back. Nothing else about an entry changes.
func inherit(e Entry, v Visit, f Facts, r Rules) Step {
	switch {
	case e.State == Waiting && e.BrokerRetries():
		return swap(takeOver(e, ReasonTakenOver), decision(v))
	case !e.Absent():
		return Step{Verb: Answer}
	}
	born := *v.Birth
	born.Deliveries, born.Owner, born.Provider = 1, OwnerLedger, r.Channel.Provider
	why := Admission{Refusal: Dead, Class: ClassBroker, Reason: ReasonGivenUp}
	if f.Admission.Refusal != "" && f.Admission.Reason != ReasonExpired {
		why = f.Admission // an operator may grant a new deadline, and nothing else
	}
	return create(refuse(born, why, r), v)
}

// dueFor tells whether a waiting entry is due for this visitor: a broker's entry is due for the ledger
// only once the broker has been silent for long enough.
func dueFor(e Entry, v Visit, now time.Time) bool {
	if v.Origin == OriginWorker {
		return !e.Wake.On(now).After(now)
	}
	return !e.Due.On(now).After(now)
}

// bear brings an entry into being, in whatever state the first visit gives it.
func bear(e Entry, v Visit, f Facts, r Rules, now time.Time) Step {
	e.Deliveries = 1
	e.Owner = r.RetriesBy
	e.Provider = r.Channel.Provider
	if f.Admission.Refusal != "" {
		return create(refuse(e, f.Admission, r), v)
	}
	route, refusal := r.route(e, now)
	if refusal != "" {
		return create(refuse(e, Admission{Refusal: Dead, Class: ClassUnroutable, Reason: refusal}, r), v)
	}
	if wait := v.NotYet.Sub(now); !v.NotYet.IsZero() && wait > 0 {
		e.Owner = OwnerLedger
		return create(rest(e, wait, ReasonScheduled, r, now), v)
	}
	if r.Failover.forgot(e, v, now) {
		return tellingOfChange(create(forgotten(e, e.Published, r, now), v))
	}
	if v.Origin == OriginPush && r.RetriesBy == OwnerLedger {
		return create(rest(e, 0, ReasonLedgerRetries, r, now), v)
	}
	if v.Origin == OriginRedrive {
		e.Owner = OwnerLedger
		return create(rest(e, 0, ReasonRedriven, r, now), v)
	}
	switch {
	case r.AsksRelevance && f.Relevance == RelevanceUnasked:
		return Step{Verb: AskRelevance}
	case r.AsksRelevance && f.Relevance == NotWanted:
		return create(end(e, ReasonObsolete, r), v)
	case r.AsksRelevance && f.Relevance == NoAnswer:
		return create(rest(e, patience(e, f.Wait, now), ReasonRelevanceUnanswered, r, now), v)
	case f.Slot.Provider != route.Provider:
		return Step{Verb: TakeSlot, Provider: route.Provider}
	case !f.Slot.Held:
		return create(rest(e, patience(e, f.Slot.Wait, now), f.Slot.Reason, r, now), v)
	}
	step := create(claim(e, v, route, f, r), v)
	step.Change.Event = nil // the settle tells the whole attempt
	return step
}

// take claims a waiting entry that is due, or ends it where it may not be sent any more.
func take(e Entry, v Visit, f Facts, r Rules, now time.Time) Step {
	if f.Admission.Refusal == "" && r.Failover.overtook(e, now) {
		return tellingOfChange(swap(forgotten(e, e.Due.On(now), r, now), decision(v)))
	}
	if v.Origin == OriginWorker && e.Owner == OwnerBroker {
		return swap(takeOver(e, ReasonTakenOver), decision(v))
	}
	if e.CancelAsked {
		return swap(end(e, ReasonCancelled, r), decision(v))
	}
	if f.Admission.Refusal != "" {
		return swap(refuse(e, f.Admission, r), decision(v))
	}
	if e.Spent >= r.MaxAttempts {
		return swap(refuse(e, exhausted, r), decision(v)) // the budget was larger, or the provider gone, when it was put to wait
	}
	route, refusal := r.route(e, now)
	switch refusal {
	case "":
	case ReasonUnroutable:
		e.Code = ""
		return swap(refuse(e, Admission{Refusal: Dead, Class: ClassUnroutable, Reason: refusal}, r), decision(v))
	case ReasonProviderGone:
		// It may come back with the next configuration. Its window is not known without it, and its
		// deadline still ends the wait.
		return wait(e, v, f.Wait, ReasonProviderGone, r, now)
	default:
		return swap(hold(e, refusal, r), decision(v))
	}
	if v.Origin == OriginWorker && e.Provider != route.Provider {
		return moveLane(e, v, route)
	}
	switch {
	case r.AsksRelevance && f.Relevance == RelevanceUnasked:
		return Step{Verb: AskRelevance}
	case r.AsksRelevance && f.Relevance == NotWanted:
		return swap(end(e, ReasonObsolete, r), decision(v))
	case r.AsksRelevance && f.Relevance == NoAnswer:
		return wait(e, v, f.Wait, ReasonRelevanceUnanswered, r, now)
	case f.Slot.Provider != route.Provider:
		return Step{Verb: TakeSlot, Provider: route.Provider}
	case !f.Slot.Held && v.Origin == OriginAPI && e.BrokerRetries():
		return swap(takeOver(e, ReasonRequested), decision(v))
	case !f.Slot.Held && v.Origin == OriginWorker && f.Slot.Reason == ReasonGateClosed:
		// It makes way on the agenda for what can be helped, and ends in time.
		return wait(e, v, min(f.Slot.Wait, r.Lease), ReasonGateClosed, r, now)
	case !f.Slot.Held:
		// Nothing is written: a closed gate would otherwise cost a write for every redelivery.
		return Step{Verb: Answer, Reason: f.Slot.Reason, Wait: f.Slot.Wait}
	}
	next := claim(e, v, route, f, r)
	if e.Fingerprint != "" && e.Provider != route.Provider {
		return tellingOf(ReasonFailedOver, swap(next, decision(v)))
	}
	return swap(next, nil)
}

// moveLane puts what is proven unsent where its channel leads today, so that the agenda of the old
// provider, be it slow, shut or gone, holds it up no longer.
func moveLane(e Entry, v Visit, route Route) Step {
	failedOver := e.Fingerprint != ""
	e.Provider, e.Fingerprint = route.Provider, ""
	step := swap(e, decision(v))
	if failedOver {
		return tellingOf(ReasonFailedOver, step)
	}
	return step
}

// claim makes the visitor the one holder, and binds the entry to the provider.
func claim(e Entry, v Visit, route Route, f Facts, r Rules) Entry {
	e = still(e)
	if v.Origin == OriginAPI {
		e.Owner = OwnerLedger // a caller is told that we retry, whoever brought it first
	}
	e.State, e.Reason = Sending, ReasonClaimed
	e.Provider, e.Fingerprint = route.Provider, route.Fingerprint
	e.Holder, e.LeaseUntil, e.ClaimedAt = f.Holder, In(r.Lease), In(0)
	return e
}

// Lapsed tells whether the entry's holder has gone silent past its lease.
func (e Entry) Lapsed(now time.Time) bool {
	return e.State == Sending && !e.LeaseUntil.On(now).After(now)
}

// Lapse is what becomes of an entry whose holder went silent past its lease: its call may have been
// accepted, and the contract decides what that allows.
func Lapse(e Entry, by Visit, r Rules, now time.Time) Change {
	next := lapsed(e, r, now)
	return Change{Entry: next, Event: told(next, lapseEvent(e, by))}
}

func lapsed(e Entry, r Rules, now time.Time) Entry {
	started := e.ClaimedAt.On(now)
	e.Lapses++
	e.Class, e.Code = ClassUnknown, ""
	if e.Lapses >= r.MaxLapses {
		return hold(doubted(e, started), ReasonTooManyLapses, r)
	}
	return unproven(e, started, ReasonLapsed, 0, r, now)
}

// BrokerRetries tells whether an entry that may still be sent is its broker's to bring back.
func (e Entry) BrokerRetries() bool {
	return (e.State == Waiting || e.State == Sending) && e.Owner == OwnerBroker
}

// Requested makes a broker's entry ours for a caller who is about to be told so.
func Requested(e Entry, by Visit) Change {
	next := takeOver(e, ReasonRequested)
	return Change{Entry: next, Event: told(next, decision(by))}
}

// takeOver makes a broker's entry ours: its due stands, and the ledger looks at it then. A holder is not
// disturbed: its token stands, so it settles over this write.
func takeOver(e Entry, why Reason) Entry {
	e.Owner = OwnerLedger
	if e.State == Waiting {
		e.Wake, e.Reason = e.Due, why
	}
	return e
}

// rest puts an entry to wait. No wait goes past the deadline.
func rest(e Entry, wait time.Duration, why Reason, r Rules, now time.Time) Entry {
	e = still(e)
	wait = max(wait, 0)
	if !e.Deadline.IsZero() && !now.Add(wait).Before(e.Deadline) {
		return end(e, ReasonExpired, r)
	}
	e.State, e.Reason = Waiting, why
	e.Due, e.Wake = In(wait), In(wait)
	if e.Owner == OwnerBroker {
		e.Wake = In(wait + takeoverIn(e, wait, r, now))
	}
	return e
}

// wait puts off, without an attempt, what is due. The timeline says so once, however often it is put off
// for the same reason.
func wait(e Entry, v Visit, d time.Duration, why Reason, r Rules, now time.Time) Step {
	next := rest(e, patience(e, d, now), why, r, now)
	if next.State == Waiting && e.Reason == why {
		return swap(next, nil)
	}
	return swap(next, decision(v))
}

// patience shortens a wait for something that may come about any moment (a slot, an answer, a provider's
// return), so that there is another try before the deadline.
func patience(e Entry, wait time.Duration, now time.Time) time.Duration {
	if e.Deadline.IsZero() {
		return wait
	}
	return min(wait, max(e.Deadline.Sub(now)/2, time.Second))
}

// takeoverIn is how long after its due a broker is waited for: cut to half of what then remains before
// the deadline, so that the ledger still has time to send.
func takeoverIn(e Entry, wait time.Duration, r Rules, now time.Time) time.Duration {
	if e.Deadline.IsZero() {
		return r.TakeoverAfter
	}
	return min(r.TakeoverAfter, e.Deadline.Sub(now.Add(wait))/2)
}

// end drops what is unsent. In doubt nothing is dropped: it may have been sent, and stays unknown.
func end(e Entry, why Reason, r Rules) Entry {
	if e.InDoubt() {
		return hold(e, why, r)
	}
	e = still(e)
	e.State, e.Reason = Dropped, why
	return e
}

// refuse ends an entry as the policy or the provider says, with the same reserve for doubt.
func refuse(e Entry, a Admission, r Rules) Entry {
	if a.Refusal != Dead {
		return end(e, a.Reason, r)
	}
	if e.InDoubt() {
		return hold(e, a.Reason, r)
	}
	e = still(e)
	e.State, e.Class, e.Reason = Dead, a.Class, a.Reason
	return e
}

// exhausted is the refusal of an entry whose budget is spent.
var exhausted = Admission{Refusal: Dead, Class: ClassExhausted, Reason: ReasonBudgetSpent}

// hold leaves an entry in doubt to a person, and before that to its provider's word where that can be asked.
func hold(e Entry, why Reason, r Rules) Entry {
	e = still(e)
	e.State, e.Reason, e.Asked = Unknown, why, 0
	if r.CanAsk(e) {
		e.AskAt = In(r.Asks[0])
	}
	return e
}

// still clears what belongs to a holder or to a wait.
func still(e Entry) Entry {
	e.Holder, e.LeaseUntil = "", Moment{}
	e.Due, e.Wake, e.AskAt = Moment{}, Moment{}, Moment{}
	return e
}

func create(e Entry, v Visit) Step {
	return Step{Verb: Create, Change: Change{Entry: e, Payload: v.Payload, Event: told(e, decision(v))}}
}

func swap(e Entry, event *Event) Step {
	return Step{Verb: Swap, Change: Change{Entry: e, Event: told(e, event)}}
}

// tellingOf gives the timeline another reason than the entry's: what happened to it, not what it waits for.
func tellingOf(why Reason, step Step) Step {
	step.Change.Event.Reason = why
	return step
}

// tellingOfChange tells the timeline that the database changed, unless there is a risk to tell of.
func tellingOfChange(step Step) Step {
	if step.Change.Entry.Reason == ReasonRiskTaken {
		return step
	}
	return tellingOf(ReasonLedgerChanged, step)
}

// told fills in where the event left the entry.
func told(e Entry, event *Event) *Event {
	if event != nil {
		event.State, event.Reason = e.State, e.Reason
		if event.Provider == "" {
			event.Provider = e.Provider
		}
	}
	return event
}

func decision(v Visit) *Event {
	return &Event{
		Kind: EventDecision, Origin: v.Origin, Source: v.Source, Message: v.Message, Count: v.Count,
		Outcome: Outcome{Cause: v.GaveUpBy},
	}
}

func lapseEvent(e Entry, v Visit) *Event {
	event := decision(v)
	event.Kind, event.Holder = EventLapse, e.Holder
	event.Started, _ = e.ClaimedAt.Fixed()
	event.Finished, _ = e.LeaseUntil.Fixed()
	event.Outcome = Outcome{Cause: "lapse"}
	return event
}
