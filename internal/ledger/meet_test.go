package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// meeting is one row of what a delivery meets: what it finds, what it does.
type meeting struct {
	name   string
	found  Entry
	origin Origin
	rules  Rules
	facts  func(*Facts)
	verb   Verb
	after  standing // of the change, with Create and Swap
}

func (m meeting) step() Step {
	f := ready()
	if m.facts != nil {
		m.facts(&f)
	}
	return Meet(m.found, visit(m.origin), f, m.rules, noon())
}

func noSlot(why Reason, wait time.Duration) func(*Facts) {
	return func(f *Facts) { f.Slot = Slot{Provider: "mail", Reason: why, Wait: wait} }
}

func unaskedSlot(f *Facts) { f.Slot = Slot{} }

func refused(a Admission) func(*Facts) { return func(f *Facts) { f.Admission = a } }

func TestWhatADeliveryMeets(t *testing.T) {
	r := rules(Blind)
	ours := rules(Blind, func(r *Rules) { r.RetriesBy = OwnerLedger })
	noChannel := rules(Blind, func(r *Rules) { r.Channel = Route{} })
	asks := rules(Blind, func(r *Rules) { r.AsksRelevance = true })
	answers := func(a Relevance) func(*Facts) { return func(f *Facts) { f.Relevance = a } }
	expired := refused(Admission{Refusal: Dropped, Reason: ReasonExpired})
	malformed := refused(Admission{Refusal: Dead, Class: ClassMalformed, Reason: ReasonMalformed})
	claimed := standing{Sending, "", ReasonClaimed}

	rows := []meeting{
		{"absent, a worker brings nothing", Entry{}, OriginWorker, r, nil, Answer, standing{}},
		{"absent, a slot is asked for first", Entry{}, OriginPush, r, unaskedSlot, TakeSlot, standing{}},
		{"absent, sent now", Entry{}, OriginPush, r, nil, Create, claimed},
		{"absent, asked for over REST", Entry{}, OriginAPI, ours, nil, Create, claimed},
		{"absent, the gate is closed", Entry{}, OriginPush, r, noSlot(ReasonGateClosed, time.Minute), Create, standing{Waiting, "", ReasonGateClosed}},
		{"absent, no capacity", Entry{}, OriginPush, r, noSlot(ReasonNoCapacity, time.Second), Create, standing{Waiting, "", ReasonNoCapacity}},
		{"absent, closed past the deadline", Entry{}, OriginPush, r, noSlot(ReasonGateClosed, 2*time.Hour), Create, standing{Waiting, "", ReasonGateClosed}},
		{"absent, the source leaves retries to us", Entry{}, OriginPush, ours, nil, Create, standing{Waiting, "", ReasonLedgerRetries}},
		{"absent, too late", Entry{}, OriginPush, r, expired, Create, standing{Dropped, "", ReasonExpired}},
		{"absent, malformed", Entry{}, OriginPush, r, malformed, Create, standing{Dead, ClassMalformed, ReasonMalformed}},
		{"absent, a channel without a provider", Entry{}, OriginPush, noChannel, nil, Create, standing{Dead, ClassUnroutable, ReasonUnroutable}},
		{"absent, relevance is asked before a slot", Entry{}, OriginPush, asks, unaskedSlot, AskRelevance, standing{}},
		{"absent, obsolete", Entry{}, OriginPush, asks, answers(NotWanted), Create, standing{Dropped, "", ReasonObsolete}},
		{"absent, relevance unanswered", Entry{}, OriginPush, asks, answers(NoAnswer), Create, standing{Waiting, "", ReasonRelevanceUnanswered}},
		{"absent, still wanted", Entry{}, OriginPush, asks, answers(StillWanted), Create, claimed},

		{"sent", entry(Sent), OriginPush, r, nil, Answer, standing{}},
		{"dropped", entry(Dropped), OriginPush, r, nil, Answer, standing{}},
		{"dead: a new push does not raise it", entry(Dead), OriginPush, r, nil, Answer, standing{}},
		{"unknown: nobody repeats it", entry(Unknown), OriginPush, r, nil, Answer, standing{}},
		{"unknown, idempotent: still nobody", entry(Unknown), OriginWorker, rules(Idempotent), nil, Answer, standing{}},
		{"sending, lease alive", entry(Sending), OriginPush, r, nil, Answer, standing{}},
		{"sending, lease alive, over REST", entry(Sending), OriginAPI, r, nil, Swap, standing{Sending, "", ReasonClaimed}},
		{"sending, lapsed, blind", entry(Sending, lapsed), OriginPush, r, nil, Swap, standing{Unknown, ClassUnknown, ReasonLapsed}},
		{"sending, lapsed, idempotent", entry(Sending, lapsed), OriginWorker, rules(Idempotent), nil, Swap, standing{Waiting, ClassUnknown, ReasonRepeatable}},

		{"waiting, not due", entry(Waiting, dueIn(time.Second)), OriginPush, r, nil, Answer, standing{}},
		{"waiting, not due, for the worker", entry(Waiting, dueIn(time.Second), ownedBy(OwnerLedger)), OriginWorker, r, nil, Answer, standing{}},
		{"waiting, due, but the broker's patience lasts", entry(Waiting), OriginWorker, r, nil, Answer, standing{}},
		{"waiting, due", entry(Waiting), OriginPush, r, nil, Swap, claimed},
		{"waiting, due, ours", entry(Waiting, ownedBy(OwnerLedger)), OriginWorker, r, nil, Swap, claimed},
		{"waiting, due, too late", entry(Waiting), OriginPush, r, expired, Swap, standing{Dropped, "", ReasonExpired}},
		{"waiting, due, in doubt, too late", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent), expired, Swap, standing{Unknown, "", ReasonExpired}},
		{"waiting, due, in doubt, refused for good", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent), malformed, Swap, standing{Unknown, "", ReasonMalformed}},
		{"waiting, due, the channel lost its provider", entry(Waiting), OriginPush, noChannel, nil, Swap, standing{Dead, ClassUnroutable, ReasonUnroutable}},
		{"waiting, due, obsolete", entry(Waiting), OriginPush, asks, answers(NotWanted), Swap, standing{Dropped, "", ReasonObsolete}},
		{"waiting, due, in doubt, obsolete", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent, func(r *Rules) { r.AsksRelevance = true }), answers(NotWanted), Swap, standing{Unknown, "", ReasonObsolete}},
		{"waiting, due, relevance unanswered", entry(Waiting), OriginPush, asks, answers(NoAnswer), Swap, standing{Waiting, "", ReasonRelevanceUnanswered}},
		{"waiting, due, gate closed: nothing is written", entry(Waiting), OriginPush, r, noSlot(ReasonGateClosed, time.Minute), Answer, standing{}},
		{"waiting, due, cancelled", entry(Waiting, cancelAsked), OriginPush, r, nil, Swap, standing{Dropped, "", ReasonCancelled}},

		{"in doubt, window open", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent), nil, Swap, claimed},
		{"in doubt, window ended", entry(Waiting, doubted(window-margin)), OriginPush, rules(Idempotent), nil, Swap, standing{Unknown, "", ReasonWindowEnded}},
		{"in doubt, a microsecond of window left", entry(Waiting, doubted(window-margin-time.Microsecond)), OriginPush, rules(Idempotent), nil, Swap, claimed},
		{"in doubt, another account", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent, bound("mail/2")), nil, Swap, standing{Unknown, "", ReasonProviderChange}},
		{"in doubt, no longer idempotent", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Blind), nil, Swap, standing{Unknown, "", ReasonProviderChange}},
		{"in doubt, provider gone", entry(Waiting, doubted(time.Minute)), OriginPush, rules(Idempotent, boundGone), nil, Swap, standing{Waiting, "", ReasonProviderGone}},
		{"in doubt, provider gone until the deadline", entry(Waiting, doubted(time.Minute), deadlineIn(time.Second)), OriginPush, rules(Idempotent, boundGone), nil, Swap, standing{Unknown, "", ReasonExpired}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			step := row.step()
			if step.Verb != row.verb {
				t.Fatalf("verb %d, want %d: %+v", step.Verb, row.verb, step)
			}
			if step.Verb == Create || step.Verb == Swap {
				mustStand(t, step.Change.Entry, row.after)
				if step.Change.Entry.Attempts != row.found.Attempts {
					t.Error("meeting counted an attempt, and nothing was called")
				}
			}
		})
	}
}

func TestADeliveryThatIsScheduledIsOurs(t *testing.T) {
	v := visit(OriginPush)
	v.NotYet = noon().Add(10 * time.Minute)
	e := Meet(Entry{}, v, ready(), rules(Blind), noon()).Change.Entry
	mustStand(t, e, standing{Waiting, "", ReasonScheduled})
	if e.Owner != OwnerLedger || !e.Due.On(noon()).Equal(v.NotYet) || e.Wake != e.Due {
		t.Errorf("owner %q, due %v, wake %v", e.Owner, e.Due.On(noon()), e.Wake.On(noon()))
	}
	if reply := ReplyFor(stored(Change{Entry: e}, noon()), noon()); !reply.Ack {
		t.Error("what is scheduled is our obligation, and acked")
	}
	v.NotYet = noon()
	if e := Meet(Entry{}, v, ready(), rules(Blind), noon()).Change.Entry; e.State != Sending {
		t.Errorf("not_before has come, and it stands as %s", e.State)
	}
	v.NotYet = newborn().Deadline
	e = Meet(Entry{}, v, ready(), rules(Blind), noon()).Change.Entry
	mustStand(t, e, standing{Dropped, "", ReasonExpired})
}

func TestRetriesByTheLedgerAreAckedAtOnce(t *testing.T) {
	r := rules(Blind, func(r *Rules) { r.RetriesBy = OwnerLedger })
	e := stored(Meet(Entry{}, visit(OriginPush), Facts{Holder: "mine"}, r, noon()).Change, noon())
	if reply := ReplyFor(e, noon()); !reply.Ack || e.Owner != OwnerLedger || e.Attempts != 0 {
		t.Errorf("ack %t, owner %q, attempts %d", reply.Ack, e.Owner, e.Attempts)
	}
	if step := Meet(e, visit(OriginWorker), ready(), r, noon()); step.Change.Entry.State != Sending {
		t.Errorf("the worker does not find it due: %+v", step)
	}
}

func TestTheWorkerTakesOverWhatItsBrokerDropped(t *testing.T) {
	e := entry(Waiting)
	before, at := noon().Add(takeover-time.Microsecond), noon().Add(takeover)
	if step := Meet(e, visit(OriginWorker), ready(), rules(Blind), before); step.Verb != Answer {
		t.Fatalf("taken over too early: %+v", step)
	}
	step := Meet(e, visit(OriginWorker), ready(), rules(Blind), at)
	taken := step.Change.Entry
	mustStand(t, taken, standing{Waiting, "", ReasonTakenOver})
	if taken.Owner != OwnerLedger || taken.Due != e.Due || taken.Wake != e.Due {
		t.Errorf("owner %q, due %v, wake %v", taken.Owner, taken.Due, taken.Wake)
	}
	if again := Meet(stored(step.Change, at), visit(OriginWorker), ready(), rules(Blind), at); again.Change.Entry.State != Sending {
		t.Errorf("what was taken over is not sent: %+v", again)
	}
	if reply := ReplyFor(stored(step.Change, at), at); !reply.Ack {
		t.Error("a later redelivery has to be acked")
	}
}

func TestATakeoverIsCutToHalfOfTheTimeThatRemains(t *testing.T) {
	for _, row := range []struct{ deadline, wait, wake time.Duration }{
		{2 * time.Hour, 10 * time.Second, 10*time.Second + takeover},
		{70 * time.Second, 10 * time.Second, 40 * time.Second},
		{12 * time.Second, 10 * time.Second, 11 * time.Second},
		{4*time.Minute + 10*time.Second, 10 * time.Second, 10*time.Second + takeover},
		{0, 10 * time.Second, 10*time.Second + takeover}, // no deadline
	} {
		e := entry(Sending, deadlineIn(row.deadline))
		if row.deadline == 0 {
			e.Deadline = time.Time{}
		}
		next := Settle(e, attempt(ResultUnreachable, row.wait), rules(Blind), noon()).Entry
		if got := next.Wake.On(noon()).Sub(noon()); next.State != Waiting || got != row.wake {
			t.Errorf("deadline in %v: %s, wake in %v, want %v", row.deadline, next.State, got, row.wake)
		}
	}
}

func TestRESTTakesOverWhatABrokerOwns(t *testing.T) {
	for name, row := range map[string]struct {
		found Entry
		facts func(*Facts)
	}{
		"not due":                 {entry(Waiting, dueIn(time.Minute)), nil},
		"due, but no slot":        {entry(Waiting), noSlot(ReasonGateClosed, time.Minute)},
		"not due, in doubt":       {entry(Waiting, dueIn(time.Minute), doubted(time.Minute)), nil},
		"due, in doubt, no slot":  {entry(Waiting, doubted(time.Minute)), noSlot(ReasonNoCapacity, 0)},
		"due, and claimed by it":  {entry(Waiting), nil},
		"provider gone, in doubt": {entry(Waiting, doubted(time.Minute)), nil},
	} {
		r := rules(Idempotent)
		if name == "provider gone, in doubt" {
			boundGone(&r)
		}
		e, m := row.found, meeting{found: row.found, origin: OriginAPI, rules: r, facts: row.facts}
		for range 4 {
			step := m.step()
			if step.Verb != Swap || e.State == Sending {
				break
			}
			e = stored(step.Change, noon())
			m.found = e
		}
		if e.Owner != OwnerLedger {
			t.Errorf("%s: owner %q as it is answered", name, e.Owner)
		}
		if e.State == Waiting && e.Wake != e.Due {
			t.Errorf("%s: due %v, but we look at it %v", name, e.Due, e.Wake)
		}
	}
	worked := Meet(entry(Waiting), visit(OriginPush), ready(), rules(Blind), noon())
	if worked.Change.Entry.Owner != OwnerBroker {
		t.Error("a redelivery must not take an entry from its broker")
	}
}

func TestAnEarlyRedeliveryUsesNoAttempt(t *testing.T) {
	e := entry(Waiting, dueIn(time.Second))
	for range 100 {
		if step := Meet(e, visit(OriginPush), ready(), rules(Blind), noon()); step.Verb != Answer {
			t.Fatalf("an early redelivery wrote: %+v", step)
		}
	}
	reply := ReplyFor(e, noon())
	if reply.Ack || reply.RetryAfter != time.Second {
		t.Errorf("ack %t, retry after %v", reply.Ack, reply.RetryAfter)
	}
}

func TestFailoverHappensOnlyWhenProvenUnsentAndIsRecorded(t *testing.T) {
	other := rules(Idempotent, func(r *Rules) { r.Channel = Route{Provider: "second", Fingerprint: "second/1"} })
	facts := ready()
	facts.Slot.Provider = "second"

	step := Meet(entry(Waiting), visit(OriginPush), facts, other, noon())
	e := step.Change.Entry
	if e.State != Sending || e.Provider != "second" || e.Fingerprint != "second/1" {
		t.Fatalf("proven unsent, and not failed over: %+v", e)
	}
	if step.Change.Event == nil || step.Change.Event.Reason != ReasonFailedOver {
		t.Errorf("the failover is not recorded: %+v", step.Change.Event)
	}
	step = Meet(entry(Waiting, doubted(time.Minute)), visit(OriginPush), ready(), other, noon())
	if e := step.Change.Entry; e.State != Sending || e.Provider != "mail" || step.Change.Event != nil {
		t.Errorf("in doubt it goes to its own provider and nowhere else: %+v", e)
	}
	step = Meet(entry(Waiting, doubted(time.Minute)), visit(OriginPush), facts, other, noon())
	if step.Verb != TakeSlot || step.Provider != "mail" {
		t.Errorf("a slot at another provider must not do: %+v", step)
	}
	never := entry(Waiting, func(e *Entry) { e.Provider, e.Fingerprint = "mail", "" })
	if step := Meet(never, visit(OriginPush), facts, other, noon()); step.Change.Event != nil {
		t.Error("what was never claimed does not fail over")
	}
}

func TestAClaimBindsTheProviderAndOpensALease(t *testing.T) {
	e := Meet(entry(Waiting, spent(2)), visit(OriginPush), ready(), rules(Blind), noon()).Change.Entry
	until, span := e.LeaseUntil.Span()
	if !span || until != lease {
		t.Errorf("the lease is %v, a span %t: only the database's clock may judge it", until, span)
	}
	if at, span := e.ClaimedAt.Span(); !span || at != 0 {
		t.Errorf("claimed %v from the write, a span %t", at, span)
	}
	if e.Holder != "mine" || e.Attempts != 2 || e.Spent != 2 || e.SendKey != identity().SendKey() {
		t.Errorf("%+v", e)
	}
}

// gaveUp is a visit that brings what its broker keeps in its dead-letter queue.
func gaveUp(changes ...func(*Entry)) Visit {
	v := visit(OriginPush)
	v.GaveUp = true
	for _, change := range changes {
		change(v.Birth)
	}
	return v
}

func TestWhatABrokerGaveUpOnIsBornDead(t *testing.T) {
	givenUp := standing{Dead, ClassBroker, ReasonGivenUp}
	refused := func(s State, c Class, why Reason) Admission { return Admission{Refusal: s, Class: c, Reason: why} }
	for name, row := range map[string]struct {
		birth     func(*Entry)
		admission Admission
		rules     Rules
		want      standing
	}{
		"in time":                       {asIs, Admission{}, rules(Idempotent), givenUp},
		"expired: a redrive may grant":  {deadlineIn(-time.Hour), refused(Dropped, "", ReasonExpired), rules(Blind), givenUp},
		"older than the memory":         {asIs, refused(Dropped, "", ReasonBeforeMemory), rules(Blind), standing{Dropped, "", ReasonBeforeMemory}},
		"before the cut-over":           {asIs, refused(Dropped, "", ReasonBeforeCutOff), rules(Blind), standing{Dropped, "", ReasonBeforeCutOff}},
		"too far ahead":                 {asIs, refused(Dead, ClassPermanent, ReasonTooFarAhead), rules(Blind), standing{Dead, ClassPermanent, ReasonTooFarAhead}},
		"unreadable":                    {asIs, refused(Dead, ClassMalformed, ReasonMalformed), rules(Blind), standing{Dead, ClassMalformed, ReasonMalformed}},
		"no provider for it":            {asIs, Admission{}, rules(Blind, func(r *Rules) { r.Channel = Route{} }), givenUp},
		"nobody asks whether wanted":    {asIs, Admission{}, rules(Blind, func(r *Rules) { r.AsksRelevance = true }), givenUp},
		"of before the database change": {asIs, Admission{}, rules(Blind, afterFailover), givenUp},
		"from a source of ours":         {asIs, Admission{}, rules(Blind, func(r *Rules) { r.RetriesBy = OwnerLedger }), givenUp},
	} {
		v := gaveUp(row.birth)
		v.NotYet = noon().Add(time.Minute) // nobody waits for it
		step := Meet(Entry{}, v, Facts{Admission: row.admission}, row.rules, noon())
		e := step.Change.Entry
		if step.Verb != Create || step.Change.Payload != v.Payload {
			t.Fatalf("%s: verb %d, payload %v", name, step.Verb, step.Change.Payload)
		}
		mustStand(t, e, row.want)
		if e.Deliveries != 1 || e.Owner != OwnerLedger || e.Provider != row.rules.Channel.Provider || e.Fingerprint != "" || !e.Deadline.Equal(v.Birth.Deadline) {
			t.Errorf("%s: %+v", name, e)
		}
		if ev := step.Change.Event; ev.Origin != OriginPush || ev.State != e.State || ev.Reason != e.Reason || ev.Message != "m-1" {
			t.Errorf("%s: told as %+v", name, ev)
		}
		if reply := ReplyFor(stored(step.Change, noon()), noon()); !reply.Ack {
			t.Errorf("%s: it is kept, and not acked", name)
		}
	}
	if v := (Visit{Origin: OriginPush, GaveUp: true}); Meet(Entry{}, v, ready(), rules(Blind), noon()).Verb != Answer {
		t.Error("a visit that brings nothing makes something")
	}
}

func TestABrokerThatGaveUpIsWaitedForNoLonger(t *testing.T) {
	for name, found := range map[string]Entry{
		"due":               entry(Waiting),
		"due later":         entry(Waiting, dueIn(time.Minute)),
		"in doubt":          entry(Waiting, doubted(time.Minute)),
		"cancelled":         entry(Waiting, cancelAsked),
		"past its deadline": entry(Waiting, deadlineIn(-time.Second)),
	} {
		f := ready()
		f.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
		step := Meet(found, gaveUp(), f, rules(Idempotent), noon())
		want := found
		want.Owner, want.Wake, want.Reason, want.Deliveries = OwnerLedger, found.Due, ReasonTakenOver, 1
		if step.Verb != Swap || step.Change.Entry != want {
			t.Errorf("%s: verb %d\n%+v, want\n%+v", name, step.Verb, step.Change.Entry, want)
		}
		if ev := step.Change.Event; ev.Reason != ReasonTakenOver || ev.State != Waiting || ev.Origin != OriginPush {
			t.Errorf("%s: told as %+v", name, ev)
		}
	}
}

func TestABrokerThatGaveUpChangesNothingElse(t *testing.T) {
	all := everywhere()
	all["waiting, ours"] = entry(Waiting, ownedBy(OwnerLedger))
	all["sending"], all["sending, ours"] = entry(Sending), entry(Sending, ownedBy(OwnerLedger))
	all["sending, lapsed"] = entry(Sending, lapsed) // the sweep finds it; the ledger owns what comes after, by its wake
	delete(all, "waiting")
	delete(all, "waiting, in doubt")
	for name, found := range all {
		for _, r := range []Rules{rules(Idempotent), rules(Blind, onUnknown(Resend)), rules(Lookup, afterFailover)} {
			if step := Meet(found, gaveUp(), ready(), r, noon()); step.Verb != Answer || step.Change != (Change{}) {
				t.Errorf("%s: verb %d, %+v", name, step.Verb, step.Change.Entry)
			}
		}
	}
}

// What could be read at last is put to wait like any other dead letter: only the worker calls, at its pace.
func TestWhatARedriveBringsWaitsForTheWorker(t *testing.T) {
	r := rules(Blind)
	f := ready()
	e := Meet(Entry{}, visit(OriginRedrive), f, r, noon()).Change.Entry
	mustStand(t, e, standing{Waiting, "", ReasonRedriven})
	if e.Owner != OwnerLedger || e.Due != In(0) || e.Wake != In(0) || e.Redrives != 0 || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	f.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
	mustStand(t, Meet(Entry{}, visit(OriginRedrive), f, r, noon()).Change.Entry, standing{Dropped, "", ReasonExpired})
	mustStand(t, Meet(Entry{}, visit(OriginRedrive), ready(), rules(Blind, func(r *Rules) { r.Channel = Route{} }), noon()).Change.Entry,
		standing{Dead, ClassUnroutable, ReasonUnroutable})
	// It may have been read, and sent, in what the database forgot.
	v := visit(OriginRedrive)
	v.Birth.Published = noon().Add(-2 * time.Minute)
	mustStand(t, Meet(Entry{}, v, ready(), rules(Blind, afterFailover), noon()).Change.Entry, standing{Unknown, ClassUnknown, ReasonLedgerChanged})
	v = visit(OriginRedrive)
	v.NotYet = noon().Add(time.Minute)
	mustStand(t, Meet(Entry{}, v, ready(), r, noon()).Change.Entry, standing{Waiting, "", ReasonScheduled})
}

// It may stand already, by a delivery that could be read at once; then nobody's turn comes earlier for that.
func TestWhatARedriveBringsAndStandsAlreadyIsLeftAlone(t *testing.T) {
	all := everywhere()
	all["waiting, due, ours"] = entry(Waiting, ownedBy(OwnerLedger))
	all["sending, lapsed"] = entry(Sending, lapsed)
	for name, found := range all {
		if step := Meet(found, visit(OriginRedrive), ready(), rules(Idempotent), noon()); step.Verb != Answer || step.Change != (Change{}) {
			t.Errorf("%s: verb %d, %+v", name, step.Verb, step.Change.Entry)
		}
	}
}
