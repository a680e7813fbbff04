package ledger_test

import (
	"math"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

func gateRules() GateRules { return DefaultGateRules(lease) }

// gate returns a stored gate, closed for a while from noon on.
func gate(class Class, failures int, closedFor time.Duration) Gate {
	g := Gate{Provider: "mail", Class: class, Failures: failures, Version: 3, Actor: "outcome"}
	if closedFor != 0 {
		g.ClosedUntil = At(noon().Add(closedFor))
	}
	return g
}

func closedFor(g Gate) time.Duration { return g.Status(noon()).Wait }

func TestGate_Status(t *testing.T) {
	for name, row := range map[string]struct {
		gate Gate
		want GateStatus
	}{
		"never closed":              {Gate{Provider: "mail"}, GateStatus{Open: true}},
		"closed":                    {gate(ClassThrottled, 0, time.Minute), GateStatus{Wait: time.Minute, Class: ClassThrottled}},
		"closed to the microsecond": {gate(ClassThrottled, 0, time.Microsecond), GateStatus{Wait: time.Microsecond, Class: ClassThrottled}},
		"open again":                {gate(ClassThrottled, 0, -time.Microsecond), GateStatus{Open: true, Class: ClassThrottled}},
		"open at this instant":      {Gate{ClosedUntil: At(noon())}, GateStatus{Open: true}},
		"open again, for a probe":   {gate(ClassCredentials, 1, -time.Second), GateStatus{Open: true, Probe: true, Class: ClassCredentials}},
		"closed, before a probe":    {gate(ClassUnreachable, 2, time.Second), GateStatus{Wait: time.Second, Class: ClassUnreachable}},
	} {
		if got := row.gate.Status(noon()); got != row.want {
			t.Errorf("%s: %+v, want %+v", name, got, row.want)
		}
	}
}

func TestGate_HalfOpenIsClosedToOtherCalls(t *testing.T) {
	probing := gate(ClassCredentials, 2, -time.Second).HalfOpen(gateRules())
	if got := closedFor(probing); got != lease {
		t.Errorf("closed for %v, want %v", got, lease)
	}
	if probing.Failures != 2 || probing.Class != ClassCredentials || probing.Version != 3 {
		t.Errorf("HalfOpen changed the gate: %+v", probing)
	}
}

func TestGate_OnResult(t *testing.T) {
	const none = time.Duration(0)
	for name, row := range map[string]struct {
		gate        Gate
		result      Result
		wait        time.Duration
		unreachable int
		probe       bool
		changed     bool
		closed      time.Duration
		failures    int
		class       Class
	}{
		"credentials close it for a minute":               {Gate{}, ResultCredentials, none, 0, false, true, time.Minute, 1, ClassCredentials},
		"the probe's credentials double it":               {gate(ClassCredentials, 1, lease), ResultCredentials, none, 0, true, true, 2 * time.Minute, 2, ClassCredentials},
		"up to a cap":                                     {gate(ClassCredentials, 9, lease), ResultCredentials, none, 0, true, true, 15 * time.Minute, 10, ClassCredentials},
		"credentials, of a call that began before":        {gate(ClassCredentials, 1, 40*time.Second), ResultCredentials, none, 0, false, false, 40 * time.Second, 1, ClassCredentials},
		"unreachable, a few":                              {Gate{}, ResultUnreachable, none, 4, false, false, 0, 0, ""},
		"unreachable, many in a row":                      {Gate{}, ResultUnreachable, none, 5, false, true, 5 * time.Second, 1, ClassUnreachable},
		"the probe is unreachable":                        {gate(ClassUnreachable, 1, lease), ResultUnreachable, none, 1, true, true, 10 * time.Second, 2, ClassUnreachable},
		"unreachable, up to a cap":                        {gate(ClassUnreachable, 40, lease), ResultUnreachable, none, 1, true, true, time.Minute, 41, ClassUnreachable},
		"unreachable, of a call that began before":        {gate(ClassUnreachable, 1, time.Second), ResultUnreachable, none, 19, false, false, time.Second, 1, ClassUnreachable},
		"throttled closes it for the wait":                {Gate{}, ResultThrottled, 42 * time.Second, 0, false, true, 42 * time.Second, 0, ClassThrottled},
		"throttled for longer":                            {gate(ClassThrottled, 0, time.Second), ResultThrottled, 42 * time.Second, 0, false, true, 42 * time.Second, 0, ClassThrottled},
		"throttled for less shortens nothing":             {gate(ClassThrottled, 0, time.Minute), ResultThrottled, time.Second, 0, false, false, time.Minute, 0, ClassThrottled},
		"throttled for as long changes nothing":           {gate(ClassThrottled, 0, time.Minute), ResultThrottled, time.Minute, 0, false, false, time.Minute, 0, ClassThrottled},
		"the probe is throttled":                          {gate(ClassUnreachable, 3, lease), ResultThrottled, time.Minute, 0, true, true, time.Minute, 0, ClassThrottled},
		"accepted at an open gate":                        {Gate{}, ResultAccepted, none, 0, false, false, 0, 0, ""},
		"the probe is accepted":                           {gate(ClassCredentials, 3, lease), ResultAccepted, none, 0, true, true, 0, 0, ""},
		"the probe's content is refused: it is reachable": {gate(ClassUnreachable, 3, lease), ResultRefused, none, 0, true, true, 0, 0, ""},
		"the probe's address is gone: it is reachable":    {gate(ClassUnreachable, 3, lease), ResultGone, none, 0, true, true, 0, 0, ""},
		"the probe is deferred: it answered":              {gate(ClassUnreachable, 3, lease), ResultDeferred, none, 0, true, true, 0, 0, ""},
		"deferred at an open gate":                        {Gate{}, ResultDeferred, none, 0, false, false, 0, 0, ""},
		"unknown changes nothing":                         {gate(ClassUnreachable, 3, lease), ResultUnknown, none, 9, true, false, lease, 3, ClassUnreachable},
		"not called changes nothing":                      {gate(ClassUnreachable, 3, time.Second), ResultNotCalled, none, 9, false, false, time.Second, 3, ClassUnreachable},
	} {
		after, changed := row.gate.OnResult(row.result, row.wait, row.unreachable, row.probe, gateRules(), noon())
		if changed != row.changed || closedFor(after) != row.closed || after.Failures != row.failures || after.Class != row.class {
			t.Errorf("%s: changed %t, closed for %v, %d failures, class %q", name, changed, closedFor(after), after.Failures, after.Class)
		}
		if after.Version != row.gate.Version || after.Provider != row.gate.Provider {
			t.Errorf("%s: %q, version %d", name, after.Provider, after.Version)
		}
		if !changed && after != row.gate {
			t.Errorf("%s: unchanged, but returned %+v", name, after)
		}
	}
}

func TestGate_FailuresDoubleTheWaitUpToTheCap(t *testing.T) {
	for result, row := range map[Result]struct{ first, limit time.Duration }{
		ResultCredentials: {time.Minute, 15 * time.Minute},
		ResultUnreachable: {5 * time.Second, time.Minute},
	} {
		g, want := Gate{Provider: "mail"}, row.first
		for n := 1; n <= 200; n++ {
			g, _ = g.OnResult(result, 0, 5, true, gateRules(), noon())
			if got := closedFor(g); got != want || g.Failures != n {
				t.Fatalf("%s, failure %d: closed for %v, want %v", result, n, got, want)
			}
			want = min(2*want, row.limit)
		}
		g.Failures = math.MaxInt32
		g, _ = g.OnResult(result, 0, 5, true, gateRules(), noon())
		if closedFor(g) != row.limit {
			t.Errorf("%s: after very many failures it is closed for %v", result, closedFor(g))
		}
	}
}

// Twenty callers read the open gate and write their results by version, as replicas do: one with a stale version
// reads again.
func TestGate_ConcurrentFailuresCountOnce(t *testing.T) {
	for _, result := range []Result{ResultCredentials, ResultUnreachable} {
		g, changed := Gate{Provider: "mail"}, 0
		for i := range 20 {
			seen := g
			if i%2 == 1 {
				seen = Gate{Provider: "mail"} // read before the first write
			}
			next, writes := seen.OnResult(result, 0, 5+i, false, gateRules(), noon())
			if writes && next.Version != g.Version {
				next, writes = g.OnResult(result, 0, 5+i, false, gateRules(), noon())
			}
			if writes {
				next.ClosedUntil = At(next.ClosedUntil.On(noon()))
				next.Version++
				g, changed = next, changed+1
			}
		}
		if changed != 1 || g.Failures != 1 {
			t.Errorf("%s: %d closings, %d failures", result, changed, g.Failures)
		}
	}
}

func TestGate_ReopeningResetsTheFailures(t *testing.T) {
	g := gate(ClassCredentials, 7, lease)
	g, _ = g.OnResult(ResultAccepted, 0, 0, true, gateRules(), noon())
	if v := g.Status(noon()); !v.Open || v.Probe {
		t.Errorf("%+v", v)
	}
	g, _ = g.OnResult(ResultCredentials, 0, 0, false, gateRules(), noon())
	if closedFor(g) != time.Minute {
		t.Errorf("closed for %v", closedFor(g))
	}
}

func pauseEvent() AuditEvent {
	return AuditEvent{ID: "audit-1", Actor: "ada", Role: "operator", Reason: "their maintenance"}
}

// gates returns a gate in every condition in which an operator may find it.
func gates() map[string]Gate {
	return map[string]Gate{
		"never closed":     {Provider: "mail"},
		"open":             {Provider: "mail", Version: 3, Actor: "outcome"},
		"throttled":        gate(ClassThrottled, 0, time.Minute),
		"failed":           gate(ClassCredentials, 3, 8*time.Minute),
		"open for a probe": gate(ClassUnreachable, 2, -time.Second),
	}
}

func TestGate_PausedIsClosedToEveryCall(t *testing.T) {
	for name, g := range gates() {
		paused, audit := g.Pause(pauseEvent())
		for _, later := range []time.Duration{0, time.Second, time.Hour, 1000 * time.Hour} {
			if got := paused.Status(noon().Add(later)); got != (GateStatus{Wait: 15 * time.Second, Class: g.Class}) {
				t.Errorf("%s, after %v: %+v", name, later, got)
			}
		}
		want := g // whatever closed it is kept
		want.Paused, want.Actor = true, "ada"
		if paused != want {
			t.Errorf("%s: %+v, want %+v", name, paused, want)
		}
		if audit.Action != "pause:mail" || audit.Identity != (Identity{}) || audit.Actor != "ada" || audit.Reason != "their maintenance" || audit.ID != "audit-1" || audit.Role != "operator" {
			t.Errorf("%s: the audit says %+v", name, audit)
		}
		for _, result := range Results() {
			for _, probe := range []bool{false, true} {
				if after, changed := paused.OnResult(result, time.Hour, 9, probe, gateRules(), noon()); changed || after != paused {
					t.Errorf("%s: %s, probe %t, changes it: %+v", name, result, probe, after)
				}
			}
		}
		again, _ := paused.Pause(AuditEvent{Actor: "bob"})
		if want.Actor = "bob"; again != want {
			t.Errorf("%s, paused twice: %+v", name, again)
		}
	}
}

func TestGate_ResumeOpensWhateverClosedIt(t *testing.T) {
	for name, g := range gates() {
		paused, _ := g.Pause(pauseEvent())
		for state, closed := range map[string]Gate{"paused": paused, "not paused": g} {
			event := pauseEvent()
			event.Actor = "bob"
			open, audit := closed.Resume(event)
			if open != (Gate{Provider: "mail", Version: g.Version, Actor: "bob"}) || open.Status(noon()) != (GateStatus{Open: true}) {
				t.Errorf("%s, %s: %+v", name, state, open)
			}
			if audit.Action != "resume:mail" || audit.Actor != "bob" || audit.Reason != "their maintenance" {
				t.Errorf("%s, %s: the audit says %+v", name, state, audit)
			}
			if next, _ := open.OnResult(ResultCredentials, 0, 0, false, gateRules(), noon()); closedFor(next) != time.Minute || next.Actor != "outcome" {
				t.Errorf("%s, %s: its failures are not reset: %+v", name, state, next)
			}
		}
	}
}

func TestGate_AuditHoldsTheStatesBeforeAndAfter(t *testing.T) {
	for name, row := range map[string]struct {
		gate                   Gate
		before, paused, opened string
	}{
		"open":   {Gate{Provider: "mail"}, `{"paused":false}`, `{"paused":true}`, `{"paused":false}`},
		"failed": {gate(ClassCredentials, 1, time.Hour), `{"paused":false,"closed_until":"2031-03-04T13:00:00Z","class":"credentials"}`, `{"paused":true,"closed_until":"2031-03-04T13:00:00Z","class":"credentials"}`, `{"paused":false}`},
	} {
		paused, audit := row.gate.Pause(pauseEvent())
		if audit.Before != row.before || audit.After != row.paused {
			t.Errorf("%s: paused from %s to %s", name, audit.Before, audit.After)
		}
		if _, audit := paused.Resume(pauseEvent()); audit.Before != row.paused || audit.After != row.opened {
			t.Errorf("%s: resumed from %s to %s", name, audit.Before, audit.After)
		}
	}
}

// A call that began before the closing and is throttled must not shorten it to its own few seconds, nor reset the
// failures: all replicas would call at once.
func TestGate_LateThrottledCallDoesNotShortenAClosing(t *testing.T) {
	g, _ := gate(ClassCredentials, 3, 8*time.Minute).OnResult(ResultThrottled, 5*time.Second, 0, false, gateRules(), noon())
	if closedFor(g) < 8*time.Minute || g.Failures != 3 {
		t.Errorf("closed for %v, %d failures", closedFor(g), g.Failures)
	}
}

// A call that was in flight when an operator paused the gate says nothing about the reason for the pause.
func TestGate_NoCallOpensAPausedGate(t *testing.T) {
	paused := Gate{Provider: "mail", Paused: true, Actor: "ada", Failures: 1, Version: 4}
	for _, r := range Results() {
		for _, probe := range []bool{false, true} {
			if g, changed := paused.OnResult(r, time.Second, 9, probe, gateRules(), noon()); changed || g != paused || g.Status(noon()).Open {
				t.Errorf("%s, probe %t: %+v", r, probe, g)
			}
		}
	}
}
