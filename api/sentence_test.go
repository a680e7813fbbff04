package api

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestEachKindOfLineIsTold(t *testing.T) {
	for want, e := range map[string]ledger.Event{
		"Attempt 1 at mail was accepted (202), receipt r-1.": {
			Kind: ledger.EventAttempt, State: ledger.Sent, Reason: ledger.ReasonAccepted, Number: 1, Provider: "mail",
			Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-1", Status: 202, Cause: "status"},
		},
		"Attempt 2 at mail was throttled (429, slow_down), to come back after 30 s; it waits.": {
			Kind: ledger.EventAttempt, State: ledger.Waiting, Reason: ledger.ReasonThrottled, Number: 2, Provider: "mail",
			Outcome: ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, Code: "slow_down", RetryAfter: 30 * time.Second},
		},
		"Attempt 6 at mail did not get through (dial refused); its attempts are used up; it is a dead letter.": {
			Kind: ledger.EventAttempt, State: ledger.Dead, Reason: ledger.ReasonBudgetSpent, Number: 6, Provider: "mail",
			Outcome: ledger.Outcome{Result: ledger.ResultUnreachable, Cause: "dial_refused"},
		},
		"Attempt 1 at mail may have been accepted (timeout); the call ended without a readable answer; " +
			"it may have been sent, and is not repeated without a decision.": {
			Kind: ledger.EventAttempt, State: ledger.Unknown, Reason: ledger.ReasonUnanswered, Number: 1, Provider: "mail",
			Outcome: ledger.Outcome{Cause: "timeout"},
		},
		"A call at mail was not made (deadline); it waits.": {
			Kind: ledger.EventAttempt, State: ledger.Waiting, Reason: ledger.ReasonNotCalled, Provider: "mail",
			Outcome: ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "deadline"},
		},
		"The process that held it went silent at mail, and its call may have been made; " +
			"it may have been sent, and is not repeated without a decision.": {
			Kind: ledger.EventLapse, State: ledger.Unknown, Reason: ledger.ReasonLapsed, Provider: "mail",
		},
		"A call came back after the entry had moved on: attempt 1 at mail was accepted (200), receipt r-2; " +
			"the reminder may have been sent twice; it is sent.": {
			Kind: ledger.EventLate, State: ledger.Sent, Reason: ledger.ReasonPossibleSecondSend, Number: 1, Provider: "mail",
			Outcome: ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-2", Status: 200},
		},
		"Asked by checkout: it was cancelled; it is being sent.": {
			Kind: ledger.EventDecision, State: ledger.Sending, Reason: ledger.ReasonCancelled, Origin: ledger.OriginAPI, Source: "checkout",
		},
		"Looked at by the ledger: no time is left before its deadline; it will not be sent.": {
			Kind: ledger.EventDecision, State: ledger.Dropped, Reason: ledger.ReasonExpired, Origin: ledger.OriginWorker,
		},
		"Decided by ada: word of tomorrow; it waits.": {
			Kind: ledger.EventDecision, State: ledger.Waiting, Reason: "word_of_tomorrow", Origin: "redrive", Source: "ada",
		},
	} {
		if got := sentence(e); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestNoLineIsWithoutASentence(t *testing.T) {
	kinds := []ledger.EventKind{ledger.EventAttempt, ledger.EventLapse, ledger.EventLate, ledger.EventDecision, ""}
	for _, kind := range kinds {
		for _, state := range append(ledger.States(), "") {
			for _, result := range append(ledger.Results(), 200) {
				for _, reason := range append(constants(t, "entry.go", "Reason"), "") {
					text := sentence(ledger.Event{Kind: kind, State: state, Reason: ledger.Reason(reason), Outcome: ledger.Outcome{Result: result}})
					if !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") || strings.Contains(text, " ;") || strings.Contains(text, "..") {
						t.Fatalf("%s %s %s %s: %q", kind, state, result, reason, text)
					}
				}
			}
		}
	}
}
