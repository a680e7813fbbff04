package ledger

import "time"

// Rules are the configuration that applies to one entry, gathered for one decision.
type Rules struct {
	Lease        time.Duration // how long a holder may work on a claim
	Margin       time.Duration // safety margin at the end of leases and windows
	ChannelRoute Route         // the provider that the entry's channel has now
	BoundRoute   Route         // the provider that the entry is bound to, as configured now
	OnUnknown    OnUnknown

	MaxAttempts         int
	MaxLeaseExpirations int
	LookupSchedule      []time.Duration // wait before each lookup; after the last "not found" there are no more
	Failover            Failover

	RetriesBy      Owner         // who retries what this task delivers
	TakeoverAfter  time.Duration // how long after an entry's due the worker waits for a silent broker
	CheckRelevance bool
}

// Admission is the policy's decision whether an entry may be sent now. The zero value admits it.
type Admission struct {
	State  State // Dead or Dropped; empty to admit
	Class  Class // with Dead
	Reason Reason
}

// Relevance is the result of the check whether a reminder is still wanted.
type Relevance uint8

// The results of a relevance check.
const (
	RelevanceUnchecked  Relevance = iota // not checked yet
	RelevanceWanted                      // send it
	RelevanceNotWanted                   // it is obsolete
	RelevanceUnanswered                  // no answer; wait
)

// Slot is what is known about a slot for a call to the provider.
type Slot struct {
	Provider string        // whose slot was requested; empty before the request
	Held     bool          // the task holds it until the call is over
	Reason   Reason        // why it is not held: ReasonGateClosed or ReasonNoCapacity
	Wait     time.Duration // until a slot is expected, if none is held
}

// Facts are what one task has found out so far, besides the entry itself.
type Facts struct {
	Admission Admission
	Relevance Relevance
	Slot      Slot
	Wait      time.Duration // how long to wait where no attempt was made
	Wrote     bool          // the task has written, so the entry's deliveries include this one
	Holder    string        // a token never used before
}

// Trigger is what made a task process an entry: a delivery, an API call, or the worker.
type Trigger struct {
	Origin         Origin
	Source         string    // the push source, or the API caller; empty for the worker
	MessageID      string    // the delivery's message id
	DeliveryCount  int       // the broker's delivery counter
	NewEntry       *Entry    // the entry to create if there is none; nil for the worker, which brings no reminder
	DeadLettered   bool      // the message comes from the broker's dead-letter queue
	DeadLetteredBy string    // the subscription or queue that dead-lettered it, as the broker names it; may be empty
	NotBefore      time.Time // not_before of the delivered reminder; zero for none
	Payload        *Payload  // the delivered payload; nil for the worker
}

// route returns the route that a claim would take, or the reason why there is none.
//
// In doubt there is only one: the same provider with the same fingerprint, under an idempotent contract,
// inside its window. Where the policy took the risk of a second send, it is the same provider as configured
// now. Else every earlier attempt is proven unsent, and the route is the channel's current one, even if that is
// another provider than last time.
func (r Rules) route(e Entry, now time.Time) (Route, Reason) {
	if !e.InDoubt() {
		switch riskTaken := e.Fingerprint != "" && e.Class == ClassUnknown; {
		case riskTaken && r.BoundRoute.Provider == "":
			return Route{}, ReasonProviderGone
		case riskTaken:
			return r.BoundRoute, ""
		case r.ChannelRoute.Provider == "":
			return Route{}, ReasonUnroutable
		}
		return r.ChannelRoute, ""
	}
	switch {
	case r.BoundRoute.Provider == "":
		return Route{}, ReasonProviderGone
	case r.BoundRoute.Fingerprint != e.Fingerprint, r.BoundRoute.Contract.Kind != ContractIdempotent:
		return Route{}, ReasonProviderChange
	case !now.Before(windowEnd(e, r.BoundRoute.Contract, r.Margin)):
		return Route{}, ReasonWindowEnded
	}
	return r.BoundRoute, ""
}

// windowEnd is when a repeat stops being harmless, by the ledger's clock. It counts from the start of the doubt,
// not from the last attempt, since the first call may be the one that was accepted.
func windowEnd(e Entry, c Contract, margin time.Duration) time.Time {
	return e.DoubtSince.Add(c.Window - margin)
}

// CallBudget is how much time a claimed entry leaves for its call, from the instant before the ledger's now was
// read: up to the earliest of timeout, lease less margin, the deadline and, in doubt, the window's end. It may be
// zero or negative: then nothing may be dialled.
func CallBudget(e Entry, timeout time.Duration, r Rules, now time.Time) time.Duration {
	// The rest of the lease is shorter than a whole one if the claim was written before now was read, and longer
	// if the ledger's clock jumped in between; so both bound the call.
	budget := min(timeout, r.Lease-r.Margin, e.LeaseUntil.On(now).Sub(now)-r.Margin)
	if !e.Deadline.IsZero() {
		budget = min(budget, e.Deadline.Sub(now))
	}
	if e.InDoubt() {
		budget = min(budget, windowEnd(e, r.BoundRoute.Contract, r.Margin).Sub(now))
	}
	return budget
}
