package modelcheck_test

import (
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// Durations that let everything happen at a few points in time: a lease expires before the deadline and before the
// end of the window, and a repeat may come after either.
const (
	lease               = 30 * time.Second
	margin              = 10 * time.Second
	pause               = 10 * time.Second // between attempts
	takeoverAfter       = 20 * time.Second
	deadline            = 50 * time.Second
	window              = 60*time.Second + margin
	maxLeaseExpirations = 3
)

// noon is the time at which every scenario begins.
func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

// response is what a provider does with a call.
type response uint8

const (
	respondAccepted response = iota
	respondRefused
	respondGone
	respondCredentials
	respondThrottled
	respondUnreachable
	respondDeferred
	respondAcceptedLost
	respondNothing
	respondNotCalled // no connection is opened: the payload could not be read
	respondNoSlot    // the first task gets no slot, later ones are accepted
	responses
)

func (r response) String() string {
	return [responses]string{
		"accepted", "refused", "gone", "credentials", "throttled", "unreachable", "deferred",
		"accepted-lost", "no-response", "not-called", "no-slot",
	}[r]
}

// result returns the result that the caller gets.
func (r response) result() ledger.Result {
	return [responses]ledger.Result{
		respondAccepted: ledger.ResultAccepted, respondRefused: ledger.ResultRefused, respondGone: ledger.ResultGone,
		respondCredentials: ledger.ResultCredentials, respondThrottled: ledger.ResultThrottled, respondUnreachable: ledger.ResultUnreachable,
		respondDeferred:     ledger.ResultDeferred,
		respondAcceptedLost: ledger.ResultUnknown, respondNothing: ledger.ResultUnknown, respondNotCalled: ledger.ResultNotCalled,
		respondNoSlot: ledger.ResultAccepted,
	}[r]
}

// accepted reports whether the provider really accepted the message.
func (r response) accepted() bool {
	return r == respondAccepted || r == respondAcceptedLost || r == respondNoSlot
}

// laterResponses returns the responses to every call but the first.
func (sc scenario) laterResponses() []response {
	if sc.deadLetter != "" {
		return []response{respondAccepted, respondUnreachable, respondAcceptedLost}
	}
	return []response{respondAccepted, respondRefused, respondUnreachable, respondAcceptedLost, respondNothing}
}

// scenario is what distinguishes one model from another.
type scenario struct {
	contract       ledger.ContractKind
	onUnknown      ledger.OnUnknown
	first          response // the response to the first call
	deadline       bool
	accountChanges bool            // the provider's account changes once, replica by replica
	operator       bool            // an operator may decide
	attempts       int             // the attempt budget
	deliveries     [2]uint8        // how often each delivery arrives, at most: again after a nack or a crash
	deadLetter     deadLetterEvent // if set, the scenario begins with a dead letter, and this happens besides its redrives
	crashAndLoss   bool            // with a dead letter: a crash and a lost reply, instead of one of them
	pauses         bool            // with a dead letter: actors may pause between a read and what follows from it
	sharedItem     bool            // two replicas process the same item, instead of two redrives
}

func (sc scenario) String() string {
	name := fmt.Sprintf("%s/%s/%s", sc.contract, sc.onUnknown, sc.first)
	if sc.deadLetter != "" {
		name = fmt.Sprintf("%s/%s/deadletter/%s", sc.contract, sc.onUnknown, sc.deadLetter)
	}
	if sc.sharedItem {
		name += "/shared"
	}
	if sc.crashAndLoss {
		name += "/both"
	}
	if sc.deadline {
		name += "/deadline"
	}
	if sc.accountChanges {
		name += "/accountchange"
	}
	if sc.operator {
		name += "/operator"
	}
	if sc.operator && sc.deliveries[1] > 0 {
		name += "/two-deliveries"
	}
	return name
}

// scenarios returns the scenarios: with two concurrent deliveries; with one delivery and an operator, whose
// decision resets the budget; and, with a deadline, with all of them. It returns the whole set or the default one.
// In the default set each delivery arrives once. Scenarios without a deadline have by far the most states, so there
// only a message that is accepted without a response goes without one, and only such a message has two deliveries
// and an operator. In the whole set the first delivery arrives again where the message was accepted without a
// response and the account stays. Policies that an idempotent contract leaves nothing to decide are equivalent to
// hold, and are left out.
func scenarios(all bool) (list []scenario) {
	again := uint8(1 + count(all))
	variants := []scenario{
		{attempts: 2, deliveries: [2]uint8{again, 1}},
		{attempts: 1, deliveries: [2]uint8{again, 0}, operator: true},
		{attempts: 1, deliveries: [2]uint8{1, 1}, operator: true},
	}
	add := func(p scenario) {
		if p.accountChanges || p.first != respondAcceptedLost {
			p.deliveries[0] = 1
		}
		concurrent := p.operator && p.deliveries[1] > 0
		if !p.equivalentToHold() && (!concurrent || p.deadline && (all && !p.equivalent() || p.first == respondAcceptedLost)) {
			list = append(list, p)
		}
	}
	for _, p := range variants {
		for _, p.contract = range []ledger.ContractKind{ledger.ContractIdempotent, ledger.ContractLookup, ledger.ContractBlind} {
			for _, p.onUnknown = range []ledger.OnUnknown{ledger.Hold, ledger.AssumeSent, ledger.Resend} {
				for p.first = range responses {
					for _, p.deadline = range []bool{false, true} {
						if all || !p.equivalent() && (p.deadline || p.first == respondAcceptedLost) {
							add(p)
						}
					}
					moved := p
					moved.deadline, moved.accountChanges = false, true
					if p.onUnknown == ledger.Hold && !p.operator && (all || p.first == respondAcceptedLost) {
						add(moved)
					}
				}
			}
		}
	}
	return append(list, deadLetterScenarios(all)...)
}

// equivalent reports whether another scenario differs in nothing that package ledger reads: gone differs from
// refused in one word only; and so do unreachable, deferred and throttled, the two unknown responses, and a refused slot and
// one given later.
func (sc scenario) equivalent() bool {
	switch sc.first {
	case respondGone, respondUnreachable, respondDeferred, respondNothing, respondNoSlot:
		return true
	}
	return sc.equivalentToHold()
}

// equivalentToHold reports whether the contract leaves the policy nothing to decide, so that it is equivalent to
// hold.
func (sc scenario) equivalentToHold() bool {
	return sc.contract == ledger.ContractIdempotent && sc.onUnknown != ledger.Hold
}

// route returns the route to the provider under one of its two accounts.
func (sc scenario) route(account uint8) ledger.Route {
	r := ledger.Route{Provider: "mail", Fingerprint: accounts[account], Contract: ledger.Contract{Kind: sc.contract}}
	if sc.contract == ledger.ContractIdempotent {
		r.Contract.Window = window
	}
	return r
}

var accounts = [...]string{"mail/1", "mail/2"}

// rules returns the rules of a replica that is configured for one of the accounts.
func (sc scenario) rules(account uint8) ledger.Rules {
	route := sc.route(account)
	return ledger.Rules{
		Lease: lease, Margin: margin, ChannelRoute: route, BoundRoute: route, OnUnknown: sc.onUnknown,
		MaxAttempts: sc.attempts, MaxLeaseExpirations: maxLeaseExpirations, LookupSchedule: []time.Duration{pause, pause},
		RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeoverAfter,
	}
}

// newEntry returns the entry as a delivery brings it.
func (sc scenario) newEntry() ledger.Entry {
	id := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
	e := ledger.Entry{Identity: id, SendKey: id.SendKey(), ContentHash: "first", Source: "reservations", Published: noon()}
	if sc.deadline {
		e.Deadline = noon().Add(deadline)
	}
	if sc.deadLetter.deletesEntry() {
		e.Published = noon().Add(-time.Microsecond) // an entry exactly as old as the memory is deleted and still admitted
	}
	return e
}

// admit applies the real policy.
func (sc scenario) admit(e ledger.Entry, lowWater, now time.Time) ledger.Admission {
	memory := policy.Memory{Span: 400 * 24 * time.Hour, LowWater: lowWater}
	if sc.deadLetter == eventDelete {
		memory = policy.Memory{Span: retentionPeriod} // which suffices while it stays the same
	}
	return policy.Admit(e, time.Time{}, memory, now)
}
