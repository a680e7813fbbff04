package ledger_test

import (
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

const (
	lease     = 30 * time.Second
	margin    = 3 * time.Second
	window    = time.Hour
	takeover  = 2 * time.Minute
	attempts  = 4
	maxLapses = 5
)

// noon is the ledger's now in every table.
func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

func identity() Identity {
	return Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
}

func route(kind ContractKind) Route {
	r := Route{Provider: "mail", Fingerprint: "mail/1", Contract: Contract{Kind: kind}}
	if kind == Idempotent {
		r.Contract.Window = window
	}
	return r
}

// rules are those of a provider with one kind of contract, for a source whose broker retries.
func rules(kind ContractKind, changes ...func(*Rules)) Rules {
	r := Rules{
		Lease: lease, Margin: margin, Channel: route(kind), Bound: route(kind), OnUnknown: Hold,
		MaxAttempts: attempts, MaxLapses: maxLapses, RetriesBy: OwnerBroker, TakeoverAfter: takeover, Asks: asks(),
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// asks are the waits before each question to a lookup provider.
func asks() []time.Duration { return []time.Duration{10 * time.Second, time.Minute, time.Hour} }

func askedBefore(n int) func(*Entry) { return func(e *Entry) { e.Asked = n } }

func onUnknown(p OnUnknown) func(*Rules) { return func(r *Rules) { r.OnUnknown = p } }

func bound(fingerprint string) func(*Rules) {
	return func(r *Rules) { r.Bound.Fingerprint, r.Channel.Fingerprint = fingerprint, fingerprint }
}

func boundGone(r *Rules) {
	r.Bound = Route{}
	r.Channel = Route{Provider: "other", Fingerprint: "other/1"}
}

// newborn is the entry as a visit would bring it.
func newborn() Entry {
	id := identity()
	return Entry{
		Identity: id, SendKey: id.SendKey(), ContentHash: "first", Source: "reservations",
		Published: noon().Add(-time.Minute), Deadline: noon().Add(2 * time.Hour),
	}
}

// entry is one that was claimed once and then came to stand in a state: due now where it waits, in the
// middle of its lease where it is sending, in doubt where it is unknown.
func entry(s State, changes ...func(*Entry)) Entry {
	e := newborn()
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

func doubted(ago time.Duration) func(*Entry) {
	return func(e *Entry) { e.DoubtSince = noon().Add(-ago) }
}

func spent(n int) func(*Entry) { return func(e *Entry) { e.Attempts, e.Spent = n, n } }

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

func cancelAsked(e *Entry) { e.CancelAsked = true }

// lapsed is a sending entry's lease come to its end, to the microsecond.
func lapsed(e *Entry) { e.LeaseUntil, e.ClaimedAt = At(noon()), At(noon().Add(-lease)) }

func visit(o Origin) Visit {
	v := Visit{Origin: o, Source: "reservations", Message: "m-1"}
	if o != OriginWorker {
		birth := newborn()
		v.Birth, v.Payload = &birth, &Payload{Recipient: "ada@example.org"}
	}
	return v
}

// ready are the facts of a visit that has all it needs to call.
func ready() Facts {
	return Facts{Holder: "mine", Wait: 5 * time.Second, Slot: Slot{Provider: "mail", Held: true}}
}

func attempt(result Result, wait time.Duration) Attempt {
	a := Attempt{
		Visit: visit(OriginPush), Holder: "holder", Provider: "mail", Wait: wait,
		Started: noon().Add(-9 * time.Second), Finished: noon(), Outcome: Outcome{Result: result},
	}
	if result == ResultAccepted {
		a.Outcome.Receipt = "receipt-2"
	}
	return a
}

// stored is what a store makes of a change at the ledger's now.
func stored(c Change, now time.Time) Entry {
	e := c.Entry
	e.Version++
	for _, m := range []*Moment{&e.LeaseUntil, &e.ClaimedAt, &e.Due, &e.Wake, &e.AskAt} {
		*m = At(m.On(now))
	}
	e.Updated = now
	return e
}

// standing names where an entry stands, for tables.
type standing struct {
	State  State
	Class  Class
	Reason Reason
}

func standingOf(e Entry) standing { return standing{e.State, e.Class, e.Reason} }

func mustStand(t *testing.T, e Entry, want standing) {
	t.Helper()
	if got := standingOf(e); got != want {
		t.Errorf("it stands as %q, want %q", got, want)
	}
	if err := e.Check(); err != nil {
		t.Errorf("its own check: %v", err)
	}
}
