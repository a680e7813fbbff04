package ledger_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// cell is one combination of all that a transition may depend on, and what was done there.
type cell struct {
	found Entry
	rules Rules
	facts Facts
	op    string
	late  bool
	calls Result // of Settle and Late

	proves   bool       // its provider took it
	finding  Finding    // of Asked
	asks     bool       // it is Asked
	verdict  Verdict    // of Resolve
	moves    bool       // false for what is only recorded beside it
	failover bool       // its claim may have been forgotten
	by       *Reopening // of Reopen and Close
}

func (c cell) String() string {
	e := c.found
	return fmt.Sprintf("%s on %s (owner %s, doubt %t, cancel %t, spent %d, deadline in %v, lapses %d) under %s/%s, bound %q, slot %t",
		c.op, e.State, e.Owner, e.InDoubt(), e.CancelAsked, e.Spent, e.Deadline.Sub(noon()), e.Lapses,
		c.rules.Bound.Contract.Kind, c.rules.OnUnknown, c.rules.Bound.Fingerprint, c.facts.Slot.Held)
}

// cross calls visit for every combination: at each axis each of its changes is applied in turn.
func cross(found Entry, r Rules, axes [][]func(*Entry, *Rules), visit func(Entry, Rules)) {
	if len(axes) == 0 {
		visit(found, r)
		return
	}
	for _, change := range axes[0] {
		e, rr := found, r
		change(&e, &rr)
		cross(e, rr, axes[1:], visit)
	}
}

func onEntry(changes ...func(*Entry)) []func(*Entry, *Rules) {
	var axis []func(*Entry, *Rules)
	for _, change := range changes {
		axis = append(axis, func(e *Entry, _ *Rules) { change(e) })
	}
	return axis
}

func onRules(changes ...func(*Rules)) []func(*Entry, *Rules) {
	var axis []func(*Entry, *Rules)
	for _, change := range changes {
		axis = append(axis, func(_ *Entry, r *Rules) { change(r) })
	}
	return axis
}

func asIs(*Entry)      {}
func asRuled(r *Rules) {}

func axes() [][]func(*Entry, *Rules) {
	kind := func(k ContractKind) func(*Rules) {
		return func(r *Rules) { r.Bound, r.Channel = route(k), route(k) }
	}
	return [][]func(*Entry, *Rules){
		onEntry(asIs, doubted(time.Minute), doubted(window)),
		onEntry(asIs, cancelAsked),
		onEntry(spent(0), spent(attempts-1)),
		onEntry(asIs, deadlineIn(-time.Second), deadlineIn(5*time.Second), func(e *Entry) { e.Deadline = time.Time{} }),
		onRules(kind(Idempotent), kind(Lookup), kind(Blind)),
		onRules(onUnknown(Hold), onUnknown(AssumeSent), onUnknown(Resend)),
		onRules(asRuled, bound("mail/2"), boundGone),
	}
}

// places are the states, the ones that time divides twice.
func places() []Entry {
	return []Entry{
		entry(Sending), entry(Sending, ownedBy(OwnerLedger)), entry(Sending, lapsed),
		entry(Sending, lapsed, func(e *Entry) { e.Lapses = maxLapses - 1 }),
		entry(Waiting), entry(Waiting, ownedBy(OwnerLedger)), entry(Waiting, dueIn(time.Minute)),
		entry(Waiting, dueIn(-takeover)), entry(Unknown), entry(Sent), entry(Sent, assumed), entry(Dead), entry(Dropped),
	}
}

func TestTheWholeMatrixKeepsThePromises(t *testing.T) {
	cells, wrong, ops := 0, 0, map[string]int{}
	judge := func(c cell, change Change) {
		cells++
		ops[c.op]++
		c.proves = c.proves || c.calls == ResultAccepted
		for _, fault := range faults(c, change) {
			if wrong++; wrong < 20 {
				t.Errorf("%s -> %s (%s): %s", c, change.Entry.State, change.Entry.Reason, fault)
			}
		}
	}
	for _, place := range places() {
		cross(place, rules(Blind), axes(), func(e Entry, r Rules) {
			if e.State == Unknown && !e.InDoubt() || e.InDoubt() && e.Final() {
				return // no such entry
			}
			operate(e, r, judge)
		})
	}
	for _, op := range []string{"reopen", "close", "discard", "erase", "purge", "gave up", "cancel", "arm"} {
		if ops[op] == 0 {
			t.Errorf("the matrix holds no %s", op)
		}
	}
	if cells < 400_000 {
		t.Errorf("only %d cells: the matrix has lost an axis", cells)
	}
}

// operate does everything that can be done with an entry.
func operate(e Entry, r Rules, judge func(cell, Change)) {
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		for _, slot := range []Slot{
			{Provider: r.Channel.Provider, Held: true},
			{Provider: r.Bound.Provider, Held: true},
			{Provider: r.Channel.Provider, Reason: ReasonGateClosed, Wait: time.Minute},
		} {
			f := Facts{Holder: "mine", Wait: 5 * time.Second, Slot: slot}
			if !e.Deadline.IsZero() && !noon().Before(e.Deadline) {
				f.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
			}
			step := Meet(e, visit(origin), f, r, noon())
			if step.Verb == Swap {
				judge(cell{found: e, rules: r, facts: f, op: "meet by " + string(origin), moves: true}, step.Change)
			}
		}
	}
	for _, result := range Results() {
		a := attempt(result, 5*time.Second)
		if e.State == Sending {
			judge(cell{found: e, rules: r, op: "settle " + result.String(), calls: result, moves: true}, Settle(e, a, r, noon()))
		}
		judge(cell{found: e, rules: r, op: "late " + result.String(), late: true, calls: result}, Late(e, a))
	}
	if change, _, writes := Cancel(e, visit(OriginAPI)); writes {
		judge(cell{found: e, rules: r, op: "cancel", moves: true}, change)
	}
	reconcile(e, r, judge)
	e.UserID = "user-77"
	steer(e, r, judge)
}

// faults are the promises that one transition breaks. They are said here once more, from what is promised and
// not from the code.
func faults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	settles := c.calls != 0 && !c.late || c.op == "settle unknown"
	lapses := was.State == Sending && now.Lapses > was.Lapses
	proven, person := c.proves, c.verdict != ""
	risk := now.Reason == ReasonRiskTaken && now.State == Waiting && (was.State != Waiting || was.Reason != ReasonRiskTaken)
	born := was.ClaimedAt.On(noon())
	if c.failover {
		born = lostSince(was)
	}

	if err := now.Check(); err != nil {
		rule(false, err.Error())
	}
	rule(now.Identity == was.Identity && now.SendKey == was.SendKey && now.ContentHash == was.ContentHash &&
		now.Deadline.Equal(c.due()) && now.Published.Equal(was.Published) && now.Version == was.Version,
		"what is frozen moved")
	rule(!was.CancelAsked || now.CancelAsked, "the cancel mark is gone")
	rule(now.State == Sending || change.Event != nil || c.op == "arm", "it moved, and nothing is told")
	rule(change.Event == nil || change.Event.State == now.State, "the event tells another state")

	// Doubt.
	rule(!was.InDoubt() || now.InDoubt() || now.State == Sent && (proven || assumes(c)) || risk ||
		c.verdict == VerdictSent || c.verdict == VerdictNotSent, "doubt is gone without proof or policy")
	rule(!was.InDoubt() || !now.InDoubt() || now.DoubtSince.Equal(was.DoubtSince), "doubt is dated anew")
	rule(was.InDoubt() || !now.InDoubt() || now.DoubtSince.Equal(born), "doubt is not dated by its lease")
	rule(was.InDoubt() || !now.InDoubt() || lapses || c.op == "settle unknown" || c.failover, "doubt out of nothing")
	rule(!risk || c.rules.OnUnknown == Resend && !was.CancelAsked && now.Spent < attempts, "a risk nobody chose")
	rule(!risk || c.asks || !was.InDoubt() && c.rules.Bound.Contract.Kind == Blind, "a risk that another contract forbids")
	rule(!was.InDoubt() || now.State != Dead && now.State != Dropped || person, "in doubt, and given up")

	// Sending.
	claims := now.State == Sending && was.State != Sending
	rule(!claims || was.State == Waiting && !was.Due.On(noon()).After(noon()), "claimed before its due")
	rule(!claims || !was.CancelAsked, "claimed after a cancel")
	rule(!claims || was.Deadline.IsZero() || noon().Before(was.Deadline), "claimed past the deadline")
	rule(!claims || c.facts.Slot.Held && c.facts.Slot.Provider == now.Provider, "claimed without a slot")
	rule(!claims || !was.InDoubt() || now.Provider == was.Provider && now.Fingerprint == was.Fingerprint &&
		c.rules.Bound.Fingerprint == was.Fingerprint && c.rules.Bound.Contract.Kind == Idempotent &&
		noon().Before(was.DoubtSince.Add(window-margin)), "a repeat that is not harmless")
	rule(was.State != Sending || now.State != Sending || now.Holder == was.Holder && now.LeaseUntil == was.LeaseUntil, "a living lease moved")

	// Rest.
	rule(was.State != Sent || now.State == Sent, "sent, and not final")
	rule(was.State != Dropped || now.State == Dropped || proven, "dropped, and not final")
	rule(was.State != Dead || now.State == Dead || proven || now.State == Dropped && (c.op == "cancel" || steers(c)) || c.op == "reopen", "a dead letter was raised")
	rule(was.State != Unknown || now.State == Unknown || proven || person || risk, "unknown, and decided by nobody")
	rule(!proven || now.State == Sent && now.Missing != MissingAssumed, "proof of acceptance, and not sent")
	rule(now.State != Sent || was.State == Sent || proven || assumes(c) || c.verdict == VerdictSent, "sent without proof or policy")

	// Waiting.
	waits := now.State == Waiting
	rule(!waits || !now.CancelAsked || was.State != Sending, "waits for an attempt after a cancel")
	due, wake := now.Due.On(noon()), now.Wake.On(noon())
	if now != was && waits && !now.Deadline.IsZero() && c.moves && noon().Before(now.Deadline) {
		rule(due.Before(now.Deadline) || now.Due == was.Due, "waits past the deadline")
		rule(wake.Before(now.Deadline) || now.Wake == was.Wake || now.Wake == was.Due, "looked at past the deadline")
	}
	rule(!waits || !wake.Before(due), "looked at before its due")
	rule(!waits || now.Owner != OwnerLedger || wake.Equal(due), "ours, and not looked at when due")
	rule(!waits || !settles || now.Spent < attempts, "waits with its budget spent")
	rule(!waits || !now.InDoubt() || !settles || c.rules.Bound.Provider == "" ||
		c.rules.Bound.Contract.Kind != Idempotent || due.Before(now.DoubtSince.Add(window-margin)), "waits past its window")

	// Counts.
	called := settles && c.calls != ResultNotCalled
	charged := called && c.calls != ResultCredentials
	anew := c.verdict == VerdictNotSent || c.op == "reopen" // a fresh budget
	rule(now.Attempts == was.Attempts+count(called), "attempts miscounted")
	rule(!anew && now.Spent == was.Spent+count(charged) || anew && now.Spent == 0, "budget mischarged")
	rule(now.Lapses == was.Lapses || anew && now.Lapses == 0 || lapses && now.Lapses == was.Lapses+1 && change.Event.Kind == EventLapse, "lapses miscounted")
	rule(c.moves || proven || now == was, "what is only recorded moved it")
	return append(append(found, doubtFaults(c, change)...), steeredFaults(c, change)...)
}

// due is the deadline that an entry has to have afterwards: its own, unless a person grants it another.
func (c cell) due() time.Time {
	if c.op == "reopen" && !c.by.Deadline.IsZero() {
		return c.by.Deadline
	}
	return c.found.Deadline
}

// assumes tells whether the type's policy lets an unknown call count as sent.
func assumes(c cell) bool {
	return !c.failover && c.rules.OnUnknown == AssumeSent && c.rules.Bound.Contract.Kind == Blind &&
		c.rules.Bound.Fingerprint == c.found.Fingerprint && !c.found.CancelAsked
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
