package ledger

import "time"

// Finding is what a provider said when it was asked whether it had taken a send key. The zero value is no
// answer.
type Finding uint8

const (
	// Unanswered : it did not say.
	Unanswered Finding = iota
	// NotFound : it does not know the key. That is no proof: no provider says how soon it would know.
	NotFound
	// Found : it took it.
	Found
)

// Findings lists every finding.
func Findings() []Finding { return []Finding{Unanswered, NotFound, Found} }

// String is the finding as one word of a closed set.
func (f Finding) String() string {
	switch f {
	case Found:
		return "found"
	case NotFound:
		return "not_found"
	default:
		return "unanswered"
	}
}

// Inquiry is one question to a provider, and what came of it.
type Inquiry struct {
	By       Visit
	Provider string
	Finding  Finding
	Early    bool    // it was not due yet: what was not found then may be found in time
	Outcome  Outcome // the evidence: receipt, status, request id, cause; its Result is not read
	Started  time.Time
	Finished time.Time
}

// CanAsk tells whether the provider that may have taken the entry can be asked about it now: it is the one
// of then, by its fingerprint, and declares how.
func (r Rules) CanAsk(e Entry) bool {
	return r.Bound.Contract.Kind == Lookup && r.Bound.Provider != "" && r.Bound.Fingerprint == e.Fingerprint && len(r.Asks) > 0
}

// Asked records the answer to an inquiry, and reports whether there is anything to record. Found proves the
// send whatever the entry's state is by now; the rest concerns only what is still unknown. After the last
// "not found" it is left to a person, unless the type's policy takes the risk of sending again. One that came
// early is recorded and not counted: the waits between the questions give a provider time to know.
func Asked(e Entry, q Inquiry, r Rules, now time.Time) (Change, bool) {
	if q.Finding != Found && e.State != Unknown {
		return Change{}, false
	}
	next, reason := e, ReasonUnansweredYet
	switch q.Finding {
	case Found:
		if next, reason = provenSomehow(e, q.Outcome.Receipt); reason == ReasonReplayed {
			return Change{}, false // it was proven otherwise meanwhile
		}
	case NotFound:
		reason = ReasonNotFound
		if !q.Early {
			next = notFound(e, r, now)
		}
		if next.State == Waiting {
			reason = next.Reason
		}
	default:
		next.AskAt = In(askAgain(e, r, now))
	}
	event := decision(q.By)
	event.Kind, event.Provider, event.Outcome = EventLookup, q.Provider, q.Outcome
	event.Started, event.Finished = q.Started, q.Finished
	event.State, event.Reason = next.State, reason
	return Change{Entry: next, Event: event}, true
}

func notFound(e Entry, r Rules, now time.Time) Entry {
	e.Asked++
	e.AskAt = Moment{}
	if e.Asked < len(r.Asks) {
		e.AskAt = In(r.Asks[e.Asked])
		return e
	}
	e.Reason = ReasonNotFound
	if r.OnUnknown != Resend || e.CancelAsked || e.Spent >= r.MaxAttempts || e.Lapses >= r.MaxLapses {
		return e // what silences its holders again and again is not sent again and again
	}
	risked := e
	risked.DoubtSince, risked.Owner = time.Time{}, OwnerLedger
	if risked = rest(risked, 0, ReasonRiskTaken, r, now); risked.State == Waiting {
		return risked
	}
	return e
}

// askAgain is when a provider that did not answer is asked again: the longer the doubt has lasted the later,
// so that an outage of days does not fill the timeline.
func askAgain(e Entry, r Rules, now time.Time) time.Duration {
	if len(r.Asks) == 0 {
		return time.Hour
	}
	next, last := r.Asks[min(e.Asked, len(r.Asks)-1)], r.Asks[len(r.Asks)-1]
	return max(next, min(now.Sub(e.DoubtSince)/4, last))
}

// Arm plans the first question about an entry that nobody asks about, because its provider was not
// configured, or could not be asked, when it became unknown. The bool tells whether there is anything to
// plan.
func Arm(e Entry, r Rules) (Change, bool) {
	if e.State != Unknown || !e.AskAt.IsZero() || e.Asked >= len(r.Asks) || !r.CanAsk(e) {
		return Change{}, false
	}
	e.AskAt = In(r.Asks[e.Asked])
	return Change{Entry: e}, true
}

// Disarm ends the questions to a provider that is not the one of then any more: what is left is a person.
func Disarm(e Entry, by Visit) Change {
	e.AskAt, e.Reason = Moment{}, ReasonProviderChange
	return Change{Entry: e, Event: told(e, decision(by))}
}
