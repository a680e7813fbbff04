package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// decideCase is one case of Decide: the entry, the trigger, and the step expected.
type decideCase struct {
	name   string
	found  Entry
	origin Origin
	rules  Rules
	facts  func(*Facts)
	action Action
	after  StateSummary // of the change, with ActionInsert and ActionUpdate
}

func (m decideCase) step() Step {
	f := ready()
	if m.facts != nil {
		m.facts(&f)
	}
	return Decide(m.found, trigger(m.origin), f, m.rules, noon())
}

func noSlot(reason Reason, wait time.Duration) func(*Facts) {
	return func(f *Facts) { f.Slot = Slot{Provider: "mail", Reason: reason, Wait: wait} }
}

func noSlotYet(f *Facts) { f.Slot = Slot{} }

func withAdmission(a Admission) func(*Facts) { return func(f *Facts) { f.Admission = a } }

func TestDecide_EveryState(t *testing.T) {
	r := rules(ContractBlind)
	ours := rules(ContractBlind, func(r *Rules) { r.RetriesBy = OwnerLedger })
	noChannel := rules(ContractBlind, func(r *Rules) { r.ChannelRoute = Route{} })
	checked := rules(ContractBlind, func(r *Rules) { r.CheckRelevance = true })
	relevance := func(a Relevance) func(*Facts) { return func(f *Facts) { f.Relevance = a } }
	expired := withAdmission(Admission{State: Dropped, Reason: ReasonExpired})
	malformed := withAdmission(Admission{State: Dead, Class: ClassMalformed, Reason: ReasonMalformed})
	claimed := StateSummary{Sending, "", ReasonClaimed}

	rows := []decideCase{
		{"absent, a worker brings nothing", Entry{}, OriginWorker, r, nil, ActionDone, StateSummary{}},
		{"absent, acquires a slot first", Entry{}, OriginPush, r, noSlotYet, ActionAcquireSlot, StateSummary{}},
		{"absent, sent now", Entry{}, OriginPush, r, nil, ActionInsert, claimed},
		{"absent, requested over the API", Entry{}, OriginAPI, ours, nil, ActionInsert, claimed},
		{"absent, the gate is closed", Entry{}, OriginPush, r, noSlot(ReasonGateClosed, time.Minute), ActionInsert, StateSummary{Waiting, "", ReasonGateClosed}},
		{"absent, no capacity", Entry{}, OriginPush, r, noSlot(ReasonNoCapacity, time.Second), ActionInsert, StateSummary{Waiting, "", ReasonNoCapacity}},
		{"absent, closed past the deadline", Entry{}, OriginPush, r, noSlot(ReasonGateClosed, 2*time.Hour), ActionInsert, StateSummary{Waiting, "", ReasonGateClosed}},
		{"absent, the ledger retries", Entry{}, OriginPush, ours, nil, ActionInsert, StateSummary{Waiting, "", ReasonLedgerRetries}},
		{"absent, too late", Entry{}, OriginPush, r, expired, ActionInsert, StateSummary{Dropped, "", ReasonExpired}},
		{"absent, malformed", Entry{}, OriginPush, r, malformed, ActionInsert, StateSummary{Dead, ClassMalformed, ReasonMalformed}},
		{"absent, a channel without a provider", Entry{}, OriginPush, noChannel, nil, ActionInsert, StateSummary{Dead, ClassUnroutable, ReasonUnroutable}},
		{"absent, relevance is checked before a slot", Entry{}, OriginPush, checked, noSlotYet, ActionCheckRelevance, StateSummary{}},
		{"absent, obsolete", Entry{}, OriginPush, checked, relevance(RelevanceNotWanted), ActionInsert, StateSummary{Dropped, "", ReasonObsolete}},
		{"absent, relevance unanswered", Entry{}, OriginPush, checked, relevance(RelevanceUnanswered), ActionInsert, StateSummary{Waiting, "", ReasonRelevanceUnanswered}},
		{"absent, still wanted", Entry{}, OriginPush, checked, relevance(RelevanceWanted), ActionInsert, claimed},

		{"sent", entry(Sent), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"dropped", entry(Dropped), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"dead: a new push does not change it", entry(Dead), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"unknown: not repeated", entry(Unknown), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"unknown, idempotent: not repeated", entry(Unknown), OriginWorker, rules(ContractIdempotent), nil, ActionDone, StateSummary{}},
		{"sending, lease not expired", entry(Sending), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"sending, lease not expired, over REST", entry(Sending), OriginAPI, r, nil, ActionUpdate, StateSummary{Sending, "", ReasonClaimed}},
		{"sending, lease expired, blind", entry(Sending, leaseExpired), OriginPush, r, nil, ActionUpdate, StateSummary{Unknown, ClassUnknown, ReasonLeaseExpired}},
		{"sending, lease expired, idempotent", entry(Sending, leaseExpired), OriginWorker, rules(ContractIdempotent), nil, ActionUpdate, StateSummary{Waiting, ClassUnknown, ReasonRepeatable}},

		{"waiting, not due", entry(Waiting, dueIn(time.Second)), OriginPush, r, nil, ActionDone, StateSummary{}},
		{"waiting, not due, for the worker", entry(Waiting, dueIn(time.Second), ownedBy(OwnerLedger)), OriginWorker, r, nil, ActionDone, StateSummary{}},
		{"waiting, due, but not yet for a takeover", entry(Waiting), OriginWorker, r, nil, ActionDone, StateSummary{}},
		{"waiting, due", entry(Waiting), OriginPush, r, nil, ActionUpdate, claimed},
		{"waiting, due, the ledger's", entry(Waiting, ownedBy(OwnerLedger)), OriginWorker, r, nil, ActionUpdate, claimed},
		{"waiting, due, too late", entry(Waiting), OriginPush, r, expired, ActionUpdate, StateSummary{Dropped, "", ReasonExpired}},
		{"waiting, due, in doubt, too late", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent), expired, ActionUpdate, StateSummary{Unknown, "", ReasonExpired}},
		{"waiting, due, in doubt, refused permanently", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent), malformed, ActionUpdate, StateSummary{Unknown, "", ReasonMalformed}},
		{"waiting, due, the channel lost its provider", entry(Waiting), OriginPush, noChannel, nil, ActionUpdate, StateSummary{Dead, ClassUnroutable, ReasonUnroutable}},
		{"waiting, due, obsolete", entry(Waiting), OriginPush, checked, relevance(RelevanceNotWanted), ActionUpdate, StateSummary{Dropped, "", ReasonObsolete}},
		{"waiting, due, in doubt, obsolete", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent, func(r *Rules) { r.CheckRelevance = true }), relevance(RelevanceNotWanted), ActionUpdate, StateSummary{Unknown, "", ReasonObsolete}},
		{"waiting, due, relevance unanswered", entry(Waiting), OriginPush, checked, relevance(RelevanceUnanswered), ActionUpdate, StateSummary{Waiting, "", ReasonRelevanceUnanswered}},
		{"waiting, due, gate closed: nothing is written", entry(Waiting), OriginPush, r, noSlot(ReasonGateClosed, time.Minute), ActionDone, StateSummary{}},
		{"waiting, due, cancelled", entry(Waiting, cancelRequested), OriginPush, r, nil, ActionUpdate, StateSummary{Dropped, "", ReasonCancelled}},

		{"in doubt, window open", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent), nil, ActionUpdate, claimed},
		{"in doubt, window ended", entry(Waiting, markDoubt(window-margin)), OriginPush, rules(ContractIdempotent), nil, ActionUpdate, StateSummary{Unknown, "", ReasonWindowEnded}},
		{"in doubt, a microsecond of window left", entry(Waiting, markDoubt(window-margin-time.Microsecond)), OriginPush, rules(ContractIdempotent), nil, ActionUpdate, claimed},
		{"in doubt, another account", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent, bound("mail/2")), nil, ActionUpdate, StateSummary{Unknown, "", ReasonProviderChange}},
		{"in doubt, no longer idempotent", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractBlind), nil, ActionUpdate, StateSummary{Unknown, "", ReasonProviderChange}},
		{"in doubt, provider gone", entry(Waiting, markDoubt(time.Minute)), OriginPush, rules(ContractIdempotent, boundGone), nil, ActionUpdate, StateSummary{Waiting, "", ReasonProviderGone}},
		{"in doubt, provider gone until the deadline", entry(Waiting, markDoubt(time.Minute), deadlineIn(time.Second)), OriginPush, rules(ContractIdempotent, boundGone), nil, ActionUpdate, StateSummary{Unknown, "", ReasonExpired}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			step := row.step()
			if step.Action != row.action {
				t.Fatalf("action %d, want %d: %+v", step.Action, row.action, step)
			}
			if step.Action == ActionInsert || step.Action == ActionUpdate {
				mustBe(t, step.Change.Entry, row.after)
				if step.Change.Entry.Attempts != row.found.Attempts {
					t.Error("Decide counted an attempt, but nothing was called")
				}
			}
		})
	}
}

func TestDecide_ScheduledReminderIsTheLedgers(t *testing.T) {
	tr := trigger(OriginPush)
	tr.NotBefore = noon().Add(10 * time.Minute)
	e := Decide(Entry{}, tr, ready(), rules(ContractBlind), noon()).Change.Entry
	mustBe(t, e, StateSummary{Waiting, "", ReasonScheduled})
	if e.Owner != OwnerLedger || !e.Due.On(noon()).Equal(tr.NotBefore) || e.Wake != e.Due {
		t.Errorf("owner %q, due %v, wake %v", e.Owner, e.Due.On(noon()), e.Wake.On(noon()))
	}
	if reply := ReplyFor(stored(Change{Entry: e}, noon()), noon()); !reply.Ack {
		t.Error("a scheduled reminder must be acked")
	}
	tr.NotBefore = noon()
	if e := Decide(Entry{}, tr, ready(), rules(ContractBlind), noon()).Change.Entry; e.State != Sending {
		t.Errorf("not_before has passed, and the state is %s", e.State)
	}
	tr.NotBefore = newEntry().Deadline
	e = Decide(Entry{}, tr, ready(), rules(ContractBlind), noon()).Change.Entry
	mustBe(t, e, StateSummary{Dropped, "", ReasonExpired})
}

func TestDecide_RetriesByTheLedgerAreAckedAtOnce(t *testing.T) {
	r := rules(ContractBlind, func(r *Rules) { r.RetriesBy = OwnerLedger })
	e := stored(Decide(Entry{}, trigger(OriginPush), Facts{Holder: "mine"}, r, noon()).Change, noon())
	if reply := ReplyFor(e, noon()); !reply.Ack || e.Owner != OwnerLedger || e.Attempts != 0 {
		t.Errorf("ack %t, owner %q, attempts %d", reply.Ack, e.Owner, e.Attempts)
	}
	if step := Decide(e, trigger(OriginWorker), ready(), r, noon()); step.Change.Entry.State != Sending {
		t.Errorf("the worker does not find it due: %+v", step)
	}
}

func TestDecide_WorkerTakesOverFromASilentBroker(t *testing.T) {
	e := entry(Waiting)
	before, at := noon().Add(takeover-time.Microsecond), noon().Add(takeover)
	if step := Decide(e, trigger(OriginWorker), ready(), rules(ContractBlind), before); step.Action != ActionDone {
		t.Fatalf("taken over too early: %+v", step)
	}
	step := Decide(e, trigger(OriginWorker), ready(), rules(ContractBlind), at)
	taken := step.Change.Entry
	mustBe(t, taken, StateSummary{Waiting, "", ReasonTakenOver})
	if taken.Owner != OwnerLedger || taken.Due != e.Due || taken.Wake != e.Due {
		t.Errorf("owner %q, due %v, wake %v", taken.Owner, taken.Due, taken.Wake)
	}
	if again := Decide(stored(step.Change, at), trigger(OriginWorker), ready(), rules(ContractBlind), at); again.Change.Entry.State != Sending {
		t.Errorf("not sent after the takeover: %+v", again)
	}
	if reply := ReplyFor(stored(step.Change, at), at); !reply.Ack {
		t.Error("a later redelivery has to be acked")
	}
}

func TestSettle_TakeoverDelayIsAtMostHalfOfTheRemainingTime(t *testing.T) {
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
		next := Settle(e, attempt(ResultUnreachable, row.wait), rules(ContractBlind), noon()).Entry
		if got := next.Wake.On(noon()).Sub(noon()); next.State != Waiting || got != row.wake {
			t.Errorf("deadline in %v: %s, wake in %v, want %v", row.deadline, next.State, got, row.wake)
		}
	}
}

func TestDecide_APITakesOverFromTheBroker(t *testing.T) {
	for name, row := range map[string]struct {
		found Entry
		facts func(*Facts)
	}{
		"not due":                 {entry(Waiting, dueIn(time.Minute)), nil},
		"due, but no slot":        {entry(Waiting), noSlot(ReasonGateClosed, time.Minute)},
		"not due, in doubt":       {entry(Waiting, dueIn(time.Minute), markDoubt(time.Minute)), nil},
		"due, in doubt, no slot":  {entry(Waiting, markDoubt(time.Minute)), noSlot(ReasonNoCapacity, 0)},
		"due, and claimed by it":  {entry(Waiting), nil},
		"provider gone, in doubt": {entry(Waiting, markDoubt(time.Minute)), nil},
	} {
		r := rules(ContractIdempotent)
		if name == "provider gone, in doubt" {
			boundGone(&r)
		}
		e, m := row.found, decideCase{found: row.found, origin: OriginAPI, rules: r, facts: row.facts}
		for range 4 {
			step := m.step()
			if step.Action != ActionUpdate || e.State == Sending {
				break
			}
			e = stored(step.Change, noon())
			m.found = e
		}
		if e.Owner != OwnerLedger {
			t.Errorf("%s: owner %q in the reply", name, e.Owner)
		}
		if e.State == Waiting && e.Wake != e.Due {
			t.Errorf("%s: due %v, but its wake is %v", name, e.Due, e.Wake)
		}
	}
	worked := Decide(entry(Waiting), trigger(OriginPush), ready(), rules(ContractBlind), noon())
	if worked.Change.Entry.Owner != OwnerBroker {
		t.Error("a redelivery must not take an entry over")
	}
}

func TestDecide_EarlyRedeliveryUsesNoAttempt(t *testing.T) {
	e := entry(Waiting, dueIn(time.Second))
	for range 100 {
		if step := Decide(e, trigger(OriginPush), ready(), rules(ContractBlind), noon()); step.Action != ActionDone {
			t.Fatalf("an early redelivery wrote: %+v", step)
		}
	}
	reply := ReplyFor(e, noon())
	if reply.Ack || reply.RetryAfter != time.Second {
		t.Errorf("ack %t, retry after %v", reply.Ack, reply.RetryAfter)
	}
}

func TestDecide_AnotherProviderOnlyWhenProvenUnsentAndRecorded(t *testing.T) {
	other := rules(ContractIdempotent, func(r *Rules) { r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1"} })
	facts := ready()
	facts.Slot.Provider = "second"

	step := Decide(entry(Waiting), trigger(OriginPush), facts, other, noon())
	e := step.Change.Entry
	if e.State != Sending || e.Provider != "second" || e.Fingerprint != "second/1" {
		t.Fatalf("proven unsent, and not failed over: %+v", e)
	}
	if step.Change.Event == nil || step.Change.Event.Reason != ReasonFailedOver {
		t.Errorf("the failover is not recorded: %+v", step.Change.Event)
	}
	step = Decide(entry(Waiting, markDoubt(time.Minute)), trigger(OriginPush), ready(), other, noon())
	if e := step.Change.Entry; e.State != Sending || e.Provider != "mail" || step.Change.Event != nil {
		t.Errorf("in doubt it must go to its own provider: %+v", e)
	}
	step = Decide(entry(Waiting, markDoubt(time.Minute)), trigger(OriginPush), facts, other, noon())
	if step.Action != ActionAcquireSlot || step.Provider != "mail" {
		t.Errorf("a slot at another provider is not enough: %+v", step)
	}
	never := entry(Waiting, func(e *Entry) { e.Provider, e.Fingerprint = "mail", "" })
	if step := Decide(never, trigger(OriginPush), facts, other, noon()); step.Change.Event != nil {
		t.Error("an entry that was never claimed does not fail over")
	}
}

func TestDecide_ClaimBindsTheProviderAndOpensALease(t *testing.T) {
	e := Decide(entry(Waiting, budgetUsed(2)), trigger(OriginPush), ready(), rules(ContractBlind), noon()).Change.Entry
	until, span := e.LeaseUntil.Span()
	if !span || until != lease {
		t.Errorf("the lease is %v, a span %t: only the database's clock may measure it", until, span)
	}
	if at, span := e.ClaimedAt.Span(); !span || at != 0 {
		t.Errorf("claimed %v from the write, a span %t", at, span)
	}
	if e.Holder != "mine" || e.Attempts != 2 || e.BudgetUsed != 2 || e.SendKey != identity().SendKey() {
		t.Errorf("%+v", e)
	}
}

// deadLettered is the trigger of a message from the broker's dead-letter queue.
func deadLettered(changes ...func(*Entry)) Trigger {
	tr := trigger(OriginPush)
	tr.DeadLettered = true
	for _, change := range changes {
		change(tr.NewEntry)
	}
	return tr
}

func TestDecide_BrokerDeadLetterIsInsertedDead(t *testing.T) {
	deadLetter := StateSummary{Dead, ClassBroker, ReasonDeadLettered}
	admit := func(s State, c Class, reason Reason) Admission { return Admission{State: s, Class: c, Reason: reason} }
	for name, row := range map[string]struct {
		entry     func(*Entry)
		admission Admission
		rules     Rules
		want      StateSummary
	}{
		"in time": {asIs, Admission{}, rules(ContractIdempotent), deadLetter},
		"expired: a redrive may grant a deadline": {deadlineIn(-time.Hour), admit(Dropped, "", ReasonExpired), rules(ContractBlind), deadLetter},
		"older than the memory":                   {asIs, admit(Dropped, "", ReasonBeforeMemory), rules(ContractBlind), StateSummary{Dropped, "", ReasonBeforeMemory}},
		"before the cut-over":                     {asIs, admit(Dropped, "", ReasonBeforeCutOff), rules(ContractBlind), StateSummary{Dropped, "", ReasonBeforeCutOff}},
		"too far ahead":                           {asIs, admit(Dead, ClassPermanent, ReasonTooFarAhead), rules(ContractBlind), StateSummary{Dead, ClassPermanent, ReasonTooFarAhead}},
		"malformed":                               {asIs, admit(Dead, ClassMalformed, ReasonMalformed), rules(ContractBlind), StateSummary{Dead, ClassMalformed, ReasonMalformed}},
		"no provider":                             {asIs, Admission{}, rules(ContractBlind, func(r *Rules) { r.ChannelRoute = Route{} }), deadLetter},
		"relevance is not checked":                {asIs, Admission{}, rules(ContractBlind, func(r *Rules) { r.CheckRelevance = true }), deadLetter},
		"published before the failover":           {asIs, Admission{}, rules(ContractBlind, afterFailover), deadLetter},
		"retries by the ledger":                   {asIs, Admission{}, rules(ContractBlind, func(r *Rules) { r.RetriesBy = OwnerLedger }), deadLetter},
	} {
		tr := deadLettered(row.entry)
		tr.NotBefore = noon().Add(time.Minute) // has no effect
		step := Decide(Entry{}, tr, Facts{Admission: row.admission}, row.rules, noon())
		e := step.Change.Entry
		if step.Action != ActionInsert || step.Change.Payload != tr.Payload {
			t.Fatalf("%s: action %d, payload %v", name, step.Action, step.Change.Payload)
		}
		mustBe(t, e, row.want)
		if e.Deliveries != 1 || e.Owner != OwnerLedger || e.Provider != row.rules.ChannelRoute.Provider || e.Fingerprint != "" || !e.Deadline.Equal(tr.NewEntry.Deadline) {
			t.Errorf("%s: %+v", name, e)
		}
		if ev := step.Change.Event; ev.Origin != OriginPush || ev.State != e.State || ev.Reason != e.Reason || ev.MessageID != "m-1" {
			t.Errorf("%s: recorded as %+v", name, ev)
		}
		if reply := ReplyFor(stored(step.Change, noon()), noon()); !reply.Ack {
			t.Errorf("%s: inserted, but not acked", name)
		}
	}
	if tr := (Trigger{Origin: OriginPush, DeadLettered: true}); Decide(Entry{}, tr, ready(), rules(ContractBlind), noon()).Action != ActionDone {
		t.Error("a trigger without a new entry writes")
	}
}

func TestDecide_BrokerDeadLetterEndsTheWaitForTheBroker(t *testing.T) {
	for name, found := range map[string]Entry{
		"due":               entry(Waiting),
		"due later":         entry(Waiting, dueIn(time.Minute)),
		"in doubt":          entry(Waiting, markDoubt(time.Minute)),
		"cancelled":         entry(Waiting, cancelRequested),
		"past its deadline": entry(Waiting, deadlineIn(-time.Second)),
	} {
		f := ready()
		f.Admission = Admission{State: Dropped, Reason: ReasonExpired}
		step := Decide(found, deadLettered(), f, rules(ContractIdempotent), noon())
		want := found
		want.Owner, want.Wake, want.Reason, want.Deliveries = OwnerLedger, found.Due, ReasonTakenOver, 1
		if step.Action != ActionUpdate || step.Change.Entry != want {
			t.Errorf("%s: action %d\n%+v, want\n%+v", name, step.Action, step.Change.Entry, want)
		}
		if ev := step.Change.Event; ev.Reason != ReasonTakenOver || ev.State != Waiting || ev.Origin != OriginPush {
			t.Errorf("%s: recorded as %+v", name, ev)
		}
	}
}

func TestDecide_BrokerDeadLetterChangesNothingElse(t *testing.T) {
	all := everyState()
	all["waiting, the ledger's"] = entry(Waiting, ownedBy(OwnerLedger))
	all["sending"], all["sending, the ledger's"] = entry(Sending), entry(Sending, ownedBy(OwnerLedger))
	all["sending, lease expired"] = entry(Sending, leaseExpired) // left to the sweep, which makes it wait or unknown
	delete(all, "waiting")
	delete(all, "waiting, in doubt")
	for name, found := range all {
		for _, r := range []Rules{rules(ContractIdempotent), rules(ContractBlind, onUnknown(Resend)), rules(ContractLookup, afterFailover)} {
			if step := Decide(found, deadLettered(), ready(), r, noon()); step.Action != ActionDone || step.Change != (Change{}) {
				t.Errorf("%s: action %d, %+v", name, step.Action, step.Change.Entry)
			}
		}
	}
}

// A reparsed message waits like any other redriven dead letter: only the worker calls, at its own rate.
func TestDecide_ReparsedMessageWaitsForTheWorker(t *testing.T) {
	r := rules(ContractBlind)
	f := ready()
	e := Decide(Entry{}, trigger(OriginRedrive), f, r, noon()).Change.Entry
	mustBe(t, e, StateSummary{Waiting, "", ReasonRedriven})
	if e.Owner != OwnerLedger || e.Due != In(0) || e.Wake != In(0) || e.Redrives != 0 || e.Attempts != 0 {
		t.Errorf("%+v", e)
	}
	f.Admission = Admission{State: Dropped, Reason: ReasonExpired}
	mustBe(t, Decide(Entry{}, trigger(OriginRedrive), f, r, noon()).Change.Entry, StateSummary{Dropped, "", ReasonExpired})
	mustBe(t, Decide(Entry{}, trigger(OriginRedrive), ready(), rules(ContractBlind, func(r *Rules) { r.ChannelRoute = Route{} }), noon()).Change.Entry,
		StateSummary{Dead, ClassUnroutable, ReasonUnroutable})
	// Commits lost in the failover may include its entry, and a send.
	tr := trigger(OriginRedrive)
	tr.NewEntry.Published = noon().Add(-2 * time.Minute)
	mustBe(t, Decide(Entry{}, tr, ready(), rules(ContractBlind, afterFailover), noon()).Change.Entry, StateSummary{Unknown, ClassUnknown, ReasonDatabaseChanged})
	tr = trigger(OriginRedrive)
	tr.NotBefore = noon().Add(time.Minute)
	mustBe(t, Decide(Entry{}, tr, ready(), r, noon()).Change.Entry, StateSummary{Waiting, "", ReasonScheduled})
}

// A delivery that could be parsed at once may have created the entry before. Then the redrive does not make it due
// earlier.
func TestDecide_ReparsedMessageLeavesAnExistingEntryAlone(t *testing.T) {
	all := everyState()
	all["waiting, due, the ledger's"] = entry(Waiting, ownedBy(OwnerLedger))
	all["sending, lease expired"] = entry(Sending, leaseExpired)
	for name, found := range all {
		if step := Decide(found, trigger(OriginRedrive), ready(), rules(ContractIdempotent), noon()); step.Action != ActionDone || step.Change != (Change{}) {
			t.Errorf("%s: action %d, %+v", name, step.Action, step.Change.Entry)
		}
	}
}

// The budget is checked before a claim too, since the last settle may not have known it: the provider was not
// configured, or the budget was larger.
func TestDecide_SpentBudgetIsNotClaimed(t *testing.T) {
	e := Settle(entry(Sending, budgetUsed(attempts-1)), attempt(ResultUnknown, time.Second), rules(ContractBlind, boundGone), noon()).Entry
	e = stored(Change{Entry: e}, noon())
	step := Decide(e, trigger(OriginPush), ready(), rules(ContractIdempotent), e.Due.On(noon())) // the provider is back
	if step.Change.Entry.State == Sending {
		t.Errorf("call %d of %d, in doubt", e.BudgetUsed+1, attempts)
	}
	for _, n := range []int{attempts, attempts + 3} { // a new configuration reduced the budget
		if step := Decide(entry(Waiting, budgetUsed(n)), trigger(OriginPush), ready(), rules(ContractBlind), noon()); step.Change.Entry.State == Sending {
			t.Errorf("call %d of %d", n+1, attempts)
		}
	}
}

// Another provider needs proof that nothing was accepted; a risk that was taken is no proof.
func TestDecide_RiskIsTakenAtTheSameProvider(t *testing.T) {
	e := stored(Settle(entry(Sending), attempt(ResultUnknown, time.Second), rules(ContractBlind, onUnknown(Resend)), noon()), noon())
	other := rules(ContractBlind, onUnknown(Resend), func(r *Rules) { r.ChannelRoute = Route{Provider: "second", Fingerprint: "second/1"} })
	f := ready()
	f.Slot.Provider = "second"
	if step := Decide(e, trigger(OriginPush), f, other, e.Due.On(noon())); step.Change.Entry.Provider == "second" {
		t.Errorf("from %s to second after an unknown call; recorded as %q, which means 'proven unsent'", e.Provider, step.Change.Event.Reason)
	}
}

// A gate's wait is only a bound: during a probe it is a whole lease, but usually ends within a second. So a new entry
// waits even if its deadline comes before the end of that wait.
func TestDecide_ProbeInFlightDropsNoNewEntry(t *testing.T) {
	tr := trigger(OriginPush)
	tr.NewEntry.Deadline = noon().Add(lease - time.Second)
	f := ready()
	f.Slot = Slot{Provider: "mail", Reason: ReasonGateClosed, Wait: lease}
	if e := Decide(Entry{}, tr, f, rules(ContractBlind), noon()).Change.Entry; e.State != Waiting {
		t.Errorf("29 s before its deadline, one probe in flight: %s, %s", e.State, e.Reason)
	}
}

// Every delivery that writes is counted, whether it writes a takeover, a wait, a drop or a lease expiration.
func TestDecide_CountsDeliveriesThatWrite(t *testing.T) {
	e := entry(Waiting, func(e *Entry) { e.Deliveries = 1 })
	f := ready()
	f.Admission = Admission{State: Dropped, Reason: ReasonExpired}
	if got := Decide(e, trigger(OriginPush), f, rules(ContractBlind), noon()).Change.Entry; got.Deliveries != 2 {
		t.Errorf("dropped at its second delivery, and counts %d", got.Deliveries)
	}
}
