package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// published is the trigger of a message that was published so long ago.
func published(ago time.Duration) Trigger {
	tr := trigger(OriginPush)
	tr.NewEntry.Published = noon().Add(-ago)
	return tr
}

func TestFailover_PublishedBeforeIsInsertedInDoubt(t *testing.T) {
	for name, row := range map[string]struct {
		rules Rules
		want  StateSummary
	}{
		"idempotent":                        {rules(ContractIdempotent, afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		"lookup":                            {rules(ContractLookup, afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		"lookup, resend":                    {rules(ContractLookup, onUnknown(Resend), afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		"blind":                             {rules(ContractBlind, afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		"blind, assumed":                    {rules(ContractBlind, onUnknown(AssumeSent), afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		"blind, resend":                     {rules(ContractBlind, onUnknown(Resend), afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRiskTaken}},
		"retries by the ledger, idempotent": {rules(ContractIdempotent, afterFailover, func(r *Rules) { r.RetriesBy = OwnerLedger }), StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		"relevance check, in doubt":         {rules(ContractBlind, afterFailover, func(r *Rules) { r.CheckRelevance = true }), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
	} {
		step := Decide(Entry{}, published(2*time.Minute), ready(), row.rules, noon())
		e := step.Change.Entry
		if step.Action != ActionInsert {
			t.Errorf("%s: action %d", name, step.Action)
			continue
		}
		mustBe(t, e, row.want)
		if e.Provider != "mail" || e.Fingerprint != "mail/1" || step.Change.Event.Reason != ReasonDatabaseChanged && row.want.Reason != ReasonRiskTaken {
			t.Errorf("%s: at %q, recorded as %q", name, e.Provider, step.Change.Event.Reason)
		}
		if e.State == Unknown && row.rules.BoundRoute.Contract.Kind == ContractLookup && e.NextLookup != In(lookupSchedule()[0]) {
			t.Errorf("%s: next lookup at %v", name, e.NextLookup)
		}
	}
}

func TestFailover_PublishedOrDueSinceIsSent(t *testing.T) {
	r := rules(ContractBlind, afterFailover)
	for name, tr := range map[string]Trigger{"at that moment": published(time.Minute), "later": published(time.Second)} {
		if e := Decide(Entry{}, tr, ready(), r, noon()).Change.Entry; e.State != Sending || e.InDoubt() {
			t.Errorf("published %s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	scheduled := published(time.Hour)
	scheduled.NotBefore = noon().Add(-time.Second) // it could not be sent before the change
	if e := Decide(Entry{}, scheduled, ready(), r, noon()).Change.Entry; e.State != Sending {
		t.Errorf("due since the change: %s", e.State)
	}
	scheduled.NotBefore = noon().Add(time.Hour)
	mustBe(t, Decide(Entry{}, scheduled, ready(), r, noon()).Change.Entry, StateSummary{Waiting, "", ReasonScheduled})

	for name, e := range map[string]Entry{
		"due since the change": entry(Waiting, func(e *Entry) {
			e.Due, e.Wake, e.Updated = At(noon().Add(-time.Minute)), At(noon()), noon().Add(-time.Hour)
		}),
	} {
		if e := Decide(e, trigger(OriginPush), ready(), r, noon()).Change.Entry; e.State != Sending || e.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	for name, f := range map[string]Failover{"never changed": {Window: failoverWindow}, "loses nothing": {Noticed: noon()}} {
		r := rules(ContractBlind, func(r *Rules) { r.Failover = f })
		if e := Decide(Entry{}, published(time.Hour), ready(), r, noon()).Change.Entry; e.State != Sending {
			t.Errorf("%s: %s", name, e.State)
		}
	}
}

func TestFailover_DueBeforeIsInDoubt(t *testing.T) {
	for _, row := range []struct {
		rules Rules
		want  StateSummary
	}{
		{rules(ContractIdempotent, afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		{rules(ContractLookup, afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		{rules(ContractBlind, afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		{rules(ContractBlind, onUnknown(AssumeSent), afterFailover), StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}},
		{rules(ContractBlind, onUnknown(Resend), afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRiskTaken}},
	} {
		for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
			for _, owner := range []Owner{OwnerBroker, OwnerLedger} {
				found := entry(Waiting, dueSince(2*time.Minute), ownedBy(owner))
				e := Decide(found, trigger(origin), ready(), row.rules, noon()).Change.Entry
				mustBe(t, e, row.want)
				if row.want.Reason != ReasonRiskTaken && !e.DoubtSince.Equal(noon().Add(-2*time.Minute)) {
					t.Errorf("by %s: in doubt since %v", origin, e.DoubtSince)
				}
			}
		}
	}
}

// A due entry may be unclaimed for hours, because of a closed gate or a backlog, and then be claimed in the last
// second before the failover.
func TestFailover_LongDueMayHaveBeenClaimedInTheWindow(t *testing.T) {
	for _, due := range []time.Duration{2 * time.Minute, time.Minute + failoverWindow, time.Minute + failoverWindow + time.Second, time.Hour, 24 * time.Hour} {
		found := entry(Waiting, dueSince(due), ownedBy(OwnerLedger))
		if e := Decide(found, trigger(OriginWorker), ready(), rules(ContractBlind, afterFailover), noon()).Change.Entry; e.State == Sending {
			t.Errorf("due for %v, its claim may be lost, but it is sent without doubt", due)
		}
	}
}

// A holder whose claim was lost returns with an outcome that proves nothing. Its timeline event must not hide that the
// failover may have lost the claim.
func TestFailover_LateUnknownOutcomeLeavesDoubt(t *testing.T) {
	r := rules(ContractBlind, afterFailover)
	found := entry(Waiting, dueSince(2*time.Minute), ownedBy(OwnerLedger))
	e := stored(SettleLate(found, attempt(ResultUnknown, 0)), noon().Add(-30*time.Second))
	if step := Decide(e, trigger(OriginWorker), ready(), r, noon()); step.Change.Entry.State == Sending {
		t.Error("the outcome is unknown and the claim may be lost, but it is called again")
	}
	e = stored(mustRecordStatus(t, found, statusEvent(StatusBounced, "receipt-9")), noon().Add(-30*time.Second))
	if step := Decide(e, trigger(OriginWorker), ready(), r, noon()); step.Change.Entry.State == Sending {
		t.Error("its provider sent a status event and the claim may be lost, but it is called again")
	}
}

// A write without a call, such as a takeover, proves nothing about the calls that may be lost.
func TestFailover_WriteWithoutACallLeavesDoubt(t *testing.T) {
	found := entry(Waiting, dueSince(2*time.Minute))
	e := stored(TakeOver(found, trigger(OriginAPI)), noon().Add(-30*time.Second))
	mustBe(t, Decide(e, trigger(OriginWorker), ready(), rules(ContractBlind, afterFailover), noon()).Change.Entry,
		StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged})
}

// The broker's delivery counter shows that a delivery without a publish time is not new. After the window it proves
// nothing.
func TestFailover_UndatedRedeliveryIsInDoubtWithinTheWindow(t *testing.T) {
	for _, row := range []struct {
		count int
		now   time.Duration // after Noticed
		want  State
	}{{3, time.Minute, Unknown}, {1, time.Minute, Sending}, {0, time.Minute, Sending}, {3, failoverWindow - time.Microsecond, Unknown}, {3, failoverWindow, Sending}} {
		now := lastFailover().Noticed.Add(row.now)
		tr := trigger(OriginPush)
		tr.DeliveryCount, tr.NewEntry.Published = row.count, now // the time of arrival, since no other is known
		if e := Decide(Entry{}, tr, ready(), rules(ContractBlind, afterFailover), now).Change.Entry; e.State != row.want {
			t.Errorf("delivery %d, %v after: %s, want %s", row.count, row.now, e.State, row.want)
		}
	}
}

func mustRecordStatus(t *testing.T, e Entry, r StatusEvent) Change {
	t.Helper()
	change, changed := RecordStatus(e, r)
	if !changed {
		t.Fatalf("%s is not recorded", r.Kind)
	}
	return change
}

func TestFailover_RepeatKeepsKeyAndWindow(t *testing.T) {
	short := func(w time.Duration) func(*Rules) {
		return func(r *Rules) { r.BoundRoute.Contract.Window, r.ChannelRoute.Contract.Window = w, w }
	}
	first := noon().Add(-time.Minute - failoverWindow) // no lost claim is older
	for _, row := range []struct {
		ago   time.Duration
		since time.Time
	}{{2 * time.Minute, noon().Add(-2 * time.Minute)}, {time.Hour, first}} {
		e := Decide(Entry{}, published(row.ago), ready(), rules(ContractIdempotent, afterFailover), noon()).Change.Entry
		if !e.DoubtSince.Equal(row.since) || e.SendKey != identity().SendKey() {
			t.Errorf("published %v ago: in doubt since %v, want %v", row.ago, e.DoubtSince, row.since)
		}
		e = stored(Change{Entry: e}, noon())
		again := Decide(e, trigger(OriginPush), ready(), rules(ContractIdempotent, afterFailover), noon()).Change.Entry
		if again.State != Sending || !again.InDoubt() || again.SendKey != e.SendKey {
			t.Errorf("the repeat: %s, doubt %t", again.State, again.InDoubt())
		}
		edge := noon().Sub(row.since) + margin
		for w, want := range map[time.Duration]State{edge: Unknown, edge + time.Microsecond: Waiting} {
			if e := Decide(Entry{}, published(row.ago), ready(), rules(ContractIdempotent, afterFailover, short(w)), noon()).Change.Entry; e.State != want {
				t.Errorf("published %v ago, a window of %v: %s, want %s", row.ago, w, e.State, want)
			}
		}
	}
}

// The policy takes the risk, and the timeline must record that.
func TestFailover_RiskTakenIsInTheTimeline(t *testing.T) {
	r := rules(ContractBlind, onUnknown(Resend), afterFailover)
	inserted := Decide(Entry{}, published(time.Hour), ready(), r, noon()).Change
	due := Decide(entry(Waiting, dueSince(2*time.Minute)), trigger(OriginPush), ready(), r, noon()).Change
	for name, change := range map[string]Change{"inserted": inserted, "due": due} {
		if change.Entry.Reason != ReasonRiskTaken || change.Event.Reason != ReasonRiskTaken {
			t.Errorf("%s: the entry says %q, its timeline %q", name, change.Entry.Reason, change.Event.Reason)
		}
		again := Decide(stored(change, noon()), trigger(OriginPush), ready(), r, noon()).Change.Entry
		if again.State != Sending {
			t.Errorf("%s: %s, %s; a risk is taken once only", name, again.State, again.Reason)
		}
	}
}

func TestFailover_RepeatsOnlyAtTheSameProvider(t *testing.T) {
	second := func(r *Rules) {
		r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1", Contract: Contract{Kind: ContractIdempotent, Window: window}}
	}
	claimedOnce := entry(Waiting, dueSince(2*time.Minute))
	never := entry(Waiting, dueSince(2*time.Minute), func(e *Entry) { e.Fingerprint = "" })
	for name, row := range map[string]struct {
		found    Entry
		rules    Rules
		provider string
		want     StateSummary
	}{
		"claimed before":                  {claimedOnce, rules(ContractIdempotent, afterFailover, second), "mail", StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		"claimed before, another account": {claimedOnce, rules(ContractIdempotent, bound("mail/2"), afterFailover), "mail", StateSummary{Unknown, ClassUnknown, ReasonProviderChange}},
		"claimed before, provider gone":   {claimedOnce, rules(ContractIdempotent, boundGone, afterFailover), "mail", StateSummary{Waiting, ClassUnknown, ReasonProviderGone}},
		"never claimed":                   {never, rules(ContractIdempotent, afterFailover), "mail", StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
	} {
		e := Decide(row.found, trigger(OriginWorker), ready(), row.rules, noon()).Change.Entry
		mustBe(t, e, row.want)
		if e.Provider != row.provider {
			t.Errorf("%s: at %q, want %q", name, e.Provider, row.provider)
		}
	}
}
