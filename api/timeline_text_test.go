package api

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

func TestEventText_SaysWhatHappenedWhyAndWhatFollows(t *testing.T) {
	attempt := func(state ledger.State, reason ledger.Reason, o ledger.Outcome) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventAttempt, State: state, Reason: reason, AttemptNumber: 2, Provider: "mail", Outcome: o}
	}
	leaseExpired := func(state ledger.State, reason ledger.Reason) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventLeaseExpired, State: state, Reason: reason, Provider: "mail", Outcome: ledger.Outcome{Cause: "lease_expired"}}
	}
	late := func(state ledger.State, reason ledger.Reason, o ledger.Outcome) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventLate, State: state, Reason: reason, Provider: "mail", Outcome: o}
	}
	decision := func(origin ledger.Origin, source string, state ledger.State, reason ledger.Reason) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventDecision, State: state, Reason: reason, Origin: origin, Source: source, Provider: "mail"}
	}
	accepted := ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-2", Status: 202, Cause: "status", RetryAfter: time.Second}
	refused := ledger.Outcome{Result: ledger.ResultRefused, Status: 422, Cause: "status"}
	throttled := ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, Code: "slow_down", RetryAfter: 30 * time.Second}
	serverError := ledger.Outcome{Status: 500, Cause: "status"}
	timeout := ledger.Outcome{Cause: "timeout"}
	lookup := func(state ledger.State, reason ledger.Reason, o ledger.Outcome) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventLookup, State: state, Reason: reason, Origin: ledger.OriginReconcile, Provider: "mail", Outcome: o}
	}
	report := func(state ledger.State, reason ledger.Reason, o ledger.Outcome) ledger.TimelineEvent {
		return ledger.TimelineEvent{Kind: ledger.EventStatus, State: state, Reason: reason, Origin: ledger.OriginProvider, Source: "mail", Provider: "mail", Outcome: o}
	}
	resolvedSent := decision(ledger.OriginOperator, "ada", ledger.Sent, ledger.ReasonResolved)
	resolvedSent.Outcome.Receipt = "r-9"
	redriven := func(e ledger.TimelineEvent) ledger.TimelineEvent {
		e.MessageID = "R1"
		return e
	}
	deadLettered := func(e ledger.TimelineEvent) ledger.TimelineEvent {
		e.Outcome.Cause = "seats-sub_1"
		return e
	}
	reparsed := decision(ledger.OriginRedrive, "ada", ledger.Dropped, ledger.ReasonReparsed)
	reparsed.Outcome.Code = "e-2"
	notCalled := decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonNotCalled)
	notCalled.Outcome = ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "payload_unread"}

	for want, e := range map[string]ledger.TimelineEvent{
		"Attempt 2 at mail was accepted (202), receipt r-2.": attempt(ledger.Sent, ledger.ReasonAccepted, accepted),
		"Attempt 2 at mail was accepted (202, body cut), but its receipt could not be read.": attempt(ledger.Sent, ledger.ReasonAccepted,
			ledger.Outcome{Result: ledger.ResultAccepted, Status: 202, Cause: "body_cut"}),
		"Attempt 2 at mail was refused (422); it is a dead letter.":                        attempt(ledger.Dead, ledger.ReasonRefused, refused),
		"Attempt 2 at mail was refused (422); it had been cancelled; it will not be sent.": attempt(ledger.Dropped, ledger.ReasonCancelled, refused),
		"Attempt 2 at mail was refused, because the recipient no longer exists (410); it is a dead letter.": attempt(ledger.Dead, ledger.ReasonGone,
			ledger.Outcome{Result: ledger.ResultGone, Status: 410}),
		"Attempt 2 at mail was refused (422); it may have been sent by an earlier attempt, and is not repeated without a decision.": attempt(ledger.Unknown, ledger.ReasonRefused, refused),
		"Attempt 2 at mail was rejected because of our credentials or configuration (401); it waits.": attempt(ledger.Waiting, ledger.ReasonCredentials,
			ledger.Outcome{Result: ledger.ResultCredentials, Status: 401}),
		"Attempt 2 at mail was throttled (429, slow_down), retry after 30 s; it waits.": attempt(ledger.Waiting, ledger.ReasonThrottled, throttled),
		"Attempt 2 at mail did not reach the provider (dial timeout); its attempts are used up; it is a dead letter.": attempt(ledger.Dead, ledger.ReasonBudgetSpent,
			ledger.Outcome{Result: ledger.ResultUnreachable, Cause: "dial_timeout"}),
		"Attempt 2 at mail was answered 500, so it is unknown whether it was accepted; it is not repeated without a decision.":                                                                        attempt(ledger.Unknown, ledger.ReasonUnanswered, serverError),
		"Attempt 2 at mail ended without a readable answer (timeout), so it is unknown whether it was accepted; it is not repeated without a decision.":                                               attempt(ledger.Unknown, ledger.ReasonUnanswered, timeout),
		"Attempt 2 at mail was answered 500, so it is unknown whether it was accepted; it had been cancelled; it will not be repeated.":                                                               attempt(ledger.Unknown, ledger.ReasonCancelled, serverError),
		"Attempt 2 at mail was answered 500, so it is unknown whether it was accepted; the provider's contract makes a repeat safe; it waits.":                                                        attempt(ledger.Waiting, ledger.ReasonRepeatable, serverError),
		"Attempt 2 at mail was answered 500, so it is unknown whether it was accepted; by policy it counts as sent, without proof.":                                                                   attempt(ledger.Sent, ledger.ReasonAssumed, serverError),
		"Attempt 2 at mail was answered 500, so it is unknown whether it was accepted; by policy the risk of a second send is accepted; it waits.":                                                    attempt(ledger.Waiting, ledger.ReasonRiskTaken, serverError),
		"Lease expired: the process that was sending it stopped responding, and its call at mail may have been accepted; it is not repeated without a decision.":                                      leaseExpired(ledger.Unknown, ledger.ReasonLeaseExpired),
		"Lease expired: the process that was sending it stopped responding, and its call at mail may have been accepted; it had been cancelled; it will not be repeated.":                             leaseExpired(ledger.Unknown, ledger.ReasonCancelled),
		"Lease expired: the process that was sending it stopped responding, and its call at mail may have been accepted; too many of its leases have expired; it is not repeated without a decision.": leaseExpired(ledger.Unknown, ledger.ReasonTooManyLeaseExpirations),
		"Late result, after the entry had changed: its call at mail was accepted (202), receipt r-2; it is sent.":                                                                                     late(ledger.Sent, ledger.ReasonLateAcceptance, accepted),
		"Late result, after the entry had changed: its call at mail was accepted (202), receipt r-2; the reminder may have been sent twice.":                                                          late(ledger.Sent, ledger.ReasonPossibleSecondSend, accepted),
		"Late result, after the entry had changed: its call at mail was accepted (202), receipt r-2; the receipt is the one already recorded.":                                                        late(ledger.Sent, ledger.ReasonReplayed, accepted),
		"Late result, after the entry had changed: its call at mail was refused (422); this changes nothing.":                                                                                         late(ledger.Unknown, ledger.ReasonLateFailure, refused),

		"Cancelled by checkout; it will not be sent.":                                                                                           decision(ledger.OriginAPI, "checkout", ledger.Dropped, ledger.ReasonCancelled),
		"Cancelled by checkout; a call may be in flight, and no other will follow.":                                                             decision(ledger.OriginAPI, "checkout", ledger.Sending, ledger.ReasonCancelled),
		"Cancelled by checkout; it may have been sent, and will not be repeated.":                                                               decision(ledger.OriginAPI, "checkout", ledger.Unknown, ledger.ReasonCancelled),
		"Processed by the ledger: it had been cancelled; it will not be sent.":                                                                  decision(ledger.OriginWorker, "", ledger.Dropped, ledger.ReasonCancelled),
		"Its broker did not redeliver it in time; the ledger takes over its retries.":                                                           decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonTakenOver),
		"Requested by checkout: the ledger handles it from now on; it waits.":                                                                   decision(ledger.OriginAPI, "checkout", ledger.Waiting, ledger.ReasonRequested),
		"Requested by checkout: it is being sent already.":                                                                                      decision(ledger.OriginAPI, "checkout", ledger.Sending, ledger.ReasonClaimed),
		"Requested by checkout: its channel has no provider; it is a dead letter.":                                                              decision(ledger.OriginAPI, "checkout", ledger.Dead, ledger.ReasonUnroutable),
		"Processed by the ledger: no time is left before its deadline; it will not be sent.":                                                    decision(ledger.OriginWorker, "", ledger.Dropped, ledger.ReasonExpired),
		"Processed by the ledger: the time in which a repeat is safe has ended; it may have been sent, and is not repeated without a decision.": decision(ledger.OriginWorker, "", ledger.Unknown, ledger.ReasonWindowEnded),
		"Processed by the ledger: no call was made (payload unread); it waits.":                                                                 notCalled,
		"Pushed by seats: it moves to another provider, because the first one has provably not sent it; it is being sent.":                      decision(ledger.OriginPush, "seats", ledger.Sending, ledger.ReasonFailedOver),
		"Processed by the ledger: it moves to another provider, because the first one has provably not sent it; it waits.":                      decision(ledger.OriginWorker, "", ledger.Waiting, ledger.ReasonFailedOver),
		"Pushed by seats; it is a dead letter, because it could not be parsed.":                                                                 decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonMalformed),
		"Lookup at mail: the provider has accepted it (200), receipt r-2; it is sent.": lookup(ledger.Sent, ledger.ReasonLateAcceptance,
			ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r-2", Status: 200}),
		"Lookup at mail: the provider has accepted it (200), receipt r-2; the reminder may have been sent twice.": lookup(ledger.Sent, ledger.ReasonPossibleSecondSend,
			ledger.Outcome{Receipt: "r-2", Status: 200}),
		"Lookup at mail: not found (404), which does not prove that it was not sent; it may have been sent, and is not repeated without a decision.": lookup(ledger.Unknown, ledger.ReasonNotFound,
			ledger.Outcome{Status: 404, Cause: "status"}),
		"Lookup at mail: not found (404), which does not prove that it was not sent; by policy the risk of a second send is accepted; it waits.": lookup(ledger.Waiting, ledger.ReasonNotFound,
			ledger.Outcome{Status: 404, Cause: "status"}),
		"Lookup at mail: no usable answer (503, busy); it may have been sent, and is not repeated without a decision.": lookup(ledger.Unknown, ledger.ReasonLookupUnanswered,
			ledger.Outcome{Status: 503, Code: "busy", Cause: "status"}),

		"Its provider mail reported that it accepted the message, receipt r-2; it is sent.":                            report(ledger.Sent, ledger.ReasonLateAcceptance, ledger.Outcome{Receipt: "r-2", Cause: "accepted"}),
		"Its provider mail reported that it delivered the message, receipt r-2; it is sent.":                           report(ledger.Sent, ledger.ReasonLateAcceptance, ledger.Outcome{Receipt: "r-2", Cause: "delivered"}),
		"Its provider mail reported that it delivered the message, receipt r-2.":                                       report(ledger.Sent, ledger.ReasonDelivered, ledger.Outcome{Receipt: "r-2", Cause: "delivered"}),
		"Its provider mail reported that it accepted the message, receipt r-3; the reminder may have been sent twice.": report(ledger.Sent, ledger.ReasonPossibleSecondSend, ledger.Outcome{Receipt: "r-3", Cause: "accepted"}),
		"Its provider mail reported that the message bounced (5.1.1); its state does not change.":                      report(ledger.Sent, ledger.ReasonBounced, ledger.Outcome{Code: "5.1.1", Cause: "bounced"}),
		"Its provider mail reported that it could not deliver the message; its state does not change.":                 report(ledger.Unknown, ledger.ReasonFailedLater, ledger.Outcome{Cause: "failed"}),
		"Its provider mail reported that the recipient marked the message as spam; its state does not change.":         report(ledger.Sent, ledger.ReasonComplained, ledger.Outcome{Cause: "complained"}),
		"Its provider mail reported future word; its state does not change.":                                           report(ledger.Sent, ledger.ReasonBounced, ledger.Outcome{Cause: "future_word"}),
		"Resolved by ada: it was sent, receipt r-9.":                                                                   resolvedSent,
		"Resolved by ada: it was sent.":                                                               decision(ledger.OriginOperator, "ada", ledger.Sent, ledger.ReasonResolved),
		"Resolved by ada: it was not sent; it waits.":                                                 decision(ledger.OriginOperator, "ada", ledger.Waiting, ledger.ReasonResolved),
		"Resolved by ada: it was not sent; no time is left before its deadline; it will not be sent.": decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonExpired),
		"Resolved by ada: it was not sent; it had been cancelled; it will not be sent.":               decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonCancelled),
		"Resolved by ada: abandoned, it may have been sent and will not be sent again.":               decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonAbandoned),
		"Resolved by ada; it will not be sent.":                                                       decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonResolved),
		"Processed by the ledger: the provider's account, endpoint or contract has changed; it may have been sent, and is not repeated without a decision.":   decision(ledger.OriginReconcile, "", ledger.Unknown, ledger.ReasonProviderChange),
		"Pushed by seats: the database failed over or was restored, and may have lost a send; it may have been sent, and is not repeated without a decision.": decision(ledger.OriginPush, "seats", ledger.Unknown, ledger.ReasonDatabaseChanged),
		"Redriven by ada: future word; it waits.": decision(ledger.OriginRedrive, "ada", ledger.Waiting, "future_word"),
		"Decided by ada: future word; it waits.":  decision("future origin", "ada", ledger.Waiting, "future_word"),

		"Redriven by ada in redrive R1; it waits.": redriven(decision(ledger.OriginRedrive, "ada", ledger.Waiting, ledger.ReasonRedriven)),
		"Redriven by ada in redrive R1: the database failed over or was restored, and may have lost a send; it may have been sent, and is not repeated without a decision.": redriven(
			decision(ledger.OriginRedrive, "ada", ledger.Unknown, ledger.ReasonDatabaseChanged)),
		"Redriven by ada in redrive R1: it could be parsed now, and continues as another entry (e-2).": redriven(reparsed),
		"Redriven by ada in redrive R1: it could be parsed now, and continues as another entry.":       redriven(decision(ledger.OriginRedrive, "ada", ledger.Dropped, ledger.ReasonReparsed)),
		"Pushed by seats: its broker dead-lettered it (seats-sub_1); it is a dead letter.":             deadLettered(decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonDeadLettered)),
		"Pushed by seats: its broker dead-lettered it; it is a dead letter.":                           decision(ledger.OriginPush, "seats", ledger.Dead, ledger.ReasonDeadLettered),
		"Its broker dead-lettered it (seats-sub_1); the ledger takes over its retries.":                deadLettered(decision(ledger.OriginPush, "seats", ledger.Waiting, ledger.ReasonTakenOver)),
		"Discarded by ada; it will not be sent.":                                                       decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonDiscarded),
		"Recipient and content were erased by ada; it will not be sent.":                               decision(ledger.OriginOperator, "ada", ledger.Dropped, ledger.ReasonErased),
		"Recipient and content were erased by ada; it is sent.":                                        decision(ledger.OriginOperator, "ada", ledger.Sent, ledger.ReasonErased),
		"Recipient and content were erased by ada; it may have been sent, and will not be repeated.":   decision(ledger.OriginOperator, "ada", ledger.Unknown, ledger.ReasonErased),
		"Recipient and content were erased by ada; a call may be in flight, and no other will follow.": decision(ledger.OriginOperator, "ada", ledger.Sending, ledger.ReasonErased),
		"Recipient and content were deleted at the end of their retention.":                            decision(ledger.OriginPurge, "", ledger.Sent, ledger.ReasonPurged),
	} {
		if got := eventText(e, eventContext{now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestEventText_LastWaitingEventSaysUntilWhen(t *testing.T) {
	e := ledger.TimelineEvent{Kind: ledger.EventDecision, State: ledger.Waiting, Reason: ledger.ReasonScheduled, Origin: ledger.OriginAPI}
	for due, want := range map[time.Time]string{
		{}:                             "Requested: its send time has not come yet; it waits.",
		testNow.Add(time.Hour):         "Requested: its send time has not come yet; it waits until 2031-03-04T10:00:00Z.",
		testNow:                        "Requested: its send time has not come yet; it has been due since 2031-03-04T09:00:00Z.",
		testNow.Add(-90 * time.Second): "Requested: its send time has not come yet; it has been due since 2031-03-04T08:58:30Z.",
	} {
		if got := eventText(e, eventContext{due: due, now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestEventText_LastUnknownEventSaysNextLookup(t *testing.T) {
	e := ledger.TimelineEvent{Kind: ledger.EventLeaseExpired, State: ledger.Unknown, Reason: ledger.ReasonLeaseExpired, Provider: "mail"}
	const text = "Lease expired: the process that was sending it stopped responding, and its call at mail may have been accepted; it is not repeated without a decision"
	for next, want := range map[time.Time]string{
		{}:                     text + ".",
		testNow.Add(time.Hour): text + "; the next lookup is due at 2031-03-04T10:00:00Z.",
	} {
		if got := eventText(e, eventContext{nextLookup: next, now: testNow}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestEventText_IsASentenceForEveryEvent(t *testing.T) {
	kinds := []ledger.EventKind{ledger.EventAttempt, ledger.EventLeaseExpired, ledger.EventLate, ledger.EventDecision, ledger.EventLookup, ledger.EventStatus, ""}
	for _, kind := range kinds {
		for _, state := range append(ledger.States(), "") {
			for _, result := range append(ledger.Results(), 200) {
				for _, reason := range append(constants(t, "entry.go", "Reason"), "") {
					text := eventText(ledger.TimelineEvent{Kind: kind, State: state, Reason: ledger.Reason(reason), Outcome: ledger.Outcome{Result: result}}, eventContext{})
					if !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") || strings.Contains(text, " ;") || strings.Contains(text, "..") {
						t.Fatalf("%s %s %s %s: %q", kind, state, result, reason, text)
					}
				}
			}
		}
	}
}
