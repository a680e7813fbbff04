package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// sentence tells a line of the timeline to people.
func sentence(e ledger.Event) string {
	switch e.Kind {
	case ledger.EventAttempt:
		return upper(call(e)) + consequence(e)
	case ledger.EventLapse:
		return "The process that held it went silent" + at(e.Provider) + ", and its call may have been made" + consequence(e)
	case ledger.EventLate:
		return "A call came back after the entry had moved on: " + call(e) + consequence(e)
	default:
		return visitor(e) + consequence(e)
	}
}

// call tells what a call to a provider came to, with the evidence.
func call(e ledger.Event) string {
	what := "a call"
	if e.Number > 0 {
		what = "attempt " + strconv.Itoa(e.Number)
	}
	verdict, known := verdicts[e.Outcome.Result]
	if !known {
		verdict = verdicts[ledger.ResultUnknown]
	}
	told := what + at(e.Provider) + " " + verdict
	if evidence := evidenceOf(e.Outcome); evidence != "" {
		told += " (" + evidence + ")"
	}
	if e.Outcome.Receipt != "" {
		told += ", receipt " + e.Outcome.Receipt
	}
	if wait := wholeSeconds(e.Outcome.RetryAfter); wait > 0 {
		told += fmt.Sprintf(", to come back after %d s", wait)
	}
	return told
}

func evidenceOf(o ledger.Outcome) string {
	var parts []string
	if o.Status != 0 {
		parts = append(parts, strconv.Itoa(o.Status))
	}
	if o.Code != "" {
		parts = append(parts, o.Code)
	}
	if o.Cause != "" && o.Cause != "status" {
		parts = append(parts, strings.ReplaceAll(o.Cause, "_", " "))
	}
	return strings.Join(parts, ", ")
}

// consequence tells where the line left the entry, and why, unless the call says it already.
func consequence(e ledger.Event) string {
	if e.Kind == ledger.EventAttempt && e.State == ledger.Sent && e.Reason == ledger.ReasonAccepted {
		return "."
	}
	why, known := reasons[e.Reason]
	if !known {
		why = strings.ReplaceAll(string(e.Reason), "_", " ")
	}
	if e.Kind != ledger.EventDecision && string(e.Reason) == e.Outcome.Result.String() || e.Reason == ledger.ReasonLapsed {
		why = ""
	}
	parts := make([]string, 0, 2)
	for _, part := range []string{why, standings[e.State]} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return "."
	}
	mark := "; "
	if e.Kind == ledger.EventDecision {
		mark = ": "
	}
	return mark + strings.Join(parts, "; ") + "."
}

// visitor tells who came.
func visitor(e ledger.Event) string {
	by := ""
	if e.Source != "" {
		by = " by " + e.Source
	}
	switch e.Origin {
	case ledger.OriginPush:
		return "Pushed" + by
	case ledger.OriginAPI:
		return "Asked" + by
	case ledger.OriginWorker:
		return "Looked at by the ledger"
	default:
		return "Decided" + by
	}
}

func at(provider string) string {
	if provider == "" {
		return ""
	}
	return " at " + provider
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// wholeSeconds rounds up, so that a wait is never told as none.
func wholeSeconds(d time.Duration) int {
	return int((max(d, 0) + time.Second - 1) / time.Second)
}

// verdicts complete "attempt 1 at mail …".
var verdicts = map[ledger.Result]string{
	ledger.ResultUnknown:     "may have been accepted",
	ledger.ResultAccepted:    "was accepted",
	ledger.ResultRefused:     "was refused",
	ledger.ResultGone:        "met a recipient that is no more",
	ledger.ResultCredentials: "was turned away for our credentials or set-up",
	ledger.ResultThrottled:   "was throttled",
	ledger.ResultUnreachable: "did not get through",
	ledger.ResultNotCalled:   "was not made",
}

// standings tell what a state means for the reminder.
var standings = map[ledger.State]string{
	ledger.Sending: "it is being sent",
	ledger.Waiting: "it waits",
	ledger.Unknown: "it may have been sent, and is not repeated without a decision",
	ledger.Sent:    "it is sent",
	ledger.Dead:    "it is a dead letter",
	ledger.Dropped: "it will not be sent",
}

// reasons tell each of the ledger's words.
var reasons = map[ledger.Reason]string{
	ledger.ReasonClaimed:        "a holder took it",
	ledger.ReasonAccepted:       "the provider accepted it",
	ledger.ReasonLateAcceptance: "the provider had accepted it",
	ledger.ReasonAssumed:        "by policy it counts as sent, which nothing proves",

	ledger.ReasonScheduled:           "its time has not come",
	ledger.ReasonLedgerRetries:       "its source leaves it to the ledger",
	ledger.ReasonGateClosed:          "the provider's gate is closed",
	ledger.ReasonNoCapacity:          "the provider has no free slot",
	ledger.ReasonRelevanceUnanswered: "nobody answered whether it is still wanted",
	ledger.ReasonThrottled:           "the provider asked to be left alone",
	ledger.ReasonUnreachable:         "the provider could not be reached",
	ledger.ReasonCredentials:         "our credentials or set-up at the provider are wrong",
	ledger.ReasonRepeatable:          "the provider's contract makes a repeat harmless",
	ledger.ReasonRiskTaken:           "by policy the risk of a second send is taken",
	ledger.ReasonNotCalled:           "the time for the call had passed",
	ledger.ReasonProviderGone:        "its provider is not configured now",
	ledger.ReasonTakenOver:           "its broker did not bring it back, so the ledger does",
	ledger.ReasonRequested:           "a caller asked for it, so the ledger brings it back",
	ledger.ReasonFailedOver:          "it goes to another provider, since it is proven unsent at the first",

	ledger.ReasonUnanswered:     "the call ended without a readable answer",
	ledger.ReasonLapsed:         "its holder went silent",
	ledger.ReasonTooManyLapses:  "several holders in a row went silent",
	ledger.ReasonWindowEnded:    "the time in which a repeat is harmless has passed",
	ledger.ReasonProviderChange: "the provider's account, endpoint or contract is not what it was",

	ledger.ReasonRefused:      "the provider refuses this message",
	ledger.ReasonGone:         "the recipient is no more",
	ledger.ReasonBudgetSpent:  "its attempts are used up",
	ledger.ReasonUnroutable:   "its channel has no provider",
	ledger.ReasonMalformed:    "nobody could read it",
	ledger.ReasonTooFarAhead:  "it lies too far ahead",
	ledger.ReasonExpired:      "no time is left before its deadline",
	ledger.ReasonBeforeMemory: "it is older than the ledger remembers, and may have been sent then",
	ledger.ReasonBeforeCutOff: "it was published before the cut-over",
	ledger.ReasonCancelled:    "it was cancelled",
	ledger.ReasonObsolete:     "it is not wanted any more",
	ledger.ReasonAbandoned:    "it was given up",
	ledger.ReasonDiscarded:    "it was discarded",

	ledger.ReasonLateFailure:        "that changes nothing",
	ledger.ReasonPossibleSecondSend: "the reminder may have been sent twice",
	ledger.ReasonReplayed:           "the provider answered with its first receipt",
}
