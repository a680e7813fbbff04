package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// published is a visit that brings what was published so long ago.
func published(ago time.Duration) Visit {
	v := visit(OriginPush)
	v.Birth.Published = noon().Add(-ago)
	return v
}

func TestWhatWasPublishedBeforeTheDatabaseChangedIsBornInDoubt(t *testing.T) {
	for name, row := range map[string]struct {
		rules Rules
		want  standing
	}{
		"idempotent":        {rules(Idempotent, afterFailover), standing{Waiting, ClassUnknown, ReasonRepeatable}},
		"lookup":            {rules(Lookup, afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		"lookup, resend":    {rules(Lookup, onUnknown(Resend), afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		"blind":             {rules(Blind, afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		"blind, assumed":    {rules(Blind, onUnknown(AssumeSent), afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		"blind, resend":     {rules(Blind, onUnknown(Resend), afterFailover), standing{Waiting, ClassUnknown, ReasonRiskTaken}},
		"ours, idempotent":  {rules(Idempotent, afterFailover, func(r *Rules) { r.RetriesBy = OwnerLedger }), standing{Waiting, ClassUnknown, ReasonRepeatable}},
		"asks, and doubted": {rules(Blind, afterFailover, func(r *Rules) { r.AsksRelevance = true }), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
	} {
		step := Meet(Entry{}, published(2*time.Minute), ready(), row.rules, noon())
		e := step.Change.Entry
		if step.Verb != Create {
			t.Errorf("%s: verb %d", name, step.Verb)
			continue
		}
		mustStand(t, e, row.want)
		if e.Provider != "mail" || e.Fingerprint != "mail/1" || step.Change.Event.Reason != ReasonLedgerChanged && row.want.Reason != ReasonRiskTaken {
			t.Errorf("%s: at %q, told as %q", name, e.Provider, step.Change.Event.Reason)
		}
		if e.State == Unknown && row.rules.Bound.Contract.Kind == Lookup && e.AskAt != In(asks()[0]) {
			t.Errorf("%s: asked at %v", name, e.AskAt)
		}
	}
}

func TestWhatCameAfterTheDatabaseChangedFlows(t *testing.T) {
	r := rules(Blind, afterFailover)
	for name, v := range map[string]Visit{"at that moment": published(time.Minute), "later": published(time.Second)} {
		if e := Meet(Entry{}, v, ready(), r, noon()).Change.Entry; e.State != Sending || e.InDoubt() {
			t.Errorf("published %s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	scheduled := published(time.Hour)
	scheduled.NotYet = noon().Add(-time.Second) // it could not be sent before the change
	if e := Meet(Entry{}, scheduled, ready(), r, noon()).Change.Entry; e.State != Sending {
		t.Errorf("due since the change: %s", e.State)
	}
	scheduled.NotYet = noon().Add(time.Hour)
	mustStand(t, Meet(Entry{}, scheduled, ready(), r, noon()).Change.Entry, standing{Waiting, "", ReasonScheduled})

	for name, e := range map[string]Entry{
		"due since the change": entry(Waiting, func(e *Entry) {
			e.Due, e.Wake, e.Updated = At(noon().Add(-time.Minute)), At(noon()), noon().Add(-time.Hour)
		}),
	} {
		if e := Meet(e, visit(OriginPush), ready(), r, noon()).Change.Entry; e.State != Sending || e.InDoubt() {
			t.Errorf("%s: %s, doubt %t", name, e.State, e.InDoubt())
		}
	}
	for name, f := range map[string]Failover{"never changed": {Window: lost}, "forgets nothing": {Noticed: noon()}} {
		r := rules(Blind, func(r *Rules) { r.Failover = f })
		if e := Meet(Entry{}, published(time.Hour), ready(), r, noon()).Change.Entry; e.State != Sending {
			t.Errorf("%s: %s", name, e.State)
		}
	}
}

func TestWhatWasDueBeforeTheDatabaseChangedIsDoubted(t *testing.T) {
	for _, row := range []struct {
		rules Rules
		want  standing
	}{
		{rules(Idempotent, afterFailover), standing{Waiting, ClassUnknown, ReasonRepeatable}},
		{rules(Lookup, afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		{rules(Blind, afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		{rules(Blind, onUnknown(AssumeSent), afterFailover), standing{Unknown, ClassUnknown, ReasonLedgerChanged}},
		{rules(Blind, onUnknown(Resend), afterFailover), standing{Waiting, ClassUnknown, ReasonRiskTaken}},
	} {
		for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker} {
			for _, owner := range []Owner{OwnerBroker, OwnerLedger} {
				found := entry(Waiting, untouched(2*time.Minute), ownedBy(owner))
				e := Meet(found, visit(origin), ready(), row.rules, noon()).Change.Entry
				mustStand(t, e, row.want)
				if row.want.Reason != ReasonRiskTaken && !e.DoubtSince.Equal(noon().Add(-2*time.Minute)) {
					t.Errorf("by %s: in doubt since %v", origin, e.DoubtSince)
				}
			}
		}
	}
}

// An entry that is due may stand unclaimed for hours, before a closed gate or in a backlog, and be claimed
// in the last second that the database forgot.
func TestWhatHasBeenDueForLongMayHaveBeenClaimedInTheWindow(t *testing.T) {
	for _, due := range []time.Duration{2 * time.Minute, time.Minute + lost, time.Minute + lost + time.Second, time.Hour, 24 * time.Hour} {
		found := entry(Waiting, untouched(due), ownedBy(OwnerLedger))
		if e := Meet(found, visit(OriginWorker), ready(), rules(Blind, afterFailover), noon()).Change.Entry; e.State == Sending {
			t.Errorf("due for %v, its claim may be forgotten, and it is sent without doubt", due)
		}
	}
}

// Its holder, whose claim was forgotten, comes back with an answer that proves nothing. That line must not
// make the entry look untouched by the change.
func TestALateUnknownAnswerAfterTheDatabaseChangedLeavesDoubt(t *testing.T) {
	r := rules(Blind, afterFailover)
	found := entry(Waiting, untouched(2*time.Minute), ownedBy(OwnerLedger))
	e := stored(Late(found, attempt(ResultUnknown, 0)), noon().Add(-30*time.Second))
	if step := Meet(e, visit(OriginWorker), ready(), r, noon()); step.Change.Entry.State == Sending {
		t.Error("a call ended without an answer, its claim was forgotten, and it is called again")
	}
	e = stored(mustHear(t, found, report(ReportBounced, "told")), noon().Add(-30*time.Second))
	if step := Meet(e, visit(OriginWorker), ready(), r, noon()); step.Change.Entry.State == Sending {
		t.Error("its provider reports on it, its claim was forgotten, and it is called again")
	}
}

// What nobody's call wrote, a takeover say, tells nothing of the calls that were forgotten.
func TestAWriteThatIsNoCallLeavesTheDoubtToTheNextVisit(t *testing.T) {
	found := entry(Waiting, untouched(2*time.Minute))
	e := stored(Requested(found, visit(OriginAPI)), noon().Add(-30*time.Second))
	mustStand(t, Meet(e, visit(OriginWorker), ready(), rules(Blind, afterFailover), noon()).Change.Entry,
		standing{Unknown, ClassUnknown, ReasonLedgerChanged})
}

// The broker's own counter tells that a delivery without a time is not new; later it proves nothing.
func TestARedeliveryWithoutATimeIsDoubtedWhileCommitsMayBeForgotten(t *testing.T) {
	for _, row := range []struct {
		count int
		now   time.Duration // after the notice
		want  State
	}{{3, time.Minute, Unknown}, {1, time.Minute, Sending}, {0, time.Minute, Sending}, {3, lost - time.Microsecond, Unknown}, {3, lost, Sending}} {
		now := changed().Noticed.Add(row.now)
		v := visit(OriginPush)
		v.Count, v.Birth.Published = row.count, now // arrival, for want of anything else
		if e := Meet(Entry{}, v, ready(), rules(Blind, afterFailover), now).Change.Entry; e.State != row.want {
			t.Errorf("delivery %d, %v after: %s, want %s", row.count, row.now, e.State, row.want)
		}
	}
}

func mustHear(t *testing.T, e Entry, r Report) Change {
	t.Helper()
	change, news := Heard(e, r)
	if !news {
		t.Fatalf("%s is nothing", r.Kind)
	}
	return change
}

func TestARepeatAfterTheDatabaseChangedKeepsKeyAndWindow(t *testing.T) {
	short := func(w time.Duration) func(*Rules) {
		return func(r *Rules) { r.Bound.Contract.Window, r.Channel.Contract.Window = w, w }
	}
	first := noon().Add(-time.Minute - lost) // no forgotten claim is older
	for _, row := range []struct {
		ago   time.Duration
		since time.Time
	}{{2 * time.Minute, noon().Add(-2 * time.Minute)}, {time.Hour, first}} {
		e := Meet(Entry{}, published(row.ago), ready(), rules(Idempotent, afterFailover), noon()).Change.Entry
		if !e.DoubtSince.Equal(row.since) || e.SendKey != identity().SendKey() {
			t.Errorf("published %v ago: in doubt since %v, want %v", row.ago, e.DoubtSince, row.since)
		}
		e = stored(Change{Entry: e}, noon())
		again := Meet(e, visit(OriginPush), ready(), rules(Idempotent, afterFailover), noon()).Change.Entry
		if again.State != Sending || !again.InDoubt() || again.SendKey != e.SendKey {
			t.Errorf("the repeat: %s, doubt %t", again.State, again.InDoubt())
		}
		edge := noon().Sub(row.since) + margin
		for w, want := range map[time.Duration]State{edge: Unknown, edge + time.Microsecond: Waiting} {
			if e := Meet(Entry{}, published(row.ago), ready(), rules(Idempotent, afterFailover, short(w)), noon()).Change.Entry; e.State != want {
				t.Errorf("published %v ago, a window of %v: %s, want %s", row.ago, w, e.State, want)
			}
		}
	}
}

// The risk is the policy's, and the ledger has to say that it took it.
func TestARiskTakenAfterTheDatabaseChangedStandsInTheTimeline(t *testing.T) {
	r := rules(Blind, onUnknown(Resend), afterFailover)
	born := Meet(Entry{}, published(time.Hour), ready(), r, noon()).Change
	due := Meet(entry(Waiting, untouched(2*time.Minute)), visit(OriginPush), ready(), r, noon()).Change
	for name, change := range map[string]Change{"born": born, "due": due} {
		if change.Entry.Reason != ReasonRiskTaken || change.Event.Reason != ReasonRiskTaken {
			t.Errorf("%s: the entry says %q, its timeline %q", name, change.Entry.Reason, change.Event.Reason)
		}
		again := Meet(stored(change, noon()), visit(OriginPush), ready(), r, noon()).Change.Entry
		if again.State != Sending {
			t.Errorf("%s: %s, %s; the risk is taken once, not for ever", name, again.State, again.Reason)
		}
	}
}

func TestWhatMayBeForgottenGoesToItsOwnProviderOrToNone(t *testing.T) {
	second := func(r *Rules) {
		r.Channel = Route{Provider: "second", Fingerprint: "second/1", Contract: Contract{Kind: Idempotent, Window: window}}
	}
	claimedOnce := entry(Waiting, untouched(2*time.Minute))
	never := entry(Waiting, untouched(2*time.Minute), func(e *Entry) { e.Fingerprint = "" })
	for name, row := range map[string]struct {
		found    Entry
		rules    Rules
		provider string
		want     standing
	}{
		"claimed before":                {claimedOnce, rules(Idempotent, afterFailover, second), "mail", standing{Waiting, ClassUnknown, ReasonRepeatable}},
		"claimed before, account moved": {claimedOnce, rules(Idempotent, bound("mail/2"), afterFailover), "mail", standing{Unknown, ClassUnknown, ReasonProviderChange}},
		"claimed before, provider gone": {claimedOnce, rules(Idempotent, boundGone, afterFailover), "mail", standing{Waiting, ClassUnknown, ReasonProviderGone}},
		"never claimed":                 {never, rules(Idempotent, afterFailover), "mail", standing{Waiting, ClassUnknown, ReasonRepeatable}},
	} {
		e := Meet(row.found, visit(OriginWorker), ready(), row.rules, noon()).Change.Entry
		mustStand(t, e, row.want)
		if e.Provider != row.provider {
			t.Errorf("%s: at %q, want %q", name, e.Provider, row.provider)
		}
	}
}
