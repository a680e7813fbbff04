package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

const (
	lease          = 30 * time.Second
	margin         = 3 * time.Second
	window         = time.Hour
	takeover       = 2 * time.Minute
	attempts       = 4
	maxExpirations = 5
)

// noon is the ledger's now in every table.
func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

func identity() Identity {
	return Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
}

func route(kind ContractKind) Route {
	r := Route{Provider: "mail", Fingerprint: "mail/1", Contract: Contract{Kind: kind}}
	if kind == ContractIdempotent {
		r.Contract.Window = window
	}
	return r
}

// rules returns the rules of a provider with this kind of contract, for a source whose broker retries.
func rules(kind ContractKind, changes ...func(*Rules)) Rules {
	r := Rules{
		Lease: lease, Margin: margin, ChannelRoute: route(kind), BoundRoute: route(kind), OnUnknown: Hold,
		MaxAttempts: attempts, MaxLeaseExpirations: maxExpirations, RetriesBy: OwnerBroker, TakeoverAfter: takeover, LookupSchedule: lookupSchedule(),
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// lookupSchedule returns the waits before each lookup.
func lookupSchedule() []time.Duration {
	return []time.Duration{10 * time.Second, time.Minute, time.Hour}
}

func notFoundTimes(n int) func(*Entry) { return func(e *Entry) { e.LookupsNotFound = n } }

func onUnknown(p OnUnknown) func(*Rules) { return func(r *Rules) { r.OnUnknown = p } }

func bound(fingerprint string) func(*Rules) {
	return func(r *Rules) { r.BoundRoute.Fingerprint, r.ChannelRoute.Fingerprint = fingerprint, fingerprint }
}

func boundGone(r *Rules) {
	r.BoundRoute = Route{}
	r.ChannelRoute = Route{Provider: "other", Fingerprint: "other/1"}
}

// newEntry returns the entry that a delivery would create.
func newEntry() Entry {
	id := identity()
	return Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "first", Source: "reservations",
		Published: noon().Add(-time.Minute), Deadline: noon().Add(2 * time.Hour),
	}
}

// entry returns an entry that was claimed once and then reached a state: due now if it is waiting, in the middle of
// its lease if it is sending, in doubt if it is unknown.
func entry(s State, changes ...func(*Entry)) Entry {
	e := newEntry()
	e.State, e.Version, e.Owner, e.Reason = s, 7, OwnerBroker, ReasonUnreachable
	e.Provider, e.Fingerprint = "mail", "mail/1"
	e.ClaimedAt = At(noon().Add(-10 * time.Second))
	e.FirstSeen, e.Updated = noon().Add(-time.Minute), noon().Add(-10*time.Second)
	switch s {
	case Sending:
		e.Holder, e.LeaseUntil, e.Reason = "holder", At(noon().Add(20*time.Second)), ReasonClaimed
	case Waiting:
		e.Due, e.Wake = At(noon()), At(noon().Add(takeover))
	case Unknown:
		e.DoubtSince, e.Reason, e.Class = noon().Add(-10*time.Second), ReasonUnanswered, ClassUnknown
	case Sent:
		e.Receipt, e.Reason = "receipt", ReasonAccepted
	case Dead:
		e.Class, e.Reason = ClassExhausted, ReasonBudgetSpent
	case Dropped:
		e.Reason = ReasonExpired
	}
	for _, change := range changes {
		change(&e)
	}
	return e
}

func markDoubt(ago time.Duration) func(*Entry) {
	return func(e *Entry) { e.DoubtSince = noon().Add(-ago) }
}

func budgetUsed(n int) func(*Entry) { return func(e *Entry) { e.Attempts, e.BudgetUsed = n, n } }

func ownedBy(o Owner) func(*Entry) {
	return func(e *Entry) {
		e.Owner = o
		if o == OwnerLedger {
			e.Wake = e.Due
		}
	}
}

func dueIn(d time.Duration) func(*Entry) {
	return func(e *Entry) { e.Due, e.Wake = At(noon().Add(d)), At(noon().Add(d+takeover)) }
}

func deadlineIn(d time.Duration) func(*Entry) {
	return func(e *Entry) { e.Deadline = noon().Add(d) }
}

func cancelRequested(e *Entry) { e.CancelRequested = true }

// leaseExpired lets a sending entry's lease end now, to the microsecond.
func leaseExpired(e *Entry) { e.LeaseUntil, e.ClaimedAt = At(noon()), At(noon().Add(-lease)) }

func trigger(o Origin) Trigger {
	tr := Trigger{Origin: o, Source: "reservations", MessageID: "m-1"}
	if o != OriginWorker {
		e := newEntry()
		tr.NewEntry, tr.Payload = &e, &Payload{Recipient: "ada@example.org"}
	}
	return tr
}

// ready returns the facts of a task that has everything it needs to call.
func ready() Facts {
	return Facts{Holder: "mine", Wait: 5 * time.Second, Slot: Slot{Provider: "mail", Held: true}}
}

func attempt(result Result, wait time.Duration) Attempt {
	a := Attempt{
		Trigger: trigger(OriginPush), Holder: "holder", Provider: "mail", Wait: wait,
		Started: noon().Add(-9 * time.Second), Finished: noon(), Outcome: Outcome{Result: result},
	}
	if result == ResultAccepted {
		a.Outcome.Receipt = "receipt-2"
	}
	return a
}

// stored returns the entry that a store makes of a change at the ledger's now.
func stored(c Change, now time.Time) Entry {
	e := c.Entry
	e.Version++
	for _, m := range []*Moment{&e.LeaseUntil, &e.ClaimedAt, &e.Due, &e.Wake, &e.NextLookup} {
		*m = At(m.On(now))
	}
	e.Updated = now
	return e
}

// summaryOf returns the entry's state, class and reason, for tables.
func summaryOf(e Entry) StateSummary { return StateSummary{e.State, e.Class, e.Reason} }

func mustBe(t *testing.T, e Entry, want StateSummary) {
	t.Helper()
	if got := summaryOf(e); got != want {
		t.Errorf("state %q, want %q", got, want)
	}
	if err := e.Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// everyState returns one entry for each condition in which a late holder or a cancel may find it.
func everyState() map[string]Entry {
	return map[string]Entry{
		"sending by another": entry(Sending, func(e *Entry) { e.Holder = "another" }),
		"sending, in doubt":  entry(Sending, markDoubt(time.Minute)),
		"waiting":            entry(Waiting),
		"waiting, in doubt":  entry(Waiting, markDoubt(time.Minute)),
		"unknown":            entry(Unknown),
		"unknown, cancelled": entry(Unknown, cancelRequested),
		"dead":               entry(Dead),
		"dropped":            entry(Dropped),
		"a tombstone":        stored(Tombstone(identity(), trigger(OriginAPI), noon()), noon()),
		"sent":               entry(Sent),
		"sent, assumed":      entry(Sent, assumed),
	}
}

func assumed(e *Entry) { e.Receipt, e.ReceiptMissing, e.Reason = "", MissingAssumed, ReasonAssumed }
