package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func TestCancel(t *testing.T) {
	cancelled := StateSummary{Dropped, "", ReasonCancelled}
	for name, row := range map[string]struct {
		found  Entry
		result CancelResult
		writes bool
		after  StateSummary
	}{
		"waiting":                {entry(Waiting), CancelDropped, true, cancelled},
		"waiting, the broker's":  {entry(Waiting, dueIn(time.Hour)), CancelDropped, true, cancelled},
		"waiting, in doubt":      {entry(Waiting, markDoubt(time.Minute)), CancelInFlight, true, StateSummary{Unknown, "", ReasonCancelled}},
		"dead":                   {entry(Dead), CancelDropped, true, StateSummary{Dropped, ClassExhausted, ReasonCancelled}},
		"sending":                {entry(Sending), CancelInFlight, true, StateSummary{Sending, "", ReasonClaimed}},
		"sending, marked before": {entry(Sending, cancelRequested), CancelInFlight, false, StateSummary{}},
		"unknown":                {entry(Unknown), CancelInFlight, true, StateSummary{Unknown, ClassUnknown, ReasonUnanswered}},
		"unknown, marked before": {entry(Unknown, cancelRequested), CancelInFlight, false, StateSummary{}},
		"sent":                   {entry(Sent), CancelTooLate, false, StateSummary{}},
		"sent, assumed":          {entry(Sent, assumed), CancelTooLate, false, StateSummary{}},
		"dropped":                {entry(Dropped), CancelNothing, false, StateSummary{}},
	} {
		t.Run(name, func(t *testing.T) {
			change, result, writes := Cancel(row.found, trigger(OriginAPI))
			if result != row.result || writes != row.writes {
				t.Fatalf("%s, writes %t; want %s, %t", result, writes, row.result, row.writes)
			}
			if !writes {
				return
			}
			mustBe(t, change.Entry, row.after)
			if !change.Entry.CancelRequested || change.Event.Reason != ReasonCancelled || change.Event.State != row.after.State {
				t.Errorf("mark %t, recorded as %+v", change.Entry.CancelRequested, change.Event)
			}
			if again, _, writes := Cancel(stored(change, noon()), trigger(OriginAPI)); writes {
				t.Errorf("a repeated cancel writes %+v", again)
			}
		})
	}
}

func TestCancel_ForbidsEveryLaterAttempt(t *testing.T) {
	for _, kind := range []ContractKind{ContractBlind, ContractIdempotent, ContractLookup} {
		for _, policy := range []OnUnknown{Hold, AssumeSent, Resend} {
			r := rules(kind, onUnknown(policy))
			held := entry(Sending, cancelRequested)
			after := []Entry{ExpireLease(held, Trigger{}, r, noon()).Entry}
			for _, result := range Results() {
				after = append(after, Settle(held, attempt(result, time.Second), r, noon()).Entry)
			}
			for _, e := range after {
				if e.State == Waiting || e.State == Sending || !e.CancelRequested {
					t.Errorf("%s, %s: goes on as %s, mark %t", kind, policy, e.State, e.CancelRequested)
				}
			}
		}
	}
}

func TestTombstone_IsFinalAndConflictsWithNothing(t *testing.T) {
	change := Tombstone(identity(), trigger(OriginAPI), noon())
	if change.Payload != nil || change.Entry.Version != 0 || change.Event.Reason != ReasonCancelled {
		t.Errorf("%+v", change)
	}
	e := stored(change, noon())
	mustBe(t, e, StateSummary{Dropped, "", ReasonCancelled})
	if !e.CancelRequested || !e.Published.Equal(noon()) || e.SendKey != identity().SendKey() {
		t.Errorf("%+v", e)
	}
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		if step := Decide(e, trigger(origin), ready(), rules(ContractBlind), noon()); step.Action != ActionDone {
			t.Errorf("%s changed it: %+v", origin, step)
		}
	}
	if reply := ReplyFor(e, noon()); !reply.Ack {
		t.Error("it is final, and its deliveries are acked")
	}
	if e.Conflicts("first") || e.Conflicts("") {
		t.Error("a tombstone conflicts with content")
	}
	if !entry(Sent).Conflicts("other") || entry(Sent).Conflicts("first") || entry(Sent).Conflicts("") {
		t.Error("other content conflicts, the same and none do not")
	}
}
