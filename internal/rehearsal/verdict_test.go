package rehearsal

import (
	"slices"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/api/client"
)

// goodHistories has a history without findings for each contract and policy.
func goodHistories() map[string]history {
	expired := client.TimelineEvent{Kind: client.TimelineEventKindLeaseExpired, State: client.StateUnknown, Reason: "lease_expired"}
	sent := client.TimelineEvent{Kind: client.TimelineEventKindAttempt, State: client.StateSent, Outcome: client.TimelineEventOutcomeAccepted}
	first := call{Key: "k", Accepted: true, Receipt: "receipt-1"}
	broken, acked := delivery{}, delivery{Status: 200}
	newHistory := func(contract, policy string, e client.Entry, events ...client.TimelineEvent) history {
		e.State = client.StateSent
		return history{
			variant:    variant{Promise: Promise{Contract: contract}, policy: Policy{OnUnknown: policy}},
			deliveries: []delivery{broken, acked, acked}, calls: []call{first},
			detail: &client.EntryDetail{Entry: e, Timeline: append([]client.TimelineEvent{expired}, events...)},
		}
	}
	idempotent := newHistory(Idempotent, hold, client.Entry{Receipt: "receipt-1"}, sent)
	idempotent.calls = append(idempotent.calls, call{Key: "k", Receipt: "receipt-1"})
	lookedUp := newHistory(Lookup, hold, client.Entry{Receipt: "receipt-1"}, sent)
	lookedUp.lookups = 1
	held := newHistory(Blind, hold, client.Entry{ReceiptMissing: client.EntryReceiptMissingResolved}, sent)
	held.listed, held.resolved, held.detail.Audit = true, true, []client.EntryAuditEvent{{}}
	assumed := newHistory(Blind, assumeSent, client.Entry{ReceiptMissing: client.EntryReceiptMissingAssumed}, sent)
	return map[string]history{Idempotent: idempotent, Lookup: lookedUp, Blind: held, assumeSent: assumed}
}

func TestJudge_GoodHistoriesHaveNoFindings(t *testing.T) {
	for name, h := range goodHistories() {
		if wrong := judge(h); wrong != nil {
			t.Errorf("%s: %q", name, wrong)
		}
		if h.summary() == "" {
			t.Errorf("%s: no summary", name)
		}
	}
}

func TestJudge_FindsEachProblem(t *testing.T) {
	second := call{Key: "k", Accepted: true, Receipt: "receipt-2"}
	for name, c := range map[string]struct {
		of       string
		spoil    func(h *history)
		severity string
	}{
		"a blind provider is called again":        {Blind, func(h *history) { h.calls = append(h.calls, second) }, "DOUBLED: the recipient got it 2 times"},
		"an asked provider is called again":       {Lookup, func(h *history) { h.calls = append(h.calls, second) }, "DOUBLED"},
		"a repeat that is not recognised":         {Idempotent, func(h *history) { h.calls[1] = second }, "DOUBLED"},
		"a repeat under another key":              {Idempotent, func(h *history) { h.calls[1].Key = "other" }, "DOUBLED: the calls carried 2 keys"},
		"a repeat with other bytes":               {Idempotent, func(h *history) { h.calls[1].Body[0] = 1 }, "DOUBLED: the calls carried 1 keys and 2 bodies"},
		"a policy that accepts the risk":          {Blind, func(h *history) { h.policy.OnUnknown = resend; h.calls = append(h.calls, second) }, "DOUBLED: the recipient got it 2 times. The type's policy"},
		"the timeline says so":                    {Idempotent, func(h *history) { h.detail.Timeline[0].Reason = reasonSecondSend }, "DOUBLED: the timeline says"},
		"no call":                                 {Idempotent, func(h *history) { h.calls = nil }, "LOST: the provider was never called"},
		"an ack before anything was settled":      {Blind, func(h *history) { h.deliveries[0].Status = 200 }, "LOST: the first delivery was acked"},
		"no entry":                                {Blind, func(h *history) { h.detail = nil }, "LOST: the ledger has no entry"},
		"a dropped entry":                         {Lookup, func(h *history) { h.detail.Entry.State = client.StateDropped }, "LOST: the provider accepted it, and its state is dropped"},
		"a dead letter":                           {Idempotent, func(h *history) { h.detail.Entry.State = client.StateDead }, "LOST"},
		"a wait that does not end":                {Idempotent, func(h *history) { h.detail.Entry.State = client.StateWaiting }, "LOST"},
		"unknown and not listed":                  {Blind, func(h *history) { h.detail.Entry.State, h.listed, h.resolved = client.StateUnknown, false, false }, "LOST: it may have been sent, and it is not listed"},
		"unknown and not resolved":                {Blind, func(h *history) { h.detail.Entry.State, h.resolved = client.StateUnknown, false }, "UNSETTLED: it waits for an operator"},
		"never acked":                             {Blind, func(h *history) { h.deliveries[2].Status = 503 }, "UNSETTLED: the last delivery"},
		"sent without proof":                      {Blind, func(h *history) { h.detail.Entry.Receipt, h.resolved = "receipt-1", false }, "UNEXPLAINED: it counts as sent, although the result could not be known"},
		"sent without a lookup":                   {Lookup, func(h *history) { h.lookups = 0 }, "UNEXPLAINED: it counts as sent, although it was not looked up"},
		"sent without a repeat":                   {Idempotent, func(h *history) { h.calls = h.calls[:1] }, "UNEXPLAINED: it counts as sent, although the provider was not called again"},
		"an unknown receipt":                      {Lookup, func(h *history) { h.detail.Entry.Receipt = "receipt-9" }, "UNEXPLAINED: it counts as sent with the receipt \"receipt-9\""},
		"assumed, although the policy is to hold": {assumeSent, func(h *history) { h.policy.OnUnknown = hold }, "UNEXPLAINED: it counts as sent by a policy"},
		"assumed, although a repeat was harmless": {assumeSent, func(h *history) { h.Contract = Idempotent }, "UNEXPLAINED"},
		"resolved without an audit event":         {Blind, func(h *history) { h.detail.Audit = nil }, "UNEXPLAINED: an operator resolved it"},
		"a timeline without the crash":            {Idempotent, func(h *history) { h.detail.Timeline = h.detail.Timeline[1:] }, "UNEXPLAINED: the timeline does not show"},
		"a timeline that ends in another state":   {Idempotent, func(h *history) { h.detail.Timeline = h.detail.Timeline[:1] }, "UNEXPLAINED: it is sent, and the timeline ends at unknown"},
		"an undefined state":                      {Idempotent, func(h *history) { h.detail.Entry.State = "lost" }, "LOST"},
	} {
		h := goodHistories()[c.of]
		c.spoil(&h)
		wrong := judge(h)
		if !slices.ContainsFunc(wrong, func(found string) bool { return strings.HasPrefix(found, c.severity) }) {
			t.Errorf("%s: %q, want %s", name, wrong, c.severity)
		}
	}
}

func TestJudgeDetail(t *testing.T) {
	event := func(outcome client.TimelineEventOutcome, reason string, state client.State) client.TimelineEvent {
		return client.TimelineEvent{Kind: client.TimelineEventKindAttempt, Outcome: outcome, Reason: reason, State: state}
	}
	lost := event(client.TimelineEventOutcomeUnknown, reasonRepeatable, client.StateWaiting)
	held := event(client.TimelineEventOutcomeUnknown, "unanswered", client.StateUnknown)
	accepted := event(client.TimelineEventOutcomeAccepted, "accepted", client.StateSent)
	decided := client.TimelineEvent{Kind: client.TimelineEventKindDecision, Reason: "resolved", State: client.StateSent}
	detail := func(events ...client.TimelineEvent) *client.EntryDetail {
		return &client.EntryDetail{Timeline: events, Entry: client.Entry{State: events[len(events)-1].State}}
	}
	for name, c := range map[string]struct {
		detail   *client.EntryDetail
		listed   bool
		contract string
		severity string // empty: all is right
	}{
		"repeated under one key":         {detail(lost, accepted), false, "", ""},
		"and that was expected":          {detail(lost, accepted), false, Idempotent, ""},
		"held for an operator":           {detail(held), true, Blind, ""},
		"resolved by an operator":        {detail(held, decided), true, "", ""},
		"no entry":                       {nil, false, "", "LOST"},
		"held and not listed":            {detail(held), false, "", "LOST: it may have been sent"},
		"called again all the same":      {detail(held, accepted), true, "", "DOUBLED: it was called again"},
		"called again and again":         {detail(lost, accepted, accepted), false, "", "DOUBLED: it was accepted twice"},
		"the risk is taken":              {detail(event(client.TimelineEventOutcomeUnknown, reasonRiskTaken, client.StateWaiting), accepted), false, "", "DOUBLED: the type's policy"},
		"another contract than expected": {detail(lost, accepted), false, Blind, "UNEXPLAINED: the provider's contract is not blind"},
		"no repeat where one was due":    {detail(held), true, Idempotent, "UNEXPLAINED: the provider's contract is not idempotent"},
		"no sandbox":                     {detail(accepted), false, "", "UNEXPLAINED: the timeline does not show"},
		"never done":                     {detail(lost), false, "", "UNSETTLED"},
		"dropped":                        {detail(lost, client.TimelineEvent{State: client.StateDropped}), false, "", "LOST: the provider accepted it"},
	} {
		wrong := judgeDetail(c.detail, c.listed, c.contract)
		found := slices.ContainsFunc(wrong, func(f string) bool { return strings.HasPrefix(f, c.severity) })
		if c.severity == "" && wrong != nil || c.severity != "" && !found {
			t.Errorf("%s: %q, want %q", name, wrong, c.severity)
		}
	}
}
