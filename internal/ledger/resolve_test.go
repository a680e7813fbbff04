package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func resolved(t *testing.T, e Entry, by Resolution) Change {
	t.Helper()
	change, err := Resolve(e, by, noon())
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestWhatAPersonDecides(t *testing.T) {
	inDoubt := doubted(time.Minute)
	for name, row := range map[string]struct {
		found   Entry
		verdict Verdict
		receipt string
		want    standing
		doubt   bool
	}{
		"sent, by a receipt":               {entry(Unknown), VerdictSent, "r-9", standing{Sent, "", ReasonResolved}, false},
		"sent, by their word":              {entry(Unknown), VerdictSent, "", standing{Sent, "", ReasonResolved}, false},
		"sent, while it waits in doubt":    {entry(Waiting, inDoubt), VerdictSent, "", standing{Sent, "", ReasonResolved}, false},
		"sent, and cancelled":              {entry(Unknown, cancelAsked), VerdictSent, "", standing{Sent, "", ReasonResolved}, false},
		"not sent":                         {entry(Unknown, spent(attempts)), VerdictNotSent, "", standing{Waiting, "", ReasonResolved}, false},
		"not sent, while it waits":         {entry(Waiting, inDoubt), VerdictNotSent, "", standing{Waiting, "", ReasonResolved}, false},
		"not sent, after many lapses":      {entry(Unknown, func(e *Entry) { e.Lapses = maxLapses }), VerdictNotSent, "", standing{Waiting, "", ReasonResolved}, false},
		"not sent, cancelled":              {entry(Unknown, cancelAsked), VerdictNotSent, "", standing{Dropped, "", ReasonCancelled}, false},
		"not sent, past the deadline":      {entry(Unknown, deadlineIn(0)), VerdictNotSent, "", standing{Dropped, "", ReasonExpired}, false},
		"not sent, cancelled and too late": {entry(Unknown, cancelAsked, deadlineIn(0)), VerdictNotSent, "", standing{Dropped, "", ReasonCancelled}, false},
		"abandoned":                        {entry(Unknown), VerdictAbandoned, "", standing{Dropped, ClassUnknown, ReasonAbandoned}, true},
		"abandoned, while it waits":        {entry(Waiting, inDoubt), VerdictAbandoned, "", standing{Dropped, "", ReasonAbandoned}, true},
	} {
		by := verdict(row.verdict, row.found)
		by.Receipt = row.receipt
		e := resolved(t, row.found, by).Entry
		mustStand(t, e, row.want)
		if e.InDoubt() != row.doubt || row.verdict == VerdictSent && e.Receipt != row.receipt {
			t.Errorf("%s: doubt %t, receipt %q", name, e.InDoubt(), e.Receipt)
		}
		if e.State == Waiting && (e.Spent != 0 || e.Lapses != 0 || e.Owner != OwnerLedger || e.Wake != e.Due || e.Due != In(0)) {
			t.Errorf("%s: %d spent, %d lapses, owner %q, due %v", name, e.Spent, e.Lapses, e.Owner, e.Due)
		}
	}
}

func TestWhatAPersonCalledUnsentIsSentOnceMore(t *testing.T) {
	for _, r := range []Rules{rules(Blind), rules(Idempotent), rules(Lookup), rules(Blind, bound("mail/2")), rules(Blind, boundGone)} {
		e := entry(Unknown, spent(attempts), doubted(window))
		e = stored(resolved(t, e, verdict(VerdictNotSent, e)), noon())
		f := ready()
		f.Slot.Provider = r.Channel.Provider
		for passes := 0; passes < 2 && e.State == Waiting; passes++ { // it may have to change its lane first
			e = stored(Meet(e, visit(OriginWorker), f, r, noon()).Change, noon())
		}
		if e.State != Sending || e.Provider != r.Channel.Provider {
			t.Errorf("%s, bound %q: %s, %s at %q", r.Bound.Contract.Kind, r.Bound.Fingerprint, e.State, e.Reason, e.Provider)
		}
	}
}

func TestNothingButProofRaisesWhatAPersonAbandoned(t *testing.T) {
	e := stored(resolved(t, entry(Unknown), verdict(VerdictAbandoned, entry(Unknown))), noon())
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		if step := Meet(e, visit(origin), ready(), rules(Idempotent), noon()); step.Verb != Answer {
			t.Errorf("%s: %+v", origin, step)
		}
	}
	if change := Late(e, attempt(ResultAccepted, 0)); change.Entry.State != Sent || change.Entry.InDoubt() {
		t.Errorf("accepted after all: %s", change.Entry.State)
	}
}

func TestTheAuditTellsWhoDecidedWhatAndWhy(t *testing.T) {
	e := entry(Unknown)
	by := verdict(VerdictSent, e)
	by.Receipt = "r-9"
	change := resolved(t, e, by)
	act := change.Act
	if act.By != "ada" || act.Role != "operator" || act.Why != "asked them" || act.Verb != "resolve:sent" || act.Identity != e.Identity {
		t.Errorf("%+v", act)
	}
	var before, after map[string]any
	if json.Unmarshal([]byte(act.Before), &before) != nil || json.Unmarshal([]byte(act.After), &after) != nil ||
		before["state"] != "unknown" || after["state"] != "sent" || after["receipt"] != "r-9" {
		t.Errorf("before %s, after %s", act.Before, act.After)
	}
	ev := change.Event
	if ev.Kind != EventDecision || ev.Origin != OriginPerson || ev.Source != "ada" || ev.Reason != ReasonResolved || ev.State != Sent || ev.Provider != "mail" {
		t.Errorf("told as %+v", ev)
	}
	if text := act.Before + act.After; strings.Contains(text, "ada@example.org") || strings.Contains(text, e.UserID+"@") {
		t.Errorf("a recipient stands in the audit: %s", text)
	}
}

// A case that somebody forgot must not give an entry up for good.
func TestAVerdictNobodyKnowsIsRefused(t *testing.T) {
	for _, v := range []Verdict{"", "Sent", "unsent"} {
		if change, err := Resolve(entry(Unknown), verdict(v, entry(Unknown)), noon()); err == nil {
			t.Errorf("%q makes it %s, %s", v, change.Entry.State, change.Entry.Reason)
		}
	}
}
