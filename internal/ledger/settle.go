package ledger

import "time"

// Attempt is one claimed call to a provider and its outcome.
type Attempt struct {
	Trigger  Trigger
	Holder   string
	Provider string
	Started  time.Time // by the ledger's clock: the claim's time plus the time elapsed since
	Finished time.Time
	Outcome  Outcome
	Wait     time.Duration // before the next attempt, by the policy; unused where none follows
}

// Settle records the outcome of the holder's own attempt. e must still be the holder's: sending, with its
// token. now is the ledger's, as closely as the holder can compute it.
func Settle(e Entry, a Attempt, r Rules, now time.Time) Change {
	number := e.Attempts + 1
	next := applyOutcome(e, a, r, now)
	event := attemptEvent(a, EventAttempt)
	if a.Outcome.Result == ResultNotCalled {
		event.Kind = EventDecision
	} else {
		event.AttemptNumber = number
	}
	return Change{Entry: next, Event: withResult(next, event)}
}

// applyOutcome returns the entry after its holder's attempt.
func applyOutcome(e Entry, a Attempt, r Rules, now time.Time) Entry {
	started := e.ClaimedAt.On(now)
	result := a.Outcome.Result
	if result != ResultNotCalled {
		e.Attempts++
	}
	if usesBudget(result) {
		e.BudgetUsed++
	}
	if result != ResultNotCalled {
		e.Code = a.Outcome.Code
	}
	switch result {
	case ResultAccepted:
		return markAccepted(e, a.Outcome.Receipt, ReasonAccepted)
	case ResultNotCalled:
		return retryLater(e, a.Wait, ReasonNotCalled, e.Class, r, now)
	case ResultRefused:
		return rejectForGood(e, ClassPermanent, ReasonRefused, r)
	case ResultGone:
		return rejectForGood(e, ClassRecipient, ReasonGone, r)
	case ResultCredentials:
		return retryLater(e, a.Wait, ReasonCredentials, ClassCredentials, r, now)
	case ResultThrottled:
		return retryLater(e, a.Wait, ReasonThrottled, ClassThrottled, r, now)
	case ResultUnreachable:
		return retryLater(e, a.Wait, ReasonUnreachable, ClassUnreachable, r, now)
	case ResultDeferred:
		return retryLater(e, a.Wait, ReasonDeferred, ClassRecipient, r, now)
	default:
		e.Class = ClassUnknown
		return settleUnproven(e, started, ReasonUnanswered, a.Wait, r, now)
	}
}

// usesBudget reports whether a result is charged to the attempt budget. Wrong credentials are not: they are an
// error of the configuration, not of the reminder.
func usesBudget(result Result) bool {
	return result != ResultNotCalled && result != ResultCredentials
}

// markAccepted makes an entry sent and ends any doubt.
func markAccepted(e Entry, receipt string, reason Reason) Entry {
	e = clearClaim(e)
	e.State, e.Reason, e.Class, e.Code = Sent, reason, "", ""
	e.Receipt, e.ReceiptMissing = receipt, ""
	if receipt == "" {
		e.ReceiptMissing = MissingUnreadable
	}
	e.DoubtSince = time.Time{}
	return e
}

// rejectForGood ends an entry after a permanent refusal, which proves nothing about an earlier attempt in doubt.
func rejectForGood(e Entry, class Class, reason Reason, r Rules) Entry {
	if e.CancelRequested {
		return drop(e, ReasonCancelled, r)
	}
	return reject(e, Admission{State: Dead, Class: class, Reason: reason}, r)
}

// retryLater schedules the next attempt after one that is proven unsent, within budget and deadline.
func retryLater(e Entry, wait time.Duration, reason Reason, class Class, r Rules, now time.Time) Entry {
	e.Class = class
	switch {
	case e.CancelRequested:
		return drop(e, ReasonCancelled, r)
	case e.BudgetUsed >= r.MaxAttempts:
		return reject(e, exhausted, r)
	case e.InDoubt():
		return repeatInWindow(e, wait, reason, r, now)
	}
	return schedule(e, wait, reason, r, now)
}

// settleUnproven returns the entry after a call that may have been accepted. started is when that call's lease
// began: the doubt counts from there.
func settleUnproven(e Entry, started time.Time, reason Reason, wait time.Duration, r Rules, now time.Time) Entry {
	earlier := e.DoubtSince
	e = markDoubt(e, started)
	switch {
	case e.CancelRequested:
		return markUnknown(e, ReasonCancelled, r)
	case e.BudgetUsed >= r.MaxAttempts && r.BoundRoute.Contract.Kind == ContractIdempotent, e.BudgetUsed >= r.MaxAttempts && r.BoundRoute.Provider == "":
		return markUnknown(e, ReasonBudgetSpent, r)
	case r.BoundRoute.Provider == "":
		// The provider, and its contract, is not configured now; it may be again before the deadline.
		return schedule(e, r.Lease, ReasonProviderGone, r, now)
	case r.BoundRoute.Fingerprint != e.Fingerprint:
		return markUnknown(e, ReasonProviderChange, r)
	case r.BoundRoute.Contract.Kind == ContractIdempotent:
		return repeatInWindow(e, wait, ReasonRepeatable, r, now)
	case r.BoundRoute.Contract.Kind == ContractLookup:
		return markUnknown(e, reason, r)
	case r.OnUnknown == AssumeSent:
		e = clearClaim(e)
		e.State, e.Reason, e.ReceiptMissing, e.Class, e.Code = Sent, ReasonAssumed, MissingAssumed, "", ""
		e.DoubtSince = time.Time{}
		return e
	case r.OnUnknown == Resend && e.BudgetUsed < r.MaxAttempts && earlier.IsZero():
		// The policy takes the risk of a second send; if no second call can follow, the doubt stays.
		resend := e
		resend.DoubtSince = time.Time{}
		if resend = schedule(resend, wait, ReasonRiskTaken, r, now); resend.State == Waiting {
			return resend
		}
		return markUnknown(e, reason, r)
	}
	return markUnknown(e, reason, r)
}

// repeatInWindow schedules a repeat in doubt, if it falls inside the contract's window.
func repeatInWindow(e Entry, wait time.Duration, reason Reason, r Rules, now time.Time) Entry {
	if r.BoundRoute.Contract.Kind == ContractIdempotent && !now.Add(wait).Before(windowEnd(e, r.BoundRoute.Contract, r.Margin)) {
		return markUnknown(e, ReasonWindowEnded, r)
	}
	return schedule(e, wait, reason, r, now)
}

// markDoubt puts an entry in doubt since started. An earlier doubt keeps its start: it counts from the first lease
// whose call may have been accepted.
func markDoubt(e Entry, started time.Time) Entry {
	if !e.InDoubt() {
		e.DoubtSince = started
	}
	return e
}

// SettleLate records the outcome of a holder that returns after its entry has moved on. Acceptance is proof
// whatever the entry's state; any other outcome is recorded and changes nothing.
func SettleLate(e Entry, a Attempt) Change {
	event := attemptEvent(a, EventLate)
	next, reason := e, ReasonLateFailure
	if a.Outcome.Result == ResultAccepted {
		next, reason = applyProof(e, a.Outcome.Receipt)
	}
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}
}

// applyProof returns the entry, whatever its state, after proof that its provider accepted it, and the reason to
// record for that proof.
func applyProof(e Entry, receipt string) (Entry, Reason) {
	switch {
	case e.State != Sent, e.ReceiptMissing == MissingAssumed, e.ReceiptMissing == MissingResolved:
		// What was open, assumed, or resolved by an operator, is proven now.
		return markAccepted(e, receipt, ReasonLateAcceptance), ReasonLateAcceptance
	case e.ReceiptMissing == MissingUnreadable && e.Reason == ReasonLateAcceptance:
		// Its provider reported it before its holder did: one send, reported twice.
		return markAccepted(e, receipt, ReasonLateAcceptance), ReasonReplayed
	case e.Receipt != "" && e.Receipt == receipt:
		return e, ReasonReplayed
	default:
		return e, ReasonPossibleSecondSend
	}
}

// applyUnboundProof is applyProof for proof that belongs to no attempt in particular: a status event, or a lookup
// that found the send. For a sent entry it may add nothing, or supply the missing receipt.
func applyUnboundProof(e Entry, receipt string) (Entry, Reason) {
	switch {
	case e.State != Sent || e.ReceiptMissing == MissingAssumed || e.ReceiptMissing == MissingResolved:
	case receipt == "":
		return e, ReasonReplayed
	case e.ReceiptMissing == MissingUnreadable:
		return markAccepted(e, receipt, e.Reason), ReasonLateAcceptance
	}
	return applyProof(e, receipt)
}

// attemptEvent returns the timeline event of an attempt, without the entry's state and reason.
func attemptEvent(a Attempt, kind EventKind) *TimelineEvent {
	event := decisionEvent(a.Trigger)
	event.Kind, event.Holder, event.Provider = kind, a.Holder, a.Provider
	event.Started, event.Finished, event.Outcome = a.Started, a.Finished, a.Outcome
	return event
}
