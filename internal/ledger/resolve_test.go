package ledger_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func mustResolve(t *testing.T, e Entry, res Resolution) Change {
	t.Helper()
	change, err := Resolve(e, res, noon())
	if err != nil {
		t.Fatal(err)
	}
	return change
}

func TestResolve_EveryVerdict(t *testing.T) {
	inDoubt := markDoubt(time.Minute)
	for name, row := range map[string]struct {
		found   Entry
		verdict Verdict
		receipt string
		want    StateSummary
		doubt   bool
	}{
		"sent, by a receipt":                     {entry(Unknown), VerdictSent, "r-9", StateSummary{Sent, "", ReasonResolved}, false},
		"sent, without a receipt":                {entry(Unknown), VerdictSent, "", StateSummary{Sent, "", ReasonResolved}, false},
		"sent, while it waits in doubt":          {entry(Waiting, inDoubt), VerdictSent, "", StateSummary{Sent, "", ReasonResolved}, false},
		"sent, and cancelled":                    {entry(Unknown, cancelRequested), VerdictSent, "", StateSummary{Sent, "", ReasonResolved}, false},
		"not sent":                               {entry(Unknown, budgetUsed(attempts)), VerdictNotSent, "", StateSummary{Waiting, "", ReasonResolved}, false},
		"not sent, while it waits":               {entry(Waiting, inDoubt), VerdictNotSent, "", StateSummary{Waiting, "", ReasonResolved}, false},
		"not sent, after many lease expirations": {entry(Unknown, func(e *Entry) { e.LeaseExpirations = maxExpirations }), VerdictNotSent, "", StateSummary{Waiting, "", ReasonResolved}, false},
		"not sent, cancelled":                    {entry(Unknown, cancelRequested), VerdictNotSent, "", StateSummary{Dropped, "", ReasonCancelled}, false},
		"not sent, past the deadline":            {entry(Unknown, deadlineIn(0)), VerdictNotSent, "", StateSummary{Dropped, "", ReasonExpired}, false},
		"not sent, cancelled and too late":       {entry(Unknown, cancelRequested, deadlineIn(0)), VerdictNotSent, "", StateSummary{Dropped, "", ReasonCancelled}, false},
		"abandoned":                              {entry(Unknown), VerdictAbandoned, "", StateSummary{Dropped, ClassUnknown, ReasonAbandoned}, true},
		"abandoned, while it waits":              {entry(Waiting, inDoubt), VerdictAbandoned, "", StateSummary{Dropped, "", ReasonAbandoned}, true},
	} {
		res := verdict(row.verdict, row.found)
		res.Receipt = row.receipt
		e := mustResolve(t, row.found, res).Entry
		mustBe(t, e, row.want)
		if e.InDoubt() != row.doubt || row.verdict == VerdictSent && e.Receipt != row.receipt {
			t.Errorf("%s: doubt %t, receipt %q", name, e.InDoubt(), e.Receipt)
		}
		if e.State == Waiting && (e.BudgetUsed != 0 || e.LeaseExpirations != 0 || e.Owner != OwnerLedger || e.Wake != e.Due || e.Due != In(0)) {
			t.Errorf("%s: %d spent, %d lease expirations, owner %q, due %v", name, e.BudgetUsed, e.LeaseExpirations, e.Owner, e.Due)
		}
	}
}

func TestResolve_NotSentIsSentAgain(t *testing.T) {
	for _, r := range []Rules{rules(ContractBlind), rules(ContractIdempotent), rules(ContractLookup), rules(ContractBlind, bound("mail/2")), rules(ContractBlind, boundGone)} {
		e := entry(Unknown, budgetUsed(attempts), markDoubt(window))
		e = stored(mustResolve(t, e, verdict(VerdictNotSent, e)), noon())
		f := ready()
		f.Slot.Provider = r.ChannelRoute.Provider
		for passes := 0; passes < 2 && e.State == Waiting; passes++ { // it may have to be reassigned to another provider first
			e = stored(Decide(e, trigger(OriginWorker), f, r, noon()).Change, noon())
		}
		if e.State != Sending || e.Provider != r.ChannelRoute.Provider {
			t.Errorf("%s, bound %q: %s, %s at %q", r.BoundRoute.Contract.Kind, r.BoundRoute.Fingerprint, e.State, e.Reason, e.Provider)
		}
	}
}

func TestResolve_AbandonedIsChangedByProofOnly(t *testing.T) {
	e := stored(mustResolve(t, entry(Unknown), verdict(VerdictAbandoned, entry(Unknown))), noon())
	for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
		if step := Decide(e, trigger(origin), ready(), rules(ContractIdempotent), noon()); step.Action != ActionDone {
			t.Errorf("%s: %+v", origin, step)
		}
	}
	if change := SettleLate(e, attempt(ResultAccepted, 0)); change.Entry.State != Sent || change.Entry.InDoubt() {
		t.Errorf("accepted late: %s", change.Entry.State)
	}
}

func TestResolve_AuditHoldsActorActionAndReason(t *testing.T) {
	e := entry(Unknown)
	res := verdict(VerdictSent, e)
	res.Receipt = "r-9"
	change := mustResolve(t, e, res)
	audit := change.Audit
	if audit.Actor != "ada" || audit.Role != "operator" || audit.Reason != "asked the provider" || audit.Action != "resolve:sent" || audit.Identity != e.Identity {
		t.Errorf("%+v", audit)
	}
	var before, after map[string]any
	if json.Unmarshal([]byte(audit.Before), &before) != nil || json.Unmarshal([]byte(audit.After), &after) != nil ||
		before["state"] != "unknown" || after["state"] != "sent" || after["receipt"] != "r-9" {
		t.Errorf("before %s, after %s", audit.Before, audit.After)
	}
	ev := change.Event
	if ev.Kind != EventDecision || ev.Origin != OriginOperator || ev.Source != "ada" || ev.Reason != ReasonResolved || ev.State != Sent || ev.Provider != "mail" {
		t.Errorf("recorded as %+v", ev)
	}
	if text := audit.Before + audit.After; strings.Contains(text, "ada@example.org") || strings.Contains(text, e.UserID+"@") {
		t.Errorf("the audit event holds a recipient: %s", text)
	}
}

// An unhandled verdict must not end an entry.
func TestResolve_RejectsAnUnknownVerdict(t *testing.T) {
	for _, v := range []Verdict{"", "Sent", "unsent"} {
		if change, err := Resolve(entry(Unknown), verdict(v, entry(Unknown)), noon()); err == nil {
			t.Errorf("%q makes it %s, %s", v, change.Entry.State, change.Entry.Reason)
		}
	}
}
