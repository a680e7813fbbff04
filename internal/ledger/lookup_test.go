package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// afterLookup returns the stored entry after a lookup with this result.
func afterLookup(t *testing.T, e Entry, result LookupResult, r Rules, now time.Time) Entry {
	t.Helper()
	change, changed := RecordLookup(e, lookup(result, ""), r, now)
	if !changed {
		t.Fatalf("%s, %d lookups not found: the result is not recorded", e.State, e.LookupsNotFound)
	}
	return stored(change, now)
}

func TestLookup_FollowsItsScheduleAndEnds(t *testing.T) {
	r := rules(ContractLookup)
	now := noon()
	e := stored(Settle(entry(Sending), attempt(ResultUnknown, 0), r, now), now)
	for n, wait := range lookupSchedule() {
		if got := e.NextLookup.On(now).Sub(now); e.State != Unknown || got != wait {
			t.Fatalf("lookup %d: %s, in %v, want %v", n+1, e.State, got, wait)
		}
		now = e.NextLookup.On(now)
		e = afterLookup(t, e, LookupNotFound, r, now)
	}
	mustBe(t, e, StateSummary{Unknown, ClassUnknown, ReasonNotFound})
	if !e.NextLookup.IsZero() || e.LookupsNotFound != len(lookupSchedule()) || !e.InDoubt() {
		t.Errorf("%d lookups not found, next %v, doubt %t", e.LookupsNotFound, e.NextLookup, e.InDoubt())
	}
}

func TestRecordLookup_NotFoundResendsOnlyByPolicy(t *testing.T) {
	last := notFoundTimes(len(lookupSchedule()) - 1)
	resend := rules(ContractLookup, onUnknown(Resend))
	for name, row := range map[string]struct {
		found   Entry
		rules   Rules
		resends bool
	}{
		"hold":                      {entry(Unknown, last), rules(ContractLookup), false},
		"assume_sent":               {entry(Unknown, last), rules(ContractLookup, onUnknown(AssumeSent)), false},
		"resend":                    {entry(Unknown, last), resend, true},
		"resend, not the last":      {entry(Unknown), resend, false},
		"resend, cancelled":         {entry(Unknown, last, cancelRequested), resend, false},
		"resend, budget spent":      {entry(Unknown, last, budgetUsed(attempts)), resend, false},
		"resend, one call left":     {entry(Unknown, last, budgetUsed(attempts-1)), resend, true},
		"resend, past the deadline": {entry(Unknown, last, deadlineIn(0)), resend, false},
		"resend, just in time":      {entry(Unknown, last, deadlineIn(time.Microsecond)), resend, true},
		"resend, no deadline":       {entry(Unknown, last, func(e *Entry) { e.Deadline = time.Time{} }), resend, true},
	} {
		e := afterLookup(t, row.found, LookupNotFound, row.rules, noon())
		if resends := e.State == Waiting; resends != row.resends || !resends && (e.State != Unknown || !e.InDoubt()) {
			t.Errorf("%s: %s, %s, doubt %t", name, e.State, e.Reason, e.InDoubt())
		}
		if row.resends && (e.Owner != OwnerLedger || e.Reason != ReasonRiskTaken || !e.Due.On(noon()).Equal(noon())) {
			t.Errorf("%s: owner %q, %s, due %v", name, e.Owner, e.Reason, e.Due.On(noon()))
		}
	}
}

// Not found is no proof, so no other provider is tried, and the next unknown call starts a new schedule of lookups.
func TestRecordLookup_ResendStaysAtItsProviderAndIsLookedUpAgain(t *testing.T) {
	r := rules(ContractLookup, onUnknown(Resend), func(r *Rules) { r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1"} })
	e := afterLookup(t, entry(Unknown, notFoundTimes(len(lookupSchedule())-1)), LookupNotFound, r, noon())
	e = stored(Decide(e, trigger(OriginWorker), ready(), r, noon()).Change, noon())
	if e.State != Sending || e.Provider != "mail" {
		t.Fatalf("%s at %s", e.State, e.Provider)
	}
	e = stored(Settle(e, attempt(ResultUnknown, 0), r, noon()), noon())
	if e.State != Unknown || e.LookupsNotFound != 0 || e.NextLookup.On(noon()).Sub(noon()) != lookupSchedule()[0] {
		t.Errorf("%s, %d lookups not found, next %v", e.State, e.LookupsNotFound, e.NextLookup.On(noon()))
	}
}

// The "at most once" guarantee allows the risk of a second send only if it is recorded, and the entry's own reason is
// overwritten by the next claim.
func TestRecordLookup_RiskTakenIsInTheTimeline(t *testing.T) {
	change, _ := RecordLookup(entry(Unknown, notFoundTimes(len(lookupSchedule())-1)), lookup(LookupNotFound, ""), rules(ContractLookup, onUnknown(Resend)), noon())
	if change.Entry.Reason != ReasonRiskTaken || change.Event.Reason != ReasonRiskTaken {
		t.Errorf("the entry says %q, its timeline %q", change.Entry.Reason, change.Event.Reason)
	}
}

func TestRecordLookup_UnansweredIsNotCountedAndBacksOff(t *testing.T) {
	r := rules(ContractLookup)
	now := noon()
	e := entry(Unknown)
	var before time.Duration
	for range 60 {
		e = afterLookup(t, e, LookupUnanswered, r, now)
		wait := e.NextLookup.On(now).Sub(now)
		if e.State != Unknown || e.LookupsNotFound != 0 || e.Reason != ReasonUnanswered || wait < before || wait < lookupSchedule()[0] || wait > time.Hour {
			t.Fatalf("%v after the doubt: %s, %s, counted %d, again in %v after %v", now.Sub(e.DoubtSince), e.State, e.Reason, e.LookupsNotFound, wait, before)
		}
		before, now = wait, e.NextLookup.On(now)
	}
	if before != lookupSchedule()[len(lookupSchedule())-1] {
		t.Errorf("after %v there is a lookup every %v", now.Sub(noon()), before)
	}
	// A clock that stepped back does not bring the next lookup forward.
	e = afterLookup(t, entry(Unknown, markDoubt(-time.Hour)), LookupUnanswered, r, noon())
	if wait := e.NextLookup.On(noon()).Sub(noon()); wait < lookupSchedule()[0] {
		t.Errorf("next lookup in %v", wait)
	}
}

func TestRecordLookup_RecordsTheEvidence(t *testing.T) {
	l := lookup(LookupNotFound, "")
	l.Outcome = Outcome{Status: 404, RequestID: "req-9", Cause: "status"}
	change, _ := RecordLookup(entry(Unknown), l, rules(ContractLookup), noon())
	ev := change.Event
	if ev.Kind != EventLookup || ev.Origin != OriginReconcile || ev.Provider != "mail" || ev.Outcome != l.Outcome ||
		!ev.Started.Equal(l.Started) || !ev.Finished.Equal(l.Finished) || ev.State != Unknown || ev.Reason != ReasonNotFound || ev.AttemptNumber != 0 {
		t.Errorf("recorded as %+v", ev)
	}
	change, _ = RecordLookup(entry(Unknown), lookup(LookupUnanswered, ""), rules(ContractLookup), noon())
	if change.Event.Reason != ReasonLookupUnanswered || change.Event.Kind != EventLookup {
		t.Errorf("recorded as %+v", change.Event)
	}
}

func TestRecordLookup_FoundIsProofInEveryState(t *testing.T) {
	for name, e := range everyState() {
		change, changed := RecordLookup(e, lookup(LookupFound, "found"), rules(ContractLookup), noon())
		if name == "sent" {
			continue
		}
		if !changed || change.Entry.State != Sent || change.Entry.Receipt != "found" || change.Entry.InDoubt() || change.Entry.Check() != nil {
			t.Errorf("%s: changed %t, %s, receipt %q, %v", name, changed, change.Entry.State, change.Entry.Receipt, change.Entry.Check())
		}
		if changed && (change.Event.Reason != ReasonLateAcceptance || change.Event.Kind != EventLookup || change.Event.State != Sent) {
			t.Errorf("%s: recorded as %+v", name, change.Event)
		}
		for _, result := range []LookupResult{LookupNotFound, LookupUnanswered} {
			if _, changed := RecordLookup(e, lookup(result, ""), rules(ContractLookup), noon()); changed != (e.State == Unknown) {
				t.Errorf("%s: result %d: changed %t", name, result, changed)
			}
		}
	}
}

// A receipt of another attempt is recorded: two receipts for one key count as two sends until an operator has
// checked.
func TestRecordLookup_AnotherReceiptIsAPossibleSecondSend(t *testing.T) {
	change, changed := RecordLookup(entry(Sent), lookup(LookupFound, "another"), rules(ContractLookup), noon())
	if !changed || change.Event.Reason != ReasonPossibleSecondSend || change.Entry.Receipt != "receipt" {
		t.Errorf("changed %t: %+v", changed, change.Event)
	}
	for _, same := range []string{"receipt", ""} {
		if _, changed := RecordLookup(entry(Sent), lookup(LookupFound, same), rules(ContractLookup), noon()); changed {
			t.Errorf("receipt %q is recorded, but was known", same)
		}
	}
}

func TestCanLookup_OnlyTheProviderOfTheAttempt(t *testing.T) {
	for name, row := range map[string]struct {
		rules Rules
		can   bool
	}{
		"the provider of the attempt": {rules(ContractLookup), true},
		"another account":             {rules(ContractLookup, bound("mail/2")), false},
		"gone":                        {rules(ContractLookup, boundGone), false},
		"blind":                       {rules(ContractBlind), false},
		"idempotent":                  {rules(ContractIdempotent), false},
		"no schedule":                 {rules(ContractLookup, func(r *Rules) { r.LookupSchedule = nil }), false},
	} {
		held := Settle(entry(Sending, budgetUsed(attempts-1)), attempt(ResultUnknown, 0), row.rules, noon()).Entry
		if row.rules.CanLookup(entry(Unknown)) != row.can || held.State == Unknown && held.NextLookup.IsZero() == row.can {
			t.Errorf("%s: lookup possible %t, scheduled %v", name, row.rules.CanLookup(entry(Unknown)), held.NextLookup)
		}
	}
	unbound := entry(Unknown, func(e *Entry) { e.Provider, e.Fingerprint = "", "" })
	if rules(ContractLookup, boundGone).CanLookup(unbound) {
		t.Error("lookup possible for an entry without a provider")
	}
}

func TestScheduleLookup_AndCancelLookupFollowTheProvider(t *testing.T) {
	e := entry(Unknown, notFoundTimes(1))
	change, changed := ScheduleLookup(e, rules(ContractLookup))
	if wait, _ := change.Entry.NextLookup.Span(); !changed || wait != lookupSchedule()[1] || change.Entry.LookupsNotFound != 1 {
		t.Errorf("scheduled %t, in %v, counted %d", changed, wait, change.Entry.LookupsNotFound)
	}
	scheduled := entry(Unknown, func(e *Entry) { e.NextLookup = At(noon().Add(time.Minute)) })
	for name, row := range map[string]struct {
		found Entry
		rules Rules
	}{
		"all lookups made":   {entry(Unknown, notFoundTimes(len(lookupSchedule()))), rules(ContractLookup)},
		"scheduled already":  {scheduled, rules(ContractLookup)},
		"provider gone":      {e, rules(ContractLookup, boundGone)},
		"another account":    {e, rules(ContractLookup, bound("mail/2"))},
		"nothing in doubt":   {entry(Sent), rules(ContractLookup)},
		"waiting, in doubt":  {entry(Waiting, markDoubt(time.Minute)), rules(ContractLookup)},
		"no lookup contract": {e, rules(ContractBlind)},
	} {
		if change, changed := ScheduleLookup(row.found, row.rules); changed {
			t.Errorf("%s: scheduled for %v", name, change.Entry.NextLookup)
		}
	}
	cancelled := CancelLookup(scheduled, Trigger{Origin: OriginReconcile})
	mustBe(t, cancelled.Entry, StateSummary{Unknown, ClassUnknown, ReasonProviderChange})
	if !cancelled.Entry.NextLookup.IsZero() || cancelled.Event == nil || cancelled.Event.Origin != OriginReconcile || !cancelled.Entry.InDoubt() {
		t.Errorf("%+v, recorded as %+v", cancelled.Entry.NextLookup, cancelled.Event)
	}
}

// An early lookup shortens the time that a provider has to know the message.
func TestRecordLookup_EarlyNotFoundIsRecordedAndNotCounted(t *testing.T) {
	for _, policy := range []OnUnknown{Hold, Resend} {
		found := entry(Unknown, notFoundTimes(len(lookupSchedule())-1), func(e *Entry) { e.NextLookup = At(noon().Add(time.Minute)) })
		l := lookup(LookupNotFound, "")
		l.Early = true
		change, changed := RecordLookup(found, l, rules(ContractLookup, onUnknown(policy)), noon())
		if !changed || change.Entry != found || change.Event.Reason != ReasonNotFound || change.Event.Kind != EventLookup {
			t.Errorf("%s: changed %t, %+v", policy, changed, change)
		}
		l.Result = LookupFound
		if change, changed := RecordLookup(found, l, rules(ContractLookup, onUnknown(policy)), noon()); !changed || change.Entry.State != Sent {
			t.Errorf("%s: found early, changed %t, %s", policy, changed, change.Entry.State)
		}
	}
}
