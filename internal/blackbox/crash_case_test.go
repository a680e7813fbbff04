package blackbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// crashCase is one reminder whose gateway kills itself at a crash point, and is started again.
type crashCase struct {
	at          string // the crash point; two, joined by a plus, where the second process is killed at the second
	outcome     string // the provider's results for the calls
	store       string
	redelivered bool // by its broker, until it is acked; otherwise it is not delivered again
	contract    string
	clock       string // a wrong one, of crashClocks; empty for a right one
}

func (c crashCase) String() string {
	again := "not again"
	if c.redelivered {
		again = "redelivered"
	}
	return strings.TrimSpace(strings.Join([]string{c.at, c.outcome, c.store, again, c.contract, c.clock}, " "))
}

// The crash points of a delivery that is sent, by what is recorded at that point.
var (
	pointsOfNothing = []string{"opened", "before_claim"}
	pointsOfClaim   = []string{"claim_unseen", "claimed", "connected"}
	pointsOfCall    = []string{"written", "answer", "before_settle"}
	pointsOfSettle  = []string{"settle_unseen", "settled", "half_answered", "answered"}
	pointsOfWait    = []string{"before_wait", "wait_unseen"}
	pointsOfSweep   = []string{"written+before_expire", "claimed+expire_unseen"}
	pointsOfLookup  = []string{"written+before_lookup", "written+lookup_unseen"}
)

// crashOutcomes are the provider's results for one call after another; the last one stays.
var crashOutcomes = []struct {
	name  string
	modes []string
}{
	{"accepted", []string{providertest.OK}},
	{"refused", []string{"status:422"}},
	{"gone", []string{"status:410"}},
	{"credentials", []string{"status:401"}},
	{"throttled", []string{"throttle:1", providertest.OK}},
	{"unreachable", []string{providertest.OK}}, // once it is reachable
	{"unknown", []string{providertest.AcceptReset, providertest.OK}},
	{"late", []string{providertest.OK}}, // after 600 ms
}

const scheduled = "scheduled" // accepted, but not before its time

var crashContracts = []string{"idempotent", "blind", "lookup"}

// crashCases returns the whole matrix.
func crashCases() []crashCase {
	var all []crashCase
	add := func(points []string, outcomes, contracts []string) {
		for _, at := range points {
			for _, outcome := range outcomes {
				for _, contract := range contracts {
					for _, store := range []string{"sqlite", "postgres"} {
						for _, redelivered := range []bool{true, false} {
							if c := (crashCase{at, outcome, store, redelivered, contract, ""}); c.isPossible() {
								all = append(all, c)
							}
						}
					}
				}
			}
		}
	}
	var outcomes []string
	for _, o := range crashOutcomes {
		outcomes = append(outcomes, o.name)
	}
	add(slices.Concat(pointsOfNothing, pointsOfClaim, pointsOfCall, pointsOfSettle), outcomes, crashContracts)
	add(pointsOfSweep, outcomes, crashContracts)
	add(pointsOfLookup, outcomes, []string{"lookup"})
	add(pointsOfWait, []string{scheduled}, crashContracts)
	return all
}

// isPossible reports whether a case can occur: an unreachable provider responds to nothing, and one that
// resets the connection has no first byte.
func (c crashCase) isPossible() bool {
	first, _, _ := strings.Cut(c.at, "+")
	switch {
	case c.outcome == "unreachable":
		return !slices.Contains([]string{"connected", "written", "answer"}, first)
	case c.outcome == "unknown":
		return first != "answer"
	}
	return true
}

// pairwise selects few cases that cover every pair of values that any case combines: each point and contract,
// each outcome and store, and so on.
func pairwise(all []crashCase) []crashCase {
	pairs := func(c crashCase) []string {
		values := []string{c.at, c.contract, c.store, fmt.Sprint(c.redelivered)}
		if values[0] == "opened" || c.at == "claimed" || c.at == "before_settle" {
			values = append(values, c.outcome) // the other points add no new handling of an outcome
		}
		var covered []string
		for i, one := range values {
			for _, another := range values[:i] {
				covered = append(covered, another+" & "+one)
			}
		}
		return covered
	}
	// Shuffled, because in the order of their creation the same two values would be combined again and again.
	all = slices.Clone(all)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var selection []crashCase
	for covered := map[string]bool{}; ; {
		best, most := crashCase{}, 0
		for _, c := range all {
			uncovered := 0
			for _, pair := range pairs(c) {
				if !covered[pair] {
					uncovered++
				}
			}
			if uncovered > most {
				best, most = c, uncovered
			}
		}
		if most == 0 {
			return selection
		}
		for _, pair := range pairs(best) {
			covered[pair] = true
		}
		selection = append(selection, best)
	}
}

// modes returns the provider's results for one call after another.
func (c crashCase) modes() []string {
	for _, o := range crashOutcomes {
		if o.name == c.outcome {
			return o.modes
		}
	}
	return []string{providertest.OK}
}

// finalState is the expected state of a case once nothing changes any more.
type finalState struct {
	state, class               string // both empty: the ledger has no entry, because nothing was acked
	calls, accepts             int
	attempts, leaseExpirations int
}

// expected derives the final state from the rules of the case's contract, independently of the product's
// code.
func (c crashCase) expected() finalState {
	var (
		want     finalState
		doubt    bool
		accepted bool // the provider has accepted
	)
	modes := c.modes()
	down := c.outcome == "unreachable" // until the gateway is started again
	call := func() string {
		if down {
			down = false
			return "unreachable"
		}
		mode := modes[0]
		if len(modes) > 1 {
			modes = modes[1:]
		}
		want.calls++
		if mode == providertest.OK || mode == providertest.AcceptReset {
			if !accepted || c.contract != "idempotent" {
				want.accepts++
			}
			accepted = true
		}
		return mode
	}
	uncertain := func() { // the message may have been sent
		doubt = true
		switch {
		case c.contract == "idempotent":
			want.state = "waiting"
		case c.contract == "lookup" && accepted:
			want.state, doubt = "sent", false
		default:
			want.state, want.class = "unknown", "unknown"
		}
	}
	settle := func(answer string) {
		want.attempts++
		switch answer {
		case providertest.OK:
			want.state, want.class, doubt = "sent", "", false
		case "status:422", "status:410":
			want.state, want.class = "dead", map[string]string{"status:422": "permanent", "status:410": "recipient"}[answer]
			if doubt { // it proves its own attempt only
				want.state, want.class = "unknown", "unknown"
			}
		case "status:401":
			want.state, want.class = "waiting", "credentials"
		case providertest.AcceptReset:
			uncertain()
		default:
			want.state = "waiting"
		}
	}

	first, _, _ := strings.Cut(c.at, "+")
	switch {
	case slices.Contains(pointsOfNothing, first), first == "before_wait":
		if !c.redelivered {
			return finalState{} // and its broker knows that it was not accepted
		}
		want.state = "waiting"
	case first == "wait_unseen":
		want.state = "waiting"
	case slices.Contains(pointsOfSettle, first):
		settle(call())
	default:
		if slices.Contains(pointsOfCall, first) {
			call()
		}
		want.leaseExpirations = 1
		uncertain()
		if c.at == "before_settle" && c.outcome == "credentials" && c.contract == "idempotent" {
			want.class = "unknown" // the gate stays closed for a minute, so the entry is not retried
			return want
		}
	}
	down = false
	for want.state == "waiting" && want.class != "credentials" {
		settle(call())
	}
	return want
}

// config returns the configuration of a case.
func (c crashCase) config(database string, p *provider) config {
	contract := map[string]map[string]any{
		"idempotent": {"idempotent": "24h"}, "blind": {"blind": true}, "lookup": {"lookup": p.url()},
	}[c.contract]
	return fastConfig(database, p).with(contract, "providers", "mail", "contract").with([]string{"1s"}, "lookup_schedule")
}

// reminder returns the reminder of a case; no other case has its recipient.
func (c crashCase) reminder() document {
	d := newReminder(strings.ReplaceAll(c.String(), " ", "-"))
	d["to"] = strings.NewReplacer(" ", "-", "+", "-").Replace(c.String()) + "@example.test"
	if c.outcome == scheduled {
		d["not_before"] = time.Now().Add(2500 * time.Millisecond).UTC() // counted from its creation
	}
	return d
}
