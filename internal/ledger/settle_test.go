package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// settleCase is one case of Settle.
type settleCase struct {
	name   string
	held   Entry
	result Result
	rules  Rules
	wait   time.Duration
	want   StateSummary
}

func TestSettle_EveryOutcome(t *testing.T) {
	const wait = 10 * time.Second
	r, last := rules(ContractBlind), budgetUsed(attempts-1)
	inDoubt := markDoubt(time.Minute)
	rows := []settleCase{
		{"accepted", entry(Sending), ResultAccepted, r, wait, StateSummary{Sent, "", ReasonAccepted}},
		{"refused", entry(Sending), ResultRefused, r, wait, StateSummary{Dead, ClassPermanent, ReasonRefused}},
		{"gone", entry(Sending), ResultGone, r, wait, StateSummary{Dead, ClassRecipient, ReasonGone}},
		{"credentials", entry(Sending), ResultCredentials, r, wait, StateSummary{Waiting, ClassCredentials, ReasonCredentials}},
		{"credentials, the last of the budget", entry(Sending, last), ResultCredentials, r, wait, StateSummary{Waiting, ClassCredentials, ReasonCredentials}},
		{"throttled", entry(Sending), ResultThrottled, r, wait, StateSummary{Waiting, ClassThrottled, ReasonThrottled}},
		{"throttled, budget spent", entry(Sending, last), ResultThrottled, r, wait, StateSummary{Dead, ClassExhausted, ReasonBudgetSpent}},
		{"unreachable", entry(Sending), ResultUnreachable, r, wait, StateSummary{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"deferred", entry(Sending), ResultDeferred, r, wait, StateSummary{Waiting, ClassRecipient, ReasonDeferred}},
		{"deferred, budget spent", entry(Sending, last), ResultDeferred, r, wait, StateSummary{Dead, ClassExhausted, ReasonBudgetSpent}},
		{"deferred up to the deadline", entry(Sending), ResultDeferred, r, 2 * time.Hour, StateSummary{Dropped, ClassRecipient, ReasonExpired}},
		{"in doubt, deferred", entry(Sending, inDoubt), ResultDeferred, rules(ContractIdempotent), wait, StateSummary{Waiting, ClassRecipient, ReasonDeferred}},
		{"cancelled, deferred", entry(Sending, cancelRequested), ResultDeferred, r, wait, StateSummary{Dropped, ClassRecipient, ReasonCancelled}},
		{"unreachable, budget spent", entry(Sending, last), ResultUnreachable, r, wait, StateSummary{Dead, ClassExhausted, ReasonBudgetSpent}},
		{"not called", entry(Sending, last), ResultNotCalled, r, wait, StateSummary{Waiting, "", ReasonNotCalled}},

		{"unknown, idempotent", entry(Sending), ResultUnknown, rules(ContractIdempotent), wait, StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		{"unknown, idempotent, budget spent", entry(Sending, last), ResultUnknown, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassUnknown, ReasonBudgetSpent}},
		{"unknown, idempotent, no wait fits the window", entry(Sending), ResultUnknown, rules(ContractIdempotent), window - margin - 10*time.Second, StateSummary{Unknown, ClassUnknown, ReasonWindowEnded}},
		{"unknown, lookup", entry(Sending), ResultUnknown, rules(ContractLookup), wait, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, lookup: resend waits for the answer", entry(Sending), ResultUnknown, rules(ContractLookup, onUnknown(Resend)), wait, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, hold", entry(Sending), ResultUnknown, r, wait, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, no policy holds", entry(Sending), ResultUnknown, rules(ContractBlind, onUnknown("")), wait, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, assume_sent", entry(Sending), ResultUnknown, rules(ContractBlind, onUnknown(AssumeSent)), wait, StateSummary{Sent, "", ReasonAssumed}},
		{"unknown, blind, resend", entry(Sending), ResultUnknown, rules(ContractBlind, onUnknown(Resend)), wait, StateSummary{Waiting, ClassUnknown, ReasonRiskTaken}},
		{"unknown, account changed", entry(Sending), ResultUnknown, rules(ContractIdempotent, bound("mail/2")), wait, StateSummary{Unknown, ClassUnknown, ReasonProviderChange}},
		{"unknown, account changed, resend", entry(Sending), ResultUnknown, rules(ContractBlind, onUnknown(Resend), bound("mail/2")), wait, StateSummary{Unknown, ClassUnknown, ReasonProviderChange}},
		{"unknown, provider gone", entry(Sending), ResultUnknown, rules(ContractBlind, boundGone), wait, StateSummary{Waiting, ClassUnknown, ReasonProviderGone}},
		{"an undefined result is unknown", entry(Sending), Result(200), r, wait, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},

		{"throttled past the deadline", entry(Sending), ResultThrottled, r, 2 * time.Hour, StateSummary{Dropped, ClassThrottled, ReasonExpired}},
		{"unreachable up to the deadline", entry(Sending), ResultUnreachable, r, 2 * time.Hour, StateSummary{Dropped, ClassUnreachable, ReasonExpired}},
		{"credentials past the deadline", entry(Sending), ResultCredentials, r, 3 * time.Hour, StateSummary{Dropped, ClassCredentials, ReasonExpired}},
		{"a wait just inside the deadline", entry(Sending), ResultUnreachable, r, 2*time.Hour - time.Microsecond, StateSummary{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"a wait without end", entry(Sending), ResultThrottled, r, math.MaxInt64, StateSummary{Dropped, ClassThrottled, ReasonExpired}},
		{"unknown past the deadline", entry(Sending, deadlineIn(wait)), ResultUnknown, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassUnknown, ReasonExpired}},

		{"in doubt, accepted", entry(Sending, inDoubt), ResultAccepted, rules(ContractIdempotent), wait, StateSummary{Sent, "", ReasonAccepted}},
		{"in doubt, refused", entry(Sending, inDoubt), ResultRefused, rules(ContractIdempotent), wait, StateSummary{Unknown, "", ReasonRefused}},
		{"in doubt, gone", entry(Sending, inDoubt), ResultGone, rules(ContractIdempotent), wait, StateSummary{Unknown, "", ReasonGone}},
		{"in doubt, unreachable", entry(Sending, inDoubt), ResultUnreachable, rules(ContractIdempotent), wait, StateSummary{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"in doubt, budget spent", entry(Sending, inDoubt, last), ResultUnreachable, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassUnreachable, ReasonBudgetSpent}},
		{"in doubt, past the deadline", entry(Sending, inDoubt, deadlineIn(wait)), ResultThrottled, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassThrottled, ReasonExpired}},
		{"in doubt, the wait outlasts the window", entry(Sending, markDoubt(window-margin-wait)), ResultThrottled, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassThrottled, ReasonWindowEnded}},
		{"in doubt, the wait ends inside the window", entry(Sending, markDoubt(window-margin-wait-time.Microsecond)), ResultThrottled, rules(ContractIdempotent), wait, StateSummary{Waiting, ClassThrottled, ReasonThrottled}},
		{"in doubt, not called", entry(Sending, inDoubt), ResultNotCalled, rules(ContractIdempotent), wait, StateSummary{Waiting, "", ReasonNotCalled}},

		{"cancelled, accepted", entry(Sending, cancelRequested), ResultAccepted, r, wait, StateSummary{Sent, "", ReasonAccepted}},
		{"cancelled, refused", entry(Sending, cancelRequested), ResultRefused, r, wait, StateSummary{Dropped, "", ReasonCancelled}},
		{"cancelled, gone", entry(Sending, cancelRequested), ResultGone, r, wait, StateSummary{Dropped, "", ReasonCancelled}},
		{"cancelled, throttled", entry(Sending, cancelRequested), ResultThrottled, r, wait, StateSummary{Dropped, ClassThrottled, ReasonCancelled}},
		{"cancelled, unreachable, budget spent", entry(Sending, cancelRequested, last), ResultUnreachable, r, wait, StateSummary{Dropped, ClassUnreachable, ReasonCancelled}},
		{"cancelled, credentials", entry(Sending, cancelRequested), ResultCredentials, r, wait, StateSummary{Dropped, ClassCredentials, ReasonCancelled}},
		{"cancelled, not called", entry(Sending, cancelRequested), ResultNotCalled, r, wait, StateSummary{Dropped, "", ReasonCancelled}},
		{"cancelled, unknown, idempotent", entry(Sending, cancelRequested), ResultUnknown, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, unknown, resend", entry(Sending, cancelRequested), ResultUnknown, rules(ContractBlind, onUnknown(Resend)), wait, StateSummary{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, unknown, provider gone", entry(Sending, cancelRequested), ResultUnknown, rules(ContractBlind, boundGone), wait, StateSummary{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, in doubt, unreachable", entry(Sending, cancelRequested, inDoubt), ResultUnreachable, rules(ContractIdempotent), wait, StateSummary{Unknown, ClassUnreachable, ReasonCancelled}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			mustBe(t, Settle(row.held, attempt(row.result, row.wait), row.rules, noon()).Entry, row.want)
		})
	}
}

func TestSettle_CountsAndChargesAttempts(t *testing.T) {
	for result, want := range map[Result]struct{ attempts, budgetUsed int }{
		ResultUnknown: {1, 1}, ResultAccepted: {1, 1}, ResultRefused: {1, 1}, ResultGone: {1, 1},
		ResultThrottled: {1, 1}, ResultUnreachable: {1, 1}, ResultDeferred: {1, 1},
		ResultCredentials: {1, 0}, // an error of the configuration, not charged
		ResultNotCalled:   {0, 0}, // nothing was dialled
	} {
		change := Settle(entry(Sending), attempt(result, time.Second), rules(ContractIdempotent), noon())
		if e := change.Entry; e.Attempts != want.attempts || e.BudgetUsed != want.budgetUsed {
			t.Errorf("%s: %d attempts, %d spent; want %+v", result, e.Attempts, e.BudgetUsed, want)
		}
		if change.Event.AttemptNumber != want.attempts {
			t.Errorf("%s: attempt number %d", result, change.Event.AttemptNumber)
		}
	}
}

func TestSettle_CredentialsUseNoBudget(t *testing.T) {
	e := entry(Sending, budgetUsed(attempts-1), func(e *Entry) { e.Deadline = noon().Add(100 * time.Hour) })
	for range 1000 {
		waits := Settle(e, attempt(ResultCredentials, time.Minute), rules(ContractBlind), noon()).Entry
		if waits.State != Waiting {
			t.Fatalf("after %d attempts it is %s", waits.Attempts, waits.State)
		}
		e = entry(Sending, budgetUsed(waits.BudgetUsed), deadlineIn(100*time.Hour))
		e.Attempts = waits.Attempts
	}
	if e.Attempts != attempts-1+1000 {
		t.Errorf("%d attempts: each call is counted, charged or not", e.Attempts)
	}
}

func TestSettle_DoubtIsKeptAndDatedByTheFirstAttempt(t *testing.T) {
	r := rules(ContractIdempotent, func(r *Rules) { r.MaxAttempts = 100 })
	now, first := noon(), noon().Add(-10*time.Second)
	e := entry(Sending)
	for _, result := range []Result{ResultUnknown, ResultUnreachable, ResultThrottled, ResultUnknown, ResultCredentials, ResultNotCalled, ResultUnknown} {
		e = stored(Settle(e, attempt(result, time.Minute), r, now), now)
		if e.State != Waiting || !e.DoubtSince.Equal(first) {
			t.Fatalf("after %s: %s, in doubt since %v, want %v", result, e.State, e.DoubtSince, first)
		}
		now = e.Due.On(now)
		e = stored(Decide(e, trigger(OriginPush), ready(), r, now).Change, now)
		if e.State != Sending || !e.DoubtSince.Equal(first) {
			t.Fatalf("claimed again: %s, in doubt since %v", e.State, e.DoubtSince)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(lease)
	e = stored(Decide(e, trigger(OriginPush), ready(), r, now).Change, now)
	if e.LeaseExpirations != 1 || !e.DoubtSince.Equal(first) {
		t.Errorf("a lease expiration moved the doubt to %v", e.DoubtSince)
	}
	e = Settle(entry(Sending, markDoubt(time.Minute)), attempt(ResultAccepted, 0), r, now).Entry
	if e.InDoubt() {
		t.Error("accepted, and still in doubt")
	}
}

func TestExpireLease_DoubtIsDatedByTheStartOfTheLease(t *testing.T) {
	late := noon().Add(10 * time.Minute)
	for _, kind := range []ContractKind{ContractBlind, ContractIdempotent, ContractLookup} {
		e := ExpireLease(entry(Sending), Trigger{}, rules(kind), late).Entry
		if want := noon().Add(-10 * time.Second); !e.DoubtSince.Equal(want) {
			t.Errorf("%s: in doubt since %v, want %v", kind, e.DoubtSince, want)
		}
	}
}

func TestExpireLease_IsAnUnknownCallAndCountedApart(t *testing.T) {
	e := entry(Sending, leaseExpired, budgetUsed(2))
	change := Decide(e, trigger(OriginWorker), ready(), rules(ContractBlind), noon()).Change
	if got := change.Entry; got.LeaseExpirations != 1 || got.Attempts != 2 || got.BudgetUsed != 2 {
		t.Errorf("%d lease expirations, %d attempts, %d spent", got.LeaseExpirations, got.Attempts, got.BudgetUsed)
	}
	ev := change.Event
	if ev == nil || ev.Kind != EventLeaseExpired || ev.Holder != "holder" || ev.Provider != "mail" ||
		ev.Outcome.Result != ResultUnknown || !ev.Started.Equal(noon().Add(-lease)) || !ev.Finished.Equal(noon()) {
		t.Errorf("the lease expiration is recorded as %+v", ev)
	}
}

func TestExpireLease_TooManyLeadToAnOperatorWhateverTheContract(t *testing.T) {
	for _, r := range []Rules{rules(ContractIdempotent), rules(ContractLookup), rules(ContractBlind), rules(ContractBlind, onUnknown(Resend)), rules(ContractBlind, onUnknown(AssumeSent))} {
		e := ExpireLease(entry(Sending, leaseExpired, func(e *Entry) { e.LeaseExpirations = maxExpirations - 1 }), Trigger{}, r, noon()).Entry
		mustBe(t, e, StateSummary{Unknown, ClassUnknown, ReasonTooManyLeaseExpirations})
	}
	e := ExpireLease(entry(Sending, leaseExpired, func(e *Entry) { e.LeaseExpirations = maxExpirations - 2 }), Trigger{}, rules(ContractIdempotent), noon()).Entry
	mustBe(t, e, StateSummary{Waiting, ClassUnknown, ReasonRepeatable})
}

func TestSettle_ResendTakesTheRiskOnlyIfACallCanFollow(t *testing.T) {
	r := rules(ContractBlind, onUnknown(Resend))
	unknown := attempt(ResultUnknown, 10*time.Second)

	change := Settle(entry(Sending, budgetUsed(attempts-2)), unknown, r, noon())
	mustBe(t, change.Entry, StateSummary{Waiting, ClassUnknown, ReasonRiskTaken})
	if change.Entry.InDoubt() || change.Event.Reason != ReasonRiskTaken {
		t.Errorf("doubt %t, recorded as %q", change.Entry.InDoubt(), change.Event.Reason)
	}
	for name, held := range map[string]Entry{
		"budget spent":      entry(Sending, budgetUsed(attempts-1)),
		"past the deadline": entry(Sending, deadlineIn(10*time.Second)),
		"cancelled":         entry(Sending, cancelRequested),
	} {
		if e := Settle(held, unknown, r, noon()).Entry; e.State != Unknown || !e.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	if e := ExpireLease(entry(Sending, leaseExpired, deadlineIn(0)), Trigger{}, r, noon()).Entry; e.State != Unknown || !e.InDoubt() {
		t.Errorf("lease expired at the deadline: %s, doubt %t", e.State, e.InDoubt())
	}
}

func TestSettle_RecordsTheEvidence(t *testing.T) {
	a := attempt(ResultThrottled, time.Second)
	a.Outcome.Status, a.Outcome.Code, a.Outcome.RequestID = 429, "slow_down", "req-9"
	ev := Settle(entry(Sending, budgetUsed(1)), a, rules(ContractBlind), noon()).Event
	if ev.Kind != EventAttempt || ev.AttemptNumber != 2 || ev.Holder != "holder" || ev.Outcome != a.Outcome ||
		ev.State != Waiting || ev.Reason != ReasonThrottled || ev.MessageID != "m-1" || ev.Origin != OriginPush {
		t.Errorf("recorded as %+v", ev)
	}
	if ev := Settle(entry(Sending), attempt(ResultNotCalled, 0), rules(ContractBlind), noon()).Event; ev.Kind != EventDecision || ev.AttemptNumber != 0 {
		t.Errorf("not called is recorded as %+v", ev)
	}
}

// The code is the provider's own for the last failure: a sent entry has none, and an attempt without a call does not
// change it.
func TestSettle_KeepsTheCodeOfTheLastFailure(t *testing.T) {
	for result, want := range map[Result]string{
		ResultAccepted: "", ResultRefused: "new", ResultGone: "new", ResultCredentials: "new", ResultThrottled: "new",
		ResultUnreachable: "new", ResultDeferred: "new", ResultUnknown: "new", ResultNotCalled: "old",
	} {
		found := entry(Sending, func(e *Entry) { e.Code, e.Redrives = "old", 2 })
		a := attempt(result, time.Second)
		a.Outcome.Code = "new"
		e := Settle(found, a, rules(ContractBlind), noon()).Entry
		if result != ResultNotCalled {
			if a.Outcome.Code = ""; Settle(found, a, rules(ContractBlind), noon()).Entry.Code != "" {
				t.Errorf("%s: a failure without a code keeps the one before", result)
			}
		}
		if e.Code != want || e.Redrives != 2 {
			t.Errorf("%s: code %q, want %q; %d redrives", result, e.Code, want, e.Redrives)
		}
		if late := SettleLate(e, attempt(ResultAccepted, 0)).Entry; late.Code != "" || late.Redrives != 2 {
			t.Errorf("%s, then accepted: code %q, %d redrives", result, late.Code, late.Redrives)
		}
	}
	a := attempt(ResultUnknown, 0)
	a.Outcome.Code = "new"
	if e := Settle(entry(Sending), a, rules(ContractBlind, onUnknown(AssumeSent)), noon()).Entry; e.State != Sent || e.Code != "" {
		t.Errorf("assumed: %s with code %q", e.State, e.Code)
	}
}

func TestSettle_AcceptedWithoutAReceiptIsRecorded(t *testing.T) {
	a := attempt(ResultAccepted, 0)
	a.Outcome.Receipt = ""
	for name, e := range map[string]Entry{
		"settled": Settle(entry(Sending), a, rules(ContractBlind), noon()).Entry,
		"late":    SettleLate(entry(Unknown), a).Entry,
		"assumed": SettleLate(entry(Sent, assumed), a).Entry,
	} {
		if e.ReceiptMissing != MissingUnreadable || e.Check() != nil {
			t.Errorf("%s: missing %q, %v", name, e.ReceiptMissing, e.Check())
		}
	}
}

func TestSettle_HonoursACancelDuringTheCall(t *testing.T) {
	held := entry(Sending)
	marked, _, _ := Cancel(held, trigger(OriginAPI))
	now := stored(marked, noon())
	if now.Holder != held.Holder {
		t.Fatal("the mark took the lease from its holder")
	}
	mustBe(t, Settle(now, attempt(ResultUnreachable, time.Second), rules(ContractBlind), noon()).Entry,
		StateSummary{Dropped, ClassUnreachable, ReasonCancelled})
}

func TestSettleLate_AcceptanceMakesAnyEntrySent(t *testing.T) {
	for name, e := range everyState() {
		change := SettleLate(e, attempt(ResultAccepted, 0))
		if change.Entry.State != Sent || change.Entry.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, change.Entry.State, change.Entry.InDoubt())
		}
		if err := change.Entry.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "sent" && (change.Entry.Receipt != "receipt-2" || change.Event.Reason != ReasonLateAcceptance) {
			t.Errorf("%s: receipt %q, recorded as %q", name, change.Entry.Receipt, change.Event.Reason)
		}
		if change.Event.Kind != EventLate || change.Event.State != Sent || change.Event.Holder != "holder" {
			t.Errorf("%s: recorded as %+v", name, change.Event)
		}
	}
}

func TestSettleLate_FailureMovesNothing(t *testing.T) {
	for name, e := range everyState() {
		for _, result := range Results() {
			if result == ResultAccepted {
				continue
			}
			change := SettleLate(e, attempt(result, time.Second))
			if change.Entry != e {
				t.Errorf("%s, late %s: changed to %+v", name, result, change.Entry)
			}
			if ev := change.Event; ev.Kind != EventLate || ev.Reason != ReasonLateFailure || ev.State != e.State || ev.Outcome.Result != result {
				t.Errorf("%s, late %s: recorded as %+v", name, result, ev)
			}
		}
	}
}

func TestSettleLate_SecondAcceptanceIsAPossibleSecondSend(t *testing.T) {
	accepted := func(receipt string) Attempt {
		a := attempt(ResultAccepted, 0)
		a.Outcome.Receipt = receipt
		return a
	}
	unreadable := func(e *Entry) { e.Receipt, e.ReceiptMissing = "", MissingUnreadable }
	for name, row := range map[string]struct {
		found   Entry
		receipt string
		reason  Reason
	}{
		"another receipt":      {entry(Sent), "receipt-2", ReasonPossibleSecondSend},
		"no receipt":           {entry(Sent), "", ReasonPossibleSecondSend},
		"both without receipt": {entry(Sent, unreadable), "", ReasonPossibleSecondSend},
		"the first unreadable": {entry(Sent, unreadable), "receipt-2", ReasonPossibleSecondSend},
		"the same receipt":     {entry(Sent), "receipt", ReasonReplayed},
		"assumed":              {entry(Sent, assumed), "receipt-2", ReasonLateAcceptance},
	} {
		change := SettleLate(row.found, accepted(row.receipt))
		if change.Event.Reason != row.reason {
			t.Errorf("%s: recorded as %q, want %q", name, change.Event.Reason, row.reason)
		}
		if row.reason != ReasonLateAcceptance && change.Entry != row.found {
			t.Errorf("%s: the first receipt was replaced: %+v", name, change.Entry)
		}
	}
}

// Only another attempt makes a second send. The send that an operator resolved as sent is the same one, so its late
// proof must not be recorded as a possible second send.
func TestSettleLate_ProofOfAResolvedEntryIsNoSecondSend(t *testing.T) {
	e := entry(Sent, func(e *Entry) { e.Receipt, e.ReceiptMissing = "", MissingResolved })
	if change := SettleLate(e, attempt(ResultAccepted, 0)); change.Event.Reason != ReasonLateAcceptance {
		t.Errorf("recorded as %q", change.Event.Reason)
	}
}
