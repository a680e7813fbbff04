package cli

import (
	"fmt"

	"github.com/sendonce/sendonce/api/client"
)

// history is what a walk saw: what the broker was told, what the provider really got, and what the ledger
// says about it in the end.
type history struct {
	passage
	deliveries []delivery
	calls      []call
	asked      int           // questions that the provider was asked
	listed     bool          // it stood among what waits for a person
	resolved   bool          // a person said that it was sent
	story      *client.Story // nil where the ledger holds nothing
}

// judge says what went wrong, each with the word that weighs it; nothing when all was right.
func judge(h history) []string {
	var wrong []string
	find := func(weight, text string, args ...any) { wrong = append(wrong, weight+": "+fmt.Sprintf(text, args...)) }
	messages, keys, bodies := h.sent()
	switch {
	case messages > 1 && h.Contract == Blind && h.policy.OnUnknown == resend:
		find("DOUBLED", "the person got it %d times. The type's policy chose this risk (on_unknown: %s); with %s a person would decide", messages, resend, hold)
	case messages > 1:
		find("DOUBLED", "the person got it %d times", messages)
	case messages == 0:
		find("LOST", "the provider was never called")
	}
	if keys > 1 || bodies > 1 {
		find("DOUBLED", "the calls carried %d keys and %d bodies; a provider that recognises repeats needs them to be the same", keys, bodies)
	}
	if len(h.deliveries) > 0 && h.deliveries[0].acked() {
		find("LOST", "the first delivery was acked although nothing was settled yet: had the process ended then, nobody would have brought it back")
	}
	if n := len(h.deliveries); n == 0 || !h.deliveries[n-1].acked() {
		find("UNSETTLED", "the last delivery was not acked")
	}
	if h.story == nil {
		find("LOST", "the ledger holds nothing")
		return wrong
	}
	return append(append(wrong, h.ending()...), unexplained(*h.story)...)
}

// sent counts what the provider took as messages of their own, and the keys and bodies of all calls.
func (h history) sent() (messages, keys, bodies int) {
	seenKeys, seenBodies := map[string]bool{}, map[any]bool{}
	for _, c := range h.calls {
		if c.Taken {
			messages++
		}
		seenKeys[c.Key], seenBodies[c.Body] = true, true
	}
	return messages, len(seenKeys), len(seenBodies)
}

// ending judges where the entry came to rest, by what the contract allows.
func (h history) ending() (wrong []string) {
	find := func(weight, text string, args ...any) { wrong = append(wrong, weight+": "+fmt.Sprintf(text, args...)) }
	e := h.story.Entry
	switch {
	case e.State == client.StateUnknown && !h.listed:
		find("LOST", "it may have been sent, and it is not listed for a person")
	case e.State == client.StateUnknown:
		find("UNSETTLED", "it waits for a person, and could not be resolved")
	case e.State != client.StateSent:
		find("LOST", "the provider took it, and the ledger says %s (%s)", e.State, e.Reason)
	case h.resolved && len(h.story.Acts) == 0:
		find("UNEXPLAINED", "a person settled it, and its story does not say who")
	case h.resolved:
	case e.ReceiptMissing == client.EntryReceiptMissingAssumed:
		if h.policy.OnUnknown != assumeSent || h.Contract != Blind {
			find("UNEXPLAINED", "it counts as sent by a policy that the type does not have")
		}
	case !h.knows(e.Receipt):
		find("UNEXPLAINED", "it counts as sent with the receipt %q, which the provider never gave", e.Receipt)
	case h.Contract == Idempotent && len(h.calls) < 2:
		find("UNEXPLAINED", "it counts as sent, although the provider was not called again to find out")
	case h.Contract == Lookup && h.asked == 0:
		find("UNEXPLAINED", "it counts as sent, although the provider was not asked")
	case h.Contract == Blind && h.policy.OnUnknown == hold:
		find("UNEXPLAINED", "it counts as sent, although nobody could know and no person decided")
	}
	return wrong
}

// knows tells whether the provider gave a receipt.
func (h history) knows(receipt string) bool {
	for _, c := range h.calls {
		if c.Receipt == receipt {
			return true
		}
	}
	return false
}

// unexplained says what a timeline leaves untold of a call that nobody heard the end of.
func unexplained(s client.Story) (wrong []string) {
	doubted := false
	for _, l := range s.Timeline {
		switch {
		case l.Reason == reasonSecondSend:
			wrong = append(wrong, "DOUBLED: by the ledger's own word it may have been sent a second time")
		case l.Kind == client.LineKindLapse, l.Kind == client.LineKindAttempt && l.Outcome == client.LineOutcomeUnknown:
			doubted = true
		}
	}
	if !doubted {
		wrong = append(wrong, "UNEXPLAINED: the timeline does not tell of the call that nobody heard the end of")
	}
	if n := len(s.Timeline); n > 0 && s.Timeline[n-1].State != s.Entry.State {
		wrong = append(wrong, fmt.Sprintf("UNEXPLAINED: it is %s, and the timeline ends at %s", s.Entry.State, s.Timeline[n-1].State))
	}
	return wrong
}

// reasons that stand in a timeline.
const (
	reasonSecondSend = "possible_second_send"
	reasonRepeatable = "repeatable"
	reasonRiskTaken  = "risk_taken"
	reasonAssumed    = "assumed"
)

// praise is a right walk in one sentence.
func (h history) praise() string {
	calls := fmt.Sprintf("called %s, taken once", times(len(h.calls)))
	if len(h.calls) > 1 {
		calls = fmt.Sprintf("called %s under one key, taken once", times(len(h.calls)))
	}
	switch {
	case h.resolved:
		return calls + "; listed for a person, who settled it"
	case h.asked > 0:
		return calls + fmt.Sprintf("; asked %s, and settled by the answer", times(h.asked))
	case h.story.Entry.ReceiptMissing == client.EntryReceiptMissingAssumed:
		return calls + "; assumed to be sent by the type's policy, and shown as assumed"
	default:
		return calls + "; settled by the provider's answer to the repeat"
	}
}
