package ledger_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// lost is how long before the database changed its commits may be forgotten.
const lost = 5 * time.Minute

// changed is a database that changed a minute ago.
func changed() Failover { return Failover{Noticed: noon().Add(-time.Minute), Window: lost} }

func afterFailover(r *Rules) { r.Failover = changed() }

// untouched makes a waiting entry one that was due before the database changed.
func untouched(due time.Duration) func(*Entry) {
	return func(e *Entry) {
		e.Due, e.Wake = At(noon().Add(-due)), At(noon().Add(-due))
		e.Updated = noon().Add(-due - time.Second)
	}
}

// lostSince is the first moment at which a forgotten claim may have begun.
func lostSince(e Entry) time.Time {
	since, first := e.Due.On(noon()), changed().Noticed.Add(-lost)
	if since.Before(first) {
		return first
	}
	return since
}

func question(finding Finding, receipt string) Inquiry {
	return Inquiry{
		By: Visit{Origin: OriginReconcile}, Provider: "mail", Finding: finding,
		Outcome: Outcome{Receipt: receipt, Status: 200}, Started: noon().Add(-time.Second), Finished: noon(),
	}
}

func verdict(v Verdict, e Entry) Resolution {
	return Resolution{Verdict: v, Version: e.Version, Act: Act{ID: "act-1", By: "ada", Role: "operator", Why: "asked them"}}
}

func report(kind ReportKind, receipt string) Report {
	return Report{
		Identity: identity(), Kind: kind, Provider: "mail", Message: "evt-1", Receipt: receipt, Code: "250",
		At: noon().Add(-time.Second),
	}
}

// reconcile does with an entry what the sweep, a person or its provider may do.
func reconcile(e Entry, r Rules, judge func(cell, Change)) {
	for _, n := range []int{0, len(asks()) - 1} {
		e := e
		e.Asked = n
		for _, finding := range []Finding{Unanswered, NotFound, Found} {
			if change, news := Asked(e, question(finding, "found"), r, noon()); news {
				judge(cell{
					found: e, rules: r, op: "asked", asks: true, moves: true, finding: finding, proves: finding == Found,
				}, change)
			}
		}
		if change, news := Arm(e, r); news {
			judge(cell{found: e, rules: r, op: "arm", moves: true}, change)
		}
	}
	for _, v := range Verdicts() {
		if change, err := Resolve(e, verdict(v, e), noon()); err == nil {
			judge(cell{found: e, rules: r, op: "resolve " + string(v), verdict: v, moves: true}, change)
		}
	}
	for _, kind := range ReportKinds() {
		proves := kind == ReportAccepted || kind == ReportDelivered
		for _, receipt := range []string{"", "receipt", "other"} {
			if change, news := Heard(e, report(kind, receipt)); news {
				judge(cell{found: e, rules: r, op: "report " + string(kind), proves: proves}, change)
			}
		}
	}
	if e.State != Waiting || e.InDoubt() {
		return
	}
	r.Failover = changed()
	for _, due := range []time.Duration{2 * time.Minute, time.Minute + time.Microsecond, lost} {
		e := e
		untouched(due)(&e)
		for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
			f := Facts{Holder: "mine", Wait: 5 * time.Second, Slot: Slot{Provider: r.Channel.Provider, Held: true}}
			if step := Meet(e, visit(origin), f, r, noon()); step.Verb == Swap {
				judge(cell{found: e, rules: r, facts: f, op: "meet by " + string(origin), moves: true, failover: true}, step.Change)
			}
		}
	}
}

// doubtFaults are the promises about doubt that one transition breaks.
func doubtFaults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	askable := c.rules.Bound.Contract.Kind == Lookup && c.rules.Bound.Fingerprint == now.Fingerprint
	wait, planned := now.AskAt.Span()

	// Questions.
	enters := now.State == Unknown && was.State != Unknown
	rule(!enters || now.Asked == 0, "questions of another doubt are counted")
	rule(!enters || c.op == "cancel" || planned == askable, "its first question is not planned, or to one who cannot be asked")
	rule(!enters || !planned || wait == asks()[0], "its first question is planned for another time")
	rule(enters || now.Asked == was.Asked+count(c.asks && c.finding == NotFound), "questions miscounted")
	if c.asks && now.State == Unknown {
		last := was.Asked+1 == len(asks())
		switch c.finding {
		case NotFound:
			rule(planned == !last, "asked without end, or not to the end")
			rule(!planned || wait == asks()[was.Asked+1], "not on the schedule")
			rule(!last || now.Reason == ReasonNotFound, "it does not say that the provider was asked to the end")
		case Unanswered:
			rule(planned && wait >= asks()[was.Asked] && wait <= asks()[len(asks())-1], "a silent provider is asked at once, or never")
		}
	}
	inTime := was.Deadline.IsZero() || noon().Before(was.Deadline)
	resend := c.asks && c.finding == NotFound && was.Asked+1 == len(asks()) && c.rules.OnUnknown == Resend &&
		!was.CancelAsked && was.Spent < attempts && inTime
	rule(!c.asks || c.finding == Found || (now.State == Waiting) == resend, "sent again without need, or not where the policy says so")
	rule(!c.asks || now.State != Waiting || now.Owner == OwnerLedger, "resent by nobody")

	// People.
	if c.verdict != "" {
		act := change.Act
		rule(act != nil && act.ID == "act-1" && act.By == "ada" && act.Identity == was.Identity && act.Before != "" && act.After != "" &&
			act.Before != act.After, "the audit does not tell")
		rule(was.State == Unknown || was.State == Waiting && was.InDoubt(), "decided what was not in doubt")
	}
	switch c.verdict {
	case VerdictSent:
		rule(now.State == Sent && (now.Receipt != "") != (now.Missing == MissingResolved) && !now.InDoubt(), "said to be sent")
	case VerdictAbandoned:
		rule(now.State == Dropped && now.Reason == ReasonAbandoned && now.InDoubt(), "abandoned")
	case VerdictNotSent:
		goes := !was.CancelAsked && inTime
		rule((now.State == Waiting) == goes && (now.State == Dropped) != goes, "said to be unsent")
		rule(!goes || now.Owner == OwnerLedger && now.Due == In(0) && now.Class == "" && now.Reason == ReasonResolved, "not ours, or not due now")
	default:
		rule(change.Act == nil, "the audit tells of nobody's act")
	}

	// A database that changed.
	if c.failover {
		rule(now.State == Waiting || now.State == Unknown || now.State == Dropped && !inTime, "more was known than is")
		rule(now.State != Sending, "a send that may have been forgotten is repeated")
		repeats := now.State == Waiting && now.InDoubt()
		rule(!repeats || c.rules.Bound.Provider == "" || c.rules.Bound.Contract.Kind == Idempotent, "repeated without a contract")
		rule(now.State == Dropped || now.Class == ClassUnknown, "it is not told from what is proven unsent")
		rule(now.State == Dropped || change.Event.Reason == ReasonLedgerChanged || now.Reason == ReasonRiskTaken && change.Event.Reason == now.Reason, "the timeline does not say why")
	}
	return found
}

func TestOnlyWhatIsInDoubtIsAPersonsToDecide(t *testing.T) {
	for name, e := range everywhere() {
		for _, v := range Verdicts() {
			_, err := Resolve(e, verdict(v, e), noon())
			open := e.State == Unknown || e.State == Waiting && e.InDoubt()
			if open && err != nil || !open && !errors.Is(err, ErrNotInDoubt) {
				t.Errorf("%s, %s: %v", name, v, err)
			}
			stale := verdict(v, e)
			for _, version := range []int64{e.Version - 1, e.Version + 1, 0} {
				if stale.Version = version; e.Absent() {
					continue
				}
				if change, err := Resolve(e, stale, noon()); !errors.Is(err, ErrStale) || change.Act != nil {
					t.Errorf("%s, %s over version %d: %v", name, v, version, err)
				}
			}
		}
	}
	if _, err := Resolve(Entry{}, verdict(VerdictSent, Entry{}), noon()); !errors.Is(err, ErrNotFound) {
		t.Errorf("an absent one: %v", err)
	}
}
