package api

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestEachLineSaysWhatHappenedWhyAndWhatFollows(t *testing.T) {
	attempt := func(state ledger.State, why ledger.Reason, o ledger.Outcome) ledger.Event {
		return ledger.Event{Kind: ledger.EventAttempt, State: state, Reason: why, Number: 2, Provider: "mail", Outcome: o}
	}
	lapse := func(state ledger.State, why ledger.Reason) ledger.Event {
		return ledger.Event{Kind: ledger.EventLapse, State: state, Reason: why, Provider: "mail", Outcome: ledger.Outcome{Cause: "lapse"}}
	}
	late := func(state ledger.State, why ledger.Reason, o ledger.Outcome) ledger.Event {
		return ledger.Event{Kind: ledger.EventLate, State: state, Reason: why, Provider: "mail", Outcome: o}
	}
	decision := func(origin ledger.Origin, source string, state ledger.State, why ledger.Reason) ledger.Event {
		return ledger.Event{Kind: ledger.EventDecision, State: state, Reason: why, Origin: origin, Source: source, Provider: "mail"}
	}
	accepted := ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-2", Status: 202, Cause: "status", RetryAfter: time.Second}
	refused := ledger.Outcome{Result: ledger.ResultRefused, Status: 422, Cause: "status"}
	throttled := ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, Code: "slow_down", RetryAfter: 30 * time.Second}
	wrong := ledger.Outcome{Status: 500, Cause: "status"}
	timeout := ledger.Outcome{Cause: "timeout"}
	lookup := func(state ledger.State, why ledger.Reason, o ledger.Outcome) ledger.Event {
		return ledger.Event{Kind: ledger.EventLookup, State: state, Reason: why, Origin: ledger.OriginReconcile, Provider: "mail", Outcome: o}
	}
	report := func(state ledger.State, why ledger.Reason, o ledger.Outcome) ledger.Event {
		return ledger.Event{Kind: ledger.EventReport, State: state, Reason: why, Origin: ledger.OriginProvider, Source: "mail", Provider: "mail", Outcome: o}
	}
	noted := decision(ledger.OriginPerson, "ada", ledger.Sent, ledger.ReasonResolved)
	noted.Outcome.Receipt = "r-9"
	redriven := func(e ledger.Event) ledger.Event {
		e.Message = "R1"
		return e
	}
	gaveUp := func(e ledger.Event) ledger.Event {
		e.Outcome.Cause = "seats-sub_1"
		return e
	}
	reread := decision(ledger.OriginRedrive, "ada", ledger.Dropped, ledger.ReasonReread)
	reread.Outcome.Code = "e-2"
	notCalled := decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonNotCalled)
	notCalled.Outcome = ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "payload_unread"}

	for want, e := range map[string]ledger.Event{
		"Attempt 2 at mail was accepted (202), receipt r-2.": attempt(ledger.Sent, ledger.ReasonAccepted, accepted),
		"Attempt 2 at mail was accepted (202, body cut), but its receipt could not be read.": attempt(ledger.Sent, ledger.ReasonAccepted,
			ledger.Outcome{Result: ledger.ResultAccepted, Status: 202, Cause: "body_cut"}),
		"Attempt 2 at mail was refused (422); it is a dead letter.":                        attempt(ledger.Dead, ledger.ReasonRefused, refused),
		"Attempt 2 at mail was refused (422); it had been cancelled; it will not be sent.": attempt(ledger.Dropped, ledger.ReasonCancelled, refused),
		"Attempt 2 at mail was refused, since the recipient is no more (410); it is a dead letter.": attempt(ledger.Dead, ledger.ReasonGone,
			ledger.Outcome{Result: ledger.ResultGone, Status: 410}),
		"Attempt 2 at mail was refused (422); it may have been sent before, and is not repeated without a decision.": attempt(ledger.Unknown, ledger.ReasonRefused, refused),
		"Attempt 2 at mail was turned away because of our credentials or set-up (401); it waits.": attempt(ledger.Waiting, ledger.ReasonCredentials,
			ledger.Outcome{Result: ledger.ResultCredentials, Status: 401}),
		"Attempt 2 at mail was asked to come back later (429, slow_down), with 30 s to wait; it waits.": attempt(ledger.Waiting, ledger.ReasonThrottled, throttled),
		"Attempt 2 at mail did not get through (dial timeout); its attempts are used up; it is a dead letter.": attempt(ledger.Dead, ledger.ReasonBudgetSpent,
			ledger.Outcome{Result: ledger.ResultUnreachable, Cause: "dial_timeout"}),
		"Attempt 2 at mail was answered 500, which does not tell whether it was accepted; it is not repeated without a decision.":                                   attempt(ledger.Unknown, ledger.ReasonUnanswered, wrong),
		"Attempt 2 at mail ended without a readable answer (timeout), which does not tell whether it was accepted; it is not repeated without a decision.":          attempt(ledger.Unknown, ledger.ReasonUnanswered, timeout),
		"Attempt 2 at mail was answered 500, which does not tell whether it was accepted; it had been cancelled; it will not be repeated.":                          attempt(ledger.Unknown, ledger.ReasonCancelled, wrong),
		"Attempt 2 at mail was answered 500, which does not tell whether it was accepted; a repeat is harmless by the provider's contract; it waits.":               attempt(ledger.Waiting, ledger.ReasonRepeatable, wrong),
		"Attempt 2 at mail was answered 500, which does not tell whether it was accepted; by policy it counts as sent, which nothing proves.":                       attempt(ledger.Sent, ledger.ReasonAssumed, wrong),
		"Attempt 2 at mail was answered 500, which does not tell whether it was accepted; by policy the risk of a second send is taken; it waits.":                  attempt(ledger.Waiting, ledger.ReasonRiskTaken, wrong),
		"The process that was sending it went silent, and its call at mail may have been accepted; it is not repeated without a decision.":                          lapse(ledger.Unknown, ledger.ReasonLapsed),
		"The process that was sending it went silent, and its call at mail may have been accepted; it had been cancelled; it will not be repeated.":                 lapse(ledger.Unknown, ledger.ReasonCancelled),
		"The process that was sending it went silent, and its call at mail may have been accepted; that happened too often; it is not repeated without a decision.": lapse(ledger.Unknown, ledger.ReasonTooManyLapses),
		"A process came back after the entry had moved on: its call at mail was accepted (202), receipt r-2; it is sent.":                                           late(ledger.Sent, ledger.ReasonLateAcceptance, accepted),
		"A process came back after the entry had moved on: its call at mail was accepted (202), receipt r-2; the reminder may have been sent twice.":                late(ledger.Sent, ledger.ReasonPossibleSecondSend, accepted),
		"A process came back after the entry had moved on: its call at mail was accepted (202), receipt r-2; that is the receipt which stands already.":             late(ledger.Sent, ledger.ReasonReplayed, accepted),
		"A process came back after the entry had moved on: its call at mail was refused (422); that changes nothing.":                                               late(ledger.Unknown, ledger.ReasonLateFailure, refused),

		"Cancelled by checkout; it will not be sent.":                                                                                             decision(ledger.OriginAPI, "checkout", ledger.Dropped, ledger.ReasonCancelled),
		"Cancelled by checkout; a call may be on its way, and no other will follow.":                                                              decision(ledger.OriginAPI, "checkout", ledger.Sending, ledger.ReasonCancelled),
		"Cancelled by checkout; it may have been sent, and will not be repeated.":                                                                 decision(ledger.OriginAPI, "checkout", ledger.Unknown, ledger.ReasonCancelled),
		"Looked at by the ledger: it had been cancelled; it will not be sent.":                                                                    decision(ledger.OriginWorker, "", ledger.Dropped, ledger.ReasonCancelled),
		"Its broker did not bring it back in time; the ledger takes it over.":                                                                     decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonTakenOver),
		"Asked for by checkout: the ledger sees to it from now on; it waits.":                                                                     decision(ledger.OriginAPI, "checkout", ledger.Waiting, ledger.ReasonRequested),
		"Asked for by checkout: it is being sent already.":                                                                                        decision(ledger.OriginAPI, "checkout", ledger.Sending, ledger.ReasonClaimed),
		"Asked for by checkout: its channel has no provider; it is a dead letter.":                                                                decision(ledger.OriginAPI, "checkout", ledger.Dead, ledger.ReasonUnroutable),
		"Looked at by the ledger: no time is left before its deadline; it will not be sent.":                                                      decision(ledger.OriginWorker, "", ledger.Dropped, ledger.ReasonExpired),
		"Looked at by the ledger: the time in which a repeat is harmless is over; it may have been sent, and is not repeated without a decision.": decision(ledger.OriginWorker, "", ledger.Unknown, ledger.ReasonWindowEnded),
		"Looked at by the ledger: no call was made (payload unread); it waits.":                                                                   notCalled,
		"Pushed by seats: it moves to another provider, since it is proven unsent at the first; it is being sent.":                                decision(ledger.OriginPush, "seats", ledger.Sending, ledger.ReasonFailedOver),
		"Looked at by the ledger: it moves to another provider, since it is proven unsent at the first; it waits.":                                decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonFailedOver),
		"Pushed by seats; it is a dead letter, since it could not be read.":                                                                       decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonMalformed),
		"Its provider mail was asked whether it took it, and it did (200), receipt r-2; it is sent.": lookup(ledger.Sent, ledger.ReasonLateAcceptance,
			ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-2", Status: 200}),
		"Its provider mail was asked whether it took it, and it did (200), receipt r-2; the reminder may have been sent twice.": lookup(ledger.Sent, ledger.ReasonPossibleSecondSend,
			ledger.Outcome{Receipt: "r-2", Status: 200}),
		"Its provider mail was asked whether it took it, and does not know it (404), which proves nothing; it may have been sent, and is not repeated without a decision.": lookup(ledger.Unknown, ledger.ReasonNotFound,
			ledger.Outcome{Status: 404, Cause: "status"}),
		"Its provider mail was asked whether it took it, and does not know it (404), which proves nothing; by policy the risk of a second send is taken; it waits.": lookup(ledger.Waiting, ledger.ReasonNotFound,
			ledger.Outcome{Status: 404, Cause: "status"}),
		"Its provider mail was asked whether it took it, and did not say (503, busy); it may have been sent, and is not repeated without a decision.": lookup(ledger.Unknown, ledger.ReasonUnansweredYet,
			ledger.Outcome{Status: 503, Code: "busy", Cause: "status"}),

		"Its provider mail reported that it took it, receipt r-2; it is sent.":                                                                                     report(ledger.Sent, ledger.ReasonLateAcceptance, ledger.Outcome{Receipt: "r-2", Cause: "accepted"}),
		"Its provider mail reported that it delivered it, receipt r-2; it is sent.":                                                                                report(ledger.Sent, ledger.ReasonLateAcceptance, ledger.Outcome{Receipt: "r-2", Cause: "delivered"}),
		"Its provider mail reported that it delivered it, receipt r-2.":                                                                                            report(ledger.Sent, ledger.ReasonDelivered, ledger.Outcome{Receipt: "r-2", Cause: "delivered"}),
		"Its provider mail reported that it took it, receipt r-3; the reminder may have been sent twice.":                                                          report(ledger.Sent, ledger.ReasonPossibleSecondSend, ledger.Outcome{Receipt: "r-3", Cause: "accepted"}),
		"Its provider mail reported that the address did not take it (5.1.1); that changes nothing.":                                                               report(ledger.Sent, ledger.ReasonBounced, ledger.Outcome{Code: "5.1.1", Cause: "bounced"}),
		"Its provider mail reported that it gave up on it; that changes nothing.":                                                                                  report(ledger.Unknown, ledger.ReasonFailedLater, ledger.Outcome{Cause: "failed"}),
		"Its provider mail reported that the recipient called it spam; that changes nothing.":                                                                      report(ledger.Sent, ledger.ReasonComplained, ledger.Outcome{Cause: "complained"}),
		"Its provider mail reported word of tomorrow; that changes nothing.":                                                                                       report(ledger.Sent, ledger.ReasonBounced, ledger.Outcome{Cause: "word_of_tomorrow"}),
		"Decided by ada: it was sent, receipt r-9.":                                                                                                                noted,
		"Decided by ada: it was sent.":                                                                                                                             decision(ledger.OriginPerson, "ada", ledger.Sent, ledger.ReasonResolved),
		"Decided by ada: it was not sent; it waits.":                                                                                                               decision(ledger.OriginPerson, "ada", ledger.Waiting, ledger.ReasonResolved),
		"Decided by ada: it was not sent; no time is left before its deadline; it will not be sent.":                                                               decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonExpired),
		"Decided by ada: it was not sent; it had been cancelled; it will not be sent.":                                                                             decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonCancelled),
		"Decided by ada: it may have been sent, and is given up.":                                                                                                  decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonAbandoned),
		"Decided by ada; it will not be sent.":                                                                                                                     decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonResolved),
		"Looked at by the ledger: the provider's account, endpoint or contract is not what it was; it may have been sent, and is not repeated without a decision.": decision(ledger.OriginReconcile, "", ledger.Unknown, ledger.ReasonProviderChange),
		"Pushed by seats: the database changed under us, and may have forgotten a send; it may have been sent, and is not repeated without a decision.":            decision(ledger.OriginPush, "seats", ledger.Unknown, ledger.ReasonLedgerChanged),
		"Put to work again by ada: word of tomorrow; it waits.":                                                                                                    decision(ledger.OriginRedrive, "ada", ledger.Waiting, "word_of_tomorrow"),
		"Decided by ada: word of tomorrow; it waits.":                                                                                                              decision("origin of tomorrow", "ada", ledger.Waiting, "word_of_tomorrow"),

		"Put to work again by ada in redrive R1; it waits.": redriven(decision(ledger.OriginRedrive, "ada", ledger.Waiting, ledger.ReasonRedriven)),
		"Put to work again by ada in redrive R1: the database changed under us, and may have forgotten a send; it may have been sent, and is not repeated without a decision.": redriven(
			decision(ledger.OriginRedrive, "ada", ledger.Unknown, ledger.ReasonLedgerChanged)),
		"Put to work again by ada in redrive R1: it could be read at last, and is another entry now (e-2).":       redriven(reread),
		"Put to work again by ada in redrive R1: it could be read at last, and is another entry now.":             redriven(decision(ledger.OriginRedrive, "ada", ledger.Dropped, ledger.ReasonReread)),
		"Pushed by seats: its broker gave up on it (seats-sub_1); it is a dead letter.":                           gaveUp(decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonGivenUp)),
		"Pushed by seats: its broker gave up on it; it is a dead letter.":                                         decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonGivenUp),
		"Its broker gave up on it (seats-sub_1); the ledger takes it over.":                                       gaveUp(decision(ledger.OriginPush, "seats", ledger.Waiting, ledger.ReasonTakenOver)),
		"Discarded by ada; it will not be sent.":                                                                  decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonDiscarded),
		"Whom it was for and what it said was erased by ada; it will not be sent.":                                decision(ledger.OriginPerson, "ada", ledger.Dropped, ledger.ReasonErased),
		"Whom it was for and what it said was erased by ada; it is sent.":                                         decision(ledger.OriginPerson, "ada", ledger.Sent, ledger.ReasonErased),
		"Whom it was for and what it said was erased by ada; it may have been sent, and will not be repeated.":    decision(ledger.OriginPerson, "ada", ledger.Unknown, ledger.ReasonErased),
		"Whom it was for and what it said was erased by ada; a call may be on its way, and no other will follow.": decision(ledger.OriginPerson, "ada", ledger.Sending, ledger.ReasonErased),
		"Whom it was for and what it said is not kept any longer.":                                                decision(ledger.OriginPurge, "", ledger.Sent, ledger.ReasonPurged),
	} {
		if got := sentence(e, aside{now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestTheLastLineOfWhatWaitsSaysUntilWhen(t *testing.T) {
	e := ledger.Event{Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonScheduled, Origin: ledger.OriginAPI}
	for due, want := range map[time.Time]string{
		{}:                             "Asked for: its time has not come yet; it waits.",
		testNow.Add(time.Hour):         "Asked for: its time has not come yet; it waits until 2031-03-04T10:00:00Z.",
		testNow:                        "Asked for: its time has not come yet; it has been due since 2031-03-04T09:00:00Z.",
		testNow.Add(-90 * time.Second): "Asked for: its time has not come yet; it has been due since 2031-03-04T08:58:30Z.",
	} {
		if got := sentence(e, aside{due: due, now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestTheLastLineOfWhatIsUnknownSaysWhenItsProviderIsAsked(t *testing.T) {
	e := ledger.Event{Kind: ledger.EventLapse, State: ledger.Unknown, Reason: ledger.ReasonLapsed, Provider: "mail"}
	const told = "The process that was sending it went silent, and its call at mail may have been accepted; it is not repeated without a decision"
	for ask, want := range map[time.Time]string{
		{}:                     told + ".",
		testNow.Add(time.Hour): told + "; its provider is asked next at 2031-03-04T10:00:00Z.",
	} {
		if got := sentence(e, aside{ask: ask, now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestNoLineIsWithoutASentence(t *testing.T) {
	kinds := []ledger.EventKind{ledger.EventAttempt, ledger.EventLapse, ledger.EventLate, ledger.EventDecision, ledger.EventLookup, ledger.EventReport, ""}
	for _, kind := range kinds {
		for _, state := range append(ledger.States(), "") {
			for _, result := range append(ledger.Results(), 200) {
				for _, reason := range append(constants(t, "entry.go", "Reason"), "") {
					text := sentence(ledger.Event{Kind: kind, State: state, Reason: ledger.Reason(reason), Outcome: ledger.Outcome{Result: result}}, aside{})
					if !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") || strings.Contains(text, " ;") || strings.Contains(text, "..") {
						t.Fatalf("%s %s %s %s: %q", kind, state, result, reason, text)
					}
				}
			}
		}
	}
}
