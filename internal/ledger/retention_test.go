package ledger_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func auditEvent() AuditEvent {
	return AuditEvent{ID: "audit-1", Actor: "ada", Role: "operator", Reason: "a test"}
}

func withUser(e *Entry) { e.UserID = "user-77" }

// mustNeverClaim decides about an entry for every origin, now and much later, and applies every other operation that
// might make it send again.
func mustNeverClaim(t *testing.T, name string, found Entry) {
	t.Helper()
	for _, kind := range []ContractKind{ContractIdempotent, ContractLookup, ContractBlind} {
		for _, policy := range []OnUnknown{Hold, AssumeSent, Resend} {
			r := rules(kind, onUnknown(policy))
			for _, origin := range []Origin{OriginPush, OriginAPI, OriginWorker, OriginRedrive} {
				for _, later := range []time.Duration{0, lease, 10 * time.Minute} {
					mustFinish(t, name, found, trigger(origin), r, noon().Add(later))
				}
			}
			e := found
			for range lookupSchedule() {
				if change, changed := RecordLookup(e, lookup(LookupNotFound, ""), r, noon()); changed {
					e = stored(change, noon())
				}
			}
			if e.State == Waiting {
				t.Errorf("%s: not found under %s/%s, and it is sent again", name, kind, policy)
			}
		}
	}
	rr := redriveRules(found, permanentRequested, withDeadline(time.Hour))
	if _, skip := RedriveEntry(found, rr, rules(ContractBlind), noon()); skip == "" {
		t.Errorf("%s: a redrive is allowed", name)
	}
	if change, err := Resolve(found, verdict(VerdictNotSent, found), noon()); err == nil && change.Entry.State != Dropped {
		t.Errorf("%s: resolved as not sent, and it is %s", name, change.Entry.State)
	}
}

// mustFinish runs one task to its end, which must not be a claim.
func mustFinish(t *testing.T, name string, e Entry, v Trigger, r Rules, now time.Time) {
	t.Helper()
	for range 6 {
		step := Decide(e, v, ready(), r, now)
		if step.Action == ActionDone {
			return
		}
		if next := step.Change.Entry; step.Action != ActionUpdate || next.Holder == "mine" {
			t.Errorf("%s: %s claims it after %v", name, v.Origin, now.Sub(noon()))
			return
		}
		e = stored(step.Change, now)
	}
	t.Errorf("%s: %s does not end", name, v.Origin)
}

func TestErase_EveryState(t *testing.T) {
	inDoubt := markDoubt(time.Minute)
	abandoned := func(e *Entry) { e.Reason = ReasonAbandoned }
	for name, row := range map[string]struct {
		found  Entry
		want   StateSummary
		cancel bool
	}{
		"waiting":                   {entry(Waiting), StateSummary{Dropped, "", ReasonErased}, true},
		"waiting, the ledger's":     {entry(Waiting, ownedBy(OwnerLedger)), StateSummary{Dropped, "", ReasonErased}, true},
		"waiting in doubt":          {entry(Waiting, inDoubt), StateSummary{Unknown, "", ReasonErased}, true},
		"dead":                      {entry(Dead), StateSummary{Dropped, ClassExhausted, ReasonErased}, true},
		"dead, malformed":           {entry(Dead, deadOf(ClassMalformed)), StateSummary{Dropped, ClassMalformed, ReasonErased}, true},
		"sending":                   {entry(Sending), StateSummary{Sending, "", ReasonClaimed}, true},
		"sending in doubt":          {entry(Sending, inDoubt), StateSummary{Sending, "", ReasonClaimed}, true},
		"sending, lease expired":    {entry(Sending, leaseExpired), StateSummary{Sending, "", ReasonClaimed}, true},
		"unknown":                   {entry(Unknown), StateSummary{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"unknown, cancelled":        {entry(Unknown, cancelRequested), StateSummary{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"unknown, lookup scheduled": {entry(Unknown, func(e *Entry) { e.NextLookup = At(noon()) }), StateSummary{Unknown, ClassUnknown, ReasonUnanswered}, true},
		"sent":                      {entry(Sent), StateSummary{Sent, "", ReasonAccepted}, false},
		"sent, assumed":             {entry(Sent, assumed), StateSummary{Sent, "", ReasonAssumed}, false},
		"dropped":                   {entry(Dropped), StateSummary{Dropped, "", ReasonExpired}, false},
		"abandoned in doubt":        {entry(Dropped, inDoubt, abandoned), StateSummary{Dropped, "", ReasonAbandoned}, false},
	} {
		found := row.found
		withUser(&found)
		change := Erase(found, auditEvent())
		e := change.Entry
		mustBe(t, e, row.want)
		if e.UserID != "" || e.CancelRequested != row.cancel || change.Purge != PurgePersonalData || change.Payload != nil {
			t.Errorf("%s: user %q, cancel %t, purges %d", name, e.UserID, e.CancelRequested, change.Purge)
		}
		ev := TimelineEvent{Kind: EventDecision, State: row.want.State, Reason: ReasonErased, Origin: OriginOperator, Source: "ada", Provider: "mail"}
		if *change.Event != ev {
			t.Errorf("%s: recorded as %+v", name, change.Event)
		}
		if e.DoubtSince != found.DoubtSince || e.SendKey != found.SendKey || e.Receipt != found.Receipt || e.Holder != found.Holder ||
			e.LeaseUntil != found.LeaseUntil || e.Deadline != found.Deadline || e.Redrives != found.Redrives {
			t.Errorf("%s: changed more: %+v", name, e)
		}
		if row.want.State == found.State { // everything about the send is unchanged
			want := found
			want.UserID, want.CancelRequested = "", row.cancel
			if e != want {
				t.Errorf("%s:\n%+v, want\n%+v", name, e, want)
			}
		}
		mustNeverClaim(t, name, stored(change, noon()))
	}
}

func TestErase_LaterDeliveryFindsTheEntry(t *testing.T) {
	for name, found := range map[string]Entry{"sent": entry(Sent), "dead": entry(Dead), "waiting": entry(Waiting), "dropped": entry(Dropped)} {
		e := stored(Erase(found, auditEvent()), noon())
		step := Decide(e, trigger(OriginPush), ready(), rules(ContractBlind), noon())
		if reply := ReplyFor(e, noon()); step.Action != ActionDone || !reply.Ack {
			t.Errorf("%s: action %d, ack %t", name, step.Action, reply.Ack)
		}
		if change := SettleLate(e, attempt(ResultAccepted, 0)); change.Entry.State != Sent || change.Entry.UserID != "" {
			t.Errorf("%s: accepted late, and %s", name, change.Entry.State)
		}
	}
}

// The holder calls with the payload it had loaded, and records its outcome; no later attempt is allowed.
func TestErase_HolderSettlesAfterIt(t *testing.T) {
	dropped, unknown := StateSummary{Dropped, "", ReasonCancelled}, StateSummary{Unknown, ClassUnknown, ReasonCancelled}
	for _, result := range Results() {
		want := map[Result]StateSummary{ResultAccepted: {Sent, "", ReasonAccepted}, ResultUnknown: unknown}
		for _, r := range []Rules{rules(ContractIdempotent), rules(ContractLookup), rules(ContractBlind), rules(ContractBlind, onUnknown(AssumeSent)), rules(ContractBlind, onUnknown(Resend)), rules(ContractLookup, onUnknown(Resend))} {
			for _, doubt := range []bool{false, true} {
				found := entry(Sending, withUser)
				if doubt {
					markDoubt(time.Minute)(&found)
				}
				e := stored(Erase(found, auditEvent()), noon())
				e = stored(Settle(e, attempt(result, time.Second), r, noon()), noon())
				w, ok := want[result]
				switch {
				case ok:
				case doubt:
					w = StateSummary{Unknown, e.Class, ReasonCancelled}
				default:
					w = StateSummary{Dropped, e.Class, dropped.Reason}
				}
				mustBe(t, e, w)
				if e.UserID != "" || !e.CancelRequested || e.Attempts != count(result != ResultNotCalled) {
					t.Errorf("%s: user %q, cancel %t, %d attempts", result, e.UserID, e.CancelRequested, e.Attempts)
				}
				mustNeverClaim(t, "settled "+result.String(), e)
			}
		}
	}
}

func TestErase_AuditHoldsNoPersonalData(t *testing.T) {
	for name, e := range everyState() {
		withUser(&e)
		change := Erase(e, auditEvent())
		if text := change.Audit.Before + change.Audit.After + change.Audit.Action + change.Event.Source + change.Event.MessageID; strings.Contains(text, "user-77") {
			t.Errorf("%s: the user id is in %s", name, text)
		}
	}
	mustAudit(t, Erase(entry(Dead, withUser), auditEvent()), "erase",
		`{"state":"dead","class":"exhausted","reason":"budget_spent","version":7}`,
		`{"state":"dropped","class":"exhausted","reason":"erased","version":8}`)
	mustAudit(t, Erase(entry(Sent, withUser), auditEvent()), "erase",
		`{"state":"sent","reason":"accepted","receipt":"receipt","version":7}`,
		`{"state":"sent","reason":"accepted","receipt":"receipt","version":8}`)
}

func TestPurge_AddsItsEventAndChangesNothing(t *testing.T) {
	abandoned := entry(Dropped, markDoubt(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	for _, e := range []Entry{entry(Sent), entry(Sent, assumed), entry(Dead, withUser), entry(Dropped), abandoned} {
		change := Purge(e)
		wantEvent := TimelineEvent{Kind: EventDecision, State: e.State, Reason: ReasonPurged, Origin: OriginPurge, Provider: "mail"}
		if change.Entry != e || *change.Event != wantEvent || change.Purge != PurgePayload || change.Audit != nil || change.Payload != nil {
			t.Errorf("%s: %+v, recorded as %+v", e.State, change, change.Event)
		}
	}
	// By version, the first write makes the other stale.
	e := entry(Dead)
	purged := stored(Purge(e), noon())
	if _, skip := RedriveEntry(purged, redriveRules(e), rules(ContractBlind), noon()); skip != SkipMoved {
		t.Errorf("purged since the redrive was created: %q", skip)
	}
}

func TestExpiry_OnlyFinalEntriesExpire(t *testing.T) {
	const day = 24 * time.Hour
	keep := Retention{Sent: 1 * day, Dead: 2 * day, Dropped: 3 * day, Entry: 10 * day}
	spans := map[State]time.Duration{Sent: keep.Sent, Dead: keep.Dead, Dropped: keep.Dropped}
	for _, s := range States() {
		for _, age := range []time.Duration{0, keep.Sent, keep.Dead, keep.Dropped, keep.Entry, 100 * day} {
			for _, off := range []time.Duration{-time.Microsecond, 0, time.Microsecond} {
				for _, payload := range []bool{true, false} {
					k := RetentionCandidate{Entry: entry(s, func(e *Entry) { e.Updated = noon().Add(-age - off) }), HasPayload: payload}
					span, final := spans[s]
					want := ExpireNothing
					switch {
					case final && age+off > keep.Entry:
						want = ExpireEntry
					case final && payload && age+off > span:
						want = ExpirePayload
					}
					if got := keep.Expiry(k, noon()); got != want {
						t.Errorf("%s after %v, payload %t: %d, want %d", s, age+off, payload, got, want)
					}
					if got := (Retention{}).Expiry(k, noon()); got != ExpireNothing {
						t.Errorf("%s after %v must be kept for ever, but %d", s, age+off, got)
					}
				}
			}
		}
	}
}

// Each span applies on its own: one that is not set keeps for ever, whatever the others are.
func TestExpiry_AnUnsetSpanKeepsForEver(t *testing.T) {
	old := func(s State) RetentionCandidate {
		return RetentionCandidate{Entry: entry(s, func(e *Entry) { e.Updated = noon().Add(-1000 * time.Hour) }), HasPayload: true}
	}
	for _, s := range []State{Sent, Dead, Dropped} {
		others := Retention{Sent: time.Hour, Dead: time.Hour, Dropped: time.Hour}
		switch s {
		case Sent:
			others.Sent = 0
		case Dead:
			others.Dead = 0
		default:
			others.Dropped = 0
		}
		if got := others.Expiry(old(s), noon()); got != ExpireNothing {
			t.Errorf("%s: %d", s, got)
		}
		if got := (Retention{Entry: time.Hour}).Expiry(old(s), noon()); got != ExpireEntry {
			t.Errorf("%s, the entry's span alone: %d", s, got)
		}
	}
}

// A reminder may be published twice, and its entry has the date of the first copy. The second was recognised for as long
// as the entry was there, so the mark must cover it as well: the date of the first copy would not.
func TestLowWater_CoversEveryCopyUntilTheLastWrite(t *testing.T) {
	published, seen, written := noon().Add(-50*24*time.Hour), noon().Add(-3*time.Hour), noon().Add(-time.Hour)
	for name, e := range map[string]Entry{
		"published long before it was seen":                          {Published: published, FirstSeen: seen, Updated: written},
		"without a date":                                             {FirstSeen: seen, Updated: written},
		"from a provider's event, which is dated ahead of the clock": {Published: noon().Add(24 * time.Hour), FirstSeen: written, Updated: written},
	} {
		if got := e.LowWater(); !got.Equal(written) {
			t.Errorf("%s: %v, want %v", name, got, written)
		}
	}
}

// While the memory stays the same, the mark refuses nothing that the memory would admit.
func TestLowWater_IsNeverWithinTheMemory(t *testing.T) {
	keep := Retention{Entry: 40 * 24 * time.Hour}
	for _, age := range []time.Duration{keep.Entry, keep.Entry + time.Microsecond, 2 * keep.Entry} {
		e := Entry{Version: 2, State: Sent, FirstSeen: noon().Add(-age), Updated: noon().Add(-age)}
		if keep.Expiry(RetentionCandidate{Entry: e}, noon()) == ExpireEntry && !e.LowWater().Before(noon().Add(-keep.Entry)) {
			t.Errorf("deleted at an age of %v, and the mark is within the memory", age)
		}
	}
}
