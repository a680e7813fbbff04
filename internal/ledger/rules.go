package ledger

import "time"

// Rules are what the configuration says about one entry, gathered for one decision.
type Rules struct {
	Lease     time.Duration // how long a holder may be at work
	Margin    time.Duration // safety at the end of leases and windows
	Channel   Route         // where the entry's channel leads today
	Bound     Route         // today's configuration of the provider that the entry is bound to
	OnUnknown OnUnknown

	MaxAttempts int
	MaxLapses   int
	Asks        []time.Duration // waits before each question to a lookup provider; the last "not found" ends them
	Failover    Failover

	RetriesBy     Owner         // who retries what this visit brings
	TakeoverAfter time.Duration // how long after its due a silent broker is waited for
	AsksRelevance bool
}

// Admission is the policy's word on whether an entry may be sent now. The zero value admits.
type Admission struct {
	Refusal State // Dead or Dropped; empty to admit
	Class   Class // with Dead
	Reason  Reason
}

// Relevance is what is known of the question "is it still wanted?".
type Relevance uint8

const (
	// RelevanceUnasked : not asked yet.
	RelevanceUnasked Relevance = iota
	// StillWanted : send it.
	StillWanted
	// NotWanted : it is obsolete.
	NotWanted
	// NoAnswer : nobody answered; wait.
	NoAnswer
)

// Slot is what is known of a slot at the provider.
type Slot struct {
	Provider string        // whose slot was asked for; empty before asking
	Held     bool          // it is ours until the call is over
	Reason   Reason        // why not: ReasonGateClosed or ReasonNoCapacity
	Wait     time.Duration // with no slot: when one is expected
}

// Facts are what was found out for one visit, besides the entry itself.
type Facts struct {
	Admission Admission
	Relevance Relevance
	Slot      Slot
	Wait      time.Duration // for a wait without an attempt
	Counted   bool          // the visit has written, so its arrival stands in the entry's deliveries
	Holder    string        // a token nobody used before
}

// Visit is one arrival at an entry: by a delivery, by a caller, or by the worker.
type Visit struct {
	Origin   Origin
	Source   string    // the push source, or the caller; empty for the worker
	Message  string    // the delivery's message id
	Count    int       // the broker's delivery counter
	Birth    *Entry    // the entry as it would be born; nil for the worker, who brings nothing
	GaveUp   bool      // the broker gave up on what it brings, and kept it in its dead-letter queue
	GaveUpBy string    // the subscription or queue that did, in the broker's own word; may be empty
	NotYet   time.Time // not_before of what was brought; zero for none
	Payload  *Payload  // what was brought; nil for the worker
}

// route is the one that a claim would take, or why there is none.
//
// In doubt there is only one: the same provider with the same fingerprint, under an idempotent
// contract, inside its window. Where a policy took the risk of a second send, it is the same provider as
// configured now. Else everything so far is proven unsent, and it is where the channel leads today, be it
// another provider than last time.
func (r Rules) route(e Entry, now time.Time) (Route, Reason) {
	if !e.InDoubt() {
		switch risked := e.Fingerprint != "" && e.Class == ClassUnknown; {
		case risked && r.Bound.Provider == "":
			return Route{}, ReasonProviderGone
		case risked:
			return r.Bound, ""
		case r.Channel.Provider == "":
			return Route{}, ReasonUnroutable
		}
		return r.Channel, ""
	}
	switch {
	case r.Bound.Provider == "":
		return Route{}, ReasonProviderGone
	case r.Bound.Fingerprint != e.Fingerprint, r.Bound.Contract.Kind != Idempotent:
		return Route{}, ReasonProviderChange
	case !now.Before(windowEnd(e, r.Bound.Contract, r.Margin)):
		return Route{}, ReasonWindowEnded
	}
	return r.Bound, ""
}

// windowEnd is when a repeat stops being harmless, by the ledger's clock: counted from the doubt, not
// from the last attempt, since the first call may be the one that was accepted.
func windowEnd(e Entry, c Contract, margin time.Duration) time.Time {
	return e.DoubtSince.Add(c.Window - margin)
}

// CallBudget is how much time a claimed entry leaves to its call, from the instant before the ledger's
// now was read: the earliest of timeout, lease less margin, the deadline and, in doubt, the window's
// end. It may be zero or negative: then nothing may be dialled.
func CallBudget(e Entry, timeout time.Duration, r Rules, now time.Time) time.Duration {
	// What is left of the lease is less than a whole one where the claim stood before now was read, and more
	// where the ledger's clock leapt ahead in between.
	budget := min(timeout, r.Lease-r.Margin, e.LeaseUntil.On(now).Sub(now)-r.Margin)
	if !e.Deadline.IsZero() {
		budget = min(budget, e.Deadline.Sub(now))
	}
	if e.InDoubt() {
		budget = min(budget, windowEnd(e, r.Bound.Contract, r.Margin).Sub(now))
	}
	return budget
}
