package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func gateRules() GateRules { return DefaultGateRules(lease) }

// gate is one that a store holds, closed for a while from noon on.
func gate(class Class, strikes int, closedFor time.Duration) Gate {
	g := Gate{Provider: "mail", Class: class, Strikes: strikes, Version: 3, By: "outcome"}
	if closedFor != 0 {
		g.ClosedUntil = At(noon().Add(closedFor))
	}
	return g
}

func closedFor(g Gate) time.Duration { return g.View(noon()).Wait }

func TestWhatAGateSays(t *testing.T) {
	for name, row := range map[string]struct {
		gate Gate
		want GateView
	}{
		"never closed":               {Gate{Provider: "mail"}, GateView{Open: true}},
		"closed":                     {gate(ClassThrottled, 0, time.Minute), GateView{Wait: time.Minute, Class: ClassThrottled}},
		"closed to the microsecond":  {gate(ClassThrottled, 0, time.Microsecond), GateView{Wait: time.Microsecond, Class: ClassThrottled}},
		"over":                       {gate(ClassThrottled, 0, -time.Microsecond), GateView{Open: true, Class: ClassThrottled}},
		"over at this instant":       {Gate{ClosedUntil: At(noon())}, GateView{Open: true}},
		"over, but one has to try":   {gate(ClassCredentials, 1, -time.Second), GateView{Open: true, Probe: true, Class: ClassCredentials}},
		"closed, and one tries then": {gate(ClassUnreachable, 2, time.Second), GateView{Wait: time.Second, Class: ClassUnreachable}},
	} {
		if got := row.gate.View(noon()); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

func TestWhileOneTriesTheGateIsClosedToTheOthers(t *testing.T) {
	trying := gate(ClassCredentials, 2, -time.Second).Probing(gateRules())
	if got := closedFor(trying); got != lease {
		t.Errorf("closed for %v, want %v", got, lease)
	}
	if trying.Strikes != 2 || trying.Class != ClassCredentials || trying.Version != 3 {
		t.Errorf("trying changed the gate: %+v", trying)
	}
}

func TestWhatACallDoesToTheGate(t *testing.T) {
	const none = time.Duration(0)
	for name, row := range map[string]struct {
		gate    Gate
		result  Result
		wait    time.Duration
		inRow   int
		probe   bool
		news    bool
		closed  time.Duration
		strikes int
		class   Class
	}{
		"credentials close it for a minute":        {Gate{}, ResultCredentials, none, 0, false, true, time.Minute, 1, ClassCredentials},
		"the probe's credentials double it":        {gate(ClassCredentials, 1, lease), ResultCredentials, none, 0, true, true, 2 * time.Minute, 2, ClassCredentials},
		"up to a cap":                              {gate(ClassCredentials, 9, lease), ResultCredentials, none, 0, true, true, 15 * time.Minute, 10, ClassCredentials},
		"credentials of a straggler":               {gate(ClassCredentials, 1, 40*time.Second), ResultCredentials, none, 0, false, false, 40 * time.Second, 1, ClassCredentials},
		"unreachable, a few":                       {Gate{}, ResultUnreachable, none, 4, false, false, 0, 0, ""},
		"unreachable, many in a row":               {Gate{}, ResultUnreachable, none, 5, false, true, 5 * time.Second, 1, ClassUnreachable},
		"the probe is unreachable":                 {gate(ClassUnreachable, 1, lease), ResultUnreachable, none, 1, true, true, 10 * time.Second, 2, ClassUnreachable},
		"unreachable, up to a cap":                 {gate(ClassUnreachable, 40, lease), ResultUnreachable, none, 1, true, true, time.Minute, 41, ClassUnreachable},
		"an unreachable straggler":                 {gate(ClassUnreachable, 1, time.Second), ResultUnreachable, none, 19, false, false, time.Second, 1, ClassUnreachable},
		"throttled closes it for as long as said":  {Gate{}, ResultThrottled, 42 * time.Second, 0, false, true, 42 * time.Second, 0, ClassThrottled},
		"throttled for longer":                     {gate(ClassThrottled, 0, time.Second), ResultThrottled, 42 * time.Second, 0, false, true, 42 * time.Second, 0, ClassThrottled},
		"throttled for less shortens nothing":      {gate(ClassThrottled, 0, time.Minute), ResultThrottled, time.Second, 0, false, false, time.Minute, 0, ClassThrottled},
		"throttled for as long is no news":         {gate(ClassThrottled, 0, time.Minute), ResultThrottled, time.Minute, 0, false, false, time.Minute, 0, ClassThrottled},
		"the probe is throttled":                   {gate(ClassUnreachable, 3, lease), ResultThrottled, time.Minute, 0, true, true, time.Minute, 0, ClassThrottled},
		"accepted at an open gate":                 {Gate{}, ResultAccepted, none, 0, false, false, 0, 0, ""},
		"the probe is accepted":                    {gate(ClassCredentials, 3, lease), ResultAccepted, none, 0, true, true, 0, 0, ""},
		"the probe's content is refused: it lives": {gate(ClassUnreachable, 3, lease), ResultRefused, none, 0, true, true, 0, 0, ""},
		"the probe's address is gone: it lives":    {gate(ClassUnreachable, 3, lease), ResultGone, none, 0, true, true, 0, 0, ""},
		"unknown tells nothing":                    {gate(ClassUnreachable, 3, lease), ResultUnknown, none, 9, true, false, lease, 3, ClassUnreachable},
		"not called tells nothing":                 {gate(ClassUnreachable, 3, time.Second), ResultNotCalled, none, 9, false, false, time.Second, 3, ClassUnreachable},
	} {
		after, news := row.gate.After(row.result, row.wait, row.inRow, row.probe, gateRules(), noon())
		if news != row.news || closedFor(after) != row.closed || after.Strikes != row.strikes || after.Class != row.class {
			t.Errorf("%s: news %t, closed for %v, %d strikes, class %q", name, news, closedFor(after), after.Strikes, after.Class)
		}
		if after.Version != row.gate.Version || after.Provider != row.gate.Provider {
			t.Errorf("%s: %q, version %d", name, after.Provider, after.Version)
		}
		if !news && after != row.gate {
			t.Errorf("%s: no news, and yet %+v", name, after)
		}
	}
}

func TestStrikesDoubleAndStopAtTheirCap(t *testing.T) {
	for result, row := range map[Result]struct{ first, limit time.Duration }{
		ResultCredentials: {time.Minute, 15 * time.Minute},
		ResultUnreachable: {5 * time.Second, time.Minute},
	} {
		g, want := Gate{Provider: "mail"}, row.first
		for strike := 1; strike <= 200; strike++ {
			g, _ = g.After(result, 0, 5, true, gateRules(), noon())
			if got := closedFor(g); got != want || g.Strikes != strike {
				t.Fatalf("%s, strike %d: closed for %v, want %v", result, strike, got, want)
			}
			want = min(2*want, row.limit)
		}
		g.Strikes = math.MaxInt32
		g, _ = g.After(result, 0, 5, true, gateRules(), noon())
		if closedFor(g) != row.limit {
			t.Errorf("%s: after very many strikes it is closed for %v", result, closedFor(g))
		}
	}
}

// TestManyThatFailTogetherStrikeOnce has twenty callers that all read the open gate and write what they
// learned by version, as replicas do: who is stale reads again.
func TestManyThatFailTogetherStrikeOnce(t *testing.T) {
	for _, result := range []Result{ResultCredentials, ResultUnreachable} {
		g, news := Gate{Provider: "mail"}, 0
		for i := range 20 {
			seen := g
			if i%2 == 1 {
				seen = Gate{Provider: "mail"} // read before anybody wrote
			}
			next, wants := seen.After(result, 0, 5+i, false, gateRules(), noon())
			if wants && next.Version != g.Version {
				next, wants = g.After(result, 0, 5+i, false, gateRules(), noon())
			}
			if wants {
				next.ClosedUntil = At(next.ClosedUntil.On(noon()))
				next.Version++
				g, news = next, news+1
			}
		}
		if news != 1 || g.Strikes != 1 {
			t.Errorf("%s: %d closings, %d strikes", result, news, g.Strikes)
		}
	}
}

func TestAGateThatOpensAgainStartsFromTheBeginning(t *testing.T) {
	g := gate(ClassCredentials, 7, lease)
	g, _ = g.After(ResultAccepted, 0, 0, true, gateRules(), noon())
	if v := g.View(noon()); !v.Open || v.Probe {
		t.Errorf("%+v", v)
	}
	g, _ = g.After(ResultCredentials, 0, 0, false, gateRules(), noon())
	if closedFor(g) != time.Minute {
		t.Errorf("closed for %v", closedFor(g))
	}
}

func pausing() Act { return Act{ID: "act-1", By: "ada", Role: "operator", Why: "their maintenance"} }

// gates are every kind that a person may find.
func gates() map[string]Gate {
	return map[string]Gate{
		"never closed":    {Provider: "mail"},
		"open":            {Provider: "mail", Version: 3, By: "outcome"},
		"throttled":       gate(ClassThrottled, 0, time.Minute),
		"struck":          gate(ClassCredentials, 3, 8*time.Minute),
		"over, one tries": gate(ClassUnreachable, 2, -time.Second),
	}
}

func TestAPausedGateLetsNobodyThrough(t *testing.T) {
	for name, g := range gates() {
		paused, act := g.Pause(pausing())
		for _, later := range []time.Duration{0, time.Second, time.Hour, 1000 * time.Hour} {
			if got := paused.View(noon().Add(later)); got != (GateView{Wait: 15 * time.Second, Class: g.Class}) {
				t.Errorf("%s, after %v: %+v", name, later, got)
			}
		}
		want := g // whatever closed it stands beneath
		want.Paused, want.By = true, "ada"
		if paused != want {
			t.Errorf("%s: %+v, want %+v", name, paused, want)
		}
		if act.Verb != "pause:mail" || act.Identity != (Identity{}) || act.By != "ada" || act.Why != "their maintenance" || act.ID != "act-1" || act.Role != "operator" {
			t.Errorf("%s: the audit says %+v", name, act)
		}
		for _, result := range Results() {
			for _, probe := range []bool{false, true} {
				if after, news := paused.After(result, time.Hour, 9, probe, gateRules(), noon()); news || after != paused {
					t.Errorf("%s: %s, probe %t, moves it: %+v", name, result, probe, after)
				}
			}
		}
		again, _ := paused.Pause(Act{By: "bob"})
		if want.By = "bob"; again != want {
			t.Errorf("%s, paused twice: %+v", name, again)
		}
	}
}

func TestResumeOpensAGateWhateverClosedIt(t *testing.T) {
	for name, g := range gates() {
		paused, _ := g.Pause(pausing())
		for what, closed := range map[string]Gate{"paused": paused, "not paused": g} {
			by := pausing()
			by.By = "bob"
			open, act := closed.Resume(by)
			if open != (Gate{Provider: "mail", Version: g.Version, By: "bob"}) || open.View(noon()) != (GateView{Open: true}) {
				t.Errorf("%s, %s: %+v", name, what, open)
			}
			if act.Verb != "resume:mail" || act.By != "bob" || act.Why != "their maintenance" {
				t.Errorf("%s, %s: the audit says %+v", name, what, act)
			}
			if next, _ := open.After(ResultCredentials, 0, 0, false, gateRules(), noon()); closedFor(next) != time.Minute || next.By != "outcome" {
				t.Errorf("%s, %s: it does not start from the beginning: %+v", name, what, next)
			}
		}
	}
}

func TestTheAuditOfAGateTellsWhatStoodBeneath(t *testing.T) {
	for name, row := range map[string]struct {
		gate                    Gate
		before, between, opened string
	}{
		"open":   {Gate{Provider: "mail"}, `{"paused":false}`, `{"paused":true}`, `{"paused":false}`},
		"struck": {gate(ClassCredentials, 1, time.Hour), `{"paused":false,"closed_until":"2031-03-04T13:00:00Z","class":"credentials"}`, `{"paused":true,"closed_until":"2031-03-04T13:00:00Z","class":"credentials"}`, `{"paused":false}`},
	} {
		paused, act := row.gate.Pause(pausing())
		if act.Before != row.before || act.After != row.between {
			t.Errorf("%s: paused from %s to %s", name, act.Before, act.After)
		}
		if _, act := paused.Resume(pausing()); act.Before != row.between || act.After != row.opened {
			t.Errorf("%s: resumed from %s to %s", name, act.Before, act.After)
		}
	}
}
