package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/api/client"
)

// right is a history of each kind in which all went well.
func right() map[string]history {
	lapse := client.Line{Kind: client.LineKindLapse, State: client.StateUnknown, Reason: "lapsed"}
	sent := client.Line{Kind: client.LineKindAttempt, State: client.StateSent, Outcome: client.LineOutcomeAccepted}
	first := call{Key: "k", Taken: true, Receipt: "receipt-1"}
	broken, acked := delivery{}, delivery{Status: 200}
	made := func(contract, policy string, e client.Entry, lines ...client.Line) history {
		e.State = client.StateSent
		return history{
			passage:    passage{Promise: Promise{Contract: contract}, policy: Policy{OnUnknown: policy}},
			deliveries: []delivery{broken, acked, acked}, calls: []call{first},
			story: &client.Story{Entry: e, Timeline: append([]client.Line{lapse}, lines...)},
		}
	}
	idempotent := made(Idempotent, hold, client.Entry{Receipt: "receipt-1"}, sent)
	idempotent.calls = append(idempotent.calls, call{Key: "k", Receipt: "receipt-1"})
	asked := made(Lookup, hold, client.Entry{Receipt: "receipt-1"}, sent)
	asked.asked = 1
	held := made(Blind, hold, client.Entry{ReceiptMissing: client.EntryReceiptMissingResolved}, sent)
	held.listed, held.resolved, held.story.Acts = true, true, []client.Act{{}}
	assumed := made(Blind, assumeSent, client.Entry{ReceiptMissing: client.EntryReceiptMissingAssumed}, sent)
	return map[string]history{Idempotent: idempotent, Lookup: asked, Blind: held, assumeSent: assumed}
}

func TestAWalkThatWentWellIsPraised(t *testing.T) {
	for name, h := range right() {
		if wrong := judge(h); wrong != nil {
			t.Errorf("%s: %q", name, wrong)
		}
		if h.praise() == "" {
			t.Errorf("%s: no praise", name)
		}
	}
}

func TestWhatWentWrongIsFound(t *testing.T) {
	second := call{Key: "k", Taken: true, Receipt: "receipt-2"}
	for name, c := range map[string]struct {
		of     string
		spoil  func(h *history)
		weight string
	}{
		"a blind provider is called again":         {Blind, func(h *history) { h.calls = append(h.calls, second) }, "DOUBLED: the person got it 2 times"},
		"an asked provider is called again":        {Lookup, func(h *history) { h.calls = append(h.calls, second) }, "DOUBLED"},
		"a repeat that is not recognised":          {Idempotent, func(h *history) { h.calls[1] = second }, "DOUBLED"},
		"a repeat under another key":               {Idempotent, func(h *history) { h.calls[1].Key = "other" }, "DOUBLED: the calls carried 2 keys"},
		"a repeat with other bytes":                {Idempotent, func(h *history) { h.calls[1].Body[0] = 1 }, "DOUBLED: the calls carried 1 keys and 2 bodies"},
		"a policy that takes the risk":             {Blind, func(h *history) { h.policy.OnUnknown = resend; h.calls = append(h.calls, second) }, "DOUBLED: the person got it 2 times. The type's policy"},
		"the ledger's own word for it":             {Idempotent, func(h *history) { h.story.Timeline[0].Reason = reasonSecondSend }, "DOUBLED: by the ledger's own word"},
		"nobody called":                            {Idempotent, func(h *history) { h.calls = nil }, "LOST: the provider was never called"},
		"an ack before anything was settled":       {Blind, func(h *history) { h.deliveries[0].Status = 200 }, "LOST: the first delivery was acked"},
		"no entry":                                 {Blind, func(h *history) { h.story = nil }, "LOST: the ledger holds nothing"},
		"a dropped entry":                          {Lookup, func(h *history) { h.story.Entry.State = client.StateDropped }, "LOST: the provider took it, and the ledger says dropped"},
		"a dead letter":                            {Idempotent, func(h *history) { h.story.Entry.State = client.StateDead }, "LOST"},
		"a wait without end":                       {Idempotent, func(h *history) { h.story.Entry.State = client.StateWaiting }, "LOST"},
		"unknown, and listed for nobody":           {Blind, func(h *history) { h.story.Entry.State, h.listed, h.resolved = client.StateUnknown, false, false }, "LOST: it may have been sent, and it is not listed"},
		"unknown, and not to be resolved":          {Blind, func(h *history) { h.story.Entry.State, h.resolved = client.StateUnknown, false }, "UNSETTLED: it waits for a person"},
		"never acked":                              {Blind, func(h *history) { h.deliveries[2].Status = 503 }, "UNSETTLED: the last delivery"},
		"sent, and nobody could know":              {Blind, func(h *history) { h.story.Entry.Receipt, h.resolved = "receipt-1", false }, "UNEXPLAINED: it counts as sent, although nobody could know"},
		"sent, and nobody asked":                   {Lookup, func(h *history) { h.asked = 0 }, "UNEXPLAINED: it counts as sent, although the provider was not asked"},
		"sent, and nobody called again":            {Idempotent, func(h *history) { h.calls = h.calls[:1] }, "UNEXPLAINED: it counts as sent, although the provider was not called again"},
		"a receipt that was never given":           {Lookup, func(h *history) { h.story.Entry.Receipt = "receipt-9" }, "UNEXPLAINED: it counts as sent with the receipt \"receipt-9\""},
		"assumed, although the policy is to hold":  {assumeSent, func(h *history) { h.policy.OnUnknown = hold }, "UNEXPLAINED: it counts as sent by a policy"},
		"assumed, although a repeat was harmless":  {assumeSent, func(h *history) { h.Contract = Idempotent }, "UNEXPLAINED"},
		"settled, and nobody knows by whom":        {Blind, func(h *history) { h.story.Acts = nil }, "UNEXPLAINED: a person settled it"},
		"a timeline without the crash":             {Idempotent, func(h *history) { h.story.Timeline = h.story.Timeline[1:] }, "UNEXPLAINED: the timeline does not tell"},
		"a timeline that ends somewhere else":      {Idempotent, func(h *history) { h.story.Timeline = h.story.Timeline[:1] }, "UNEXPLAINED: it is sent, and the timeline ends at unknown"},
		"a state that the gateway should not know": {Idempotent, func(h *history) { h.story.Entry.State = "lost" }, "LOST"},
	} {
		h := right()[c.of]
		c.spoil(&h)
		wrong := judge(h)
		if !slices.ContainsFunc(wrong, func(found string) bool { return strings.HasPrefix(found, c.weight) }) {
			t.Errorf("%s: %q, want %s", name, wrong, c.weight)
		}
	}
}

func TestARunningGatewayIsJudgedByItsTimeline(t *testing.T) {
	line := func(outcome client.LineOutcome, reason string, state client.State) client.Line {
		return client.Line{Kind: client.LineKindAttempt, Outcome: outcome, Reason: reason, State: state}
	}
	lost := line(client.LineOutcomeUnknown, reasonRepeatable, client.StateWaiting)
	held := line(client.LineOutcomeUnknown, "unanswered", client.StateUnknown)
	taken := line(client.LineOutcomeAccepted, "accepted", client.StateSent)
	decided := client.Line{Kind: client.LineKindDecision, Reason: "resolved", State: client.StateSent}
	told := func(lines ...client.Line) *client.Story {
		return &client.Story{Timeline: lines, Entry: client.Entry{State: lines[len(lines)-1].State}}
	}
	for name, c := range map[string]struct {
		story    *client.Story
		listed   bool
		contract string
		weight   string // empty: all is right
	}{
		"repeated under one key":        {told(lost, taken), false, "", ""},
		"and that was expected":         {told(lost, taken), false, Idempotent, ""},
		"held for a person":             {told(held), true, Blind, ""},
		"settled by a person":           {told(held, decided), true, "", ""},
		"no entry":                      {nil, false, "", "LOST"},
		"held for nobody":               {told(held), false, "", "LOST: it may have been sent"},
		"called again all the same":     {told(held, taken), true, "", "DOUBLED: it was called again"},
		"called again and again":        {told(lost, taken, taken), false, "", "DOUBLED: it was accepted twice"},
		"the risk is taken":             {told(line(client.LineOutcomeUnknown, reasonRiskTaken, client.StateWaiting), taken), false, "", "DOUBLED: the type's policy"},
		"another contract than thought": {told(lost, taken), false, Blind, "UNEXPLAINED: the provider's contract is not blind"},
		"no repeat where one was due":   {told(held), true, Idempotent, "UNEXPLAINED: the provider's contract is not idempotent"},
		"no sandbox":                    {told(taken), false, "", "UNEXPLAINED: the timeline does not tell"},
		"never done":                    {told(lost), false, "", "UNSETTLED"},
		"dropped":                       {told(lost, client.Line{State: client.StateDropped}), false, "", "LOST: the provider took it"},
	} {
		wrong := judgeStory(c.story, c.listed, c.contract)
		found := slices.ContainsFunc(wrong, func(f string) bool { return strings.HasPrefix(f, c.weight) })
		if c.weight == "" && wrong != nil || c.weight != "" && !found {
			t.Errorf("%s: %q, want %q", name, wrong, c.weight)
		}
	}
}
