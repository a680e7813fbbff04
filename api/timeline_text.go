package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// eventContext is what the text of an event needs from the entry, in addition to the event itself.
type eventContext struct {
	faults     []string  // why the message could not be parsed
	due        time.Time // of a waiting entry, for its last event; else zero
	nextLookup time.Time // of an unknown entry, for its last event; else zero
	now        time.Time
}

// eventText returns a timeline event as a sentence for support: what happened, why it led to its state, and what that
// means for the reminder.
func eventText(e ledger.TimelineEvent, c eventContext) string {
	text, separator := openingText(e)
	for _, part := range []string{reasonText(e), stateText(e, c)} {
		if part != "" {
			text += separator + part
			separator = "; "
		}
	}
	if e.Reason == ledger.ReasonMalformed && len(c.faults) > 0 {
		text += ": " + strings.Join(c.faults, "; ")
	}
	return text + "."
}

// openingText returns what happened, and the separator before what follows.
func openingText(e ledger.TimelineEvent) (text, separator string) {
	switch {
	case e.Kind == ledger.EventAttempt:
		return upper(callText(e)), "; "
	case e.Kind == ledger.EventLeaseExpired:
		return "Lease expired: the process that was sending it stopped responding, and its call" + atProvider(e.Provider) + " may have been accepted", "; "
	case e.Kind == ledger.EventLate:
		return "Late result, after the entry had changed: " + callText(e), "; "
	case e.Kind == ledger.EventLookup:
		return lookupText(e), "; "
	case e.Kind == ledger.EventStatus:
		return statusText(e), "; "
	case e.Origin == ledger.OriginOperator:
		return operatorText(e), "; "
	case e.Reason == ledger.ReasonPurged:
		return "Recipient and content were deleted at the end of their retention", "; "
	case e.Origin == ledger.OriginRedrive && e.Reason == ledger.ReasonRedriven:
		return originText(e), "; "
	case e.Reason == ledger.ReasonTakenOver && e.Origin == ledger.OriginPush:
		return "Its broker dead-lettered it" + causeOf(e) + "; the ledger takes over its retries", "; "
	case e.Reason == ledger.ReasonTakenOver:
		return "Its broker did not redeliver it in time; the ledger takes over its retries", "; "
	case cancels(e):
		return "Cancelled" + byName(e.Source), "; "
	case e.Reason == ledger.ReasonMalformed:
		return originText(e), "; "
	default:
		return originText(e), ": "
	}
}

// callText returns the result of a call to a provider, with the evidence.
func callText(e ledger.TimelineEvent) string {
	call := "its call"
	if e.AttemptNumber > 0 {
		call = "attempt " + strconv.Itoa(e.AttemptNumber)
	}
	result, evidence := resultTexts[e.Outcome.Result], evidenceOf(e.Outcome)
	if unproven(e) && e.Outcome.Status != 0 {
		result, evidence = "was answered "+evidence[0], evidence[1:]
	} else if unproven(e) {
		result = resultTexts[ledger.ResultUnknown]
	}
	text := call + atProvider(e.Provider) + " " + result + bracketed(evidence)
	wait := wholeSeconds(e.Outcome.RetryAfter)
	switch accepted := e.Outcome.Result == ledger.ResultAccepted; {
	case unproven(e):
		return text + ", so it is unknown whether it was accepted"
	case accepted && e.Outcome.Receipt != "":
		return text + receipt(e)
	case accepted:
		return text + ", but its receipt could not be read"
	case wait > 0:
		return text + fmt.Sprintf(", retry after %d s", wait)
	default:
		return text
	}
}

// lookupText returns what a provider answered to a lookup.
func lookupText(e ledger.TimelineEvent) string {
	result := ": the provider has accepted it"
	switch e.Reason {
	case ledger.ReasonNotFound:
		result = ": not found"
	case ledger.ReasonLookupUnanswered:
		result = ": no usable answer"
	}
	text := "Lookup" + atProvider(e.Provider) + result + bracketed(evidenceOf(e.Outcome)) + receipt(e)
	if e.Reason == ledger.ReasonNotFound {
		text += ", which does not prove that it was not sent"
	}
	return text
}

// statusText returns what a provider reported in a status event; the cause is the kind of the status.
func statusText(e ledger.TimelineEvent) string {
	status := cmp.Or(statusTexts[ledger.StatusKind(e.Outcome.Cause)], strings.ReplaceAll(e.Outcome.Cause, "_", " "), "an unknown status")
	evidence := e.Outcome
	evidence.Cause = ""
	return providerName(e.Provider) + " reported " + status + bracketed(evidenceOf(evidence)) + receipt(e)
}

// operatorText returns what an operator decided.
func operatorText(e ledger.TimelineEvent) string {
	text := "Resolved" + byName(e.Source)
	switch {
	case e.Reason == ledger.ReasonErased:
		return "Recipient and content were erased" + byName(e.Source)
	case e.Reason == ledger.ReasonDiscarded:
		return "Discarded" + byName(e.Source)
	case e.State == ledger.Sent:
		return text + ": it was sent" + receipt(e)
	case e.Reason == ledger.ReasonAbandoned:
		return text + ": abandoned, it may have been sent and will not be sent again"
	case e.State == ledger.Dropped && e.Reason == ledger.ReasonResolved:
		return text
	default:
		return text + ": it was not sent"
	}
}

// unproven reports whether a call may have been accepted; so may one whose result has no name.
func unproven(e ledger.TimelineEvent) bool {
	return e.Outcome.Result.String() == ledger.ResultUnknown.String()
}

// evidenceOf returns the status, the provider's code and the cause of an outcome, as far as they are known.
func evidenceOf(o ledger.Outcome) []string {
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
	return parts
}

// reasonText returns the reason, unless the opening contains it already.
func reasonText(e ledger.TimelineEvent) string {
	attempt := e.Kind == ledger.EventAttempt
	switch {
	case e.Kind == ledger.EventLookup && e.Reason == ledger.ReasonNotFound && e.State == ledger.Waiting:
		return reasonTexts[ledger.ReasonRiskTaken]
	case e.Kind == ledger.EventLookup && (e.Reason == ledger.ReasonNotFound || e.Reason == ledger.ReasonLookupUnanswered),
		e.Origin == ledger.OriginOperator && operatorReasons[e.Reason],
		e.Kind == ledger.EventDecision && (e.Reason == ledger.ReasonPurged || e.Origin == ledger.OriginRedrive && e.Reason == ledger.ReasonRedriven),
		e.Reason == ledger.ReasonDelivered:
		return ""
	case attempt && (string(e.Reason) == e.Outcome.Result.String() || e.Reason == ledger.ReasonUnanswered),
		e.Reason == ledger.ReasonLeaseExpired, e.Reason == ledger.ReasonLateAcceptance, e.Reason == ledger.ReasonTakenOver, cancels(e):
		return ""
	case e.Reason == ledger.ReasonNotCalled && e.Outcome.Cause != "":
		return reasonTexts[e.Reason] + " (" + strings.Join(evidenceOf(e.Outcome), ", ") + ")"
	case e.Reason == ledger.ReasonDeadLettered:
		return reasonTexts[e.Reason] + causeOf(e)
	case e.Reason == ledger.ReasonReparsed && e.Outcome.Code != "":
		return reasonTexts[e.Reason] + " (" + e.Outcome.Code + ")"
	}
	if text, known := reasonTexts[e.Reason]; known {
		return text
	}
	return strings.ReplaceAll(string(e.Reason), "_", " ")
}

// stateText returns what the event means for the reminder, unless the rest of the text says it.
func stateText(e ledger.TimelineEvent, c eventContext) string {
	switch {
	case selfContained[e.Reason], e.Origin == ledger.OriginOperator && e.State == ledger.Sent && e.Reason != ledger.ReasonErased:
		return ""
	case e.State == ledger.Waiting && c.due.After(c.now):
		return "it waits until " + c.due.UTC().Format(time.RFC3339)
	case e.State == ledger.Waiting && !c.due.IsZero():
		return "it has been due since " + c.due.UTC().Format(time.RFC3339)
	case e.State == ledger.Sending && (cancels(e) || e.Reason == ledger.ReasonErased):
		return "a call may be in flight, and no other will follow"
	case e.State == ledger.Unknown && !c.nextLookup.IsZero():
		return unknownText(e) + "; the next lookup is due at " + c.nextLookup.UTC().Format(time.RFC3339)
	case e.State == ledger.Unknown:
		return unknownText(e)
	default:
		return stateTexts[e.State]
	}
}

// unknownText returns that the entry may have been sent, unless the opening says it, and what follows.
func unknownText(e ledger.TimelineEvent) string {
	repeat := "is not repeated without a decision"
	if e.Reason == ledger.ReasonCancelled || e.Reason == ledger.ReasonErased {
		repeat = "will not be repeated"
	}
	switch attempt := e.Kind == ledger.EventAttempt; {
	case e.Kind == ledger.EventLeaseExpired, attempt && unproven(e):
		return "it " + repeat
	case attempt: // this attempt is proven unsent; the doubt comes from an earlier one
		return "it may have been sent by an earlier attempt, and " + repeat
	default:
		return stateTexts[ledger.Unknown] + ", and " + repeat
	}
}

// cancels reports whether the event is a caller's cancel, and not a later consequence of one.
func cancels(e ledger.TimelineEvent) bool {
	return e.Kind == ledger.EventDecision && e.Reason == ledger.ReasonCancelled && e.Origin == ledger.OriginAPI
}

// originText returns what triggered the event.
func originText(e ledger.TimelineEvent) string {
	switch e.Origin {
	case ledger.OriginPush:
		return "Pushed" + byName(e.Source)
	case ledger.OriginAPI:
		return "Requested" + byName(e.Source)
	case ledger.OriginWorker, ledger.OriginReconcile:
		return "Processed by the ledger"
	case ledger.OriginRedrive:
		return "Redriven" + byName(e.Source) + inRedrive(e.MessageID)
	default:
		return "Decided" + byName(e.Source)
	}
}

func byName(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

func inRedrive(redrive string) string {
	if redrive == "" {
		return ""
	}
	return " in redrive " + redrive
}

// causeOf names the subscription or queue that dead-lettered the message, where the broker did.
func causeOf(e ledger.TimelineEvent) string {
	if e.Outcome.Cause == "" {
		return ""
	}
	return " (" + e.Outcome.Cause + ")"
}

func atProvider(provider string) string {
	if provider == "" {
		return ""
	}
	return " at " + provider
}

func providerName(provider string) string {
	if provider == "" {
		return "Its provider"
	}
	return "Its provider " + provider
}

func receipt(e ledger.TimelineEvent) string {
	if e.Outcome.Receipt == "" {
		return ""
	}
	return ", receipt " + e.Outcome.Receipt
}

func bracketed(evidence []string) string {
	if len(evidence) == 0 {
		return ""
	}
	return " (" + strings.Join(evidence, ", ") + ")"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// wholeSeconds rounds up, so that a wait is never shown as none.
func wholeSeconds(d time.Duration) int {
	return int((max(d, 0) + time.Second - 1) / time.Second)
}

// resultTexts complete "attempt 1 at mail …".
var resultTexts = map[ledger.Result]string{
	ledger.ResultUnknown:     "ended without a readable answer",
	ledger.ResultAccepted:    "was accepted",
	ledger.ResultRefused:     "was refused",
	ledger.ResultGone:        "was refused, because the recipient no longer exists",
	ledger.ResultCredentials: "was rejected because of our credentials or configuration",
	ledger.ResultThrottled:   "was throttled",
	ledger.ResultUnreachable: "did not reach the provider",
	ledger.ResultNotCalled:   "was not made",
	ledger.ResultDeferred:    "was deferred",
}

// statusTexts complete "Its provider mail reported …".
var statusTexts = map[ledger.StatusKind]string{
	ledger.StatusAccepted:   "that it accepted the message",
	ledger.StatusDelivered:  "that it delivered the message",
	ledger.StatusBounced:    "that the message bounced",
	ledger.StatusFailed:     "that it could not deliver the message",
	ledger.StatusComplained: "that the recipient marked the message as spam",
}

// stateTexts say what a state means for the reminder.
var stateTexts = map[ledger.State]string{
	ledger.Sending: "it is being sent",
	ledger.Waiting: "it waits",
	ledger.Unknown: "it may have been sent",
	ledger.Sent:    "it is sent",
	ledger.Dead:    "it is a dead letter",
	ledger.Dropped: "it will not be sent",
}

// operatorReasons are the reasons that [operatorText] contains already.
var operatorReasons = map[ledger.Reason]bool{
	ledger.ReasonResolved: true, ledger.ReasonAbandoned: true, ledger.ReasonDiscarded: true, ledger.ReasonErased: true,
}

// selfContained are the reasons whose texts say what they mean for the reminder, or that they mean nothing for it.
var selfContained = map[ledger.Reason]bool{
	ledger.ReasonAccepted: true, ledger.ReasonAssumed: true, ledger.ReasonClaimed: true,
	ledger.ReasonTakenOver: true, ledger.ReasonMalformed: true, ledger.ReasonLateFailure: true,
	ledger.ReasonPossibleSecondSend: true, ledger.ReasonReplayed: true, ledger.ReasonAbandoned: true,
	ledger.ReasonReparsed: true, ledger.ReasonPurged: true,
	ledger.ReasonDelivered: true, ledger.ReasonBounced: true, ledger.ReasonFailedLater: true, ledger.ReasonComplained: true,
}

// reasonTexts has a text for each of the ledger's reasons.
var reasonTexts = map[ledger.Reason]string{
	ledger.ReasonClaimed:        "it is being sent already",
	ledger.ReasonAccepted:       "the provider accepted it",
	ledger.ReasonLateAcceptance: "the provider had accepted it",
	ledger.ReasonAssumed:        "by policy it counts as sent, without proof",

	ledger.ReasonScheduled:           "its send time has not come yet",
	ledger.ReasonLedgerRetries:       "its source leaves retries to the ledger",
	ledger.ReasonGateClosed:          "calls to its provider are on hold (gate closed)",
	ledger.ReasonNoCapacity:          "its provider has no free capacity",
	ledger.ReasonRelevanceUnanswered: "the relevance check got no answer",
	ledger.ReasonThrottled:           "the provider asked to wait",
	ledger.ReasonUnreachable:         "the provider could not be reached",
	ledger.ReasonDeferred:            "the provider takes this message later",
	ledger.ReasonCredentials:         "our credentials or configuration for the provider are wrong",
	ledger.ReasonRepeatable:          "the provider's contract makes a repeat safe",
	ledger.ReasonRiskTaken:           "by policy the risk of a second send is accepted",
	ledger.ReasonNotCalled:           "no call was made",
	ledger.ReasonProviderGone:        "its provider is not configured any more",
	ledger.ReasonTakenOver:           "the ledger takes over its retries",
	ledger.ReasonRequested:           "the ledger handles it from now on",
	ledger.ReasonFailedOver:          "it moves to another provider, because the first one has provably not sent it",
	ledger.ReasonResolved:            "an operator resolved it",
	ledger.ReasonRedriven:            "it is redriven",

	ledger.ReasonUnanswered:              "it is unknown whether it was accepted",
	ledger.ReasonLeaseExpired:            "lease expired: the process that was sending it stopped responding",
	ledger.ReasonTooManyLeaseExpirations: "too many of its leases have expired",
	ledger.ReasonWindowEnded:             "the time in which a repeat is safe has ended",
	ledger.ReasonProviderChange:          "the provider's account, endpoint or contract has changed",
	ledger.ReasonNotFound:                "all lookups at its provider were made, and did not find it",
	ledger.ReasonDatabaseChanged:         "the database failed over or was restored, and may have lost a send",

	ledger.ReasonRefused:      "the provider refused this message",
	ledger.ReasonGone:         "the recipient no longer exists",
	ledger.ReasonBudgetSpent:  "its attempts are used up",
	ledger.ReasonUnroutable:   "its channel has no provider",
	ledger.ReasonMalformed:    "it is a dead letter, because it could not be parsed",
	ledger.ReasonTooFarAhead:  "its send time is too far ahead",
	ledger.ReasonExpired:      "no time is left before its deadline",
	ledger.ReasonBeforeMemory: "it is older than the ledger's memory, and may have been sent before",
	ledger.ReasonBeforeCutOff: "it was published before the cut-over",
	ledger.ReasonCancelled:    "it had been cancelled",
	ledger.ReasonObsolete:     "it is no longer relevant",
	ledger.ReasonAbandoned:    "it was abandoned",
	ledger.ReasonDiscarded:    "it was discarded",
	ledger.ReasonErased:       "its recipient and content were erased",
	ledger.ReasonReparsed:     "it could be parsed now, and continues as another entry",
	ledger.ReasonDeadLettered: "its broker dead-lettered it",

	ledger.ReasonLateFailure:        "this changes nothing",
	ledger.ReasonPossibleSecondSend: "the reminder may have been sent twice",
	ledger.ReasonReplayed:           "the receipt is the one already recorded",
	ledger.ReasonLookupUnanswered:   "the lookup got no usable answer",
	ledger.ReasonDelivered:          "its provider delivered it",
	ledger.ReasonBounced:            "its state does not change",
	ledger.ReasonFailedLater:        "its state does not change",
	ledger.ReasonComplained:         "its state does not change",
	ledger.ReasonPurged:             "its recipient and content were deleted at the end of their retention",
}
