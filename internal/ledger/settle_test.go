package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// settling is one row of what an outcome settles to.
type settling struct {
	name   string
	held   Entry
	result Result
	rules  Rules
	wait   time.Duration
	want   standing
}

func TestWhatAnOutcomeSettlesTo(t *testing.T) {
	const wait = 10 * time.Second
	r, last := rules(Blind), spent(attempts-1)
	inDoubt := doubted(time.Minute)
	rows := []settling{
		{"accepted", entry(Sending), ResultAccepted, r, wait, standing{Sent, "", ReasonAccepted}},
		{"refused", entry(Sending), ResultRefused, r, wait, standing{Dead, ClassPermanent, ReasonRefused}},
		{"gone", entry(Sending), ResultGone, r, wait, standing{Dead, ClassRecipient, ReasonGone}},
		{"credentials", entry(Sending), ResultCredentials, r, wait, standing{Waiting, ClassCredentials, ReasonCredentials}},
		{"credentials, the last of the budget", entry(Sending, last), ResultCredentials, r, wait, standing{Waiting, ClassCredentials, ReasonCredentials}},
		{"throttled", entry(Sending), ResultThrottled, r, wait, standing{Waiting, ClassThrottled, ReasonThrottled}},
		{"throttled, budget spent", entry(Sending, last), ResultThrottled, r, wait, standing{Dead, ClassExhausted, ReasonBudgetSpent}},
		{"unreachable", entry(Sending), ResultUnreachable, r, wait, standing{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"unreachable, budget spent", entry(Sending, last), ResultUnreachable, r, wait, standing{Dead, ClassExhausted, ReasonBudgetSpent}},
		{"not called", entry(Sending, last), ResultNotCalled, r, wait, standing{Waiting, "", ReasonNotCalled}},

		{"unknown, idempotent", entry(Sending), ResultUnknown, rules(Idempotent), wait, standing{Waiting, ClassUnknown, ReasonRepeatable}},
		{"unknown, idempotent, budget spent", entry(Sending, last), ResultUnknown, rules(Idempotent), wait, standing{Unknown, ClassUnknown, ReasonBudgetSpent}},
		{"unknown, idempotent, no wait fits the window", entry(Sending), ResultUnknown, rules(Idempotent), window - margin - 10*time.Second, standing{Unknown, ClassUnknown, ReasonWindowEnded}},
		{"unknown, lookup", entry(Sending), ResultUnknown, rules(Lookup), wait, standing{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, lookup: resend waits for the answer", entry(Sending), ResultUnknown, rules(Lookup, onUnknown(Resend)), wait, standing{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, hold", entry(Sending), ResultUnknown, r, wait, standing{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, no policy holds", entry(Sending), ResultUnknown, rules(Blind, onUnknown("")), wait, standing{Unknown, ClassUnknown, ReasonUnanswered}},
		{"unknown, blind, assume_sent", entry(Sending), ResultUnknown, rules(Blind, onUnknown(AssumeSent)), wait, standing{Sent, "", ReasonAssumed}},
		{"unknown, blind, resend", entry(Sending), ResultUnknown, rules(Blind, onUnknown(Resend)), wait, standing{Waiting, ClassUnknown, ReasonRiskTaken}},
		{"unknown, account changed", entry(Sending), ResultUnknown, rules(Idempotent, bound("mail/2")), wait, standing{Unknown, ClassUnknown, ReasonProviderChange}},
		{"unknown, account changed, resend", entry(Sending), ResultUnknown, rules(Blind, onUnknown(Resend), bound("mail/2")), wait, standing{Unknown, ClassUnknown, ReasonProviderChange}},
		{"unknown, provider gone", entry(Sending), ResultUnknown, rules(Blind, boundGone), wait, standing{Waiting, ClassUnknown, ReasonProviderGone}},
		{"a result nobody knows is unknown", entry(Sending), Result(200), r, wait, standing{Unknown, ClassUnknown, ReasonUnanswered}},

		{"throttled past the deadline", entry(Sending), ResultThrottled, r, 2 * time.Hour, standing{Dropped, ClassThrottled, ReasonExpired}},
		{"unreachable up to the deadline", entry(Sending), ResultUnreachable, r, 2 * time.Hour, standing{Dropped, ClassUnreachable, ReasonExpired}},
		{"credentials past the deadline", entry(Sending), ResultCredentials, r, 3 * time.Hour, standing{Dropped, ClassCredentials, ReasonExpired}},
		{"a wait just inside the deadline", entry(Sending), ResultUnreachable, r, 2*time.Hour - time.Microsecond, standing{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"a wait without end", entry(Sending), ResultThrottled, r, math.MaxInt64, standing{Dropped, ClassThrottled, ReasonExpired}},
		{"unknown past the deadline", entry(Sending, deadlineIn(wait)), ResultUnknown, rules(Idempotent), wait, standing{Unknown, ClassUnknown, ReasonExpired}},

		{"in doubt, accepted", entry(Sending, inDoubt), ResultAccepted, rules(Idempotent), wait, standing{Sent, "", ReasonAccepted}},
		{"in doubt, refused", entry(Sending, inDoubt), ResultRefused, rules(Idempotent), wait, standing{Unknown, "", ReasonRefused}},
		{"in doubt, gone", entry(Sending, inDoubt), ResultGone, rules(Idempotent), wait, standing{Unknown, "", ReasonGone}},
		{"in doubt, unreachable", entry(Sending, inDoubt), ResultUnreachable, rules(Idempotent), wait, standing{Waiting, ClassUnreachable, ReasonUnreachable}},
		{"in doubt, budget spent", entry(Sending, inDoubt, last), ResultUnreachable, rules(Idempotent), wait, standing{Unknown, ClassUnreachable, ReasonBudgetSpent}},
		{"in doubt, past the deadline", entry(Sending, inDoubt, deadlineIn(wait)), ResultThrottled, rules(Idempotent), wait, standing{Unknown, ClassThrottled, ReasonExpired}},
		{"in doubt, the wait outlasts the window", entry(Sending, doubted(window-margin-wait)), ResultThrottled, rules(Idempotent), wait, standing{Unknown, ClassThrottled, ReasonWindowEnded}},
		{"in doubt, the wait ends inside the window", entry(Sending, doubted(window-margin-wait-time.Microsecond)), ResultThrottled, rules(Idempotent), wait, standing{Waiting, ClassThrottled, ReasonThrottled}},
		{"in doubt, not called", entry(Sending, inDoubt), ResultNotCalled, rules(Idempotent), wait, standing{Waiting, "", ReasonNotCalled}},

		{"cancelled, accepted", entry(Sending, cancelAsked), ResultAccepted, r, wait, standing{Sent, "", ReasonAccepted}},
		{"cancelled, refused", entry(Sending, cancelAsked), ResultRefused, r, wait, standing{Dropped, "", ReasonCancelled}},
		{"cancelled, gone", entry(Sending, cancelAsked), ResultGone, r, wait, standing{Dropped, "", ReasonCancelled}},
		{"cancelled, throttled", entry(Sending, cancelAsked), ResultThrottled, r, wait, standing{Dropped, ClassThrottled, ReasonCancelled}},
		{"cancelled, unreachable, budget spent", entry(Sending, cancelAsked, last), ResultUnreachable, r, wait, standing{Dropped, ClassUnreachable, ReasonCancelled}},
		{"cancelled, credentials", entry(Sending, cancelAsked), ResultCredentials, r, wait, standing{Dropped, ClassCredentials, ReasonCancelled}},
		{"cancelled, not called", entry(Sending, cancelAsked), ResultNotCalled, r, wait, standing{Dropped, "", ReasonCancelled}},
		{"cancelled, unknown, idempotent", entry(Sending, cancelAsked), ResultUnknown, rules(Idempotent), wait, standing{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, unknown, resend", entry(Sending, cancelAsked), ResultUnknown, rules(Blind, onUnknown(Resend)), wait, standing{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, unknown, provider gone", entry(Sending, cancelAsked), ResultUnknown, rules(Blind, boundGone), wait, standing{Unknown, ClassUnknown, ReasonCancelled}},
		{"cancelled, in doubt, unreachable", entry(Sending, cancelAsked, inDoubt), ResultUnreachable, rules(Idempotent), wait, standing{Unknown, ClassUnreachable, ReasonCancelled}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			mustStand(t, Settle(row.held, attempt(row.result, row.wait), row.rules, noon()).Entry, row.want)
		})
	}
}

func TestAnAttemptIsCountedAndChargedByWhatItWas(t *testing.T) {
	for result, want := range map[Result]struct{ attempts, spent int }{
		ResultUnknown: {1, 1}, ResultAccepted: {1, 1}, ResultRefused: {1, 1}, ResultGone: {1, 1},
		ResultThrottled: {1, 1}, ResultUnreachable: {1, 1},
		ResultCredentials: {1, 0}, // ours to mend: costs the reminder nothing
		ResultNotCalled:   {0, 0}, // nothing was dialled
	} {
		change := Settle(entry(Sending), attempt(result, time.Second), rules(Idempotent), noon())
		if e := change.Entry; e.Attempts != want.attempts || e.Spent != want.spent {
			t.Errorf("%s: %d attempts, %d spent; want %+v", result, e.Attempts, e.Spent, want)
		}
		if change.Event.Number != want.attempts {
			t.Errorf("%s: attempt number %d", result, change.Event.Number)
		}
	}
}

func TestCredentialsNeverUseUpTheBudget(t *testing.T) {
	e := entry(Sending, spent(attempts-1), func(e *Entry) { e.Deadline = noon().Add(100 * time.Hour) })
	for range 1000 {
		waits := Settle(e, attempt(ResultCredentials, time.Minute), rules(Blind), noon()).Entry
		if waits.State != Waiting {
			t.Fatalf("after %d attempts it stands as %s", waits.Attempts, waits.State)
		}
		e = entry(Sending, spent(waits.Spent), deadlineIn(100*time.Hour))
		e.Attempts = waits.Attempts
	}
	if e.Attempts != attempts-1+1000 {
		t.Errorf("%d attempts: each call is counted, charged or not", e.Attempts)
	}
}

func TestDoubtIsKeptOverLaterAttemptsAndDatedByTheFirst(t *testing.T) {
	r := rules(Idempotent, func(r *Rules) { r.MaxAttempts = 100 })
	now, first := noon(), noon().Add(-10*time.Second)
	e := entry(Sending)
	for _, result := range []Result{ResultUnknown, ResultUnreachable, ResultThrottled, ResultUnknown, ResultCredentials, ResultNotCalled, ResultUnknown} {
		e = stored(Settle(e, attempt(result, time.Minute), r, now), now)
		if e.State != Waiting || !e.DoubtSince.Equal(first) {
			t.Fatalf("after %s: %s, in doubt since %v, want %v", result, e.State, e.DoubtSince, first)
		}
		now = e.Due.On(now)
		e = stored(Meet(e, visit(OriginPush), ready(), r, now).Change, now)
		if e.State != Sending || !e.DoubtSince.Equal(first) {
			t.Fatalf("claimed again: %s, in doubt since %v", e.State, e.DoubtSince)
		}
		now = now.Add(time.Second)
	}
	now = now.Add(lease)
	e = stored(Meet(e, visit(OriginPush), ready(), r, now).Change, now)
	if e.Lapses != 1 || !e.DoubtSince.Equal(first) {
		t.Errorf("a lapse moved the doubt to %v", e.DoubtSince)
	}
	e = Settle(entry(Sending, doubted(time.Minute)), attempt(ResultAccepted, 0), r, now).Entry
	if e.InDoubt() {
		t.Error("accepted, and still in doubt")
	}
}

func TestDoubtByALapseIsDatedByTheStartOfItsLease(t *testing.T) {
	late := noon().Add(10 * time.Minute)
	for _, kind := range []ContractKind{Blind, Idempotent, Lookup} {
		e := Lapse(entry(Sending), Visit{}, rules(kind), late).Entry
		if want := noon().Add(-10 * time.Second); !e.DoubtSince.Equal(want) {
			t.Errorf("%s: in doubt since %v, want %v", kind, e.DoubtSince, want)
		}
	}
}

func TestALapseIsRecordedAsAnUnknownCallAndCountedApart(t *testing.T) {
	e := entry(Sending, lapsed, spent(2))
	change := Meet(e, visit(OriginWorker), ready(), rules(Blind), noon()).Change
	if got := change.Entry; got.Lapses != 1 || got.Attempts != 2 || got.Spent != 2 {
		t.Errorf("%d lapses, %d attempts, %d spent", got.Lapses, got.Attempts, got.Spent)
	}
	ev := change.Event
	if ev == nil || ev.Kind != EventLapse || ev.Holder != "holder" || ev.Provider != "mail" ||
		ev.Outcome.Result != ResultUnknown || !ev.Started.Equal(noon().Add(-lease)) || !ev.Finished.Equal(noon()) {
		t.Errorf("the lapse is told as %+v", ev)
	}
}

func TestTooManyLapsesLeadToAPersonWhateverTheContract(t *testing.T) {
	for _, r := range []Rules{rules(Idempotent), rules(Lookup), rules(Blind), rules(Blind, onUnknown(Resend)), rules(Blind, onUnknown(AssumeSent))} {
		e := Lapse(entry(Sending, lapsed, func(e *Entry) { e.Lapses = maxLapses - 1 }), Visit{}, r, noon()).Entry
		mustStand(t, e, standing{Unknown, ClassUnknown, ReasonTooManyLapses})
	}
	e := Lapse(entry(Sending, lapsed, func(e *Entry) { e.Lapses = maxLapses - 2 }), Visit{}, rules(Idempotent), noon()).Entry
	mustStand(t, e, standing{Waiting, ClassUnknown, ReasonRepeatable})
}

func TestResendTakesTheRiskOnlyWhereASecondCallCanFollow(t *testing.T) {
	r := rules(Blind, onUnknown(Resend))
	unknown := attempt(ResultUnknown, 10*time.Second)

	change := Settle(entry(Sending, spent(attempts-2)), unknown, r, noon())
	mustStand(t, change.Entry, standing{Waiting, ClassUnknown, ReasonRiskTaken})
	if change.Entry.InDoubt() || change.Event.Reason != ReasonRiskTaken {
		t.Errorf("doubt %t, told as %q", change.Entry.InDoubt(), change.Event.Reason)
	}
	for name, held := range map[string]Entry{
		"budget spent":      entry(Sending, spent(attempts-1)),
		"past the deadline": entry(Sending, deadlineIn(10*time.Second)),
		"cancelled":         entry(Sending, cancelAsked),
	} {
		if e := Settle(held, unknown, r, noon()).Entry; e.State != Unknown || !e.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	if e := Lapse(entry(Sending, lapsed, deadlineIn(0)), Visit{}, r, noon()).Entry; e.State != Unknown || !e.InDoubt() {
		t.Errorf("lapsed at the deadline: %s, doubt %t", e.State, e.InDoubt())
	}
}

func TestAnOutcomeIsToldWithItsEvidence(t *testing.T) {
	a := attempt(ResultThrottled, time.Second)
	a.Outcome.Status, a.Outcome.Code, a.Outcome.RequestID = 429, "slow_down", "req-9"
	ev := Settle(entry(Sending, spent(1)), a, rules(Blind), noon()).Event
	if ev.Kind != EventAttempt || ev.Number != 2 || ev.Holder != "holder" || ev.Outcome != a.Outcome ||
		ev.State != Waiting || ev.Reason != ReasonThrottled || ev.Message != "m-1" || ev.Origin != OriginPush {
		t.Errorf("told as %+v", ev)
	}
	if ev := Settle(entry(Sending), attempt(ResultNotCalled, 0), rules(Blind), noon()).Event; ev.Kind != EventDecision || ev.Number != 0 {
		t.Errorf("not called is told as %+v", ev)
	}
}

// The code says why it failed last, in the provider's own word: what is sent has none, and what called nobody
// has learned none.
func TestAnEntryKeepsTheCodeOfItsLastFailure(t *testing.T) {
	for result, want := range map[Result]string{
		ResultAccepted: "", ResultRefused: "new", ResultGone: "new", ResultCredentials: "new", ResultThrottled: "new",
		ResultUnreachable: "new", ResultUnknown: "new", ResultNotCalled: "old",
	} {
		found := entry(Sending, func(e *Entry) { e.Code, e.Redrives = "old", 2 })
		a := attempt(result, time.Second)
		a.Outcome.Code = "new"
		e := Settle(found, a, rules(Blind), noon()).Entry
		if result != ResultNotCalled {
			if a.Outcome.Code = ""; Settle(found, a, rules(Blind), noon()).Entry.Code != "" {
				t.Errorf("%s: a failure without a code keeps the one before", result)
			}
		}
		if e.Code != want || e.Redrives != 2 {
			t.Errorf("%s: code %q, want %q; %d redrives", result, e.Code, want, e.Redrives)
		}
		if late := Late(e, attempt(ResultAccepted, 0)).Entry; late.Code != "" || late.Redrives != 2 {
			t.Errorf("%s, then accepted: code %q, %d redrives", result, late.Code, late.Redrives)
		}
	}
	a := attempt(ResultUnknown, 0)
	a.Outcome.Code = "new"
	if e := Settle(entry(Sending), a, rules(Blind, onUnknown(AssumeSent)), noon()).Entry; e.State != Sent || e.Code != "" {
		t.Errorf("assumed: %s with code %q", e.State, e.Code)
	}
}
