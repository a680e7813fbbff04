package ledger

import "time"

// Gate stands before one provider and is seen by every replica: while it is closed nobody calls, so
// that an outage or a wrong password costs the waiting reminders nothing.
type Gate struct {
	Provider    string
	ClosedUntil Moment
	Class       Class  // why it closed last: credentials, throttled or unreachable
	By          string // who moved it last: "outcome", or the person who paused or resumed it
	Paused      bool   // by a person, until a person resumes it; what closed it beside that stands
	Strikes     int    // closings in a row; while above 0, one delivery tries at each opening
	Version     int64  // 0 while no store knows it
	Updated     time.Time
}

// byOutcome marks a gate that calls moved, not a person.
const byOutcome = "outcome"

// GateRules bound how long a gate stays closed.
type GateRules struct {
	Credentials    time.Duration // first closing for wrong credentials, doubling; 1 min
	CredentialsCap time.Duration // 15 min
	Outage         time.Duration // first closing for an unreachable provider, doubling; 5 s
	OutageCap      time.Duration // 1 min
	OutageAfter    int           // unreachable calls in a row that close it; 5
	Probe          time.Duration // how long the one delivery that tries may take
}

// DefaultGateRules are the bounds named above; the probe is given by the lease.
func DefaultGateRules(lease time.Duration) GateRules {
	return GateRules{
		Credentials: time.Minute, CredentialsCap: 15 * time.Minute,
		Outage: 5 * time.Second, OutageCap: time.Minute, OutageAfter: 5,
		Probe: lease,
	}
}

// GateView is what a gate says to one who wants to call.
type GateView struct {
	Open  bool
	Probe bool          // open for one: write Probing first, and call only if that write stood
	Wait  time.Duration // while closed
	Class Class
}

// pausedLook is when it is worth looking again at a provider that a person paused: nobody knows how long that
// lasts, and once it is over nobody wants to wait for long.
const pausedLook = 15 * time.Second

// View tells what the gate says at the ledger's now.
func (g Gate) View(now time.Time) GateView {
	if g.Paused {
		return GateView{Wait: pausedLook, Class: g.Class}
	}
	if wait := g.ClosedUntil.On(now).Sub(now); !g.ClosedUntil.IsZero() && wait > 0 {
		return GateView{Wait: wait, Class: g.Class}
	}
	return GateView{Open: true, Probe: g.Strikes > 0, Class: g.Class}
}

// Probing is the gate while one delivery tries: closed to everybody else for as long as that may take.
func (g Gate) Probing(r GateRules) Gate {
	g.ClosedUntil = In(r.Probe)
	return g
}

// After is the gate after a call, and whether that is news. wait is how long the policy waits after it,
// which a throttling provider is left alone for; inRow is how many calls in a row were unreachable, this
// one included; probe tells that the call was the one that tried the gate.
func (g Gate) After(result Result, wait time.Duration, inRow int, probe bool, r GateRules, now time.Time) (Gate, bool) {
	if g.Paused {
		return g, false // what was under way when it was paused tells nothing that a person does not know
	}
	left := g.View(now).Wait
	closed := left > 0
	if closed && !probe && (result == ResultCredentials || result == ResultUnreachable) {
		return g, false // it began before the gate closed, and tells what the gate knows
	}
	switch result {
	case ResultCredentials:
		return g.strike(ClassCredentials, doubled(r.Credentials, r.CredentialsCap, g.Strikes)), true
	case ResultThrottled:
		switch {
		case !probe && left >= wait:
			return g, false
		case !probe && g.Strikes > 0:
			g.ClosedUntil = In(wait) // longer; but what struck it is not mended by a call that began before
			return g, true
		}
		return Gate{Provider: g.Provider, Version: g.Version, ClosedUntil: In(wait), Class: ClassThrottled, By: byOutcome}, true
	case ResultUnreachable:
		if inRow < r.OutageAfter && g.Strikes == 0 {
			return g, false
		}
		return g.strike(ClassUnreachable, doubled(r.Outage, r.OutageCap, g.Strikes)), true
	case ResultAccepted, ResultRefused, ResultGone:
		if g.Strikes == 0 {
			return g, false
		}
		return Gate{Provider: g.Provider, Version: g.Version, By: byOutcome}, true
	default:
		return g, false
	}
}

// Pause stops all calls to a provider until a person resumes it, and Resume ends that and whatever else closed
// the gate: the person says that it is worth a try. What waits stays waiting and uses no attempts meanwhile.
// Each comes with its line for the audit.
func (g Gate) Pause(act Act) (Gate, Act) {
	next := g
	next.Paused, next.By = true, act.By
	return next, g.steered(next, "pause", act)
}

// Resume : see [Gate.Pause].
func (g Gate) Resume(act Act) (Gate, Act) {
	next := Gate{Provider: g.Provider, Version: g.Version, By: act.By}
	return next, g.steered(next, "resume", act)
}

func (g Gate) steered(next Gate, verb string, act Act) Act {
	act.Verb = verb + ":" + g.Provider
	act.Before, act.After = g.standing(), next.standing()
	return act
}

func (g Gate) strike(class Class, wait time.Duration) Gate {
	g.ClosedUntil, g.Class, g.By = In(wait), class, byOutcome
	g.Strikes++
	return g
}

// doubled is base * 2^times, at most limit, without overflow.
func doubled(base, limit time.Duration, times int) time.Duration {
	for ; times > 0 && base < limit; times-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
