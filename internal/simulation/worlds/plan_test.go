package worlds_test

import (
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// Durations that let everything happen within a few moments: a lapse before the deadline and before the
// window's end, and a repeat after either.
const (
	lease    = 30 * time.Second
	margin   = 10 * time.Second
	pause    = 10 * time.Second // between attempts
	takeover = 20 * time.Second
	deadline = 50 * time.Second
	window   = 60*time.Second + margin
	lapses   = 3
)

// noon is when every world begins.
func noon() time.Time { return time.Date(2031, 3, 4, 12, 0, 0, 0, time.UTC) }

// mood is what a provider does with a call.
type mood uint8

const (
	accepts mood = iota
	refuses
	gone
	wrongPassword
	throttles
	unreachable
	acceptsInSilence
	silent
	notCalled // nothing is dialled: what is to be sent could not be read
	noSlot    // the first visitor gets no slot, and later ones are accepted
	moods
)

func (m mood) String() string {
	return [moods]string{
		"accepted", "refused", "gone", "credentials", "throttled", "unreachable",
		"unknown-accepted", "unknown-not", "not-called", "no-slot",
	}[m]
}

// result is what a caller learns.
func (m mood) result() ledger.Result {
	return [moods]ledger.Result{
		accepts: ledger.ResultAccepted, refuses: ledger.ResultRefused, gone: ledger.ResultGone,
		wrongPassword: ledger.ResultCredentials, throttles: ledger.ResultThrottled, unreachable: ledger.ResultUnreachable,
		acceptsInSilence: ledger.ResultUnknown, silent: ledger.ResultUnknown, notCalled: ledger.ResultNotCalled,
		noSlot: ledger.ResultAccepted,
	}[m]
}

// takes tells whether the provider really took it.
func (m mood) takes() bool { return m == accepts || m == acceptsInSilence || m == noSlot }

// laterMoods are those of every call but the first.
func (p plan) laterMoods() []mood {
	if p.letters != "" {
		return []mood{accepts, unreachable, acceptsInSilence}
	}
	return []mood{accepts, refuses, unreachable, acceptsInSilence, silent}
}

// plan is what tells one world from another.
type plan struct {
	contract  ledger.ContractKind
	onUnknown ledger.OnUnknown
	first     mood // what the first call meets
	deadline  bool
	moves     bool     // the provider's account changes once, replica by replica
	person    bool     // there is one who may decide
	attempts  int      // that may be spent
	arrivals  [2]uint8 // how often each delivery comes, at most: again after a nack or a crash
	letters   letters  // the world begins with a dead letter, and this happens beside its redrives
	both      bool     // in a world with a dead letter, a crash and a lost reply, instead of one of them
	pauses    bool     // in a world with a dead letter, visitors do, between a reading and what follows from it
	shared    bool     // two replicas give the same item its turn, instead of one each in two redrives
}

func (p plan) String() string {
	name := fmt.Sprintf("%s/%s/%s", p.contract, p.onUnknown, p.first)
	if p.letters != "" {
		name = fmt.Sprintf("%s/%s/letter/%s", p.contract, p.onUnknown, p.letters)
	}
	if p.shared {
		name += "/shared"
	}
	if p.both {
		name += "/both"
	}
	if p.deadline {
		name += "/deadline"
	}
	if p.moves {
		name += "/moves"
	}
	if p.person {
		name += "/person"
	}
	if p.person && p.arrivals[1] > 0 {
		name += "/twins"
	}
	return name
}

// plans are the worlds: with two deliveries that come at the same time, with one and a person who may decide,
// and by that begin everything anew, and, with a deadline, with all of them. The whole set, or those of the
// ordinary run, in which each delivery comes once, and only what is accepted in silence goes without a deadline,
// since time without an end makes most of the states, and meets twins and a person. In the whole set the first
// delivery comes again where it was accepted in silence and the account stays. The policies that an idempotent contract leaves
// nothing to decide are hold's worlds again.
func plans(all bool) (list []plan) {
	again := uint8(1 + count(all))
	casts := []plan{
		{attempts: 2, arrivals: [2]uint8{again, 1}},
		{attempts: 1, arrivals: [2]uint8{again, 0}, person: true},
		{attempts: 1, arrivals: [2]uint8{1, 1}, person: true},
	}
	add := func(p plan) {
		if p.moves || p.first != acceptsInSilence {
			p.arrivals[0] = 1
		}
		twins := p.person && p.arrivals[1] > 0
		if !p.undecided() && (!twins || p.deadline && (all && !p.alike() || p.first == acceptsInSilence)) {
			list = append(list, p)
		}
	}
	for _, p := range casts {
		for _, p.contract = range []ledger.ContractKind{ledger.Idempotent, ledger.Lookup, ledger.Blind} {
			for _, p.onUnknown = range []ledger.OnUnknown{ledger.Hold, ledger.AssumeSent, ledger.Resend} {
				for p.first = range moods {
					for _, p.deadline = range []bool{false, true} {
						if all || !p.alike() && (p.deadline || p.first == acceptsInSilence) {
							add(p)
						}
					}
					moved := p
					moved.deadline, moved.moves = false, true
					if p.onUnknown == ledger.Hold && !p.person && (all || p.first == acceptsInSilence) {
						add(moved)
					}
				}
			}
		}
	}
	return append(list, letterPlans(all)...)
}

// alike tells whether there is another world that differs in nothing that the heart reads: gone from refused
// but by a word, unreachable from throttled, silence from silence, a slot that is refused from one that is
// given later.
func (p plan) alike() bool {
	switch p.first {
	case gone, unreachable, silent, noSlot:
		return true
	}
	return p.undecided()
}

// undecided tells whether the contract leaves the policy nothing to decide, so that it is as good as hold.
func (p plan) undecided() bool { return p.contract == ledger.Idempotent && p.onUnknown != ledger.Hold }

// route is the provider under one of its two accounts.
func (p plan) route(account uint8) ledger.Route {
	r := ledger.Route{Provider: "mail", Fingerprint: accounts[account], Contract: ledger.Contract{Kind: p.contract}}
	if p.contract == ledger.Idempotent {
		r.Contract.Window = window
	}
	return r
}

var accounts = [...]string{"mail/1", "mail/2"}

// rules are those of a replica that is configured for one of the accounts.
func (p plan) rules(account uint8) ledger.Rules {
	route := p.route(account)
	return ledger.Rules{
		Lease: lease, Margin: margin, Channel: route, Bound: route, OnUnknown: p.onUnknown,
		MaxAttempts: p.attempts, MaxLapses: lapses, Asks: []time.Duration{pause, pause},
		RetriesBy: ledger.OwnerBroker, TakeoverAfter: takeover,
	}
}

// birth is the entry as a delivery brings it.
func (p plan) birth() ledger.Entry {
	id := ledger.Identity{ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email"}
	e := ledger.Entry{Identity: id, SendKey: id.SendKey(), ContentHash: "first", Source: "reservations", Published: noon()}
	if p.deadline {
		e.Deadline = noon().Add(deadline)
	}
	if p.letters == memory {
		e.Published = noon().Add(-time.Microsecond) // what is as old as the memory, to the instant, is deleted and admitted
	}
	return e
}

// admit asks the real policy.
func (p plan) admit(e ledger.Entry, now time.Time) ledger.Admission {
	span := 400 * 24 * time.Hour
	if p.letters == memory {
		span = kept
	}
	return policy.Admit(e, time.Time{}, policy.Memory{Span: span}, now)
}
