package ledger_test

import (
	"errors"
	"strings"
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
	if e.State == Dead {
		since = e.Updated // it may have been put to work at once
	}
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
	rule(!enters || c.op == "cancel" || c.op == "erase" || planned == askable, "its first question is not planned, or to one who cannot be asked")
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
		rule(change.Act == nil || steers(c), "the audit tells of nobody's act")
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

// steer does with an entry what an operator, a purge, or a broker that gave up may do.
func steer(e Entry, r Rules, judge func(cell, Change)) {
	var expired Admission
	if !e.Deadline.IsZero() && !noon().Before(e.Deadline) {
		expired = Admission{Refusal: Dropped, Reason: ReasonExpired}
	}
	reopen := func(e Entry, r Rules, failover bool, by Reopening) {
		if change, skip := Reopen(e, by, r, noon()); skip == "" {
			judge(cell{found: e, rules: r, op: "reopen", by: &by, moves: true, failover: failover}, change)
		}
	}
	for _, n := range []int{0, mostRedrives - 1, mostRedrives} {
		for _, class := range []Class{e.Class, ClassPermanent, ClassBroker} {
			e := e
			e.Redrives, e.Class = n, class
			changedSince := r
			changedSince.Failover = changed()
			for _, by := range []Reopening{
				reopening(e, admission(expired)), reopening(e, byName, granted(time.Hour)), reopening(e, laidOut(e.Version-1)),
				reopening(e, byName, func(by *Reopening) { by.Kept = false }),
				{},
			} {
				reopen(e, r, false, by)
				for _, ago := range []time.Duration{2 * time.Minute, time.Hour} {
					stood := e
					diedAgo(ago)(&stood)
					reopen(stood, changedSince, true, by)
				}
				if skip := by.Reread(e); skip == "" {
					judge(cell{found: e, rules: r, op: "close", by: &by, moves: true}, by.Close(e, Identity{ReminderID: "r", Type: "t", Channel: "c"}))
				}
			}
		}
	}
	if change, err := Discard(e, e.Version, theAct()); err == nil {
		judge(cell{found: e, rules: r, op: "discard", moves: true}, change)
	}
	judge(cell{found: e, rules: r, op: "erase", moves: true}, Erase(e, theAct()))
	if (Retention{Sent: 1, Dead: 1, Dropped: 1}).Aged(Kept{Entry: e, Payload: true}, noon()) == AgeingPayload {
		judge(cell{found: e, rules: r, op: "purge"}, Purge(e))
	}
	if step := Meet(e, gaveUp(), Facts{Holder: "mine", Admission: expired}, r, noon()); step.Verb == Swap {
		judge(cell{found: e, rules: r, op: "gave up", moves: true}, step.Change)
	}
}

// steers tells whether it is an operator who acts.
func steers(c cell) bool {
	return c.op == "discard" || c.op == "erase" || c.op == "close"
}

// steeredFaults are the promises about redrives, retention and what is forgotten that one transition breaks.
func steeredFaults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	rule(now.Redrives == was.Redrives+count(c.by != nil), "redrives miscounted")
	rule(now.UserID == was.UserID || c.op == "erase" && now.UserID == "", "it is another person's")
	rule(change.Forget == ForgetNothing || c.op == "erase" || c.op == "purge" || c.op == "close", "something is forgotten by the way")
	if c.by != nil {
		line := change.Event
		rule(was.State == Dead && c.by.Version == was.Version, "a redrive took what is not dead, or moved on")
		rule(was.Class != ClassPermanent || c.by.Permanent, "permanent, and nobody named it")
		rule(was.Redrives < c.by.Most, "parked, and redriven")
		rule(c.by.Kept, "purged, and redriven")
		rule(line.Origin == OriginRedrive && line.Source == "ada" && line.Message == "rd-1", "the timeline does not say who redrove it")
	}
	switch c.op {
	case "reopen":
		rule(now.State == Waiting || now.State == Unknown && c.failover, "reopened, and not to work")
		rule(now.Owner == OwnerLedger, "reopened, and nobody's")
		rule(now.State != Waiting || now.Due == In(0), "reopened, and not due now")
		rule(now.State != Waiting || now.Deadline.IsZero() || noon().Before(now.Deadline), "reopened past its deadline")
		rule(c.failover || now.Class == "" && now.Reason == ReasonRedriven && !now.InDoubt(), "reopened, and in doubt")
		rule(!c.failover || now.InDoubt() || now.Reason == ReasonRiskTaken, "it may have been sent, and is not doubted")
		rule(now.Provider == was.Provider && now.Fingerprint == was.Fingerprint ||
			now.Provider == c.rules.Channel.Provider && (now.Fingerprint == "" || c.failover && now.Fingerprint == c.rules.Channel.Fingerprint), "it goes where nothing leads")
	case "close", "discard":
		rule(was.State == Dead && now.State == Dropped, "what was no dead letter was closed")
	case "erase":
		open := was.State.Pending() || was.State == Dead
		rule(now.UserID == "" && change.Forget == ForgetPerson, "its person is not forgotten")
		rule(!open || now.CancelAsked, "erased, and a later attempt is not forbidden")
		rule(now.State != Waiting && now.State != Dead, "erased, and to be sent again")
		rule(now.State == Dropped || now.State == was.State || was.State == Waiting && was.InDoubt() && now.State == Unknown, "erased, and moved elsewhere")
	case "purge":
		rule(was.Final() && change.Forget == ForgetPayload && change.Event.Origin == OriginPurge, "purged")
	case "gave up":
		rule(was.State == Waiting && was.Owner == OwnerBroker, "a broker that gave up moved what it did not own")
		was.Owner, was.Wake, was.Reason, was.Deliveries = OwnerLedger, was.Due, ReasonTakenOver, was.Deliveries+1
		rule(now == was, "a broker that gave up moved more than the wait")
	}
	if c.op == "discard" || c.op == "erase" {
		act := change.Act
		rule(act != nil && act.By == "ada" && act.Verb == c.op && act.Identity == was.Identity && act.Before != act.After, "the audit does not tell")
		rule(act != nil && !strings.Contains(act.Before+act.After, "user-77"), "the audit names the person")
	}
	return found
}
