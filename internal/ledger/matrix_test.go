package ledger_test

import (
	"fmt"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// cell is one combination of everything that a transition may depend on, and the operation applied to it.
type cell struct {
	found Entry
	rules Rules
	facts Facts
	op    string
	late  bool
	calls Result // of Settle and SettleLate

	proves   bool          // its provider accepted it
	result   LookupResult  // of RecordLookup
	lookup   bool          // the operation is RecordLookup
	verdict  Verdict       // of Resolve
	moves    bool          // false if it is only recorded in the timeline
	failover bool          // its claim may be lost
	redrive  *RedriveRules // of RedriveEntry and CloseReparsed
}

func (c cell) String() string {
	e := c.found
	return fmt.Sprintf("%s on %s (owner %s, doubt %t, cancel %t, spent %d, deadline in %v, lease expirations %d) under %s/%s, bound %q, slot %t",
		c.op, e.State, e.Owner, e.InDoubt(), e.CancelRequested, e.BudgetUsed, e.Deadline.Sub(noon()), e.LeaseExpirations,
		c.rules.BoundRoute.Contract.Kind, c.rules.OnUnknown, c.rules.BoundRoute.Fingerprint, c.facts.Slot.Held)
}

// cross calls each for every combination of one change per axis.
func cross(found Entry, r Rules, axes [][]func(*Entry, *Rules), each func(Entry, Rules)) {
	if len(axes) == 0 {
		each(found, r)
		return
	}
	for _, change := range axes[0] {
		e, rr := found, r
		change(&e, &rr)
		cross(e, rr, axes[1:], each)
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
		return func(r *Rules) { r.BoundRoute, r.ChannelRoute = route(k), route(k) }
	}
	return [][]func(*Entry, *Rules){
		onEntry(asIs, markDoubt(time.Minute), markDoubt(window)),
		onEntry(asIs, cancelRequested),
		onEntry(budgetUsed(0), budgetUsed(attempts-1)),
		onEntry(asIs, deadlineIn(-time.Second), deadlineIn(5*time.Second), func(e *Entry) { e.Deadline = time.Time{} }),
		onRules(kind(ContractIdempotent), kind(ContractLookup), kind(ContractBlind)),
		onRules(onUnknown(Hold), onUnknown(AssumeSent), onUnknown(Resend)),
		onRules(asRuled, bound("mail/2"), boundGone),
	}
}

// startEntries returns an entry for every state, and several for states that depend on time or owner.
func startEntries() []Entry {
	return []Entry{
		entry(Sending), entry(Sending, ownedBy(OwnerLedger)), entry(Sending, leaseExpired),
		entry(Sending, leaseExpired, func(e *Entry) { e.LeaseExpirations = maxExpirations - 1 }),
		entry(Waiting), entry(Waiting, ownedBy(OwnerLedger)), entry(Waiting, dueIn(time.Minute)),
		entry(Waiting, dueIn(-takeover)), entry(Unknown), entry(Sent), entry(Sent, assumed), entry(Dead), entry(Dropped),
	}
}

func TestTransitions_WholeMatrixKeepsTheInvariants(t *testing.T) {
	cells, wrong, ops := 0, 0, map[string]int{}
	check := func(c cell, change Change) {
		cells++
		ops[c.op]++
		c.proves = c.proves || c.calls == ResultAccepted
		for _, fault := range faults(c, change) {
			if wrong++; wrong < 20 {
				t.Errorf("%s -> %s (%s): %s", c, change.Entry.State, change.Entry.Reason, fault)
			}
		}
	}
	for _, start := range startEntries() {
		cross(start, rules(ContractBlind), axes(), func(e Entry, r Rules) {
			if e.State == Unknown && !e.InDoubt() || e.InDoubt() && e.Final() {
				return // no such entry
			}
			everyOperation(e, r, check)
		})
	}
	for _, op := range []string{"redrive", "close", "discard", "erase", "purge", "dead-lettered", "cancel", "schedule lookup"} {
		if ops[op] == 0 {
			t.Errorf("the matrix has no %s", op)
		}
	}
	if cells < 400_000 {
		t.Errorf("only %d cells: the matrix has lost an axis", cells)
	}
}

// everyOperation applies every operation to an entry.
func everyOperation(e Entry, r Rules, check func(cell, Change)) {
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		for _, slot := range []Slot{
			{Provider: r.ChannelRoute.Provider, Held: true},
			{Provider: r.BoundRoute.Provider, Held: true},
			{Provider: r.ChannelRoute.Provider, Reason: ReasonGateClosed, Wait: time.Minute},
		} {
			f := Facts{Holder: "mine", Wait: 5 * time.Second, Slot: slot}
			if !e.Deadline.IsZero() && !noon().Before(e.Deadline) {
				f.Admission = Admission{State: Dropped, Reason: ReasonExpired}
			}
			step := Decide(e, trigger(origin), f, r, noon())
			if step.Action == ActionUpdate {
				check(cell{found: e, rules: r, facts: f, op: "decide for " + string(origin), moves: true}, step.Change)
			}
		}
	}
	for _, result := range Results() {
		a := attempt(result, 5*time.Second)
		if e.State == Sending {
			check(cell{found: e, rules: r, op: "settle " + result.String(), calls: result, moves: true}, Settle(e, a, r, noon()))
		}
		check(cell{found: e, rules: r, op: "late " + result.String(), late: true, calls: result}, SettleLate(e, a))
	}
	if change, _, writes := Cancel(e, trigger(OriginAPI)); writes {
		check(cell{found: e, rules: r, op: "cancel", moves: true}, change)
	}
	reconcileActions(e, r, check)
	e.UserID = "user-77"
	operatorActions(e, r, check)
}

// faults returns the invariants that one transition violates. They are written from the documented guarantees, not from
// the code.
func faults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	settles := c.calls != 0 && !c.late || c.op == "settle unknown"
	expires := was.State == Sending && now.LeaseExpirations > was.LeaseExpirations
	proven, resolved := c.proves, c.verdict != ""
	risk := now.Reason == ReasonRiskTaken && now.State == Waiting && (was.State != Waiting || was.Reason != ReasonRiskTaken)
	doubtFrom := was.ClaimedAt.On(noon())
	if c.failover {
		doubtFrom = earliestLostClaim(was)
	}

	if err := now.Check(); err != nil {
		rule(false, err.Error())
	}
	rule(now.Identity == was.Identity && now.SendKey == was.SendKey && now.ContentHash == was.ContentHash &&
		now.Deadline.Equal(c.wantDeadline()) && now.Published.Equal(was.Published) && now.Version == was.Version,
		"an immutable field changed")
	rule(!was.CancelRequested || now.CancelRequested, "the cancel mark was removed")
	rule(now.State == Sending || change.Event != nil || c.op == "schedule lookup", "it changed, without a timeline event")
	rule(change.Event == nil || change.Event.State == now.State, "the event has another state")

	// Doubt.
	rule(!was.InDoubt() || now.InDoubt() || now.State == Sent && (proven || assumes(c)) || risk ||
		c.verdict == VerdictSent || c.verdict == VerdictNotSent, "doubt is gone without proof or policy")
	rule(!was.InDoubt() || !now.InDoubt() || now.DoubtSince.Equal(was.DoubtSince), "the start of the doubt changed")
	rule(was.InDoubt() || !now.InDoubt() || now.DoubtSince.Equal(doubtFrom), "the doubt does not start with its lease")
	rule(was.InDoubt() || !now.InDoubt() || expires || c.op == "settle unknown" || c.failover, "doubt without a cause")
	rule(!risk || c.rules.OnUnknown == Resend && !was.CancelRequested && now.BudgetUsed < attempts, "a risk against the policy")
	rule(!risk || c.lookup || !was.InDoubt() && c.rules.BoundRoute.Contract.Kind == ContractBlind, "a risk that another contract forbids")
	rule(!was.InDoubt() || now.State != Dead && now.State != Dropped || resolved, "in doubt, and ended")

	// Sending.
	claims := now.State == Sending && was.State != Sending
	rule(!claims || was.State == Waiting && !was.Due.On(noon()).After(noon()), "claimed before its due")
	rule(!claims || !was.CancelRequested, "claimed after a cancel")
	rule(!claims || was.Deadline.IsZero() || noon().Before(was.Deadline), "claimed past the deadline")
	rule(!claims || c.facts.Slot.Held && c.facts.Slot.Provider == now.Provider, "claimed without a slot")
	rule(!claims || !was.InDoubt() || now.Provider == was.Provider && now.Fingerprint == was.Fingerprint &&
		c.rules.BoundRoute.Fingerprint == was.Fingerprint && c.rules.BoundRoute.Contract.Kind == ContractIdempotent &&
		noon().Before(was.DoubtSince.Add(window-margin)), "a repeat that is not harmless")
	rule(was.State != Sending || now.State != Sending || now.Holder == was.Holder && now.LeaseUntil == was.LeaseUntil, "a lease that has not expired changed")

	// Final states.
	rule(was.State != Sent || now.State == Sent, "sent, and not final")
	rule(was.State != Dropped || now.State == Dropped || proven, "dropped, and not final")
	rule(was.State != Dead || now.State == Dead || proven || now.State == Dropped && (c.op == "cancel" || byOperator(c)) || c.op == "redrive", "a dead letter was revived")
	rule(was.State != Unknown || now.State == Unknown || proven || resolved || risk, "unknown, and ended without a decision")
	rule(!proven || now.State == Sent && now.ReceiptMissing != MissingAssumed, "proof of acceptance, and not sent")
	rule(now.State != Sent || was.State == Sent || proven || assumes(c) || c.verdict == VerdictSent, "sent without proof or policy")

	// Waiting.
	waits := now.State == Waiting
	rule(!waits || !now.CancelRequested || was.State != Sending, "waits for an attempt after a cancel")
	due, wake := now.Due.On(noon()), now.Wake.On(noon())
	if now != was && waits && !now.Deadline.IsZero() && c.moves && noon().Before(now.Deadline) {
		rule(due.Before(now.Deadline) || now.Due == was.Due, "waits past the deadline")
		rule(wake.Before(now.Deadline) || now.Wake == was.Wake || now.Wake == was.Due, "its wake is past the deadline")
	}
	rule(!waits || !wake.Before(due), "its wake is before its due")
	rule(!waits || now.Owner != OwnerLedger || wake.Equal(due), "the ledger's, but its wake is not its due")
	rule(!waits || !settles || now.BudgetUsed < attempts, "waits with its budget spent")
	rule(!waits || !now.InDoubt() || !settles || c.rules.BoundRoute.Provider == "" ||
		c.rules.BoundRoute.Contract.Kind != ContractIdempotent || due.Before(now.DoubtSince.Add(window-margin)), "waits past its window")

	// Counts.
	called := settles && c.calls != ResultNotCalled
	charged := called && c.calls != ResultCredentials
	resets := c.verdict == VerdictNotSent || c.op == "redrive" // a new budget
	rule(now.Attempts == was.Attempts+count(called), "attempts miscounted")
	rule(!resets && now.BudgetUsed == was.BudgetUsed+count(charged) || resets && now.BudgetUsed == 0, "budget mischarged")
	rule(now.LeaseExpirations == was.LeaseExpirations || resets && now.LeaseExpirations == 0 || expires && now.LeaseExpirations == was.LeaseExpirations+1 && change.Event.Kind == EventLeaseExpired, "lease expirations miscounted")
	rule(c.moves || proven || now == was, "an event that is only recorded changed the entry")
	return append(append(found, doubtFaults(c, change)...), operatorFaults(c, change)...)
}

// wantDeadline is the deadline that the entry must have afterwards: its own, unless an operator grants another.
func (c cell) wantDeadline() time.Time {
	if c.op == "redrive" && !c.redrive.Deadline.IsZero() {
		return c.redrive.Deadline
	}
	return c.found.Deadline
}

// assumes reports whether the type's policy lets an unknown call count as sent.
func assumes(c cell) bool {
	return !c.failover && c.rules.OnUnknown == AssumeSent && c.rules.BoundRoute.Contract.Kind == ContractBlind &&
		c.rules.BoundRoute.Fingerprint == c.found.Fingerprint && !c.found.CancelRequested
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
