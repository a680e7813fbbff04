package ledger_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

const mostRedrives = 3

// reopening is an item of a redrive that was laid out over the entry as it stands, and lacks nothing.
func reopening(e Entry, changes ...func(*Reopening)) Reopening {
	by := Reopening{Redrive: "rd-1", By: "ada", Version: e.Version, Most: mostRedrives, Kept: true}
	for _, change := range changes {
		change(&by)
	}
	return by
}

func granted(d time.Duration) func(*Reopening) {
	return func(by *Reopening) { by.Deadline = noon().Add(d) }
}

func admission(a Admission) func(*Reopening) { return func(by *Reopening) { by.Admission = a } }

func byName(by *Reopening) { by.Permanent = true }

func laidOut(version int64) func(*Reopening) { return func(by *Reopening) { by.Version = version } }

// diedOf makes a dead letter one of this class; those that nobody could send were never claimed.
func diedOf(c Class) func(*Entry) {
	return func(e *Entry) {
		if e.Class = c; c == ClassBroker || c == ClassUnroutable || c == ClassMalformed {
			e.ClaimedAt, e.Fingerprint, e.FirstSeen = Moment{}, "", e.Updated
		}
	}
}

// diedAgo makes a dead letter one that nobody has claimed or written for so long.
func diedAgo(d time.Duration) func(*Entry) {
	return func(e *Entry) {
		died := noon().Add(-d)
		e.Updated, e.ClaimedAt = died, At(died)
		if e.Published.After(died) {
			e.Published, e.FirstSeen = died, died
		}
	}
}

func publishedAgo(d time.Duration) func(*Entry) {
	return func(e *Entry) { e.Published = noon().Add(-d) }
}

// undated is what a broker brought that does not say when it was published.
func undated(ago time.Duration) func(*Entry) {
	return func(e *Entry) { e.FirstSeen, e.Published = noon().Add(-ago), noon().Add(-ago) }
}

func redriven(n int) func(*Entry) { return func(e *Entry) { e.Redrives = n } }

func elsewhere(r *Rules) { r.Channel = Route{Provider: "second", Fingerprint: "second/1"} }

func mustReopen(t *testing.T, e Entry, by Reopening, r Rules) Change {
	t.Helper()
	change, skip := Reopen(e, by, r, noon())
	if skip != "" {
		t.Fatalf("left alone: %s", skip)
	}
	return change
}

func TestARedriveTouchesNothingButDeadLetters(t *testing.T) {
	abandoned := entry(Dropped, doubted(time.Minute), func(e *Entry) { e.Reason = ReasonAbandoned })
	for name, row := range map[string]struct {
		found Entry
		want  Skip
	}{
		"absent":                  {Entry{}, SkipGone},
		"sent":                    {entry(Sent), SkipSent},
		"sent, assumed":           {entry(Sent, assumed), SkipSent},
		"waiting":                 {entry(Waiting), SkipInProgress},
		"waiting, ours":           {entry(Waiting, ownedBy(OwnerLedger)), SkipInProgress},
		"waiting in doubt":        {entry(Waiting, doubted(time.Minute)), SkipInProgress},
		"sending":                 {entry(Sending), SkipInProgress},
		"sending, lapsed":         {entry(Sending, lapsed), SkipInProgress},
		"unknown":                 {entry(Unknown), SkipUnknown},
		"unknown, and redriven":   {entry(Unknown, redriven(mostRedrives)), SkipUnknown},
		"dropped":                 {entry(Dropped), SkipDropped},
		"abandoned":               {abandoned, SkipDropped},
		"sent, of a dead class":   {entry(Sent, diedOf(ClassPermanent)), SkipSent},
		"dropped, of a dead one":  {entry(Dropped, diedOf(ClassPermanent)), SkipDropped},
		"waiting, of a dead one":  {entry(Waiting, diedOf(ClassBroker)), SkipInProgress},
		"unknown, its time over":  {entry(Unknown, deadlineIn(-time.Hour)), SkipUnknown},
		"dropped, its time over":  {entry(Dropped, deadlineIn(-time.Hour)), SkipDropped},
		"sending, its time over":  {entry(Sending, deadlineIn(-time.Hour)), SkipInProgress},
		"sent, and its time over": {entry(Sent, deadlineIn(-time.Hour)), SkipSent},
	} {
		// Whether it moved since, is kept, or is asked for by name, where it stands says more.
		for what, by := range map[string]Reopening{
			"as laid out": reopening(row.found), "named": reopening(row.found, byName, granted(time.Hour)),
			"moved": reopening(row.found, laidOut(row.found.Version+1)),
			"worst": {Admission: Admission{Refusal: Dropped, Reason: ReasonExpired}},
		} {
			for _, r := range []Rules{rules(Idempotent), rules(Blind, afterFailover), {}} {
				if change, skip := Reopen(row.found, by, r, noon()); skip != row.want || change != (Change{}) {
					t.Errorf("%s, %s: %q, want %q, and writes %+v", name, what, skip, row.want, change)
				}
			}
			if skip := by.Reread(row.found); skip != row.want {
				t.Errorf("%s, %s: read again: %q, want %q", name, what, skip, row.want)
			}
		}
	}
}

func TestWhatADeadLetterIsLeftAloneFor(t *testing.T) {
	dead, permanent := entry(Dead), entry(Dead, diedOf(ClassPermanent))
	expired := Admission{Refusal: Dropped, Reason: ReasonExpired}
	cutOff := Admission{Refusal: Dropped, Reason: ReasonBeforeCutOff}
	tooFar := Admission{Refusal: Dead, Class: ClassPermanent, Reason: ReasonTooFarAhead}
	r, most := rules(Blind), func(n int) func(*Reopening) { return func(by *Reopening) { by.Most = n } }
	for name, row := range map[string]struct {
		found Entry
		by    Reopening
		rules Rules
		want  Skip
	}{
		"it moved on":                        {dead, reopening(dead, laidOut(dead.Version-1)), r, SkipMoved},
		"it was restored to an older one":    {dead, reopening(dead, laidOut(dead.Version+1)), r, SkipMoved},
		"nobody laid it out":                 {dead, reopening(dead, laidOut(0)), r, SkipMoved},
		"permanent, not named":               {permanent, reopening(permanent), r, SkipPermanent},
		"permanent, named":                   {permanent, reopening(permanent, byName), r, ""},
		"named, and of another class":        {dead, reopening(dead, byName), r, ""},
		"redriven, and may once more":        {dead, reopening(entry(Dead, redriven(2))), r, ""},
		"parked":                             {entry(Dead, redriven(3)), reopening(dead), r, SkipParked},
		"parked long since":                  {entry(Dead, redriven(9)), reopening(dead), r, SkipParked},
		"no redrives at all":                 {dead, reopening(dead, most(0)), r, SkipParked},
		"purged":                             {dead, reopening(dead, func(by *Reopening) { by.Kept = false }), r, SkipPurged},
		"expired, says the policy":           {dead, reopening(dead, admission(expired)), r, SkipExpired},
		"expired at this very instant":       {entry(Dead, deadlineIn(0)), reopening(dead), r, SkipExpired},
		"a microsecond left":                 {entry(Dead, deadlineIn(time.Microsecond)), reopening(dead), r, ""},
		"expired, and granted a new one":     {entry(Dead, deadlineIn(-time.Hour)), reopening(dead, granted(time.Hour)), r, ""},
		"granted what has passed":            {dead, reopening(dead, granted(-time.Second)), r, SkipExpired},
		"before the cut-over":                {dead, reopening(dead, admission(cutOff)), r, SkipRefused},
		"refused for good":                   {dead, reopening(dead, admission(tooFar)), r, SkipRefused},
		"no provider":                        {dead, reopening(dead), rules(Blind, func(r *Rules) { r.Channel = Route{} }), SkipUnroutable},
		"its provider gone, another instead": {dead, reopening(dead), rules(Blind, boundGone), ""},
	} {
		change, skip := Reopen(row.found, row.by, row.rules, noon())
		if skip != row.want || skip != "" && change != (Change{}) {
			t.Errorf("%s: %q, want %q, and writes %+v", name, skip, row.want, change)
		}
		if skip == "" && change.Entry.State != Waiting {
			t.Errorf("%s: %s", name, change.Entry.State)
		}
	}
}

func TestWhatIsReopenedStartsAfreshAndIsOurs(t *testing.T) {
	for _, class := range []Class{ClassRecipient, ClassExhausted, ClassUnroutable, ClassBroker, ClassPermanent} {
		found := entry(Dead, spent(attempts), redriven(1), diedOf(class), func(e *Entry) { e.Lapses, e.Deliveries, e.UserID = 2, 3, "u-7" })
		change := mustReopen(t, found, reopening(found, byName, granted(72*time.Hour)), rules(Blind))
		want := found
		want.State, want.Class, want.Reason, want.Owner = Waiting, "", ReasonRedriven, OwnerLedger
		want.Spent, want.Lapses, want.Redrives = 0, 0, 2
		want.Due, want.Wake, want.Deadline = In(0), In(0), noon().Add(72*time.Hour)
		if change.Entry != want {
			t.Errorf("%s: it stands as\n%+v, want\n%+v", class, change.Entry, want)
		}
		told := Event{
			Kind: EventDecision, State: Waiting, Reason: ReasonRedriven, Origin: OriginRedrive,
			Source: "ada", Message: "rd-1", Provider: "mail",
		}
		if change.Event == nil || *change.Event != told {
			t.Errorf("%s: told as %+v", class, change.Event)
		}
		if change.Payload != nil || change.Act != nil || change.Forget != ForgetNothing {
			t.Errorf("%s: it writes more: %+v", class, change)
		}
	}
}

func TestADeadlineThatNobodyGrantsStays(t *testing.T) {
	for name, found := range map[string]Entry{"one": entry(Dead), "none": entry(Dead, func(e *Entry) { e.Deadline = time.Time{} })} {
		if next := mustReopen(t, found, reopening(found), rules(Blind)).Entry; !next.Deadline.Equal(found.Deadline) {
			t.Errorf("%s: now %v", name, next.Deadline)
		}
		if by := reopening(found); by.Granted(found) != found {
			t.Errorf("%s: granted what nobody granted", name)
		}
		by := reopening(found, granted(time.Minute)) // the policy is asked about this one
		if e := by.Granted(found); !e.Deadline.Equal(noon().Add(time.Minute)) || e.Version != found.Version {
			t.Errorf("%s: granted %v", name, e.Deadline)
		}
	}
}

// What was proven unsent may go anywhere; a fingerprint of elsewhere would make the next claim a failover.
func TestADeadLetterGoesWhereItsChannelLeadsNow(t *testing.T) {
	for name, row := range map[string]struct {
		rules                 Rules
		provider, fingerprint string
	}{
		"where it was":                  {rules(Idempotent), "mail", "mail/1"},
		"another account":               {rules(Idempotent, bound("mail/2")), "mail", "mail/1"},
		"another provider":              {rules(Idempotent, elsewhere), "second", ""},
		"another, and its own is gone":  {rules(Idempotent, boundGone), "other", ""},
		"another, which nobody can ask": {rules(Lookup, elsewhere), "second", ""},
	} {
		found := entry(Dead)
		change := mustReopen(t, found, reopening(found), row.rules)
		e := stored(change, noon())
		if e.Provider != row.provider || e.Fingerprint != row.fingerprint || e.InDoubt() || change.Event.Provider != row.provider {
			t.Errorf("%s: at %q, %q, told as %q", name, e.Provider, e.Fingerprint, change.Event.Provider)
		}
		f := ready()
		f.Slot.Provider = row.provider
		claimed := Meet(e, visit(OriginWorker), f, row.rules, noon()).Change
		if claimed.Entry.State != Sending || claimed.Event != nil || claimed.Entry.Fingerprint != row.rules.Channel.Fingerprint {
			t.Errorf("%s: then %s at %q, told as %+v", name, claimed.Entry.State, claimed.Entry.Fingerprint, claimed.Event)
		}
	}
}

// A redrive of it, and a send, may be among what the database forgot.
func TestADeadLetterThatStoodBeforeTheDatabaseChangedComesBackInDoubt(t *testing.T) {
	unknown := standing{Unknown, ClassUnknown, ReasonLedgerChanged}
	for name, row := range map[string]struct {
		rules Rules
		want  standing
	}{
		"idempotent":         {rules(Idempotent, afterFailover), standing{Waiting, ClassUnknown, ReasonRepeatable}},
		"idempotent, assume": {rules(Idempotent, onUnknown(AssumeSent), afterFailover), standing{Waiting, ClassUnknown, ReasonRepeatable}},
		"lookup":             {rules(Lookup, afterFailover), unknown},
		"lookup, assumed":    {rules(Lookup, onUnknown(AssumeSent), afterFailover), unknown},
		"lookup, resend":     {rules(Lookup, onUnknown(Resend), afterFailover), unknown},
		"blind":              {rules(Blind, afterFailover), unknown},
		"blind, assumed":     {rules(Blind, onUnknown(AssumeSent), afterFailover), unknown},
		"blind, resend":      {rules(Blind, onUnknown(Resend), afterFailover), standing{Waiting, ClassUnknown, ReasonRiskTaken}},
		"another account":    {rules(Idempotent, bound("mail/2"), afterFailover), standing{Unknown, ClassUnknown, ReasonProviderChange}},
	} {
		for ago, since := range map[time.Duration]time.Duration{
			time.Minute + time.Microsecond: time.Minute + time.Microsecond, 2 * time.Minute: 2 * time.Minute, 24 * time.Hour: time.Minute + lost,
		} {
			found := entry(Dead, diedAgo(ago), spent(attempts), redriven(1), func(e *Entry) { e.Lapses = maxLapses })
			change := mustReopen(t, found, reopening(found), row.rules)
			e := change.Entry
			mustStand(t, e, row.want)
			if risk := row.want.Reason == ReasonRiskTaken; risk == e.InDoubt() || !risk && !e.DoubtSince.Equal(noon().Add(-since)) {
				t.Errorf("%s, dead for %v: in doubt since %v", name, ago, e.DoubtSince)
			}
			if e.Spent != 0 || e.Lapses != 0 || e.Redrives != 2 || e.Owner != OwnerLedger || e.Provider != "mail" || e.Fingerprint != "mail/1" {
				t.Errorf("%s: %+v", name, e)
			}
			if ev := change.Event; ev.Origin != OriginRedrive || ev.Source != "ada" || ev.Message != "rd-1" || ev.State != e.State {
				t.Errorf("%s: told as %+v", name, ev)
			}
			if asks := e.AskAt == In(asks()[0]); asks != (row.rules.Bound.Contract.Kind == Lookup) {
				t.Errorf("%s: asked at %v", name, e.AskAt)
			}
			if e.State == Waiting && e.InDoubt() { // then it is repeated at the same provider, or not at all
				again := Meet(stored(change, noon()), visit(OriginWorker), ready(), row.rules, noon()).Change.Entry
				if again.State != Sending || !again.InDoubt() || again.Fingerprint != "mail/1" {
					t.Errorf("%s: then %s, doubt %t", name, again.State, again.InDoubt())
				}
			}
		}
	}
}

func TestOnlyWhatMayHaveBeenForgottenIsDoubted(t *testing.T) {
	never, forgetsNothing := Failover{Window: lost}, Failover{Noticed: noon()}
	for name, row := range map[string]struct {
		found    Entry
		failover Failover
		doubt    bool
	}{
		"died before":              {entry(Dead, diedAgo(2*time.Minute)), changed(), true},
		"died at that very moment": {entry(Dead, diedAgo(time.Minute)), changed(), false},
		"died since":               {entry(Dead, diedAgo(time.Second)), changed(), false},
		"claimed and died since, published before": {entry(Dead, diedAgo(time.Second), publishedAgo(2*time.Minute)), changed(), false},
		"a bounce was told of since":               {entry(Dead, diedAgo(2*time.Minute), func(e *Entry) { e.Updated = noon() }), changed(), true},
		"given up, and nobody says when published": {entry(Dead, diedAgo(0), diedOf(ClassBroker), undated(time.Second)), changed(), true},
		"the same, long after":                     {entry(Dead, diedAgo(0), diedOf(ClassBroker), undated(0)), Failover{Noticed: noon().Add(-lost), Window: lost}, false},
		"unroutable, published before":             {entry(Dead, diedAgo(0), diedOf(ClassUnroutable), publishedAgo(2*time.Minute)), changed(), true},
		"given up, published before":               {entry(Dead, diedAgo(0), diedOf(ClassBroker), publishedAgo(2*time.Minute)), changed(), true},
		"given up, published at that moment":       {entry(Dead, diedAgo(0), diedOf(ClassBroker), publishedAgo(time.Minute)), changed(), false},
		"given up, published since":                {entry(Dead, diedAgo(0), diedOf(ClassBroker), publishedAgo(30*time.Second)), changed(), false},
		"given up and taken in, all before":        {entry(Dead, diedAgo(time.Hour), diedOf(ClassBroker), publishedAgo(2*time.Hour)), changed(), true},
		"it never changed":                         {entry(Dead, diedAgo(time.Hour)), never, false},
		"it changed, and forgets nothing":          {entry(Dead, diedAgo(time.Hour)), forgetsNothing, false},
		"given up, and the change forgets not":     {entry(Dead, diedAgo(0), diedOf(ClassBroker), publishedAgo(time.Hour)), forgetsNothing, false},
	} {
		r := rules(Blind, func(r *Rules) { r.Failover = row.failover })
		e := mustReopen(t, row.found, reopening(row.found), r).Entry
		if e.InDoubt() != row.doubt || !row.doubt && standingOf(e) != (standing{Waiting, "", ReasonRedriven}) {
			t.Errorf("%s: doubt %t, %+v", name, e.InDoubt(), standingOf(e))
		}
	}
}

func TestTheLifeOfADeadLetterEndsSentOrParked(t *testing.T) {
	r := rules(Blind)
	for result, want := range map[Result]standing{
		ResultAccepted: {Sent, "", ReasonAccepted}, ResultGone: {Dead, ClassRecipient, ReasonGone}, ResultRefused: {Dead, ClassPermanent, ReasonRefused},
	} {
		e := entry(Dead, spent(attempts))
		for turn := 1; turn <= mostRedrives; turn++ {
			by := reopening(e, byName)
			e = stored(mustReopen(t, e, by, r), noon())
			if _, skip := Reopen(e, by, r, noon()); skip != SkipInProgress {
				t.Errorf("%s: the same item once more: %q", result, skip)
			}
			if reply := ReplyFor(e, noon()); !reply.Ack {
				t.Errorf("%s: redriven it is ours, and not acked", result)
			}
			e = stored(Meet(e, visit(OriginWorker), ready(), r, noon()).Change, noon())
			if e.State != Sending || e.SendKey != identity().SendKey() || e.InDoubt() {
				t.Fatalf("%s: the worker does not claim it: %s, %s", result, e.State, e.Reason)
			}
			e = stored(Settle(e, attempt(result, 0), r, noon()), noon())
			mustStand(t, e, want)
			if e.Redrives != turn || e.Attempts != attempts+turn || e.Spent != 1 {
				t.Errorf("%s: %d redrives, %d attempts, %d spent", result, e.Redrives, e.Attempts, e.Spent)
			}
			if _, skip := Reopen(e, by, r, noon()); e.State == Dead && skip != SkipMoved && skip != SkipParked {
				t.Errorf("%s: it died anew, and the old item gets %q", result, skip)
			}
			if e.State == Sent {
				break
			}
		}
		last := map[bool]Skip{true: SkipSent, false: SkipParked}[e.State == Sent]
		if _, skip := Reopen(e, reopening(e, byName), r, noon()); skip != last {
			t.Errorf("%s: %q, want %q", result, skip, last)
		}
	}
}

func TestAMalformedOneIsReadAgainUnderTheSameReserves(t *testing.T) {
	malformed := entry(Dead, diedOf(ClassMalformed))
	expired := admission(Admission{Refusal: Dropped, Reason: ReasonExpired}) // the delivery that it becomes is asked about that
	for name, row := range map[string]struct {
		found Entry
		by    Reopening
		want  Skip
	}{
		"as laid out": {malformed, reopening(malformed), ""},
		"whatever the policy says of the quarantine": {malformed, reopening(malformed, expired), ""},
		"moved":     {malformed, reopening(malformed, laidOut(1)), SkipMoved},
		"parked":    {entry(Dead, diedOf(ClassMalformed), redriven(3)), reopening(malformed), SkipParked},
		"purged":    {malformed, reopening(malformed, func(by *Reopening) { by.Kept = false }), SkipPurged},
		"permanent": {entry(Dead, diedOf(ClassPermanent)), reopening(malformed), SkipPermanent},
	} {
		if skip := row.by.Reread(row.found); skip != row.want {
			t.Errorf("%s: %q, want %q", name, skip, row.want)
		}
	}
}

// What its reminder says of the time holds for a redrive too.
func TestARedriveWaitsForTheTimeThatWasAskedFor(t *testing.T) {
	for name, row := range map[string]struct {
		notBefore, deadline time.Duration
		wait                time.Duration
		skip                Skip
	}{
		"ahead":               {time.Hour, 2 * time.Hour, time.Hour, ""},
		"past":                {-time.Hour, 2 * time.Hour, 0, ""},
		"ahead, and too late": {3 * time.Hour, 2 * time.Hour, 0, SkipExpired},
	} {
		found := entry(Dead, diedOf(ClassBroker), func(e *Entry) {
			e.NotBefore, e.Deadline = noon().Add(row.notBefore), noon().Add(row.deadline)
		})
		change, skip := Reopen(found, reopening(found), rules(Blind), noon())
		if skip != row.skip || skip == "" && (change.Entry.Due != In(row.wait) || change.Entry.Wake != change.Entry.Due) {
			t.Errorf("%s: %q, due %v", name, skip, change.Entry.Due)
		}
	}
}

func TestWhatWasReadAtLastClosesItsDeadLetter(t *testing.T) {
	found := entry(Dead, diedOf(ClassMalformed), redriven(1))
	became := Identity{ReminderID: "rem-9", Type: "seat_expiring", Channel: "sms"}
	change := reopening(found).Close(found, became)
	want := found
	want.State, want.Reason, want.Redrives = Dropped, ReasonReread, 2
	if change.Entry != want || change.Forget != ForgetPayload || change.Act != nil || change.Payload != nil {
		t.Errorf("%+v", change)
	}
	mustStand(t, change.Entry, standing{Dropped, ClassMalformed, ReasonReread})
	told := Event{
		Kind: EventDecision, State: Dropped, Reason: ReasonReread, Origin: OriginRedrive, Source: "ada", Message: "rd-1",
		Provider: "mail", Outcome: Outcome{Code: became.EntryID()},
	}
	if *change.Event != told {
		t.Errorf("told as %+v", change.Event)
	}
	if skip := reopening(want).Reread(want); skip != SkipDropped {
		t.Errorf("and is read once more: %q", skip)
	}
}

func TestOnlyADeadLetterIsDiscardedAndOnlyAsItWasSeen(t *testing.T) {
	act := Act{ID: "act-1", By: "ada", Role: "operator", Why: "a test"}
	for name, e := range everywhere() {
		change, err := Discard(e, e.Version, act)
		if dead := e.State == Dead; dead != (err == nil) || !dead && (!errors.Is(err, ErrNotDead) || change != (Change{})) {
			t.Errorf("%s: %v, %+v", name, err, change)
		}
		for _, version := range []int64{e.Version - 1, e.Version + 1, 0} {
			if change, err := Discard(e, version, act); !errors.Is(err, ErrStale) || change != (Change{}) {
				t.Errorf("%s over version %d: %v", name, version, err)
			}
		}
	}
	if change, err := Discard(Entry{}, 0, act); !errors.Is(err, ErrNotFound) || change != (Change{}) {
		t.Errorf("an absent one: %v", err)
	}
}

func TestADiscardedOneIsKeptAndNeverSent(t *testing.T) {
	found := entry(Dead, redriven(1), spent(attempts))
	change, err := Discard(found, found.Version, Act{ID: "act-1", By: "ada", Role: "operator", Why: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	want := found
	want.State, want.Reason = Dropped, ReasonDiscarded
	if change.Entry != want || change.Forget != ForgetNothing {
		t.Errorf("%+v", change)
	}
	ev := Event{Kind: EventDecision, State: Dropped, Reason: ReasonDiscarded, Origin: OriginPerson, Source: "ada", Provider: "mail"}
	if *change.Event != ev {
		t.Errorf("told as %+v", change.Event)
	}
	mustTell(t, change, "discard", `{"state":"dead","class":"exhausted","reason":"budget_spent","version":7}`,
		`{"state":"dropped","class":"exhausted","reason":"discarded","version":8}`)
	mustNeverClaim(t, "discarded", stored(change, noon()))
}

// mustTell holds the audit's line of a change to what a person did.
func mustTell(t *testing.T, change Change, verb, before, after string) {
	t.Helper()
	want := Act{Identity: change.Entry.Identity, ID: "act-1", By: "ada", Role: "operator", Verb: verb, Why: "a test", Before: before, After: after}
	if change.Act == nil || *change.Act != want {
		t.Errorf("the audit says %+v, want %+v", change.Act, want)
	}
}
