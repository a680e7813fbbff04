package ledger_test

import (
	"testing"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func proofs() []StatusKind { return []StatusKind{StatusAccepted, StatusDelivered} }

func TestRecordStatus_AcceptanceIsProofInEveryState(t *testing.T) {
	for name, e := range everyState() {
		for _, kind := range proofs() {
			for _, receipt := range []string{"", "receipt-9"} {
				change, changed := RecordStatus(e, statusEvent(kind, receipt))
				if name == "sent" {
					continue
				}
				if !changed || change.Entry.State != Sent || change.Entry.InDoubt() || change.Entry.Receipt != receipt || change.Entry.Check() != nil {
					t.Errorf("%s, %s: changed %t, %s, receipt %q, %v", name, kind, changed, change.Entry.State, change.Entry.Receipt, change.Entry.Check())
				}
				if change.Event.Reason != ReasonLateAcceptance || change.Event.Kind != EventStatus || change.Event.Origin != OriginProvider {
					t.Errorf("%s, %s: recorded as %+v", name, kind, change.Event)
				}
			}
		}
	}
}

func TestRecordStatus_BounceMovesNothing(t *testing.T) {
	for name, e := range everyState() {
		for kind, reason := range map[StatusKind]Reason{
			StatusBounced: ReasonBounced, StatusFailed: ReasonFailedLater, StatusComplained: ReasonComplained,
		} {
			change, changed := RecordStatus(e, statusEvent(kind, "receipt-9"))
			if !changed || change.Entry != e {
				t.Errorf("%s, %s: changed %t, changed to %+v", name, kind, changed, change.Entry)
			}
			ev := change.Event
			if ev.Kind != EventStatus || ev.Reason != reason || ev.State != e.State || ev.MessageID != "evt-1" || ev.Provider != "mail" ||
				ev.Outcome.Code != "250" || ev.Outcome.Cause != string(kind) || ev.Outcome.Result != ResultUnknown {
				t.Errorf("%s, %s: recorded as %+v", name, kind, ev)
			}
		}
	}
	for _, kind := range StatusKinds() {
		if _, changed := RecordStatus(Entry{}, statusEvent(kind, "receipt-9")); changed != (kind == StatusAccepted || kind == StatusDelivered) {
			t.Errorf("%s without an entry: changed %t", kind, changed)
		}
	}
}

func TestRecordStatus_OfASentEntry(t *testing.T) {
	missing := func(m ReceiptMissing) Entry {
		return entry(Sent, func(e *Entry) { e.Receipt, e.ReceiptMissing = "", m })
	}
	for name, row := range map[string]struct {
		found   Entry
		receipt string
		changed bool
		reason  Reason // with StatusAccepted
		after   string
	}{
		"the same receipt":                {entry(Sent), "receipt", false, "", "receipt"},
		"no receipt":                      {entry(Sent), "", false, "", "receipt"},
		"another receipt":                 {entry(Sent), "other", true, ReasonPossibleSecondSend, "receipt"},
		"unreadable, and known now":       {missing(MissingUnreadable), "other", true, ReasonLateAcceptance, "other"},
		"unreadable, and still not known": {missing(MissingUnreadable), "", false, "", ""},
		"assumed, and proven now":         {missing(MissingAssumed), "other", true, ReasonLateAcceptance, "other"},
		"assumed, proof without one":      {missing(MissingAssumed), "", true, ReasonLateAcceptance, ""},
		"resolved, and proven now":        {missing(MissingResolved), "other", true, ReasonLateAcceptance, "other"},
	} {
		change, changed := RecordStatus(row.found, statusEvent(StatusAccepted, row.receipt))
		if changed != row.changed || changed && (change.Event.Reason != row.reason || change.Entry.Receipt != row.after || change.Entry.Check() != nil) {
			t.Errorf("%s: changed %t, %+v", name, changed, change)
		}
		change, changed = RecordStatus(row.found, statusEvent(StatusDelivered, row.receipt))
		want := row.reason
		if !row.changed {
			want = ReasonDelivered
		}
		if !changed || change.Event.Reason != want || change.Entry.Receipt != row.after || change.Entry.State != Sent {
			t.Errorf("%s, delivered: changed %t, %+v", name, changed, change)
		}
	}
}

// A restored database may have lost the entry whose send the provider reports.
func TestRecordStatus_ProofInsertsAMissingEntryAsSent(t *testing.T) {
	for _, kind := range proofs() {
		change, changed := RecordStatus(Entry{}, statusEvent(kind, "receipt-9"))
		if !changed {
			t.Fatalf("%s is not recorded", kind)
		}
		e := stored(change, noon())
		mustBe(t, e, StateSummary{Sent, "", ReasonLateAcceptance})
		if change.Entry.Version != 0 || e.Identity != identity() || e.Receipt != "receipt-9" || e.Provider != "mail" || e.Conflicts("first") {
			t.Errorf("%s: %+v", kind, e)
		}
		if step := Decide(e, trigger(OriginPush), ready(), rules(ContractBlind), noon()); step.Action != ActionDone {
			t.Errorf("%s, and its delivery does %+v", kind, step)
		}
	}
}

// A provider's status event often arrives before its response to the call. The holder that returns with the response
// is the same attempt, and no second send.
func TestSettleLate_AfterAStatusEventIsNoSecondSend(t *testing.T) {
	for _, receipt := range []string{"receipt-2", ""} {
		change, _ := RecordStatus(entry(Sending), statusEvent(StatusAccepted, receipt))
		e := stored(change, noon())
		late := SettleLate(e, attempt(ResultAccepted, 0)) // with receipt-2
		if late.Entry.State != Sent || late.Event.Reason == ReasonPossibleSecondSend {
			t.Errorf("reported with receipt %q, answered with receipt-2: recorded as %q", receipt, late.Event.Reason)
		}
	}
}
