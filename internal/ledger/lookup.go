package ledger

import "time"

// LookupResult is a provider's answer to the lookup of a send key. The zero value is no answer.
type LookupResult uint8

// The results of a lookup.
const (
	// LookupUnanswered means that the provider gave no answer.
	LookupUnanswered LookupResult = iota
	// LookupNotFound means that the provider does not know the key. That is no proof that the message was not
	// accepted: no provider says how soon it would know.
	LookupNotFound
	// LookupFound means that the provider accepted the message.
	LookupFound
)

// LookupResults lists every lookup result.
func LookupResults() []LookupResult {
	return []LookupResult{LookupUnanswered, LookupNotFound, LookupFound}
}

// String returns the result as one word of a closed set.
func (r LookupResult) String() string {
	switch r {
	case LookupFound:
		return "found"
	case LookupNotFound:
		return "not_found"
	default:
		return "unanswered"
	}
}

// Lookup is one lookup at a provider and its result.
type Lookup struct {
	Trigger  Trigger
	Provider string
	Result   LookupResult
	Early    bool    // made before it was due: a message not found yet may still be found when it is
	Outcome  Outcome // the evidence: receipt, status, request id, cause; its Result is ignored
	Started  time.Time
	Finished time.Time
}

// CanLookup reports whether the provider that may have accepted the entry can be asked about it now: it is the one
// that was called, by its fingerprint, and its contract supports lookups.
func (r Rules) CanLookup(e Entry) bool {
	return r.BoundRoute.Contract.Kind == ContractLookup && r.BoundRoute.Provider != "" && r.BoundRoute.Fingerprint == e.Fingerprint && len(r.LookupSchedule) > 0
}

// RecordLookup records the result of a lookup, and reports whether there is anything to record. Found proves the
// send whatever the entry's state is by now; the other results concern only an entry that is still unknown. After
// the last "not found" the entry is left to an operator, unless the type's policy takes the risk of sending again.
// An early "not found" is recorded but not counted: the waits between lookups give the provider time to know.
func RecordLookup(e Entry, l Lookup, r Rules, now time.Time) (Change, bool) {
	if l.Result != LookupFound && e.State != Unknown {
		return Change{}, false
	}
	next, reason := e, ReasonLookupUnanswered
	switch l.Result {
	case LookupFound:
		if next, reason = applyUnboundProof(e, l.Outcome.Receipt); reason == ReasonReplayed {
			return Change{}, false // it has been proven another way since
		}
	case LookupNotFound:
		reason = ReasonNotFound
		if !l.Early {
			next = recordNotFound(e, r, now)
		}
		if next.State == Waiting {
			reason = next.Reason
		}
	default:
		next.NextLookup = In(nextLookupIn(e, r, now))
	}
	event := decisionEvent(l.Trigger)
	event.Kind, event.Provider, event.Outcome = EventLookup, l.Provider, l.Outcome
	event.Started, event.Finished = l.Started, l.Finished
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}, true
}

// recordNotFound counts one "not found" and schedules the next lookup, or ends them.
func recordNotFound(e Entry, r Rules, now time.Time) Entry {
	e.LookupsNotFound++
	e.NextLookup = Moment{}
	if e.LookupsNotFound < len(r.LookupSchedule) {
		e.NextLookup = In(r.LookupSchedule[e.LookupsNotFound])
		return e
	}
	e.Reason = ReasonNotFound
	if r.OnUnknown != Resend || e.CancelRequested || e.BudgetUsed >= r.MaxAttempts || e.LeaseExpirations >= r.MaxLeaseExpirations {
		return e // an entry whose holders repeatedly did not settle is not sent again
	}
	resend := e
	resend.DoubtSince, resend.Owner = time.Time{}, OwnerLedger
	if resend = schedule(resend, 0, ReasonRiskTaken, r, now); resend.State == Waiting {
		return resend
	}
	return e
}

// nextLookupIn is the wait before the next lookup at a provider that did not answer. It grows with the age of the
// doubt, so that an outage of days does not fill the timeline.
func nextLookupIn(e Entry, r Rules, now time.Time) time.Duration {
	if len(r.LookupSchedule) == 0 {
		return time.Hour
	}
	next, longest := r.LookupSchedule[min(e.LookupsNotFound, len(r.LookupSchedule)-1)], r.LookupSchedule[len(r.LookupSchedule)-1]
	return max(next, min(now.Sub(e.DoubtSince)/4, longest))
}

// ScheduleLookup schedules a lookup for an unknown entry that has none, because its provider was not configured, or
// did not support lookups, when the entry became unknown. The bool reports whether there is anything to write.
func ScheduleLookup(e Entry, r Rules) (Change, bool) {
	if e.State != Unknown || !e.NextLookup.IsZero() || e.LookupsNotFound >= len(r.LookupSchedule) || !r.CanLookup(e) {
		return Change{}, false
	}
	e.NextLookup = In(r.LookupSchedule[e.LookupsNotFound])
	return Change{Entry: e}, true
}

// CancelLookup ends the lookups at a provider that has changed since the attempt, and leaves the entry to an operator.
func CancelLookup(e Entry, t Trigger) Change {
	e.NextLookup, e.Reason = Moment{}, ReasonProviderChange
	return Change{Entry: e, Event: withResult(e, decisionEvent(t))}
}
