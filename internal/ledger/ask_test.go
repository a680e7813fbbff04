package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// asked is an entry after its provider answered, as it is stored.
func asked(t *testing.T, e Entry, f Finding, r Rules, now time.Time) Entry {
	t.Helper()
	change, news := Asked(e, question(f, ""), r, now)
	if !news {
		t.Fatalf("%s, asked %d times: the answer is nothing", e.State, e.Asked)
	}
	return stored(change, now)
}

func TestAProviderIsAskedOnItsScheduleAndNoLonger(t *testing.T) {
	r := rules(Lookup)
	now := noon()
	e := stored(Settle(entry(Sending), attempt(ResultUnknown, 0), r, now), now)
	for n, wait := range asks() {
		if got := e.AskAt.On(now).Sub(now); e.State != Unknown || got != wait {
			t.Fatalf("question %d: %s, asked in %v, want %v", n+1, e.State, got, wait)
		}
		now = e.AskAt.On(now)
		e = asked(t, e, NotFound, r, now)
	}
	mustStand(t, e, standing{Unknown, ClassUnknown, ReasonNotFound})
	if !e.AskAt.IsZero() || e.Asked != len(asks()) || !e.InDoubt() {
		t.Errorf("asked %d times, next %v, doubt %t", e.Asked, e.AskAt, e.InDoubt())
	}
}

func TestNotFoundLeadsToAResendOnlyWhereThePolicySaysSo(t *testing.T) {
	last := askedBefore(len(asks()) - 1)
	resend := rules(Lookup, onUnknown(Resend))
	for name, row := range map[string]struct {
		found   Entry
		rules   Rules
		resends bool
	}{
		"hold":                      {entry(Unknown, last), rules(Lookup), false},
		"assume_sent":               {entry(Unknown, last), rules(Lookup, onUnknown(AssumeSent)), false},
		"resend":                    {entry(Unknown, last), resend, true},
		"resend, not the last":      {entry(Unknown), resend, false},
		"resend, cancelled":         {entry(Unknown, last, cancelAsked), resend, false},
		"resend, budget spent":      {entry(Unknown, last, spent(attempts)), resend, false},
		"resend, one call left":     {entry(Unknown, last, spent(attempts-1)), resend, true},
		"resend, past the deadline": {entry(Unknown, last, deadlineIn(0)), resend, false},
		"resend, just in time":      {entry(Unknown, last, deadlineIn(time.Microsecond)), resend, true},
		"resend, no deadline":       {entry(Unknown, last, func(e *Entry) { e.Deadline = time.Time{} }), resend, true},
	} {
		e := asked(t, row.found, NotFound, row.rules, noon())
		if resends := e.State == Waiting; resends != row.resends || !resends && (e.State != Unknown || !e.InDoubt()) {
			t.Errorf("%s: %s, %s, doubt %t", name, e.State, e.Reason, e.InDoubt())
		}
		if row.resends && (e.Owner != OwnerLedger || e.Reason != ReasonRiskTaken || !e.Due.On(noon()).Equal(noon())) {
			t.Errorf("%s: owner %q, %s, due %v", name, e.Owner, e.Reason, e.Due.On(noon()))
		}
	}
}

// Not found is no proof, so another provider is not tried, and the next unknown call is asked about anew.
func TestAResendAfterNotFoundStaysAtItsProviderAndIsAskedAboutAnew(t *testing.T) {
	r := rules(Lookup, onUnknown(Resend), func(r *Rules) { r.Channel = Route{Provider: "second", Fingerprint: "second/1"} })
	e := asked(t, entry(Unknown, askedBefore(len(asks())-1)), NotFound, r, noon())
	e = stored(Meet(e, visit(OriginWorker), ready(), r, noon()).Change, noon())
	if e.State != Sending || e.Provider != "mail" {
		t.Fatalf("%s at %s", e.State, e.Provider)
	}
	e = stored(Settle(e, attempt(ResultUnknown, 0), r, noon()), noon())
	if e.State != Unknown || e.Asked != 0 || e.AskAt.On(noon()).Sub(noon()) != asks()[0] {
		t.Errorf("%s, asked %d times, next %v", e.State, e.Asked, e.AskAt.On(noon()))
	}
}

// P1 lets a policy take the risk of a second send where the ledger says so, and the entry's own word for it
// is gone with the next claim.
func TestARiskTakenAfterNotFoundStandsInTheTimeline(t *testing.T) {
	change, _ := Asked(entry(Unknown, askedBefore(len(asks())-1)), question(NotFound, ""), rules(Lookup, onUnknown(Resend)), noon())
	if change.Entry.Reason != ReasonRiskTaken || change.Event.Reason != ReasonRiskTaken {
		t.Errorf("the entry says %q, its timeline %q", change.Entry.Reason, change.Event.Reason)
	}
}

func TestAnUnansweredQuestionDoesNotCountAndComesBackLaterAndLater(t *testing.T) {
	r := rules(Lookup)
	now := noon()
	e := entry(Unknown)
	var before time.Duration
	for range 60 {
		e = asked(t, e, Unanswered, r, now)
		wait := e.AskAt.On(now).Sub(now)
		if e.State != Unknown || e.Asked != 0 || e.Reason != ReasonUnanswered || wait < before || wait < asks()[0] || wait > time.Hour {
			t.Fatalf("%v after the doubt: %s, %s, counted %d, again in %v after %v", now.Sub(e.DoubtSince), e.State, e.Reason, e.Asked, wait, before)
		}
		before, now = wait, e.AskAt.On(now)
	}
	if before != asks()[len(asks())-1] {
		t.Errorf("after %v it is asked every %v", now.Sub(noon()), before)
	}
	// A clock that stepped back asks no sooner.
	e = asked(t, entry(Unknown, doubted(-time.Hour)), Unanswered, r, noon())
	if wait := e.AskAt.On(noon()).Sub(noon()); wait < asks()[0] {
		t.Errorf("asked again in %v", wait)
	}
}

func TestEachAnswerIsToldWithItsEvidence(t *testing.T) {
	q := question(NotFound, "")
	q.Outcome = Outcome{Status: 404, RequestID: "req-9", Cause: "status"}
	change, _ := Asked(entry(Unknown), q, rules(Lookup), noon())
	ev := change.Event
	if ev.Kind != EventLookup || ev.Origin != OriginReconcile || ev.Provider != "mail" || ev.Outcome != q.Outcome ||
		!ev.Started.Equal(q.Started) || !ev.Finished.Equal(q.Finished) || ev.State != Unknown || ev.Reason != ReasonNotFound || ev.Number != 0 {
		t.Errorf("told as %+v", ev)
	}
	change, _ = Asked(entry(Unknown), question(Unanswered, ""), rules(Lookup), noon())
	if change.Event.Reason != ReasonUnansweredYet || change.Event.Kind != EventLookup {
		t.Errorf("told as %+v", change.Event)
	}
}

func TestWhatALookupFindsIsProofInEveryState(t *testing.T) {
	for name, e := range everywhere() {
		change, news := Asked(e, question(Found, "found"), rules(Lookup), noon())
		if name == "sent" {
			continue
		}
		if !news || change.Entry.State != Sent || change.Entry.Receipt != "found" || change.Entry.InDoubt() || change.Entry.Check() != nil {
			t.Errorf("%s: news %t, %s, receipt %q, %v", name, news, change.Entry.State, change.Entry.Receipt, change.Entry.Check())
		}
		if news && (change.Event.Reason != ReasonLateAcceptance || change.Event.Kind != EventLookup || change.Event.State != Sent) {
			t.Errorf("%s: told as %+v", name, change.Event)
		}
		for _, f := range []Finding{NotFound, Unanswered} {
			if _, news := Asked(e, question(f, ""), rules(Lookup), noon()); news != (e.State == Unknown) {
				t.Errorf("%s: finding %d is news %t", name, f, news)
			}
		}
	}
}

// Were it sent already by another attempt, it is recorded: two receipts for one key are two sends until
// somebody looks.
func TestALookupThatFindsAnotherReceiptIsAPossibleSecondSend(t *testing.T) {
	change, news := Asked(entry(Sent), question(Found, "another"), rules(Lookup), noon())
	if !news || change.Event.Reason != ReasonPossibleSecondSend || change.Entry.Receipt != "receipt" {
		t.Errorf("news %t: %+v", news, change.Event)
	}
	for _, same := range []string{"receipt", ""} {
		if _, news := Asked(entry(Sent), question(Found, same), rules(Lookup), noon()); news {
			t.Errorf("receipt %q is told, and is what was known", same)
		}
	}
}

func TestOnlyTheProviderOfThenCanBeAsked(t *testing.T) {
	for name, row := range map[string]struct {
		rules Rules
		can   bool
	}{
		"the one of then":    {rules(Lookup), true},
		"another account":    {rules(Lookup, bound("mail/2")), false},
		"gone":               {rules(Lookup, boundGone), false},
		"blind":              {rules(Blind), false},
		"idempotent":         {rules(Idempotent), false},
		"nothing to ask for": {rules(Lookup, func(r *Rules) { r.Asks = nil }), false},
	} {
		held := Settle(entry(Sending, spent(attempts-1)), attempt(ResultUnknown, 0), row.rules, noon()).Entry
		if row.rules.CanAsk(entry(Unknown)) != row.can || held.State == Unknown && held.AskAt.IsZero() == row.can {
			t.Errorf("%s: can be asked %t, planned %v", name, row.rules.CanAsk(entry(Unknown)), held.AskAt)
		}
	}
	unbound := entry(Unknown, func(e *Entry) { e.Provider, e.Fingerprint = "", "" })
	if rules(Lookup, boundGone).CanAsk(unbound) {
		t.Error("nobody can be asked about what went nowhere")
	}
}

func TestQuestionsAreArmedOnceTheirProviderIsBackAndDisarmedWithoutIt(t *testing.T) {
	e := entry(Unknown, askedBefore(1))
	change, news := Arm(e, rules(Lookup))
	if wait, _ := change.Entry.AskAt.Span(); !news || wait != asks()[1] || change.Entry.Asked != 1 {
		t.Errorf("armed %t, in %v, counted %d", news, wait, change.Entry.Asked)
	}
	planned := entry(Unknown, func(e *Entry) { e.AskAt = At(noon().Add(time.Minute)) })
	for name, row := range map[string]struct {
		found Entry
		rules Rules
	}{
		"asked to the end":   {entry(Unknown, askedBefore(len(asks()))), rules(Lookup)},
		"planned already":    {planned, rules(Lookup)},
		"the provider gone":  {e, rules(Lookup, boundGone)},
		"another account":    {e, rules(Lookup, bound("mail/2"))},
		"nothing in doubt":   {entry(Sent), rules(Lookup)},
		"waiting, in doubt":  {entry(Waiting, doubted(time.Minute)), rules(Lookup)},
		"nobody to be asked": {e, rules(Blind)},
	} {
		if change, news := Arm(row.found, row.rules); news {
			t.Errorf("%s: armed for %v", name, change.Entry.AskAt)
		}
	}
	disarmed := Disarm(planned, Visit{Origin: OriginReconcile})
	mustStand(t, disarmed.Entry, standing{Unknown, ClassUnknown, ReasonProviderChange})
	if !disarmed.Entry.AskAt.IsZero() || disarmed.Event == nil || disarmed.Event.Origin != OriginReconcile || !disarmed.Entry.InDoubt() {
		t.Errorf("%+v, told as %+v", disarmed.Entry.AskAt, disarmed.Event)
	}
}

// Whoever asks before the time shortens the time that a provider has to know.
func TestNotFoundBeforeItsTimeIsToldAndNotCounted(t *testing.T) {
	for _, policy := range []OnUnknown{Hold, Resend} {
		found := entry(Unknown, askedBefore(len(asks())-1), func(e *Entry) { e.AskAt = At(noon().Add(time.Minute)) })
		q := question(NotFound, "")
		q.Early = true
		change, news := Asked(found, q, rules(Lookup, onUnknown(policy)), noon())
		if !news || change.Entry != found || change.Event.Reason != ReasonNotFound || change.Event.Kind != EventLookup {
			t.Errorf("%s: news %t, %+v", policy, news, change)
		}
		q.Finding = Found
		if change, news := Asked(found, q, rules(Lookup, onUnknown(policy)), noon()); !news || change.Entry.State != Sent {
			t.Errorf("%s: found early, news %t, %s", policy, news, change.Entry.State)
		}
	}
}
