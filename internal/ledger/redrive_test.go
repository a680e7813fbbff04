package ledger_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

const maxRedrives = 3

// redriveRules returns the rules of an item whose redrive was created for the current version, and that is not skipped.
func redriveRules(e Entry, changes ...func(*RedriveRules)) RedriveRules {
	rr := RedriveRules{RedriveID: "rd-1", Actor: "ada", Version: e.Version, MaxRedrives: maxRedrives, HasPayload: true}
	for _, change := range changes {
		change(&rr)
	}
	return rr
}

func withDeadline(d time.Duration) func(*RedriveRules) {
	return func(rr *RedriveRules) { rr.Deadline = noon().Add(d) }
}

func admission(a Admission) func(*RedriveRules) { return func(rr *RedriveRules) { rr.Admission = a } }

func permanentRequested(rr *RedriveRules) { rr.Permanent = true }

func seenVersion(version int64) func(*RedriveRules) {
	return func(rr *RedriveRules) { rr.Version = version }
}

// deadOf gives a dead letter this class; those that could not be sent were never claimed.
func deadOf(c Class) func(*Entry) {
	return func(e *Entry) {
		if e.Class = c; c == ClassBroker || c == ClassUnroutable || c == ClassMalformed {
			e.ClaimedAt, e.Fingerprint, e.FirstSeen = Moment{}, "", e.Updated
		}
	}
}

// deadFor makes a dead letter one that has not been claimed or written for so long.
func deadFor(d time.Duration) func(*Entry) {
	return func(e *Entry) {
		since := noon().Add(-d)
		e.Updated, e.ClaimedAt = since, At(since)
		if e.Published.After(since) {
			e.Published, e.FirstSeen = since, since
		}
	}
}

func publishedAgo(d time.Duration) func(*Entry) {
	return func(e *Entry) { e.Published = noon().Add(-d) }
}

// undated gives an entry the times of a delivery from a broker that does not say when it was published.
func undated(ago time.Duration) func(*Entry) {
	return func(e *Entry) { e.FirstSeen, e.Published = noon().Add(-ago), noon().Add(-ago) }
}

func redriven(n int) func(*Entry) { return func(e *Entry) { e.Redrives = n } }

func otherProvider(r *Rules) { r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1"} }

func mustRedrive(t *testing.T, e Entry, rr RedriveRules, r Rules) Change {
	t.Helper()
	change, skip := RedriveEntry(e, rr, r, noon())
	if skip != "" {
		t.Fatalf("left alone: %s", skip)
	}
	return change
}

func TestRedriveEntry_SkipsEverythingButDeadLetters(t *testing.T) {
	abandoned := entry(Dropped, markDoubt(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	for name, row := range map[string]struct {
		found Entry
		want  SkipReason
	}{
		"absent":                  {Entry{}, SkipGone},
		"sent":                    {entry(Sent), SkipSent},
		"sent, assumed":           {entry(Sent, assumed), SkipSent},
		"waiting":                 {entry(Waiting), SkipInProgress},
		"waiting, the ledger's":   {entry(Waiting, ownedBy(OwnerLedger)), SkipInProgress},
		"waiting in doubt":        {entry(Waiting, markDoubt(time.Minute)), SkipInProgress},
		"sending":                 {entry(Sending), SkipInProgress},
		"sending, lease expired":  {entry(Sending, leaseExpired), SkipInProgress},
		"unknown":                 {entry(Unknown), SkipUnknown},
		"unknown, and redriven":   {entry(Unknown, redriven(maxRedrives)), SkipUnknown},
		"dropped":                 {entry(Dropped), SkipDropped},
		"abandoned":               {abandoned, SkipDropped},
		"sent, of a dead class":   {entry(Sent, deadOf(ClassPermanent)), SkipSent},
		"dropped, of a dead one":  {entry(Dropped, deadOf(ClassPermanent)), SkipDropped},
		"waiting, of a dead one":  {entry(Waiting, deadOf(ClassBroker)), SkipInProgress},
		"unknown, its time over":  {entry(Unknown, deadlineIn(-time.Hour)), SkipUnknown},
		"dropped, its time over":  {entry(Dropped, deadlineIn(-time.Hour)), SkipDropped},
		"sending, its time over":  {entry(Sending, deadlineIn(-time.Hour)), SkipInProgress},
		"sent, and its time over": {entry(Sent, deadlineIn(-time.Hour)), SkipSent},
	} {
		// The state takes precedence over the version, the payload and the class.
		for what, rr := range map[string]RedriveRules{
			"as created": redriveRules(row.found), "requested explicitly": redriveRules(row.found, permanentRequested, withDeadline(time.Hour)),
			"changed": redriveRules(row.found, seenVersion(row.found.Version+1)),
			"worst":   {Admission: Admission{State: Dropped, Reason: ReasonExpired}},
		} {
			for _, r := range []Rules{rules(ContractIdempotent), rules(ContractBlind, afterFailover), {}} {
				if change, skip := RedriveEntry(row.found, rr, r, noon()); skip != row.want || change != (Change{}) {
					t.Errorf("%s, %s: %q, want %q, and writes %+v", name, what, skip, row.want, change)
				}
			}
			if skip := rr.Reparse(row.found); skip != row.want {
				t.Errorf("%s, %s: Reparse: %q, want %q", name, what, skip, row.want)
			}
		}
	}
}

func TestRedriveEntry_EverySkipReason(t *testing.T) {
	dead, permanent := entry(Dead), entry(Dead, deadOf(ClassPermanent))
	expired := Admission{State: Dropped, Reason: ReasonExpired}
	cutOff := Admission{State: Dropped, Reason: ReasonBeforeCutOff}
	tooFar := Admission{State: Dead, Class: ClassPermanent, Reason: ReasonTooFarAhead}
	r, most := rules(ContractBlind), func(n int) func(*RedriveRules) { return func(rr *RedriveRules) { rr.MaxRedrives = n } }
	for name, row := range map[string]struct {
		found Entry
		rr    RedriveRules
		rules Rules
		want  SkipReason
	}{
		"it has changed":                     {dead, redriveRules(dead, seenVersion(dead.Version-1)), r, SkipMoved},
		"restored to an older version":       {dead, redriveRules(dead, seenVersion(dead.Version+1)), r, SkipMoved},
		"version 0":                          {dead, redriveRules(dead, seenVersion(0)), r, SkipMoved},
		"permanent, not requested":           {permanent, redriveRules(permanent), r, SkipPermanent},
		"permanent, requested":               {permanent, redriveRules(permanent, permanentRequested), r, ""},
		"requested, and of another class":    {dead, redriveRules(dead, permanentRequested), r, ""},
		"redriven, and may once more":        {dead, redriveRules(entry(Dead, redriven(2))), r, ""},
		"parked":                             {entry(Dead, redriven(3)), redriveRules(dead), r, SkipParked},
		"parked long since":                  {entry(Dead, redriven(9)), redriveRules(dead), r, SkipParked},
		"no redrives at all":                 {dead, redriveRules(dead, most(0)), r, SkipParked},
		"purged":                             {dead, redriveRules(dead, func(rr *RedriveRules) { rr.HasPayload = false }), r, SkipPurged},
		"expired, by the policy":             {dead, redriveRules(dead, admission(expired)), r, SkipExpired},
		"expired at this very instant":       {entry(Dead, deadlineIn(0)), redriveRules(dead), r, SkipExpired},
		"a microsecond left":                 {entry(Dead, deadlineIn(time.Microsecond)), redriveRules(dead), r, ""},
		"expired, and granted a new one":     {entry(Dead, deadlineIn(-time.Hour)), redriveRules(dead, withDeadline(time.Hour)), r, ""},
		"granted what has passed":            {dead, redriveRules(dead, withDeadline(-time.Second)), r, SkipExpired},
		"before the cut-over":                {dead, redriveRules(dead, admission(cutOff)), r, SkipRefused},
		"refused permanently":                {dead, redriveRules(dead, admission(tooFar)), r, SkipRefused},
		"no provider":                        {dead, redriveRules(dead), rules(ContractBlind, func(r *Rules) { r.ChannelRoute = Route{} }), SkipUnroutable},
		"its provider gone, another instead": {dead, redriveRules(dead), rules(ContractBlind, boundGone), ""},
	} {
		change, skip := RedriveEntry(row.found, row.rr, row.rules, noon())
		if skip != row.want || skip != "" && change != (Change{}) {
			t.Errorf("%s: %q, want %q, and writes %+v", name, skip, row.want, change)
		}
		if skip == "" && change.Entry.State != Waiting {
			t.Errorf("%s: %s", name, change.Entry.State)
		}
	}
}

func TestRedriveEntry_GetsANewBudgetAndTheLedgerAsOwner(t *testing.T) {
	for _, class := range []Class{ClassRecipient, ClassExhausted, ClassUnroutable, ClassBroker, ClassPermanent} {
		found := entry(Dead, budgetUsed(attempts), redriven(1), deadOf(class), func(e *Entry) { e.LeaseExpirations, e.Deliveries, e.UserID = 2, 3, "u-7" })
		change := mustRedrive(t, found, redriveRules(found, permanentRequested, withDeadline(72*time.Hour)), rules(ContractBlind))
		want := found
		want.State, want.Class, want.Reason, want.Owner = Waiting, "", ReasonRedriven, OwnerLedger
		want.BudgetUsed, want.LeaseExpirations, want.Redrives = 0, 0, 2
		want.Due, want.Wake, want.Deadline = In(0), In(0), noon().Add(72*time.Hour)
		if change.Entry != want {
			t.Errorf("%s: got\n%+v, want\n%+v", class, change.Entry, want)
		}
		wantEvent := TimelineEvent{
			Kind: EventDecision, State: Waiting, Reason: ReasonRedriven, Origin: OriginRedrive,
			Source: "ada", MessageID: "rd-1", Provider: "mail",
		}
		if change.Event == nil || *change.Event != wantEvent {
			t.Errorf("%s: recorded as %+v", class, change.Event)
		}
		if change.Payload != nil || change.Audit != nil || change.Purge != PurgeNothing {
			t.Errorf("%s: writes more: %+v", class, change)
		}
	}
}

func TestWithDeadline_KeepsTheDeadlineIfNoneIsGranted(t *testing.T) {
	for name, found := range map[string]Entry{"one": entry(Dead), "none": entry(Dead, func(e *Entry) { e.Deadline = time.Time{} })} {
		if next := mustRedrive(t, found, redriveRules(found), rules(ContractBlind)).Entry; !next.Deadline.Equal(found.Deadline) {
			t.Errorf("%s: now %v", name, next.Deadline)
		}
		if rr := redriveRules(found); rr.WithDeadline(found) != found {
			t.Errorf("%s: a deadline that was not granted", name)
		}
		rr := redriveRules(found, withDeadline(time.Minute)) // the entry that the policy admits or not
		if e := rr.WithDeadline(found); !e.Deadline.Equal(noon().Add(time.Minute)) || e.Version != found.Version {
			t.Errorf("%s: granted %v", name, e.Deadline)
		}
	}
}

// An entry proven unsent may go to any provider; the fingerprint of another one would record the next claim as
// ReasonFailedOver.
func TestRedriveEntry_GoesToTheChannelsProvider(t *testing.T) {
	for name, row := range map[string]struct {
		rules                 Rules
		provider, fingerprint string
	}{
		"the same":                               {rules(ContractIdempotent), "mail", "mail/1"},
		"another account":                        {rules(ContractIdempotent, bound("mail/2")), "mail", "mail/1"},
		"another provider":                       {rules(ContractIdempotent, otherProvider), "second", ""},
		"another, and its own is not configured": {rules(ContractIdempotent, boundGone), "other", ""},
		"another, without lookups":               {rules(ContractLookup, otherProvider), "second", ""},
	} {
		found := entry(Dead)
		change := mustRedrive(t, found, redriveRules(found), row.rules)
		e := stored(change, noon())
		if e.Provider != row.provider || e.Fingerprint != row.fingerprint || e.InDoubt() || change.Event.Provider != row.provider {
			t.Errorf("%s: at %q, %q, recorded as %q", name, e.Provider, e.Fingerprint, change.Event.Provider)
		}
		f := ready()
		f.Slot.Provider = row.provider
		claimed := Decide(e, trigger(OriginWorker), f, row.rules, noon()).Change
		if claimed.Entry.State != Sending || claimed.Event != nil || claimed.Entry.Fingerprint != row.rules.ChannelRoute.Fingerprint {
			t.Errorf("%s: then %s at %q, recorded as %+v", name, claimed.Entry.State, claimed.Entry.Fingerprint, claimed.Event)
		}
	}
}

// The lost commits may include a redrive of it, and a send.
func TestRedriveEntry_DeadBeforeAFailoverComesBackInDoubt(t *testing.T) {
	unknown := StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged}
	for name, row := range map[string]struct {
		rules Rules
		want  StateSummary
	}{
		"idempotent":         {rules(ContractIdempotent, afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		"idempotent, assume": {rules(ContractIdempotent, onUnknown(AssumeSent), afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},
		"lookup":             {rules(ContractLookup, afterFailover), unknown},
		"lookup, assumed":    {rules(ContractLookup, onUnknown(AssumeSent), afterFailover), unknown},
		"lookup, resend":     {rules(ContractLookup, onUnknown(Resend), afterFailover), unknown},
		"blind":              {rules(ContractBlind, afterFailover), unknown},
		"blind, assumed":     {rules(ContractBlind, onUnknown(AssumeSent), afterFailover), unknown},
		"blind, resend":      {rules(ContractBlind, onUnknown(Resend), afterFailover), StateSummary{Waiting, ClassUnknown, ReasonRiskTaken}},
		"another account":    {rules(ContractIdempotent, bound("mail/2"), afterFailover), StateSummary{Unknown, ClassUnknown, ReasonProviderChange}},
	} {
		for ago, since := range map[time.Duration]time.Duration{
			time.Minute + time.Microsecond: time.Minute + time.Microsecond, 2 * time.Minute: 2 * time.Minute, 24 * time.Hour: time.Minute + failoverWindow,
		} {
			found := entry(Dead, deadFor(ago), budgetUsed(attempts), redriven(1), func(e *Entry) { e.LeaseExpirations = maxExpirations })
			change := mustRedrive(t, found, redriveRules(found), row.rules)
			e := change.Entry
			mustBe(t, e, row.want)
			if risk := row.want.Reason == ReasonRiskTaken; risk == e.InDoubt() || !risk && !e.DoubtSince.Equal(noon().Add(-since)) {
				t.Errorf("%s, dead for %v: in doubt since %v", name, ago, e.DoubtSince)
			}
			if e.BudgetUsed != 0 || e.LeaseExpirations != 0 || e.Redrives != 2 || e.Owner != OwnerLedger || e.Provider != "mail" || e.Fingerprint != "mail/1" {
				t.Errorf("%s: %+v", name, e)
			}
			if ev := change.Event; ev.Origin != OriginRedrive || ev.Source != "ada" || ev.MessageID != "rd-1" || ev.State != e.State {
				t.Errorf("%s: recorded as %+v", name, ev)
			}
			if scheduled := e.NextLookup == In(lookupSchedule()[0]); scheduled != (row.rules.BoundRoute.Contract.Kind == ContractLookup) {
				t.Errorf("%s: next lookup at %v", name, e.NextLookup)
			}
			if e.State == Waiting && e.InDoubt() { // then it is repeated at the same provider, or not at all
				again := Decide(stored(change, noon()), trigger(OriginWorker), ready(), row.rules, noon()).Change.Entry
				if again.State != Sending || !again.InDoubt() || again.Fingerprint != "mail/1" {
					t.Errorf("%s: then %s, doubt %t", name, again.State, again.InDoubt())
				}
			}
		}
	}
}

func TestRedriveEntry_OnlyWhatMayBeLostIsInDoubt(t *testing.T) {
	never, losesNothing := Failover{Window: failoverWindow}, Failover{Noticed: noon()}
	for name, row := range map[string]struct {
		found    Entry
		failover Failover
		doubt    bool
	}{
		"dead before":              {entry(Dead, deadFor(2*time.Minute)), lastFailover(), true},
		"dead at that very moment": {entry(Dead, deadFor(time.Minute)), lastFailover(), false},
		"dead since":               {entry(Dead, deadFor(time.Second)), lastFailover(), false},
		"claimed and dead since, published before":      {entry(Dead, deadFor(time.Second), publishedAgo(2*time.Minute)), lastFailover(), false},
		"a bounce was recorded since":                   {entry(Dead, deadFor(2*time.Minute), func(e *Entry) { e.Updated = noon() }), lastFailover(), true},
		"dead-lettered, publish time not known":         {entry(Dead, deadFor(0), deadOf(ClassBroker), undated(time.Second)), lastFailover(), true},
		"the same, long after":                          {entry(Dead, deadFor(0), deadOf(ClassBroker), undated(0)), Failover{Noticed: noon().Add(-failoverWindow), Window: failoverWindow}, false},
		"unroutable, published before":                  {entry(Dead, deadFor(0), deadOf(ClassUnroutable), publishedAgo(2*time.Minute)), lastFailover(), true},
		"dead-lettered, published before":               {entry(Dead, deadFor(0), deadOf(ClassBroker), publishedAgo(2*time.Minute)), lastFailover(), true},
		"dead-lettered, published at that moment":       {entry(Dead, deadFor(0), deadOf(ClassBroker), publishedAgo(time.Minute)), lastFailover(), false},
		"dead-lettered, published since":                {entry(Dead, deadFor(0), deadOf(ClassBroker), publishedAgo(30*time.Second)), lastFailover(), false},
		"dead-lettered and inserted before":             {entry(Dead, deadFor(time.Hour), deadOf(ClassBroker), publishedAgo(2*time.Hour)), lastFailover(), true},
		"no failover":                                   {entry(Dead, deadFor(time.Hour)), never, false},
		"a failover that loses nothing":                 {entry(Dead, deadFor(time.Hour)), losesNothing, false},
		"dead-lettered, and the failover loses nothing": {entry(Dead, deadFor(0), deadOf(ClassBroker), publishedAgo(time.Hour)), losesNothing, false},
	} {
		r := rules(ContractBlind, func(r *Rules) { r.Failover = row.failover })
		e := mustRedrive(t, row.found, redriveRules(row.found), r).Entry
		if e.InDoubt() != row.doubt || !row.doubt && summaryOf(e) != (StateSummary{Waiting, "", ReasonRedriven}) {
			t.Errorf("%s: doubt %t, %+v", name, e.InDoubt(), summaryOf(e))
		}
	}
}

func TestRedriveEntry_EndsSentOrParked(t *testing.T) {
	r := rules(ContractBlind)
	for result, want := range map[Result]StateSummary{
		ResultAccepted: {Sent, "", ReasonAccepted}, ResultGone: {Dead, ClassRecipient, ReasonGone}, ResultRefused: {Dead, ClassPermanent, ReasonRefused},
	} {
		e := entry(Dead, budgetUsed(attempts))
		for n := 1; n <= maxRedrives; n++ {
			rr := redriveRules(e, permanentRequested)
			e = stored(mustRedrive(t, e, rr, r), noon())
			if _, skip := RedriveEntry(e, rr, r, noon()); skip != SkipInProgress {
				t.Errorf("%s: the same item again: %q", result, skip)
			}
			if reply := ReplyFor(e, noon()); !reply.Ack {
				t.Errorf("%s: redriven, and not acked", result)
			}
			e = stored(Decide(e, trigger(OriginWorker), ready(), r, noon()).Change, noon())
			if e.State != Sending || e.SendKey != identity().SendKey() || e.InDoubt() {
				t.Fatalf("%s: the worker does not claim it: %s, %s", result, e.State, e.Reason)
			}
			e = stored(Settle(e, attempt(result, 0), r, noon()), noon())
			mustBe(t, e, want)
			if e.Redrives != n || e.Attempts != attempts+n || e.BudgetUsed != 1 {
				t.Errorf("%s: %d redrives, %d attempts, %d spent", result, e.Redrives, e.Attempts, e.BudgetUsed)
			}
			if _, skip := RedriveEntry(e, rr, r, noon()); e.State == Dead && skip != SkipMoved && skip != SkipParked {
				t.Errorf("%s: dead again, and the old item gets %q", result, skip)
			}
			if e.State == Sent {
				break
			}
		}
		wantSkip := map[bool]SkipReason{true: SkipSent, false: SkipParked}[e.State == Sent]
		if _, skip := RedriveEntry(e, redriveRules(e, permanentRequested), r, noon()); skip != wantSkip {
			t.Errorf("%s: %q, want %q", result, skip, wantSkip)
		}
	}
}

func TestReparse_HasTheSameSkipReasons(t *testing.T) {
	malformed := entry(Dead, deadOf(ClassMalformed))
	expired := admission(Admission{State: Dropped, Reason: ReasonExpired}) // the policy decides about the delivery instead
	for name, row := range map[string]struct {
		found Entry
		rr    RedriveRules
		want  SkipReason
	}{
		"as created":               {malformed, redriveRules(malformed), ""},
		"whatever the policy says": {malformed, redriveRules(malformed, expired), ""},
		"changed":                  {malformed, redriveRules(malformed, seenVersion(1)), SkipMoved},
		"parked":                   {entry(Dead, deadOf(ClassMalformed), redriven(3)), redriveRules(malformed), SkipParked},
		"purged":                   {malformed, redriveRules(malformed, func(rr *RedriveRules) { rr.HasPayload = false }), SkipPurged},
		"permanent":                {entry(Dead, deadOf(ClassPermanent)), redriveRules(malformed), SkipPermanent},
	} {
		if skip := row.rr.Reparse(row.found); skip != row.want {
			t.Errorf("%s: %q, want %q", name, skip, row.want)
		}
	}
}

// The reminder's not_before applies to a redrive too.
func TestRedriveEntry_WaitsForNotBefore(t *testing.T) {
	for name, row := range map[string]struct {
		notBefore, deadline time.Duration
		wait                time.Duration
		skip                SkipReason
	}{
		"ahead":               {time.Hour, 2 * time.Hour, time.Hour, ""},
		"past":                {-time.Hour, 2 * time.Hour, 0, ""},
		"ahead, and too late": {3 * time.Hour, 2 * time.Hour, 0, SkipExpired},
	} {
		found := entry(Dead, deadOf(ClassBroker), func(e *Entry) {
			e.NotBefore, e.Deadline = noon().Add(row.notBefore), noon().Add(row.deadline)
		})
		change, skip := RedriveEntry(found, redriveRules(found), rules(ContractBlind), noon())
		if skip != row.skip || skip == "" && (change.Entry.Due != In(row.wait) || change.Entry.Wake != change.Entry.Due) {
			t.Errorf("%s: %q, due %v", name, skip, change.Entry.Due)
		}
	}
}

func TestCloseReparsed_DropsTheDeadLetter(t *testing.T) {
	found := entry(Dead, deadOf(ClassMalformed), redriven(1))
	reparsed := Identity{ReminderID: "rem-9", Type: "seat_expiring", Channel: "sms"}
	change := redriveRules(found).CloseReparsed(found, reparsed)
	want := found
	want.State, want.Reason, want.Redrives = Dropped, ReasonReparsed, 2
	if change.Entry != want || change.Purge != PurgePayload || change.Audit != nil || change.Payload != nil {
		t.Errorf("%+v", change)
	}
	mustBe(t, change.Entry, StateSummary{Dropped, ClassMalformed, ReasonReparsed})
	wantEvent := TimelineEvent{
		Kind: EventDecision, State: Dropped, Reason: ReasonReparsed, Origin: OriginRedrive, Source: "ada", MessageID: "rd-1",
		Provider: "mail", Outcome: Outcome{Code: reparsed.EntryID()},
	}
	if *change.Event != wantEvent {
		t.Errorf("recorded as %+v", change.Event)
	}
	if skip := redriveRules(want).Reparse(want); skip != SkipDropped {
		t.Errorf("parsed again: %q", skip)
	}
}

func TestDiscard_OnlyADeadLetterOfTheSeenVersion(t *testing.T) {
	audit := AuditEvent{ID: "audit-1", Actor: "ada", Role: "operator", Reason: "a test"}
	for name, e := range everyState() {
		change, err := Discard(e, e.Version, audit)
		if dead := e.State == Dead; dead != (err == nil) || !dead && (!errors.Is(err, ErrNotDead) || change != (Change{})) {
			t.Errorf("%s: %v, %+v", name, err, change)
		}
		for _, version := range []int64{e.Version - 1, e.Version + 1, 0} {
			if change, err := Discard(e, version, audit); !errors.Is(err, ErrStale) || change != (Change{}) {
				t.Errorf("%s over version %d: %v", name, version, err)
			}
		}
	}
	if change, err := Discard(Entry{}, 0, audit); !errors.Is(err, ErrNotFound) || change != (Change{}) {
		t.Errorf("an absent one: %v", err)
	}
}

func TestDiscard_KeepsTheEntryAndNeverSendsIt(t *testing.T) {
	found := entry(Dead, redriven(1), budgetUsed(attempts))
	change, err := Discard(found, found.Version, AuditEvent{ID: "audit-1", Actor: "ada", Role: "operator", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	want := found
	want.State, want.Reason = Dropped, ReasonDiscarded
	if change.Entry != want || change.Purge != PurgeNothing {
		t.Errorf("%+v", change)
	}
	ev := TimelineEvent{Kind: EventDecision, State: Dropped, Reason: ReasonDiscarded, Origin: OriginOperator, Source: "ada", Provider: "mail"}
	if *change.Event != ev {
		t.Errorf("recorded as %+v", change.Event)
	}
	mustAudit(t, change, "discard", `{"state":"dead","class":"exhausted","reason":"budget_spent","version":7}`,
		`{"state":"dropped","class":"exhausted","reason":"discarded","version":8}`)
	mustNeverClaim(t, "discarded", stored(change, noon()))
}

// mustAudit checks a change's audit event.
func mustAudit(t *testing.T, change Change, action, before, after string) {
	t.Helper()
	want := AuditEvent{Identity: change.Entry.Identity, ID: "audit-1", Actor: "ada", Role: "operator", Action: action, Reason: "a test", Before: before, After: after}
	if change.Audit == nil || *change.Audit != want {
		t.Errorf("the audit says %+v, want %+v", change.Audit, want)
	}
}
