package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// An event that is only recorded updates the entry's Updated.
func TestRedriveEntry_LateEventDoesNotHideAFailover(t *testing.T) {
	found := entry(Dead, deadFor(2*time.Minute))
	for name, c := range map[string]Change{
		"late unknown": SettleLate(found, attempt(ResultUnknown, 0)),
		"bounced":      mustRecordStatus(t, found, statusEvent(StatusBounced, "receipt-9")),
	} {
		e := stored(c, noon().Add(-30*time.Second))
		if next := mustRedrive(t, e, redriveRules(e), rules(ContractBlind, afterFailover)).Entry; !next.InDoubt() {
			t.Errorf("%s: %s, %s, no doubt", name, next.State, next.Reason)
		}
	}
}

// It may have been inserted hours after the lost send.
func TestRedriveEntry_DoubtOfABrokerDeadLetterStartsBeforeTheFailover(t *testing.T) {
	found := entry(Dead, deadFor(0), deadOf(ClassBroker), publishedAgo(2*time.Minute), func(e *Entry) { e.Fingerprint = "" })
	next := mustRedrive(t, found, redriveRules(found), rules(ContractIdempotent, afterFailover)).Entry
	if next.DoubtSince.After(lastFailover().Noticed) {
		t.Errorf("in doubt since %v, and the database changed at %v", next.DoubtSince, lastFailover().Noticed)
	}
}

// It may have been sent while its channel had a provider.
func TestRedriveEntry_UnroutableSinceTheFailoverIsInDoubt(t *testing.T) {
	e := stored(Decide(Entry{}, published(2*time.Minute), ready(), rules(ContractBlind, afterFailover, func(r *Rules) { r.ChannelRoute = Route{} }), noon()).Change, noon())
	next := mustRedrive(t, e, redriveRules(e), rules(ContractBlind, afterFailover)).Entry
	if !next.InDoubt() {
		t.Errorf("%s, %s: no doubt", next.State, next.Reason)
	}
}

func TestRedriveEntry_TimelineSaysThatTheDatabaseChanged(t *testing.T) {
	found := entry(Dead, deadFor(2*time.Minute))
	if ev := mustRedrive(t, found, redriveRules(found), rules(ContractIdempotent, afterFailover)).Event; ev.Reason != ReasonDatabaseChanged {
		t.Errorf("recorded as %q", ev.Reason)
	}
}

func TestEntry_CodeIsClearedWithItsFailure(t *testing.T) {
	found := entry(Dead, func(e *Entry) { e.Code = "550" })
	if next := mustRedrive(t, found, redriveRules(found), rules(ContractBlind, otherProvider)).Entry; next.Code != "" {
		t.Errorf("redriven at %q, class %q, code %q", next.Provider, next.Class, next.Code)
	}
	w := entry(Waiting, func(e *Entry) { e.Code = "rate" })
	if next := Decide(w, trigger(OriginPush), ready(), rules(ContractBlind, func(r *Rules) { r.ChannelRoute = Route{} }), noon()).Change.Entry; next.Code != "" {
		t.Errorf("dead of %q, code %q", next.Class, next.Code)
	}
	l := entry(Sending, leaseExpired, func(e *Entry) { e.Code = "rate" })
	if next := ExpireLease(l, trigger(OriginWorker), rules(ContractBlind), noon()).Entry; next.Code != "" {
		t.Errorf("lease expired, class %q, code %q", next.Class, next.Code)
	}
}

// A waiting entry with the identity that a malformed message was parsed as does not change.
func TestDecide_ReparsedMessageClaimsNothing(t *testing.T) {
	if step := Decide(entry(Waiting), trigger(OriginRedrive), ready(), rules(ContractBlind), noon()); step.Change.Entry.State == Sending {
		t.Error("a redrive claims")
	}
}

// The lost redrive may have gone to the provider that its channel had then.
func TestRedriveEntry_NoRepeatAfterAFailoverIfTheChannelMoved(t *testing.T) {
	second := func(r *Rules) {
		r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1", Contract: Contract{Kind: ContractIdempotent, Window: window}}
	}
	found := entry(Dead, deadFor(2*time.Minute))
	if next := mustRedrive(t, found, redriveRules(found), rules(ContractIdempotent, afterFailover, second)).Entry; next.State == Waiting {
		t.Errorf("repeated at %q", next.Provider)
	}
}

func TestRedriveEntry_MalformedIsNotSent(t *testing.T) {
	found := entry(Dead, deadOf(ClassMalformed))
	if change, skip := RedriveEntry(found, redriveRules(found), rules(ContractBlind), noon()); skip == "" {
		t.Errorf("%s", change.Entry.State)
	}
}
