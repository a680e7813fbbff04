package api

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// aside is what the entry tells beyond one line of its timeline.
type aside struct {
	faults []string  // why nobody could read it
	due    time.Time // of an entry that waits, for its last line; else zero
	ask    time.Time // when its provider is asked about it next, for its last line; else zero
	now    time.Time
}

// sentence tells a line of the timeline to people: what happened, why it led where it led, and what that
// means for the reminder.
func sentence(e ledger.Event, beside aside) string {
	told, mark := opening(e)
	for _, part := range []string{why(e), standing(e, beside)} {
		if part != "" {
			told += mark + part
			mark = "; "
		}
	}
	if e.Reason == ledger.ReasonMalformed && len(beside.faults) > 0 {
		told += ": " + strings.Join(beside.faults, "; ")
	}
	return told + "."
}

// opening tells what happened, and which mark goes on from there.
func opening(e ledger.Event) (told, mark string) {
	switch {
	case e.Kind == ledger.EventAttempt:
		return upper(call(e)), "; "
	case e.Kind == ledger.EventLapse:
		return "The process that was sending it went silent, and its call" + at(e.Provider) + " may have been accepted", "; "
	case e.Kind == ledger.EventLate:
		return "A process came back after the entry had moved on: " + call(e), "; "
	case e.Kind == ledger.EventLookup:
		return inquiry(e), "; "
	case e.Kind == ledger.EventReport:
		return reported(e), "; "
	case e.Origin == ledger.OriginPerson:
		return decided(e), "; "
	case e.Reason == ledger.ReasonPurged:
		return "Whom it was for and what it said is not kept any longer", "; "
	case e.Origin == ledger.OriginRedrive && e.Reason == ledger.ReasonRedriven:
		return visitor(e), "; "
	case e.Reason == ledger.ReasonTakenOver && e.Origin == ledger.OriginPush:
		return "Its broker gave up on it" + causeOf(e) + "; the ledger takes it over", "; "
	case e.Reason == ledger.ReasonTakenOver:
		return "Its broker did not bring it back in time; the ledger takes it over", "; "
	case cancels(e):
		return "Cancelled" + by(e.Source), "; "
	case e.Reason == ledger.ReasonMalformed:
		return visitor(e), "; "
	default:
		return visitor(e), ": "
	}
}

// call tells what a call to a provider came to, with the evidence.
func call(e ledger.Event) string {
	what := "its call"
	if e.Number > 0 {
		what = "attempt " + strconv.Itoa(e.Number)
	}
	verdict, evidence := verdicts[e.Outcome.Result], evidenceOf(e.Outcome)
	if unproven(e) && e.Outcome.Status != 0 {
		verdict, evidence = "was answered "+evidence[0], evidence[1:]
	} else if unproven(e) {
		verdict = verdicts[ledger.ResultUnknown]
	}
	told := what + at(e.Provider) + " " + verdict + bracketed(evidence)
	wait := wholeSeconds(e.Outcome.RetryAfter)
	switch accepted := e.Outcome.Result == ledger.ResultAccepted; {
	case unproven(e):
		return told + ", which does not tell whether it was accepted"
	case accepted && e.Outcome.Receipt != "":
		return told + receipt(e)
	case accepted:
		return told + ", but its receipt could not be read"
	case wait > 0:
		return told + fmt.Sprintf(", with %d s to wait", wait)
	default:
		return told
	}
}

// inquiry tells what a provider said when it was asked.
func inquiry(e ledger.Event) string {
	said := ", and it did"
	switch e.Reason {
	case ledger.ReasonNotFound:
		said = ", and does not know it"
	case ledger.ReasonUnansweredYet:
		said = ", and did not say"
	}
	told := its(e.Provider) + " was asked whether it took it" + said + bracketed(evidenceOf(e.Outcome)) + receipt(e)
	if e.Reason == ledger.ReasonNotFound {
		told += ", which proves nothing"
	}
	return told
}

// reported tells what a provider reported of its own accord; the cause has the kind of the report.
func reported(e ledger.Event) string {
	said := cmp.Or(reports[ledger.ReportKind(e.Outcome.Cause)], strings.ReplaceAll(e.Outcome.Cause, "_", " "), "something")
	evidence := e.Outcome
	evidence.Cause = ""
	return its(e.Provider) + " reported " + said + bracketed(evidenceOf(evidence)) + receipt(e)
}

// decided tells what a person decided.
func decided(e ledger.Event) string {
	told := "Decided" + by(e.Source)
	switch {
	case e.Reason == ledger.ReasonErased:
		return "Whom it was for and what it said was erased" + by(e.Source)
	case e.Reason == ledger.ReasonDiscarded:
		return "Discarded" + by(e.Source)
	case e.State == ledger.Sent:
		return told + ": it was sent" + receipt(e)
	case e.Reason == ledger.ReasonAbandoned:
		return told + ": it may have been sent, and is given up"
	case e.State == ledger.Dropped && e.Reason == ledger.ReasonResolved:
		return told
	default:
		return told + ": it was not sent"
	}
}

// unproven tells whether a call may have been accepted; a result that has no word of its own counts so too.
func unproven(e ledger.Event) bool {
	return e.Outcome.Result.String() == ledger.ResultUnknown.String()
}

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

// why tells the reason, unless the opening says it already.
func why(e ledger.Event) string {
	attempt := e.Kind == ledger.EventAttempt
	switch {
	case e.Kind == ledger.EventLookup && e.Reason == ledger.ReasonNotFound && e.State == ledger.Waiting:
		return reasons[ledger.ReasonRiskTaken]
	case e.Kind == ledger.EventLookup && (e.Reason == ledger.ReasonNotFound || e.Reason == ledger.ReasonUnansweredYet),
		e.Origin == ledger.OriginPerson && decisions[e.Reason],
		e.Kind == ledger.EventDecision && (e.Reason == ledger.ReasonPurged || e.Origin == ledger.OriginRedrive && e.Reason == ledger.ReasonRedriven),
		e.Reason == ledger.ReasonDelivered:
		return ""
	case attempt && (string(e.Reason) == e.Outcome.Result.String() || e.Reason == ledger.ReasonUnanswered),
		e.Reason == ledger.ReasonLapsed, e.Reason == ledger.ReasonLateAcceptance, e.Reason == ledger.ReasonTakenOver, cancels(e):
		return ""
	case e.Reason == ledger.ReasonNotCalled && e.Outcome.Cause != "":
		return reasons[e.Reason] + " (" + strings.Join(evidenceOf(e.Outcome), ", ") + ")"
	case e.Reason == ledger.ReasonGivenUp:
		return reasons[e.Reason] + causeOf(e)
	case e.Reason == ledger.ReasonReread && e.Outcome.Code != "":
		return reasons[e.Reason] + " (" + e.Outcome.Code + ")"
	}
	if told, known := reasons[e.Reason]; known {
		return told
	}
	return strings.ReplaceAll(string(e.Reason), "_", " ")
}

// standing tells what the line means for the reminder, unless what was told says it.
func standing(e ledger.Event, beside aside) string {
	switch {
	case complete[e.Reason], e.Origin == ledger.OriginPerson && e.State == ledger.Sent && e.Reason != ledger.ReasonErased:
		return ""
	case e.State == ledger.Waiting && beside.due.After(beside.now):
		return "it waits until " + beside.due.UTC().Format(time.RFC3339)
	case e.State == ledger.Waiting && !beside.due.IsZero():
		return "it has been due since " + beside.due.UTC().Format(time.RFC3339)
	case e.State == ledger.Sending && (cancels(e) || e.Reason == ledger.ReasonErased):
		return "a call may be on its way, and no other will follow"
	case e.State == ledger.Unknown && !beside.ask.IsZero():
		return undecided(e) + "; its provider is asked next at " + beside.ask.UTC().Format(time.RFC3339)
	case e.State == ledger.Unknown:
		return undecided(e)
	default:
		return standings[e.State]
	}
}

// undecided tells that the entry may have been sent, where the opening does not, and what follows.
func undecided(e ledger.Event) string {
	follows := "is not repeated without a decision"
	if e.Reason == ledger.ReasonCancelled || e.Reason == ledger.ReasonErased {
		follows = "will not be repeated"
	}
	switch attempt := e.Kind == ledger.EventAttempt; {
	case e.Kind == ledger.EventLapse, attempt && unproven(e):
		return "it " + follows
	case attempt: // this one is proven unsent; the doubt is about an earlier one
		return "it may have been sent before, and " + follows
	default:
		return standings[ledger.Unknown] + ", and " + follows
	}
}

// cancels tells whether the line is a caller's cancel, and not what follows from one later.
func cancels(e ledger.Event) bool {
	return e.Kind == ledger.EventDecision && e.Reason == ledger.ReasonCancelled && e.Origin == ledger.OriginAPI
}

// visitor tells who came.
func visitor(e ledger.Event) string {
	switch e.Origin {
	case ledger.OriginPush:
		return "Pushed" + by(e.Source)
	case ledger.OriginAPI:
		return "Asked for" + by(e.Source)
	case ledger.OriginWorker, ledger.OriginReconcile:
		return "Looked at by the ledger"
	case ledger.OriginRedrive:
		return "Put to work again" + by(e.Source) + within(e.Message)
	default:
		return "Decided" + by(e.Source)
	}
}

func by(name string) string {
	if name == "" {
		return ""
	}
	return " by " + name
}

func within(redrive string) string {
	if redrive == "" {
		return ""
	}
	return " in redrive " + redrive
}

// causeOf names the subscription or queue that gave up, where the broker did.
func causeOf(e ledger.Event) string {
	if e.Outcome.Cause == "" {
		return ""
	}
	return " (" + e.Outcome.Cause + ")"
}

func at(provider string) string {
	if provider == "" {
		return ""
	}
	return " at " + provider
}

func its(provider string) string {
	if provider == "" {
		return "Its provider"
	}
	return "Its provider " + provider
}

func receipt(e ledger.Event) string {
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

// wholeSeconds rounds up, so that a wait is never told as none.
func wholeSeconds(d time.Duration) int {
	return int((max(d, 0) + time.Second - 1) / time.Second)
}

// verdicts complete "attempt 1 at mail …".
var verdicts = map[ledger.Result]string{
	ledger.ResultUnknown:     "ended without a readable answer",
	ledger.ResultAccepted:    "was accepted",
	ledger.ResultRefused:     "was refused",
	ledger.ResultGone:        "was refused, since the recipient is no more",
	ledger.ResultCredentials: "was turned away because of our credentials or set-up",
	ledger.ResultThrottled:   "was asked to come back later",
	ledger.ResultUnreachable: "did not get through",
	ledger.ResultNotCalled:   "was not made",
}

// reports complete "Its provider mail reported …".
var reports = map[ledger.ReportKind]string{
	ledger.ReportAccepted:   "that it took it",
	ledger.ReportDelivered:  "that it delivered it",
	ledger.ReportBounced:    "that the address did not take it",
	ledger.ReportFailed:     "that it gave up on it",
	ledger.ReportComplained: "that the recipient called it spam",
}

// standings tell what a state means for the reminder.
var standings = map[ledger.State]string{
	ledger.Sending: "it is being sent",
	ledger.Waiting: "it waits",
	ledger.Unknown: "it may have been sent",
	ledger.Sent:    "it is sent",
	ledger.Dead:    "it is a dead letter",
	ledger.Dropped: "it will not be sent",
}

// decisions are the reasons that the opening of a person's line tells.
var decisions = map[ledger.Reason]bool{
	ledger.ReasonResolved: true, ledger.ReasonAbandoned: true, ledger.ReasonDiscarded: true, ledger.ReasonErased: true,
}

// complete are the reasons that say themselves what they mean for the reminder, or that they mean nothing.
var complete = map[ledger.Reason]bool{
	ledger.ReasonAccepted: true, ledger.ReasonAssumed: true, ledger.ReasonClaimed: true,
	ledger.ReasonTakenOver: true, ledger.ReasonMalformed: true, ledger.ReasonLateFailure: true,
	ledger.ReasonPossibleSecondSend: true, ledger.ReasonReplayed: true, ledger.ReasonAbandoned: true,
	ledger.ReasonReread: true, ledger.ReasonPurged: true,
	ledger.ReasonDelivered: true, ledger.ReasonBounced: true, ledger.ReasonFailedLater: true, ledger.ReasonComplained: true,
}

// reasons tell each of the ledger's words.
var reasons = map[ledger.Reason]string{
	ledger.ReasonClaimed:        "it is being sent already",
	ledger.ReasonAccepted:       "the provider accepted it",
	ledger.ReasonLateAcceptance: "the provider had accepted it",
	ledger.ReasonAssumed:        "by policy it counts as sent, which nothing proves",

	ledger.ReasonScheduled:           "its time has not come yet",
	ledger.ReasonLedgerRetries:       "its source leaves the sending to the ledger",
	ledger.ReasonGateClosed:          "its provider is left alone for now (its gate is closed)",
	ledger.ReasonNoCapacity:          "its provider is busy with other reminders",
	ledger.ReasonRelevanceUnanswered: "nobody answered whether it is still wanted",
	ledger.ReasonThrottled:           "the provider asked to come back later",
	ledger.ReasonUnreachable:         "the provider could not be reached",
	ledger.ReasonCredentials:         "our credentials or set-up at the provider are wrong",
	ledger.ReasonRepeatable:          "a repeat is harmless by the provider's contract",
	ledger.ReasonRiskTaken:           "by policy the risk of a second send is taken",
	ledger.ReasonNotCalled:           "no call was made",
	ledger.ReasonProviderGone:        "its provider is not configured now",
	ledger.ReasonTakenOver:           "the ledger takes it over from its broker",
	ledger.ReasonRequested:           "the ledger sees to it from now on",
	ledger.ReasonFailedOver:          "it moves to another provider, since it is proven unsent at the first",
	ledger.ReasonResolved:            "a person said what became of it",
	ledger.ReasonRedriven:            "it is put to work again",

	ledger.ReasonUnanswered:     "nobody knows whether it was accepted",
	ledger.ReasonLapsed:         "the process that was sending it went silent",
	ledger.ReasonTooManyLapses:  "that happened too often",
	ledger.ReasonWindowEnded:    "the time in which a repeat is harmless is over",
	ledger.ReasonProviderChange: "the provider's account, endpoint or contract is not what it was",
	ledger.ReasonNotFound:       "its provider was asked to the end, and does not know it",
	ledger.ReasonLedgerChanged:  "the database changed under us, and may have forgotten a send",

	ledger.ReasonRefused:      "the provider refuses this message",
	ledger.ReasonGone:         "the recipient is no more",
	ledger.ReasonBudgetSpent:  "its attempts are used up",
	ledger.ReasonUnroutable:   "its channel has no provider",
	ledger.ReasonMalformed:    "it is a dead letter, since it could not be read",
	ledger.ReasonTooFarAhead:  "its time lies too far ahead",
	ledger.ReasonExpired:      "no time is left before its deadline",
	ledger.ReasonBeforeMemory: "it is older than the ledger remembers, and may have been sent then",
	ledger.ReasonBeforeCutOff: "it was published before the cut-over",
	ledger.ReasonCancelled:    "it had been cancelled",
	ledger.ReasonObsolete:     "it is not wanted any more",
	ledger.ReasonAbandoned:    "it was given up",
	ledger.ReasonDiscarded:    "it was discarded",
	ledger.ReasonErased:       "whom it was for and what it said was erased",
	ledger.ReasonReread:       "it could be read at last, and is another entry now",
	ledger.ReasonGivenUp:      "its broker gave up on it",

	ledger.ReasonLateFailure:        "that changes nothing",
	ledger.ReasonPossibleSecondSend: "the reminder may have been sent twice",
	ledger.ReasonReplayed:           "that is the receipt which stands already",
	ledger.ReasonUnansweredYet:      "its provider was asked, and did not say",
	ledger.ReasonDelivered:          "its provider delivered it",
	ledger.ReasonBounced:            "that changes nothing",
	ledger.ReasonFailedLater:        "that changes nothing",
	ledger.ReasonComplained:         "that changes nothing",
	ledger.ReasonPurged:             "whom it was for and what it said is not kept any longer",
}
