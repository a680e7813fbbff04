package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// everywhere is one entry for each place in which a late holder or a cancel may find it.
func everywhere() map[string]Entry {
	return map[string]Entry{
		"sending by another": entry(Sending, func(e *Entry) { e.Holder = "another" }),
		"sending, in doubt":  entry(Sending, doubted(time.Minute)),
		"waiting":            entry(Waiting),
		"waiting, in doubt":  entry(Waiting, doubted(time.Minute)),
		"unknown":            entry(Unknown),
		"unknown, cancelled": entry(Unknown, cancelAsked),
		"dead":               entry(Dead),
		"dropped":            entry(Dropped),
		"a tombstone":        stored(Tombstone(identity(), visit(OriginAPI), noon()), noon()),
		"sent":               entry(Sent),
		"sent, assumed":      entry(Sent, assumed),
	}
}

func assumed(e *Entry) { e.Receipt, e.Missing, e.Reason = "", MissingAssumed, ReasonAssumed }

func TestProofOfAcceptanceMakesAnyEntrySent(t *testing.T) {
	for name, e := range everywhere() {
		change := Late(e, attempt(ResultAccepted, 0))
		if change.Entry.State != Sent || change.Entry.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, change.Entry.State, change.Entry.InDoubt())
		}
		if err := change.Entry.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "sent" && (change.Entry.Receipt != "receipt-2" || change.Event.Reason != ReasonLateAcceptance) {
			t.Errorf("%s: receipt %q, told as %q", name, change.Entry.Receipt, change.Event.Reason)
		}
		if change.Event.Kind != EventLate || change.Event.State != Sent || change.Event.Holder != "holder" {
			t.Errorf("%s: told as %+v", name, change.Event)
		}
	}
}

func TestALateFailureIsRecordedAndMovesNothing(t *testing.T) {
	for name, e := range everywhere() {
		for _, result := range Results() {
			if result == ResultAccepted {
				continue
			}
			change := Late(e, attempt(result, time.Second))
			if change.Entry != e {
				t.Errorf("%s, late %s: moved to %+v", name, result, change.Entry)
			}
			if ev := change.Event; ev.Kind != EventLate || ev.Reason != ReasonLateFailure || ev.State != e.State || ev.Outcome.Result != result {
				t.Errorf("%s, late %s: told as %+v", name, result, ev)
			}
		}
	}
}

func TestASecondAcceptanceIsAPossibleSecondSend(t *testing.T) {
	accepted := func(receipt string) Attempt {
		a := attempt(ResultAccepted, 0)
		a.Outcome.Receipt = receipt
		return a
	}
	unread := func(e *Entry) { e.Receipt, e.Missing = "", MissingUnread }
	for name, row := range map[string]struct {
		found   Entry
		receipt string
		reason  Reason
	}{
		"another receipt":      {entry(Sent), "receipt-2", ReasonPossibleSecondSend},
		"no receipt":           {entry(Sent), "", ReasonPossibleSecondSend},
		"both without receipt": {entry(Sent, unread), "", ReasonPossibleSecondSend},
		"the first unread":     {entry(Sent, unread), "receipt-2", ReasonPossibleSecondSend},
		"the same receipt":     {entry(Sent), "receipt", ReasonReplayed},
		"what was assumed":     {entry(Sent, assumed), "receipt-2", ReasonLateAcceptance},
	} {
		change := Late(row.found, accepted(row.receipt))
		if change.Event.Reason != row.reason {
			t.Errorf("%s: told as %q, want %q", name, change.Event.Reason, row.reason)
		}
		if row.reason != ReasonLateAcceptance && change.Entry != row.found {
			t.Errorf("%s: the first receipt does not stand: %+v", name, change.Entry)
		}
	}
}

func TestAcceptedWithoutAReceiptSaysSo(t *testing.T) {
	a := attempt(ResultAccepted, 0)
	a.Outcome.Receipt = ""
	for name, e := range map[string]Entry{
		"settled": Settle(entry(Sending), a, rules(Blind), noon()).Entry,
		"late":    Late(entry(Unknown), a).Entry,
		"assumed": Late(entry(Sent, assumed), a).Entry,
	} {
		if e.Missing != MissingUnread || e.Check() != nil {
			t.Errorf("%s: missing %q, %v", name, e.Missing, e.Check())
		}
	}
}

func TestCancel(t *testing.T) {
	cancelled := standing{Dropped, "", ReasonCancelled}
	for name, row := range map[string]struct {
		found  Entry
		result CancelResult
		writes bool
		after  standing
	}{
		"waiting":                {entry(Waiting), CancelDropped, true, cancelled},
		"waiting, the broker's":  {entry(Waiting, dueIn(time.Hour)), CancelDropped, true, cancelled},
		"waiting, in doubt":      {entry(Waiting, doubted(time.Minute)), CancelInFlight, true, standing{Unknown, "", ReasonCancelled}},
		"dead":                   {entry(Dead), CancelDropped, true, standing{Dropped, ClassExhausted, ReasonCancelled}},
		"sending":                {entry(Sending), CancelInFlight, true, standing{Sending, "", ReasonClaimed}},
		"sending, marked before": {entry(Sending, cancelAsked), CancelInFlight, false, standing{}},
		"unknown":                {entry(Unknown), CancelInFlight, true, standing{Unknown, ClassUnknown, ReasonUnanswered}},
		"unknown, marked before": {entry(Unknown, cancelAsked), CancelInFlight, false, standing{}},
		"sent":                   {entry(Sent), CancelTooLate, false, standing{}},
		"sent, assumed":          {entry(Sent, assumed), CancelTooLate, false, standing{}},
		"dropped":                {entry(Dropped), CancelNothing, false, standing{}},
	} {
		t.Run(name, func(t *testing.T) {
			change, result, writes := Cancel(row.found, visit(OriginAPI))
			if result != row.result || writes != row.writes {
				t.Fatalf("%s, writes %t; want %s, %t", result, writes, row.result, row.writes)
			}
			if !writes {
				return
			}
			mustStand(t, change.Entry, row.after)
			if !change.Entry.CancelAsked || change.Event.Reason != ReasonCancelled || change.Event.State != row.after.State {
				t.Errorf("mark %t, told as %+v", change.Entry.CancelAsked, change.Event)
			}
			if again, _, writes := Cancel(stored(change, noon()), visit(OriginAPI)); writes {
				t.Errorf("a repeated cancel writes %+v", again)
			}
		})
	}
}

func TestACancelMarkForbidsEveryLaterAttempt(t *testing.T) {
	for _, kind := range []ContractKind{Blind, Idempotent, Lookup} {
		for _, policy := range []OnUnknown{Hold, AssumeSent, Resend} {
			r := rules(kind, onUnknown(policy))
			held := entry(Sending, cancelAsked)
			after := []Entry{Lapse(held, Visit{}, r, noon()).Entry}
			for _, result := range Results() {
				after = append(after, Settle(held, attempt(result, time.Second), r, noon()).Entry)
			}
			for _, e := range after {
				if e.State == Waiting || e.State == Sending || !e.CancelAsked {
					t.Errorf("%s, %s: goes on as %s, mark %t", kind, policy, e.State, e.CancelAsked)
				}
			}
		}
	}
}

func TestATombstoneIsAnEntryThatNothingRaisesAndNothingConflictsWith(t *testing.T) {
	change := Tombstone(identity(), visit(OriginAPI), noon())
	if change.Payload != nil || change.Entry.Version != 0 || change.Event.Reason != ReasonCancelled {
		t.Errorf("%+v", change)
	}
	e := stored(change, noon())
	mustStand(t, e, standing{Dropped, "", ReasonCancelled})
	if !e.CancelAsked || !e.Published.Equal(noon()) || e.SendKey != identity().SendKey() {
		t.Errorf("%+v", e)
	}
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		if step := Meet(e, visit(origin), ready(), rules(Blind), noon()); step.Verb != Answer {
			t.Errorf("%s raised it: %+v", origin, step)
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

func TestASettleAfterACancelThatCameInBetweenHeedsIt(t *testing.T) {
	held := entry(Sending)
	marked, _, _ := Cancel(held, visit(OriginAPI))
	now := stored(marked, noon())
	if now.Holder != held.Holder {
		t.Fatal("the mark took the lease from its holder")
	}
	mustStand(t, Settle(now, attempt(ResultUnreachable, time.Second), rules(Blind), noon()).Entry,
		standing{Dropped, ClassUnreachable, ReasonCancelled})
}
