package ledger_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// failoverWindow is how long before a failover commits may be lost.
const failoverWindow = 5 * time.Minute

// lastFailover is a failover a minute ago.
func lastFailover() Failover {
	return Failover{Noticed: noon().Add(-time.Minute), Window: failoverWindow}
}

func afterFailover(r *Rules) { r.Failover = lastFailover() }

// dueSince makes a waiting entry due for so long, and not written since.
func dueSince(due time.Duration) func(*Entry) {
	return func(e *Entry) {
		e.Due, e.Wake = At(noon().Add(-due)), At(noon().Add(-due))
		e.Updated = noon().Add(-due - time.Second)
	}
}

// earliestLostClaim is the earliest moment at which a lost claim may have begun.
func earliestLostClaim(e Entry) time.Time {
	since, first := e.Due.On(noon()), lastFailover().Noticed.Add(-failoverWindow)
	if e.State == Dead {
		since = e.Updated // it may have been redriven at once
	}
	if since.Before(first) {
		return first
	}
	return since
}

func lookup(result LookupResult, receipt string) Lookup {
	return Lookup{
		Trigger: Trigger{Origin: OriginReconcile}, Provider: "mail", Result: result,
		Outcome: Outcome{Receipt: receipt, Status: 200}, Started: noon().Add(-time.Second), Finished: noon(),
	}
}

func verdict(v Verdict, e Entry) Resolution {
	return Resolution{Verdict: v, Version: e.Version, Audit: AuditEvent{ID: "audit-1", Actor: "ada", Role: "operator", Reason: "asked the provider"}}
}

func statusEvent(kind StatusKind, receipt string) StatusEvent {
	return StatusEvent{
		Identity: identity(), Kind: kind, Provider: "mail", MessageID: "evt-1", Receipt: receipt, Code: "250",
		At: noon().Add(-time.Second),
	}
}

// reconcileActions applies to an entry what the sweep, an operator or its provider may do.
func reconcileActions(e Entry, r Rules, check func(cell, Change)) {
	for _, n := range []int{0, len(lookupSchedule()) - 1} {
		e := e
		e.LookupsNotFound = n
		for _, result := range []LookupResult{LookupUnanswered, LookupNotFound, LookupFound} {
			if change, changed := RecordLookup(e, lookup(result, "found"), r, noon()); changed {
				check(cell{
					found: e, rules: r, op: "lookup", lookup: true, moves: true, result: result, proves: result == LookupFound,
				}, change)
			}
		}
		if change, changed := ScheduleLookup(e, r); changed {
			check(cell{found: e, rules: r, op: "schedule lookup", moves: true}, change)
		}
	}
	for _, v := range Verdicts() {
		if change, err := Resolve(e, verdict(v, e), noon()); err == nil {
			check(cell{found: e, rules: r, op: "resolve " + string(v), verdict: v, moves: true}, change)
		}
	}
	for _, kind := range StatusKinds() {
		proves := kind == StatusAccepted || kind == StatusDelivered
		for _, receipt := range []string{"", "receipt", "other"} {
			if change, changed := RecordStatus(e, statusEvent(kind, receipt)); changed {
				check(cell{found: e, rules: r, op: "status " + string(kind), proves: proves}, change)
			}
		}
	}
	if e.State != Waiting || e.InDoubt() {
		return
	}
	r.Failover = lastFailover()
	for _, due := range []time.Duration{2 * time.Minute, time.Minute + time.Microsecond, failoverWindow} {
		e := e
		dueSince(due)(&e)
		for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
			f := Facts{Holder: "mine", Wait: 5 * time.Second, Slot: Slot{Provider: r.ChannelRoute.Provider, Held: true}}
			if step := Decide(e, trigger(origin), f, r, noon()); step.Action == ActionUpdate {
				check(cell{found: e, rules: r, facts: f, op: "decide for " + string(origin), moves: true, failover: true}, step.Change)
			}
		}
	}
}

// doubtFaults returns the invariants about doubt that one transition violates.
func doubtFaults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	askable := c.rules.BoundRoute.Contract.Kind == ContractLookup && c.rules.BoundRoute.Fingerprint == now.Fingerprint
	wait, planned := now.NextLookup.Span()

	// Lookups.
	enters := now.State == Unknown && was.State != Unknown
	rule(!enters || now.LookupsNotFound == 0, "lookups of an earlier doubt are counted")
	rule(!enters || c.op == "cancel" || c.op == "erase" || planned == askable, "its first lookup is not scheduled, or at a provider without lookups")
	rule(!enters || !planned || wait == lookupSchedule()[0], "its first lookup is scheduled for another time")
	rule(enters || now.LookupsNotFound == was.LookupsNotFound+count(c.lookup && c.result == LookupNotFound), "lookups miscounted")
	if c.lookup && now.State == Unknown {
		last := was.LookupsNotFound+1 == len(lookupSchedule())
		switch c.result {
		case LookupNotFound:
			rule(planned == !last, "lookups without end, or ended early")
			rule(!planned || wait == lookupSchedule()[was.LookupsNotFound+1], "not on the schedule")
			rule(!last || now.Reason == ReasonNotFound, "the reason is not that every lookup found nothing")
		case LookupUnanswered:
			rule(planned && wait >= lookupSchedule()[was.LookupsNotFound] && wait <= lookupSchedule()[len(lookupSchedule())-1], "after no answer, the next lookup is at once, or never")
		}
	}
	inTime := was.Deadline.IsZero() || noon().Before(was.Deadline)
	resend := c.lookup && c.result == LookupNotFound && was.LookupsNotFound+1 == len(lookupSchedule()) && c.rules.OnUnknown == Resend &&
		!was.CancelRequested && was.BudgetUsed < attempts && inTime
	rule(!c.lookup || c.result == LookupFound || (now.State == Waiting) == resend, "sent again without need, or not where the policy says so")
	rule(!c.lookup || now.State != Waiting || now.Owner == OwnerLedger, "resent without an owner")

	// Verdicts.
	if c.verdict != "" {
		audit := change.Audit
		rule(audit != nil && audit.ID == "audit-1" && audit.Actor == "ada" && audit.Identity == was.Identity && audit.Before != "" && audit.After != "" &&
			audit.Before != audit.After, "the audit event is missing or wrong")
		rule(was.State == Unknown || was.State == Waiting && was.InDoubt(), "decided what was not in doubt")
	}
	switch c.verdict {
	case VerdictSent:
		rule(now.State == Sent && (now.Receipt != "") != (now.ReceiptMissing == MissingResolved) && !now.InDoubt(), "resolved as sent")
	case VerdictAbandoned:
		rule(now.State == Dropped && now.Reason == ReasonAbandoned && now.InDoubt(), "abandoned")
	case VerdictNotSent:
		goes := !was.CancelRequested && inTime
		rule((now.State == Waiting) == goes && (now.State == Dropped) != goes, "resolved as not sent")
		rule(!goes || now.Owner == OwnerLedger && now.Due == In(0) && now.Class == "" && now.Reason == ReasonResolved, "not the ledger's, or not due now")
	default:
		rule(change.Audit == nil || byOperator(c), "an audit event without an operator")
	}

	// Failovers.
	if c.failover {
		rule(now.State == Waiting || now.State == Unknown || now.State == Dropped && !inTime, "an outcome without proof")
		rule(now.State != Sending, "a send that may be lost is repeated")
		repeats := now.State == Waiting && now.InDoubt()
		rule(!repeats || c.rules.BoundRoute.Provider == "" || c.rules.BoundRoute.Contract.Kind == ContractIdempotent, "repeated without a contract")
		rule(now.State == Dropped || now.Class == ClassUnknown, "its class is that of an unsent entry")
		rule(now.State == Dropped || change.Event.Reason == ReasonDatabaseChanged || now.Reason == ReasonRiskTaken && change.Event.Reason == now.Reason, "the timeline event has another reason")
	}
	return found
}

func TestResolve_OnlyEntriesInDoubt(t *testing.T) {
	for name, e := range everyState() {
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
				if change, err := Resolve(e, stale, noon()); !errors.Is(err, ErrStale) || change.Audit != nil {
					t.Errorf("%s, %s over version %d: %v", name, v, version, err)
				}
			}
		}
	}
	if _, err := Resolve(Entry{}, verdict(VerdictSent, Entry{}), noon()); !errors.Is(err, ErrNotFound) {
		t.Errorf("an absent one: %v", err)
	}
}

// operatorActions applies to an entry what an operator, a purge, or a broker's dead letter may do.
func operatorActions(e Entry, r Rules, check func(cell, Change)) {
	var expired Admission
	if !e.Deadline.IsZero() && !noon().Before(e.Deadline) {
		expired = Admission{State: Dropped, Reason: ReasonExpired}
	}
	redrive := func(e Entry, r Rules, failover bool, rr RedriveRules) {
		if change, skip := RedriveEntry(e, rr, r, noon()); skip == "" {
			check(cell{found: e, rules: r, op: "redrive", redrive: &rr, moves: true, failover: failover}, change)
		}
	}
	for _, n := range []int{0, maxRedrives - 1, maxRedrives} {
		for _, class := range []Class{e.Class, ClassPermanent, ClassBroker} {
			e := e
			e.Redrives, e.Class = n, class
			changedSince := r
			changedSince.Failover = lastFailover()
			for _, rr := range []RedriveRules{
				redriveRules(e, admission(expired)), redriveRules(e, permanentRequested, withDeadline(time.Hour)), redriveRules(e, seenVersion(e.Version-1)),
				redriveRules(e, permanentRequested, func(rr *RedriveRules) { rr.HasPayload = false }),
				{},
			} {
				redrive(e, r, false, rr)
				for _, ago := range []time.Duration{2 * time.Minute, time.Hour} {
					older := e
					deadFor(ago)(&older)
					redrive(older, changedSince, true, rr)
				}
				if skip := rr.Reparse(e); skip == "" {
					check(cell{found: e, rules: r, op: "close", redrive: &rr, moves: true}, rr.CloseReparsed(e, Identity{ReminderID: "r", Type: "t", Channel: "c"}))
				}
			}
		}
	}
	if change, err := Discard(e, e.Version, auditEvent()); err == nil {
		check(cell{found: e, rules: r, op: "discard", moves: true}, change)
	}
	check(cell{found: e, rules: r, op: "erase", moves: true}, Erase(e, auditEvent()))
	if (Retention{Sent: 1, Dead: 1, Dropped: 1}).Expiry(RetentionCandidate{Entry: e, HasPayload: true}, noon()) == ExpirePayload {
		check(cell{found: e, rules: r, op: "purge"}, Purge(e))
	}
	if step := Decide(e, deadLettered(), Facts{Holder: "mine", Admission: expired}, r, noon()); step.Action == ActionUpdate {
		check(cell{found: e, rules: r, op: "dead-lettered", moves: true}, step.Change)
	}
}

// byOperator reports whether an operator makes the change.
func byOperator(c cell) bool {
	return c.op == "discard" || c.op == "erase" || c.op == "close"
}

// operatorFaults returns the invariants about redrives, retention and erasure that one transition violates.
func operatorFaults(c cell, change Change) (found []string) {
	was, now := c.found, change.Entry
	rule := func(holds bool, broken string) {
		if !holds {
			found = append(found, broken)
		}
	}
	rule(now.Redrives == was.Redrives+count(c.redrive != nil), "redrives miscounted")
	rule(now.UserID == was.UserID || c.op == "erase" && now.UserID == "", "its user changed")
	rule(change.Purge == PurgeNothing || c.op == "erase" || c.op == "purge" || c.op == "close", "something else is purged")
	if c.redrive != nil {
		event := change.Event
		rule(was.State == Dead && c.redrive.Version == was.Version, "a redrive of an entry that is not dead, or has changed")
		rule(was.Class != ClassPermanent || c.redrive.Permanent, "permanent, and not requested explicitly")
		rule(was.Redrives < c.redrive.MaxRedrives, "parked, and redriven")
		rule(c.redrive.HasPayload, "purged, and redriven")
		rule(event.Origin == OriginRedrive && event.Source == "ada" && event.MessageID == "rd-1", "the timeline does not say who redrove it")
	}
	switch c.op {
	case "redrive":
		rule(now.State == Waiting || now.State == Unknown && c.failover, "redriven, but not waiting")
		rule(now.Owner == OwnerLedger, "redriven, without the ledger as owner")
		rule(now.State != Waiting || now.Due == In(0), "redriven, and not due now")
		rule(now.State != Waiting || now.Deadline.IsZero() || noon().Before(now.Deadline), "redriven past its deadline")
		rule(c.failover || now.Class == "" && now.Reason == ReasonRedriven && !now.InDoubt(), "redriven, and in doubt")
		rule(!c.failover || now.InDoubt() || now.Reason == ReasonRiskTaken, "it may have been sent, and is not in doubt")
		rule(now.Provider == was.Provider && now.Fingerprint == was.Fingerprint ||
			now.Provider == c.rules.ChannelRoute.Provider && (now.Fingerprint == "" || c.failover && now.Fingerprint == c.rules.ChannelRoute.Fingerprint), "it goes to a provider that its channel does not have")
	case "close", "discard":
		rule(was.State == Dead && now.State == Dropped, "an entry that is no dead letter was closed")
	case "erase":
		open := was.State.Pending() || was.State == Dead
		rule(now.UserID == "" && change.Purge == PurgePersonalData, "its personal data is not purged")
		rule(!open || now.CancelRequested, "erased, and a later attempt is not forbidden")
		rule(now.State != Waiting && now.State != Dead, "erased, and to be sent again")
		rule(now.State == Dropped || now.State == was.State || was.State == Waiting && was.InDoubt() && now.State == Unknown, "erased, with a wrong state")
	case "purge":
		rule(was.Final() && change.Purge == PurgePayload && change.Event.Origin == OriginPurge, "purged wrongly")
	case "dead-lettered":
		rule(was.State == Waiting && was.Owner == OwnerBroker, "a broker dead letter changed an entry that the broker did not own")
		was.Owner, was.Wake, was.Reason, was.Deliveries = OwnerLedger, was.Due, ReasonTakenOver, was.Deliveries+1
		rule(now == was, "a broker dead letter changed more than the wait")
	}
	if c.op == "discard" || c.op == "erase" {
		audit := change.Audit
		rule(audit != nil && audit.Actor == "ada" && audit.Action == c.op && audit.Identity == was.Identity && audit.Before != audit.After, "the audit event is missing or wrong")
		rule(audit != nil && !strings.Contains(audit.Before+audit.After, "user-77"), "the audit event holds the user id")
	}
	return found
}
