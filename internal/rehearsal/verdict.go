package rehearsal

import (
	"fmt"

	"github.com/sendonce/sendonce/api/client"
)

// history is what a scenario observed: the answers to the broker, the calls that the provider received, and the final
// entry in the ledger.
type history struct {
	variant
	deliveries []delivery
	calls      []call
	lookups    int                 // that the provider received
	listed     bool                // among the unresolved entries that wait for an operator
	resolved   bool                // as sent, by an operator
	detail     *client.EntryDetail // nil if the ledger has no entry
}

// judge returns the problems of a scenario, each with its severity; nil if there are none.
func judge(h history) []string {
	var wrong []string
	add := func(severity, text string, args ...any) {
		wrong = append(wrong, severity+": "+fmt.Sprintf(text, args...))
	}
	messages, keys, bodies := h.sent()
	switch {
	case messages > 1 && h.Contract == Blind && h.policy.OnUnknown == resend:
		add("DOUBLED", "the recipient got it %d times. The type's policy accepts this risk (on_unknown: %s); with %s an operator would decide", messages, resend, hold)
	case messages > 1:
		add("DOUBLED", "the recipient got it %d times", messages)
	case messages == 0:
		add("LOST", "the provider was never called")
	}
	if keys > 1 || bodies > 1 {
		add("DOUBLED", "the calls carried %d keys and %d bodies; a provider that recognises repeats needs them to be equal", keys, bodies)
	}
	if len(h.deliveries) > 0 && h.deliveries[0].acked() {
		add("LOST", "the first delivery was acked before it was settled: if the process had ended then, the broker would not have redelivered it")
	}
	if n := len(h.deliveries); n == 0 || !h.deliveries[n-1].acked() {
		add("UNSETTLED", "the last delivery was not acked")
	}
	if h.detail == nil {
		add("LOST", "the ledger has no entry")
		return wrong
	}
	return append(append(wrong, h.judgeEntry()...), judgeTimeline(*h.detail)...)
}

// sent counts the messages that the provider accepted, and the different keys and bodies of all calls.
func (h history) sent() (messages, keys, bodies int) {
	seenKeys, seenBodies := map[string]bool{}, map[any]bool{}
	for _, c := range h.calls {
		if c.Accepted {
			messages++
		}
		seenKeys[c.Key], seenBodies[c.Body] = true, true
	}
	return messages, len(seenKeys), len(seenBodies)
}

// judgeEntry checks the final state of the entry by the contract.
func (h history) judgeEntry() (wrong []string) {
	add := func(severity, text string, args ...any) {
		wrong = append(wrong, severity+": "+fmt.Sprintf(text, args...))
	}
	e := h.detail.Entry
	switch {
	case e.State == client.StateUnknown && !h.listed:
		add("LOST", "it may have been sent, and it is not listed for an operator")
	case e.State == client.StateUnknown:
		add("UNSETTLED", "it waits for an operator, and could not be resolved")
	case e.State != client.StateSent:
		add("LOST", "the provider accepted it, and its state is %s (%s)", e.State, e.Reason)
	case h.resolved && len(h.detail.Audit) == 0:
		add("UNEXPLAINED", "an operator resolved it, and there is no audit event")
	case h.resolved:
	case e.ReceiptMissing == client.EntryReceiptMissingAssumed:
		if h.policy.OnUnknown != assumeSent || h.Contract != Blind {
			add("UNEXPLAINED", "it counts as sent by a policy that the type does not have")
		}
	case !h.gaveReceipt(e.Receipt):
		add("UNEXPLAINED", "it counts as sent with the receipt %q, which the provider never gave", e.Receipt)
	case h.Contract == Idempotent && len(h.calls) < 2:
		add("UNEXPLAINED", "it counts as sent, although the provider was not called again to find out")
	case h.Contract == Lookup && h.lookups == 0:
		add("UNEXPLAINED", "it counts as sent, although it was not looked up at the provider")
	case h.Contract == Blind && h.policy.OnUnknown == hold:
		add("UNEXPLAINED", "it counts as sent, although the result could not be known and no operator decided")
	}
	return wrong
}

// gaveReceipt reports whether the provider gave a receipt.
func (h history) gaveReceipt(receipt string) bool {
	for _, c := range h.calls {
		if c.Receipt == receipt {
			return true
		}
	}
	return false
}

// judgeTimeline checks that a timeline shows the call whose answer was lost.
func judgeTimeline(detail client.EntryDetail) (wrong []string) {
	doubted := false
	for _, event := range detail.Timeline {
		switch {
		case event.Reason == reasonSecondSend:
			wrong = append(wrong, "DOUBLED: the timeline says that it may have been sent a second time")
		case event.Kind == client.TimelineEventKindLeaseExpired, event.Kind == client.TimelineEventKindAttempt && event.Outcome == client.TimelineEventOutcomeUnknown:
			doubted = true
		}
	}
	if !doubted {
		wrong = append(wrong, "UNEXPLAINED: the timeline does not show the call whose answer was lost")
	}
	if n := len(detail.Timeline); n > 0 && detail.Timeline[n-1].State != detail.Entry.State {
		wrong = append(wrong, fmt.Sprintf("UNEXPLAINED: it is %s, and the timeline ends at %s", detail.Entry.State, detail.Timeline[n-1].State))
	}
	return wrong
}

// Reasons in a timeline.
const (
	reasonSecondSend = "possible_second_send"
	reasonRepeatable = "repeatable"
	reasonRiskTaken  = "risk_taken"
	reasonAssumed    = "assumed"
)

// summary describes a scenario without findings in one sentence.
func (h history) summary() string {
	calls := fmt.Sprintf("called %s, accepted once", timesText(len(h.calls)))
	if len(h.calls) > 1 {
		calls = fmt.Sprintf("called %s with one key, accepted once", timesText(len(h.calls)))
	}
	switch {
	case h.resolved:
		return calls + "; listed for an operator, who resolved it"
	case h.lookups > 0:
		return calls + fmt.Sprintf("; looked up %s, and settled by the result", timesText(h.lookups))
	case h.detail.Entry.ReceiptMissing == client.EntryReceiptMissingAssumed:
		return calls + "; assumed to be sent by the type's policy, and shown as assumed"
	default:
		return calls + "; settled by the provider's answer to the repeat"
	}
}
