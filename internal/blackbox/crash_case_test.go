package blackbox

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// crashCase is one reminder whose gateway kills itself at a point of its way, and is started again.
type crashCase struct {
	at          string // the point; two, joined by a plus, where the second start ends at the second
	outcome     string // what the provider makes of the calls
	store       string
	redelivered bool // by its broker, until it is acked; else nobody brings it back
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

// The points at which a delivery that is sent can be ended, by what stands then.
var (
	pointsOfNothing = []string{"opened", "before_claim"}
	pointsOfClaim   = []string{"claim_unseen", "claimed", "connected"}
	pointsOfCall    = []string{"written", "answer", "before_settle"}
	pointsOfSettle  = []string{"settle_unseen", "settled", "half_answered", "answered"}
	pointsOfWait    = []string{"before_wait", "wait_unseen"}
	pointsOfSweep   = []string{"written+before_lapse", "claimed+lapse_unseen"}
	pointsOfLookup  = []string{"written+before_lookup", "written+lookup_unseen"}
)

// crashOutcomes are what the provider makes of one call after another; the last one stays.
var crashOutcomes = []struct {
	name  string
	modes []string
}{
	{"accepted", []string{providertest.OK}},
	{"refused", []string{"status:422"}},
	{"gone", []string{"status:410"}},
	{"credentials", []string{"status:401"}},
	{"throttled", []string{"throttle:1", providertest.OK}},
	{"unreachable", []string{providertest.OK}}, // once it can be reached
	{"unknown", []string{providertest.AcceptReset, providertest.OK}},
	{"late", []string{providertest.OK}}, // after 600 ms
}

const scheduled = "scheduled" // accepted, but not before its time

var crashContracts = []string{"idempotent", "blind", "lookup"}

// crashCases is the whole matrix.
func crashCases() []crashCase {
	var all []crashCase
	add := func(points []string, outcomes, contracts []string) {
		for _, at := range points {
			for _, outcome := range outcomes {
				for _, contract := range contracts {
					for _, store := range []string{"sqlite", "postgres"} {
						for _, redelivered := range []bool{true, false} {
							if c := (crashCase{at, outcome, store, redelivered, contract, ""}); c.comesAbout() {
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

// comesAbout : a provider that cannot be reached answers nothing, and one that hangs up has no first byte.
func (c crashCase) comesAbout() bool {
	first, _, _ := strings.Cut(c.at, "+")
	switch {
	case c.outcome == "unreachable":
		return !slices.Contains([]string{"connected", "written", "answer"}, first)
	case c.outcome == "unknown":
		return first != "answer"
	}
	return true
}

// selected are few cases in which every two things meet that any case has together: each point and contract,
// each outcome and store, and so on.
func selected(all []crashCase) []crashCase {
	pairs := func(c crashCase) []string {
		things := []string{c.at, c.contract, c.store, fmt.Sprint(c.redelivered)}
		if things[0] == "opened" || c.at == "claimed" || c.at == "before_settle" {
			things = append(things, c.outcome) // the other points add nothing to what these make of an outcome
		}
		var met []string
		for i, one := range things {
			for _, another := range things[:i] {
				met = append(met, another+" & "+one)
			}
		}
		return met
	}
	// In another order than they were made in, or the same two things would meet again and again.
	all = slices.Clone(all)
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var some []crashCase
	for met := map[string]bool{}; ; {
		best, most := crashCase{}, 0
		for _, c := range all {
			fresh := 0
			for _, pair := range pairs(c) {
				if !met[pair] {
					fresh++
				}
			}
			if fresh > most {
				best, most = c, fresh
			}
		}
		if most == 0 {
			return some
		}
		for _, pair := range pairs(best) {
			met[pair] = true
		}
		some = append(some, best)
	}
}

// modes are what the provider makes of one call after another.
func (c crashCase) modes() []string {
	for _, o := range crashOutcomes {
		if o.name == c.outcome {
			return o.modes
		}
	}
	return []string{providertest.OK}
}

// after is what must have become of a case once all has come to rest.
type after struct {
	state, class    string // both empty: the ledger knows of nothing, since nothing was acked either
	calls, accepts  int
	attempts, lapse int
}

// expected follows a case through the rules of its contract, apart from how the product does it.
func (c crashCase) expected() after {
	var (
		want  after
		doubt bool
		taken bool // the provider has accepted
	)
	modes := c.modes()
	away := c.outcome == "unreachable" // until the gateway is started again
	call := func() string {
		if away {
			away = false
			return "unreachable"
		}
		mode := modes[0]
		if len(modes) > 1 {
			modes = modes[1:]
		}
		want.calls++
		if mode == providertest.OK || mode == providertest.AcceptReset {
			if !taken || c.contract != "idempotent" {
				want.accepts++
			}
			taken = true
		}
		return mode
	}
	uncertain := func() { // what may have been sent
		doubt = true
		switch {
		case c.contract == "idempotent":
			want.state = "waiting"
		case c.contract == "lookup" && taken:
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
			return after{} // and its broker knows that nobody took it
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
		want.lapse = 1
		uncertain()
		if c.at == "before_settle" && c.outcome == "credentials" && c.contract == "idempotent" {
			want.class = "unknown" // what closed the gate for a minute stands, so nobody finds out again
			return want
		}
	}
	away = false
	for want.state == "waiting" && want.class != "credentials" {
		settle(call())
	}
	return want
}

// config is the gateway of a case.
func (c crashCase) config(database string, p *provider) config {
	contract := map[string]map[string]any{
		"idempotent": {"idempotent": "24h"}, "blind": {"blind": true}, "lookup": {"lookup": p.url()},
	}[c.contract]
	return hasty(database, p).with(contract, "providers", "mail", "contract").with([]string{"1s"}, "asks")
}

// reminder is what is sent in a case; no other case has its recipient.
func (c crashCase) reminder() document {
	d := remind(strings.ReplaceAll(c.String(), " ", "-"))
	d["to"] = strings.NewReplacer(" ", "-", "+", "-").Replace(c.String()) + "@example.test"
	if c.outcome == scheduled {
		d["not_before"] = time.Now().Add(2500 * time.Millisecond).UTC() // from when it is made
	}
	return d
}
