package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// What is only recorded dates the entry anew.
func TestALateLineDoesNotHideThatADeadLetterStoodBefore(t *testing.T) {
	found := entry(Dead, diedAgo(2*time.Minute))
	for name, c := range map[string]Change{
		"late unknown": Late(found, attempt(ResultUnknown, 0)),
		"bounced":      mustHear(t, found, report(ReportBounced, "told")),
	} {
		e := stored(c, noon().Add(-30*time.Second))
		if next := mustReopen(t, e, reopening(e), rules(Blind, afterFailover)).Entry; !next.InDoubt() {
			t.Errorf("%s: %s, %s, no doubt", name, next.State, next.Reason)
		}
	}
}

// It may have been taken in hours after the forgotten send.
func TestDoubtOfWhatABrokerGaveUpOnIsDatedBeforeTheChange(t *testing.T) {
	found := entry(Dead, diedAgo(0), diedOf(ClassBroker), publishedAgo(2*time.Minute), func(e *Entry) { e.Fingerprint = "" })
	next := mustReopen(t, found, reopening(found), rules(Idempotent, afterFailover)).Entry
	if next.DoubtSince.After(changed().Noticed) {
		t.Errorf("in doubt since %v, and the database changed at %v", next.DoubtSince, changed().Noticed)
	}
}

// It may have been sent while its channel had a provider.
func TestWhatWasBornUnroutableAfterTheChangeMayHaveBeenSentBefore(t *testing.T) {
	e := stored(Meet(Entry{}, published(2*time.Minute), ready(), rules(Blind, afterFailover, func(r *Rules) { r.Channel = Route{} }), noon()).Change, noon())
	next := mustReopen(t, e, reopening(e), rules(Blind, afterFailover)).Entry
	if !next.InDoubt() {
		t.Errorf("%s, %s: no doubt", next.State, next.Reason)
	}
}

func TestTheTimelineSaysThatTheDatabaseChanged(t *testing.T) {
	found := entry(Dead, diedAgo(2*time.Minute))
	if ev := mustReopen(t, found, reopening(found), rules(Idempotent, afterFailover)).Event; ev.Reason != ReasonLedgerChanged {
		t.Errorf("told as %q", ev.Reason)
	}
}

func TestACodeGoesWithItsFailure(t *testing.T) {
	found := entry(Dead, func(e *Entry) { e.Code = "550" })
	if next := mustReopen(t, found, reopening(found), rules(Blind, elsewhere)).Entry; next.Code != "" {
		t.Errorf("reopened at %q, class %q, code %q", next.Provider, next.Class, next.Code)
	}
	w := entry(Waiting, func(e *Entry) { e.Code = "rate" })
	if next := Meet(w, visit(OriginPush), ready(), rules(Blind, func(r *Rules) { r.Channel = Route{} }), noon()).Change.Entry; next.Code != "" {
		t.Errorf("dead of %q, code %q", next.Class, next.Code)
	}
	l := entry(Sending, lapsed, func(e *Entry) { e.Code = "rate" })
	if next := Lapse(l, visit(OriginWorker), rules(Blind), noon()).Entry; next.Code != "" {
		t.Errorf("lapsed, class %q, code %q", next.Class, next.Code)
	}
}

// What waits under the identity that a malformed one was read as stays as it is.
func TestARedrivesVisitClaimsNothing(t *testing.T) {
	if step := Meet(entry(Waiting), visit(OriginRedrive), ready(), rules(Blind), noon()); step.Change.Entry.State == Sending {
		t.Error("a redrive claims")
	}
}

// The forgotten redrive may have gone to where its channel led then.
func TestNobodyCanSayWhereToRepeatWhatLedElsewhereSince(t *testing.T) {
	second := func(r *Rules) {
		r.Channel = Route{Provider: "second", Fingerprint: "second/1", Contract: Contract{Kind: Idempotent, Window: window}}
	}
	found := entry(Dead, diedAgo(2*time.Minute))
	if next := mustReopen(t, found, reopening(found), rules(Idempotent, afterFailover, second)).Entry; next.State == Waiting {
		t.Errorf("repeated at %q", next.Provider)
	}
}

func TestAMalformedOneIsReadAgainAndNotSent(t *testing.T) {
	found := entry(Dead, diedOf(ClassMalformed))
	if change, skip := Reopen(found, reopening(found), rules(Blind), noon()); skip == "" {
		t.Errorf("%s", change.Entry.State)
	}
}
