package ledger

import "time"

// Action is what a task does next.
type Action uint8

// The actions of a step.
const (
	// ActionDone means that nothing more is to be done: reply from the entry as it is.
	ActionDone Action = iota
	// ActionCheckRelevance means to find out whether the reminder is still wanted, then to decide again.
	ActionCheckRelevance
	// ActionAcquireSlot means to acquire a slot at Step.Provider, then to decide again.
	ActionAcquireSlot
	// ActionInsert means to insert Step.Change as a new entry. If the entry is sending under the task's own
	// token, the task calls the provider; else it replies from the entry.
	ActionInsert
	// ActionUpdate means to write Step.Change over the entry that was read. If the entry is sending under the
	// task's own token, the task calls the provider; else it loads the entry and decides again.
	ActionUpdate
)

// Step is the next thing that a task does.
type Step struct {
	Action   Action
	Provider string        // with ActionAcquireSlot
	Change   Change        // with ActionInsert and ActionUpdate
	Reason   Reason        // with ActionDone: why nothing is done, where the entry's own reason does not say
	Wait     time.Duration // with ActionDone: when a retry makes sense, where the entry does not say
}

// Decide returns the next step for the entry that a task loaded, from what is known so far. The task calls it
// again after every step until it replies or calls the provider; now and e always come from one read.
func Decide(e Entry, t Trigger, f Facts, r Rules, now time.Time) Step {
	step := nextStep(e, t, f, r, now)
	if step.Action == ActionUpdate && t.Origin != OriginWorker && !f.Wrote {
		step.Change.Entry.Deliveries++ // only with a write that happens anyway: nothing is written just to count
	}
	return step
}

// nextStep is Decide without the count of deliveries.
func nextStep(e Entry, t Trigger, f Facts, r Rules, now time.Time) Step {
	switch {
	case e.Absent() && t.NewEntry == nil:
		return Step{Action: ActionDone}
	case t.DeadLettered:
		return adoptDeadLetter(e, t, f, r)
	case t.Origin == OriginRedrive && !e.Absent():
		return Step{Action: ActionDone} // the reparsed message has an entry already
	case e.Absent():
		return newEntry(*t.NewEntry, t, f, r, now)
	case e.LeaseExpired(now):
		return Step{Action: ActionUpdate, Change: ExpireLease(e, t, r, now)}
	case e.State == Waiting && isDueFor(e, t, now):
		return claimDue(e, t, f, r, now)
	case t.Origin == OriginAPI && e.BrokerRetries():
		return updateStep(ownByLedger(e, ReasonRequested), decisionEvent(t))
	default:
		return Step{Action: ActionDone}
	}
}

// adoptDeadLetter decides about a message that its broker dead-lettered. Without an entry it inserts a dead letter.
// A waiting entry that the broker owns becomes the ledger's, since the broker will not redeliver it. Nothing else
// about an existing entry changes.
func adoptDeadLetter(e Entry, t Trigger, f Facts, r Rules) Step {
	switch {
	case e.State == Waiting && e.BrokerRetries():
		return updateStep(ownByLedger(e, ReasonTakenOver), decisionEvent(t))
	case !e.Absent():
		return Step{Action: ActionDone}
	}
	entry := *t.NewEntry
	entry.Deliveries, entry.Owner, entry.Provider = 1, OwnerLedger, r.ChannelRoute.Provider
	admission := Admission{State: Dead, Class: ClassBroker, Reason: ReasonDeadLettered}
	if f.Admission.State != "" && f.Admission.Reason != ReasonExpired {
		admission = f.Admission // except an expired deadline: an operator may still grant a new one
	}
	return insertStep(reject(entry, admission, r), t)
}

// isDueFor reports whether a waiting entry is due for this trigger: an entry that the broker owns is due for the
// ledger's worker only once the broker has been silent for long enough.
func isDueFor(e Entry, t Trigger, now time.Time) bool {
	if t.Origin == OriginWorker {
		return !e.Wake.On(now).After(now)
	}
	return !e.Due.On(now).After(now)
}

// newEntry decides the first state of an entry that does not exist yet.
func newEntry(e Entry, t Trigger, f Facts, r Rules, now time.Time) Step {
	e.Deliveries = 1
	e.Owner = r.RetriesBy
	e.Provider = r.ChannelRoute.Provider
	if f.Admission.State != "" {
		return insertStep(reject(e, f.Admission, r), t)
	}
	route, refusal := r.route(e, now)
	if refusal != "" {
		return insertStep(reject(e, Admission{State: Dead, Class: ClassUnroutable, Reason: refusal}, r), t)
	}
	if wait := t.NotBefore.Sub(now); !t.NotBefore.IsZero() && wait > 0 {
		e.Owner = OwnerLedger
		return insertStep(schedule(e, wait, ReasonScheduled, r, now), t)
	}
	if r.Failover.mayHaveLostEntry(e, t, now) {
		return withDatabaseChanged(insertStep(doubtAfterFailover(e, e.Published, r, now), t))
	}
	if t.Origin == OriginPush && r.RetriesBy == OwnerLedger {
		return insertStep(schedule(e, 0, ReasonLedgerRetries, r, now), t)
	}
	if t.Origin == OriginRedrive {
		e.Owner = OwnerLedger
		return insertStep(schedule(e, 0, ReasonRedriven, r, now), t)
	}
	switch {
	case r.CheckRelevance && f.Relevance == RelevanceUnchecked:
		return Step{Action: ActionCheckRelevance}
	case r.CheckRelevance && f.Relevance == RelevanceNotWanted:
		return insertStep(drop(e, ReasonObsolete, r), t)
	case r.CheckRelevance && f.Relevance == RelevanceUnanswered:
		return insertStep(schedule(e, capWait(e, f.Wait, now), ReasonRelevanceUnanswered, r, now), t)
	case f.Slot.Provider != route.Provider:
		return Step{Action: ActionAcquireSlot, Provider: route.Provider}
	case !f.Slot.Held:
		return insertStep(schedule(e, capWait(e, f.Slot.Wait, now), f.Slot.Reason, r, now), t)
	}
	step := insertStep(claim(e, t, route, f, r), t)
	step.Change.Event = nil // Settle records the whole attempt
	return step
}

// claimDue claims a waiting entry that is due, or ends it if it may not be sent any more.
func claimDue(e Entry, t Trigger, f Facts, r Rules, now time.Time) Step {
	if f.Admission.State == "" && r.Failover.mayHaveLostClaim(e, now) {
		return withDatabaseChanged(updateStep(doubtAfterFailover(e, e.Due.On(now), r, now), decisionEvent(t)))
	}
	if t.Origin == OriginWorker && e.Owner == OwnerBroker {
		return updateStep(ownByLedger(e, ReasonTakenOver), decisionEvent(t))
	}
	if e.CancelRequested {
		return updateStep(drop(e, ReasonCancelled, r), decisionEvent(t))
	}
	if f.Admission.State != "" {
		return updateStep(reject(e, f.Admission, r), decisionEvent(t))
	}
	if e.BudgetUsed >= r.MaxAttempts {
		return updateStep(reject(e, exhausted, r), decisionEvent(t)) // the budget was larger, or the provider not configured, when the wait began
	}
	route, refusal := r.route(e, now)
	switch refusal {
	case "":
	case ReasonUnroutable:
		e.Code = ""
		return updateStep(reject(e, Admission{State: Dead, Class: ClassUnroutable, Reason: refusal}, r), decisionEvent(t))
	case ReasonProviderGone:
		// The next configuration may have the provider again. Without it the window is not known; the
		// entry's deadline still ends the wait.
		return postpone(e, t, f.Wait, ReasonProviderGone, r, now)
	default:
		return updateStep(markUnknown(e, refusal, r), decisionEvent(t))
	}
	if t.Origin == OriginWorker && e.Provider != route.Provider {
		return reassign(e, t, route)
	}
	switch {
	case r.CheckRelevance && f.Relevance == RelevanceUnchecked:
		return Step{Action: ActionCheckRelevance}
	case r.CheckRelevance && f.Relevance == RelevanceNotWanted:
		return updateStep(drop(e, ReasonObsolete, r), decisionEvent(t))
	case r.CheckRelevance && f.Relevance == RelevanceUnanswered:
		return postpone(e, t, f.Wait, ReasonRelevanceUnanswered, r, now)
	case f.Slot.Provider != route.Provider:
		return Step{Action: ActionAcquireSlot, Provider: route.Provider}
	case !f.Slot.Held && t.Origin == OriginAPI && e.BrokerRetries():
		return updateStep(ownByLedger(e, ReasonRequested), decisionEvent(t))
	case !f.Slot.Held && t.Origin == OriginWorker && f.Slot.Reason == ReasonGateClosed:
		// Postponed, so that entries which can be sent come first in the list of due entries, and its
		// deadline is still checked in time.
		return postpone(e, t, min(f.Slot.Wait, r.Lease), ReasonGateClosed, r, now)
	case !f.Slot.Held:
		// Nothing is written: a closed gate would otherwise cost a write for every redelivery.
		return Step{Action: ActionDone, Reason: f.Slot.Reason, Wait: f.Slot.Wait}
	}
	next := claim(e, t, route, f, r)
	if e.Fingerprint != "" && e.Provider != route.Provider {
		return withReason(ReasonFailedOver, updateStep(next, decisionEvent(t)))
	}
	return updateStep(next, nil)
}

// reassign moves an entry that is proven unsent to the provider that its channel has now, so that it does not
// wait among the due entries of the old one, which may be slow, closed or not configured any more.
func reassign(e Entry, t Trigger, route Route) Step {
	failedOver := e.Fingerprint != ""
	e.Provider, e.Fingerprint = route.Provider, ""
	step := updateStep(e, decisionEvent(t))
	if failedOver {
		return withReason(ReasonFailedOver, step)
	}
	return step
}

// claim makes the task the entry's only holder and binds the entry to the provider.
func claim(e Entry, t Trigger, route Route, f Facts, r Rules) Entry {
	e = clearClaim(e)
	if t.Origin == OriginAPI {
		e.Owner = OwnerLedger // the reply tells the API caller that the ledger retries, whoever delivered it first
	}
	e.State, e.Reason = Sending, ReasonClaimed
	e.Provider, e.Fingerprint = route.Provider, route.Fingerprint
	e.Holder, e.LeaseUntil, e.ClaimedAt = f.Holder, In(r.Lease), In(0)
	return e
}

// LeaseExpired reports whether the entry's lease has ended before its holder settled it.
func (e Entry) LeaseExpired(now time.Time) bool {
	return e.State == Sending && !e.LeaseUntil.On(now).After(now)
}

// ExpireLease ends the claim of a holder whose lease has expired: its call may have been accepted, and the
// provider's contract decides what may follow.
func ExpireLease(e Entry, t Trigger, r Rules, now time.Time) Change {
	next := applyLeaseExpiry(e, r, now)
	return Change{Entry: next, Event: withResult(next, leaseExpiredEvent(e, t))}
}

// applyLeaseExpiry returns the entry after its lease expired.
func applyLeaseExpiry(e Entry, r Rules, now time.Time) Entry {
	started := e.ClaimedAt.On(now)
	e.LeaseExpirations++
	e.Class, e.Code = ClassUnknown, ""
	if e.LeaseExpirations >= r.MaxLeaseExpirations {
		return markUnknown(markDoubt(e, started), ReasonTooManyLeaseExpirations, r)
	}
	return settleUnproven(e, started, ReasonLeaseExpired, 0, r, now)
}

// BrokerRetries reports whether the entry may still be sent and its broker is to redeliver it.
func (e Entry) BrokerRetries() bool {
	return (e.State == Waiting || e.State == Sending) && e.Owner == OwnerBroker
}

// TakeOver makes the ledger the owner of a broker's entry, before the reply tells an API caller so.
func TakeOver(e Entry, t Trigger) Change {
	next := ownByLedger(e, ReasonRequested)
	return Change{Entry: next, Event: withResult(next, decisionEvent(t))}
}

// ownByLedger makes the ledger the owner of a broker's entry. The due time stays, and the worker picks the entry
// up then. A holder keeps its token, so it can still settle after this write.
func ownByLedger(e Entry, reason Reason) Entry {
	e.Owner = OwnerLedger
	if e.State == Waiting {
		e.Wake, e.Reason = e.Due, reason
	}
	return e
}

// schedule makes an entry wait. An entry whose wait would reach its deadline is dropped as expired.
func schedule(e Entry, wait time.Duration, reason Reason, r Rules, now time.Time) Entry {
	e = clearClaim(e)
	wait = max(wait, 0)
	if !e.Deadline.IsZero() && !now.Add(wait).Before(e.Deadline) {
		return drop(e, ReasonExpired, r)
	}
	e.State, e.Reason = Waiting, reason
	e.Due, e.Wake = In(wait), In(wait)
	if e.Owner == OwnerBroker {
		e.Wake = In(wait + takeoverDelay(e, wait, r, now))
	}
	return e
}

// postpone schedules a due entry again without an attempt. However often that happens for the same reason, the
// timeline gets one event.
func postpone(e Entry, t Trigger, wait time.Duration, reason Reason, r Rules, now time.Time) Step {
	next := schedule(e, capWait(e, wait, now), reason, r, now)
	if next.State == Waiting && e.Reason == reason {
		return updateStep(next, nil)
	}
	return updateStep(next, decisionEvent(t))
}

// capWait shortens a wait for something that may happen at any moment (a free slot, an answer, a provider
// configured again), so that there is another try before the deadline.
func capWait(e Entry, wait time.Duration, now time.Time) time.Duration {
	if e.Deadline.IsZero() {
		return wait
	}
	return min(wait, max(e.Deadline.Sub(now)/2, time.Second))
}

// takeoverDelay is how long after an entry's due the worker waits for the broker: at most half of what then remains
// before the deadline, so that the ledger still has time to send.
func takeoverDelay(e Entry, wait time.Duration, r Rules, now time.Time) time.Duration {
	if e.Deadline.IsZero() {
		return r.TakeoverAfter
	}
	return min(r.TakeoverAfter, e.Deadline.Sub(now.Add(wait))/2)
}

// drop drops an unsent entry. An entry in doubt is not dropped: it may have been sent, and becomes unknown.
func drop(e Entry, reason Reason, r Rules) Entry {
	if e.InDoubt() {
		return markUnknown(e, reason, r)
	}
	e = clearClaim(e)
	e.State, e.Reason = Dropped, reason
	return e
}

// reject ends an entry as the policy or the provider says. An entry in doubt becomes unknown instead.
func reject(e Entry, a Admission, r Rules) Entry {
	if a.State != Dead {
		return drop(e, a.Reason, r)
	}
	if e.InDoubt() {
		return markUnknown(e, a.Reason, r)
	}
	e = clearClaim(e)
	e.State, e.Class, e.Reason = Dead, a.Class, a.Reason
	return e
}

// exhausted is the admission of an entry whose attempt budget is spent.
var exhausted = Admission{State: Dead, Class: ClassExhausted, Reason: ReasonBudgetSpent}

// markUnknown leaves an entry in doubt to an operator. If its provider supports lookups, it schedules the first.
func markUnknown(e Entry, reason Reason, r Rules) Entry {
	e = clearClaim(e)
	e.State, e.Reason, e.LookupsNotFound = Unknown, reason, 0
	if r.CanLookup(e) {
		e.NextLookup = In(r.LookupSchedule[0])
	}
	return e
}

// clearClaim removes the holder, the lease, the due and wake times and the next lookup.
func clearClaim(e Entry) Entry {
	e.Holder, e.LeaseUntil = "", Moment{}
	e.Due, e.Wake, e.NextLookup = Moment{}, Moment{}, Moment{}
	return e
}

func insertStep(e Entry, t Trigger) Step {
	return Step{Action: ActionInsert, Change: Change{Entry: e, Payload: t.Payload, Event: withResult(e, decisionEvent(t))}}
}

func updateStep(e Entry, event *TimelineEvent) Step {
	return Step{Action: ActionUpdate, Change: Change{Entry: e, Event: withResult(e, event)}}
}

// withReason gives the timeline event another reason than the entry's: what happened, not what it waits for.
func withReason(reason Reason, step Step) Step {
	step.Change.Event.Reason = reason
	return step
}

// withDatabaseChanged gives the timeline event the reason that the database changed, unless the policy took the
// risk of a second send, which is the more important reason.
func withDatabaseChanged(step Step) Step {
	if step.Change.Entry.Reason == ReasonRiskTaken {
		return step
	}
	return withReason(ReasonDatabaseChanged, step)
}

// withResult sets the event's state, reason and provider to those of the entry after it.
func withResult(e Entry, event *TimelineEvent) *TimelineEvent {
	if event != nil {
		event.State, event.Reason = e.State, e.Reason
		if event.Provider == "" {
			event.Provider = e.Provider
		}
	}
	return event
}

func decisionEvent(t Trigger) *TimelineEvent {
	return &TimelineEvent{
		Kind: EventDecision, Origin: t.Origin, Source: t.Source, MessageID: t.MessageID, DeliveryCount: t.DeliveryCount,
		Outcome: Outcome{Cause: t.DeadLetteredBy},
	}
}

func leaseExpiredEvent(e Entry, t Trigger) *TimelineEvent {
	event := decisionEvent(t)
	event.Kind, event.Holder = EventLeaseExpired, e.Holder
	event.Started, _ = e.ClaimedAt.Fixed()
	event.Finished, _ = e.LeaseUntil.Fixed()
	event.Outcome = Outcome{Cause: "lease_expired"}
	return event
}
