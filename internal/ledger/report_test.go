package ledger_test

import (
	"testing"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func proofs() []ReportKind { return []ReportKind{ReportAccepted, ReportDelivered} }

func TestAReportOfAcceptanceIsProofInEveryState(t *testing.T) {
	for name, e := range everywhere() {
		for _, kind := range proofs() {
			for _, receipt := range []string{"", "told"} {
				change, news := Heard(e, report(kind, receipt))
				if name == "sent" {
					continue
				}
				if !news || change.Entry.State != Sent || change.Entry.InDoubt() || change.Entry.Receipt != receipt || change.Entry.Check() != nil {
					t.Errorf("%s, %s: news %t, %s, receipt %q, %v", name, kind, news, change.Entry.State, change.Entry.Receipt, change.Entry.Check())
				}
				if change.Event.Reason != ReasonLateAcceptance || change.Event.Kind != EventReport || change.Event.Origin != OriginProvider {
					t.Errorf("%s, %s: told as %+v", name, kind, change.Event)
				}
			}
		}
	}
}

func TestWhatBouncesIsRecordedAndMovesNothing(t *testing.T) {
	for name, e := range everywhere() {
		for kind, reason := range map[ReportKind]Reason{
			ReportBounced: ReasonBounced, ReportFailed: ReasonFailedLater, ReportComplained: ReasonComplained,
		} {
			change, news := Heard(e, report(kind, "told"))
			if !news || change.Entry != e {
				t.Errorf("%s, %s: news %t, moved to %+v", name, kind, news, change.Entry)
			}
			ev := change.Event
			if ev.Kind != EventReport || ev.Reason != reason || ev.State != e.State || ev.Message != "evt-1" || ev.Provider != "mail" ||
				ev.Outcome.Code != "250" || ev.Outcome.Cause != string(kind) || ev.Outcome.Result != ResultUnknown {
				t.Errorf("%s, %s: told as %+v", name, kind, ev)
			}
		}
	}
	for _, kind := range ReportKinds() {
		if _, news := Heard(Entry{}, report(kind, "told")); news != (kind == ReportAccepted || kind == ReportDelivered) {
			t.Errorf("%s of what the ledger does not hold: news %t", kind, news)
		}
	}
}

func TestWhatAReportSaysOfASentEntry(t *testing.T) {
	missing := func(m Missing) Entry { return entry(Sent, func(e *Entry) { e.Receipt, e.Missing = "", m }) }
	for name, row := range map[string]struct {
		found   Entry
		receipt string
		news    bool
		reason  Reason // of an accepted one
		after   string
	}{
		"the receipt that is known":  {entry(Sent), "receipt", false, "", "receipt"},
		"no receipt":                 {entry(Sent), "", false, "", "receipt"},
		"another receipt":            {entry(Sent), "other", true, ReasonPossibleSecondSend, "receipt"},
		"unread, and read now":       {missing(MissingUnread), "other", true, ReasonLateAcceptance, "other"},
		"unread, and not said":       {missing(MissingUnread), "", false, "", ""},
		"assumed, and proven now":    {missing(MissingAssumed), "other", true, ReasonLateAcceptance, "other"},
		"assumed, proof without one": {missing(MissingAssumed), "", true, ReasonLateAcceptance, ""},
		"resolved, and proven now":   {missing(MissingResolved), "other", true, ReasonLateAcceptance, "other"},
	} {
		change, news := Heard(row.found, report(ReportAccepted, row.receipt))
		if news != row.news || news && (change.Event.Reason != row.reason || change.Entry.Receipt != row.after || change.Entry.Check() != nil) {
			t.Errorf("%s: news %t, %+v", name, news, change)
		}
		change, news = Heard(row.found, report(ReportDelivered, row.receipt))
		want := row.reason
		if !row.news {
			want = ReasonDelivered
		}
		if !news || change.Event.Reason != want || change.Entry.Receipt != row.after || change.Entry.State != Sent {
			t.Errorf("%s, delivered: news %t, %+v", name, news, change)
		}
	}
}

// A database that was restored may have forgotten the entry whose send its provider reports.
func TestWhatTheLedgerDoesNotHoldIsBornSentByProof(t *testing.T) {
	for _, kind := range proofs() {
		change, news := Heard(Entry{}, report(kind, "told"))
		if !news {
			t.Fatalf("%s is nothing", kind)
		}
		e := stored(change, noon())
		mustStand(t, e, standing{Sent, "", ReasonLateAcceptance})
		if change.Entry.Version != 0 || e.Identity != identity() || e.Receipt != "told" || e.Provider != "mail" || e.Conflicts("first") {
			t.Errorf("%s: %+v", kind, e)
		}
		if step := Meet(e, visit(OriginPush), ready(), rules(Blind), noon()); step.Verb != Answer {
			t.Errorf("%s, and its delivery does %+v", kind, step)
		}
	}
}

// A provider's event often overtakes its own answer. The holder that comes back with that answer is the same
// attempt, and no second send.
func TestAHolderWhoseProviderReportedFirstRaisesNoAlarm(t *testing.T) {
	for _, told := range []string{"receipt-2", ""} {
		change, _ := Heard(entry(Sending), report(ReportAccepted, told))
		e := stored(change, noon())
		late := Late(e, attempt(ResultAccepted, 0)) // with receipt-2
		if late.Entry.State != Sent || late.Event.Reason == ReasonPossibleSecondSend {
			t.Errorf("reported with receipt %q, answered with receipt-2: told as %q", told, late.Event.Reason)
		}
	}
}
