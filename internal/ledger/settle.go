package ledger

import "time"

// Attempt is one claimed call and what it proved.
type Attempt struct {
	Visit    Visit
	Holder   string
	Provider string
	Started  time.Time // by the ledger's clock: the claim's time plus what has passed since
	Finished time.Time
	Outcome  Outcome
	Wait     time.Duration // for the next attempt, by the policy; unused where nothing follows
}

// Settle records what the holder's own attempt proved. e must still be the holder's: sending, with its
// token. now is the ledger's, as well as the holder knows it.
func Settle(e Entry, a Attempt, r Rules, now time.Time) Change {
	number := e.Attempts + 1
	next := settled(e, a, r, now)
	event := attemptEvent(a, EventAttempt)
	if a.Outcome.Result == ResultNotCalled {
		event.Kind = EventDecision
	} else {
		event.Number = number
	}
	return Change{Entry: next, Event: told(next, event)}
}

func settled(e Entry, a Attempt, r Rules, now time.Time) Entry {
	started := e.ClaimedAt.On(now)
	result := a.Outcome.Result
	if result != ResultNotCalled {
		e.Attempts++
	}
	if spends(result) {
		e.Spent++
	}
	if result != ResultNotCalled {
		e.Code = a.Outcome.Code
	}
	switch result {
	case ResultAccepted:
		return accepted(e, a.Outcome.Receipt, ReasonAccepted)
	case ResultNotCalled:
		return unsent(e, a.Wait, ReasonNotCalled, e.Class, r, now)
	case ResultRefused:
		return denied(e, ClassPermanent, ReasonRefused, r)
	case ResultGone:
		return denied(e, ClassRecipient, ReasonGone, r)
	case ResultCredentials:
		return unsent(e, a.Wait, ReasonCredentials, ClassCredentials, r, now)
	case ResultThrottled:
		return unsent(e, a.Wait, ReasonThrottled, ClassThrottled, r, now)
	case ResultUnreachable:
		return unsent(e, a.Wait, ReasonUnreachable, ClassUnreachable, r, now)
	default:
		e.Class = ClassUnknown
		return unproven(e, started, ReasonUnanswered, a.Wait, r, now)
	}
}

// spends tells whether a result is charged to the budget: wrong credentials are ours to mend and cost
// the reminder nothing.
func spends(result Result) bool {
	return result != ResultNotCalled && result != ResultCredentials
}

// accepted ends every doubt.
func accepted(e Entry, receipt string, why Reason) Entry {
	e = still(e)
	e.State, e.Reason, e.Class, e.Code = Sent, why, "", ""
	e.Receipt, e.Missing = receipt, ""
	if receipt == "" {
		e.Missing = MissingUnread
	}
	e.DoubtSince = time.Time{}
	return e
}

// denied is a refusal for good. It proves nothing about an earlier attempt in doubt.
func denied(e Entry, class Class, why Reason, r Rules) Entry {
	if e.CancelAsked {
		return end(e, ReasonCancelled, r)
	}
	return refuse(e, Admission{Refusal: Dead, Class: class, Reason: why}, r)
}

// unsent waits after an attempt that is proven unsent, while budget and deadline last.
func unsent(e Entry, wait time.Duration, why Reason, class Class, r Rules, now time.Time) Entry {
	e.Class = class
	switch {
	case e.CancelAsked:
		return end(e, ReasonCancelled, r)
	case e.Spent >= r.MaxAttempts:
		return refuse(e, exhausted, r)
	case e.InDoubt():
		return repeat(e, wait, why, r, now)
	}
	return rest(e, wait, why, r, now)
}

// unproven is what becomes of an entry after a call that may have been accepted. started is when that
// call's lease began: the doubt counts from there.
func unproven(e Entry, started time.Time, why Reason, wait time.Duration, r Rules, now time.Time) Entry {
	earlier := e.DoubtSince
	e = doubted(e, started)
	switch {
	case e.CancelAsked:
		return hold(e, ReasonCancelled, r)
	case e.Spent >= r.MaxAttempts && r.Bound.Contract.Kind == Idempotent, e.Spent >= r.MaxAttempts && r.Bound.Provider == "":
		return hold(e, ReasonBudgetSpent, r)
	case r.Bound.Provider == "":
		// Gone from the configuration, and its contract with it: it may come back before the deadline.
		return rest(e, r.Lease, ReasonProviderGone, r, now)
	case r.Bound.Fingerprint != e.Fingerprint:
		return hold(e, ReasonProviderChange, r)
	case r.Bound.Contract.Kind == Idempotent:
		return repeat(e, wait, ReasonRepeatable, r, now)
	case r.Bound.Contract.Kind == Lookup:
		return hold(e, why, r)
	case r.OnUnknown == AssumeSent:
		e = still(e)
		e.State, e.Reason, e.Missing, e.Class, e.Code = Sent, ReasonAssumed, MissingAssumed, "", ""
		e.DoubtSince = time.Time{}
		return e
	case r.OnUnknown == Resend && e.Spent < r.MaxAttempts && earlier.IsZero():
		// The risk is taken by sending again: where no second call can follow, the doubt stays.
		risked := e
		risked.DoubtSince = time.Time{}
		if risked = rest(risked, wait, ReasonRiskTaken, r, now); risked.State == Waiting {
			return risked
		}
		return hold(e, why, r)
	}
	return hold(e, why, r)
}

// repeat waits in doubt: inside the contract's window, or not at all.
func repeat(e Entry, wait time.Duration, why Reason, r Rules, now time.Time) Entry {
	if r.Bound.Contract.Kind == Idempotent && !now.Add(wait).Before(windowEnd(e, r.Bound.Contract, r.Margin)) {
		return hold(e, ReasonWindowEnded, r)
	}
	return rest(e, wait, why, r, now)
}

// doubted dates the doubt by the start of the first such lease.
func doubted(e Entry, started time.Time) Entry {
	if !e.InDoubt() {
		e.DoubtSince = started
	}
	return e
}

// Late is what a holder records that comes back after its entry has moved on. Acceptance is proof in
// whatever state the entry is; anything else is recorded and moves nothing.
func Late(e Entry, a Attempt) Change {
	event := attemptEvent(a, EventLate)
	next, reason := e, ReasonLateFailure
	if a.Outcome.Result == ResultAccepted {
		next, reason = proven(e, a.Outcome.Receipt)
	}
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}
}

// proven is what an entry becomes, whatever its state, by proof that its provider took it; and what that
// proof means.
func proven(e Entry, receipt string) (Entry, Reason) {
	switch {
	case e.State != Sent, e.Missing == MissingAssumed, e.Missing == MissingResolved:
		// What was open, assumed, or said by a person, is proven now.
		return accepted(e, receipt, ReasonLateAcceptance), ReasonLateAcceptance
	case e.Missing == MissingUnread && e.Reason == ReasonLateAcceptance:
		// Its provider said so before its holder did: that is one send, told twice.
		return accepted(e, receipt, ReasonLateAcceptance), ReasonReplayed
	case e.Receipt != "" && e.Receipt == receipt:
		return e, ReasonReplayed
	default:
		return e, ReasonPossibleSecondSend
	}
}

// provenSomehow is proof that is about no attempt in particular: a report, or what a lookup found. It may
// tell nothing new of what is sent, or fill in the receipt that was missing.
func provenSomehow(e Entry, receipt string) (Entry, Reason) {
	switch {
	case e.State != Sent || e.Missing == MissingAssumed || e.Missing == MissingResolved:
	case receipt == "":
		return e, ReasonReplayed
	case e.Missing == MissingUnread:
		return accepted(e, receipt, e.Reason), ReasonLateAcceptance
	}
	return proven(e, receipt)
}

func attemptEvent(a Attempt, kind EventKind) *Event {
	event := decision(a.Visit)
	event.Kind, event.Holder, event.Provider = kind, a.Holder, a.Provider
	event.Started, event.Finished, event.Outcome = a.Started, a.Finished, a.Outcome
	return event
}
