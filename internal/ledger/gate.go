package ledger

import "time"

// Gate is the circuit breaker and cooldown of one provider, shared by every replica: while it is closed no replica
// calls, so that an outage or a wrong password costs the waiting reminders no attempts.
type Gate struct {
	Provider    string
	ClosedUntil Moment
	Class       Class  // cause of the last closing: credentials, throttled or unreachable
	Actor       string // of the last change: "outcome", or the operator who paused or resumed it
	Paused      bool   // by an operator, until an operator resumes it; independent of ClosedUntil
	Failures    int    // closings in a row; while above 0, one call probes the provider at each opening
	Version     int64  // 0 if no store holds it
	Updated     time.Time
}

// actorOutcome is the actor of a gate that the outcome of a call changed.
const actorOutcome = "outcome"

// GateRules are the bounds of how long a gate stays closed.
type GateRules struct {
	Credentials    time.Duration // first closing for wrong credentials, doubling; 1 min
	CredentialsCap time.Duration // 15 min
	Outage         time.Duration // first closing for an unreachable provider, doubling; 5 s
	OutageCap      time.Duration // 1 min
	OutageAfter    int           // unreachable calls in a row that close it; 5
	Probe          time.Duration // how long the probe may take
}

// DefaultGateRules returns the bounds named in [GateRules]; a probe may take as long as the lease.
func DefaultGateRules(lease time.Duration) GateRules {
	return GateRules{
		Credentials: time.Minute, CredentialsCap: 15 * time.Minute,
		Outage: 5 * time.Second, OutageCap: time.Minute, OutageAfter: 5,
		Probe: lease,
	}
}

// GateStatus says whether a call may be made.
type GateStatus struct {
	Open  bool
	Probe bool          // open for one call: write [Gate.HalfOpen] first, and call only if that write succeeded
	Wait  time.Duration // while closed
	Class Class
}

// pausedRecheck is the wait before a paused provider is checked again: the length of a pause is not known, and calls
// should resume soon after it ends.
const pausedRecheck = 15 * time.Second

// Status returns the gate's status at the ledger's now.
func (g Gate) Status(now time.Time) GateStatus {
	if g.Paused {
		return GateStatus{Wait: pausedRecheck, Class: g.Class}
	}
	if wait := g.ClosedUntil.On(now).Sub(now); !g.ClosedUntil.IsZero() && wait > 0 {
		return GateStatus{Wait: wait, Class: g.Class}
	}
	return GateStatus{Open: true, Probe: g.Failures > 0, Class: g.Class}
}

// HalfOpen returns the gate during a probe: closed to every other call for as long as the probe may take.
func (g Gate) HalfOpen(r GateRules) Gate {
	g.ClosedUntil = In(r.Probe)
	return g
}

// OnResult returns the gate after a call, and whether it changed. wait is how long the policy waits after the call,
// for which a throttling provider stays closed; unreachable is how many calls in a row were unreachable, this one
// included; probe reports that the call was the gate's probe.
func (g Gate) OnResult(result Result, wait time.Duration, unreachable int, probe bool, r GateRules, now time.Time) (Gate, bool) {
	if g.Paused {
		return g, false // a call that was in flight when the gate was paused does not change it
	}
	left := g.Status(now).Wait
	closed := left > 0
	if closed && !probe && (result == ResultCredentials || result == ResultUnreachable) {
		return g, false // it began before the gate closed, and adds nothing
	}
	switch result {
	case ResultCredentials:
		return g.closeAfterFailure(ClassCredentials, doubled(r.Credentials, r.CredentialsCap, g.Failures)), true
	case ResultThrottled:
		switch {
		case !probe && left >= wait:
			return g, false
		case !probe && g.Failures > 0:
			g.ClosedUntil = In(wait) // longer; but a call that began before the closing does not reset the failures
			return g, true
		}
		return Gate{Provider: g.Provider, Version: g.Version, ClosedUntil: In(wait), Class: ClassThrottled, Actor: actorOutcome}, true
	case ResultUnreachable:
		if unreachable < r.OutageAfter && g.Failures == 0 {
			return g, false
		}
		return g.closeAfterFailure(ClassUnreachable, doubled(r.Outage, r.OutageCap, g.Failures)), true
	case ResultAccepted, ResultRefused, ResultGone, ResultDeferred:
		if g.Failures == 0 {
			return g, false
		}
		return Gate{Provider: g.Provider, Version: g.Version, Actor: actorOutcome}, true
	default:
		return g, false
	}
}

// Pause stops all calls to a provider until an operator resumes it. Waiting entries stay waiting and use no attempts
// meanwhile. It also returns the audit event to record.
func (g Gate) Pause(audit AuditEvent) (Gate, AuditEvent) {
	next := g
	next.Paused, next.Actor = true, audit.Actor
	return next, g.byOperator(next, "pause", audit)
}

// Resume ends a pause and whatever else closed the gate: the operator says that calls are worth a try. It also returns
// the audit event to record.
func (g Gate) Resume(audit AuditEvent) (Gate, AuditEvent) {
	next := Gate{Provider: g.Provider, Version: g.Version, Actor: audit.Actor}
	return next, g.byOperator(next, "resume", audit)
}

// byOperator completes the audit event of an operator's change to the gate.
func (g Gate) byOperator(next Gate, action string, audit AuditEvent) AuditEvent {
	audit.Action = action + ":" + g.Provider
	audit.Before, audit.After = g.auditState(), next.auditState()
	return audit
}

// closeAfterFailure returns the gate closed for wait, with one more failure.
func (g Gate) closeAfterFailure(class Class, wait time.Duration) Gate {
	g.ClosedUntil, g.Class, g.Actor = In(wait), class, actorOutcome
	g.Failures++
	return g
}

// doubled returns base * 2^times, at most limit, without overflow.
func doubled(base, limit time.Duration, times int) time.Duration {
	for ; times > 0 && base < limit; times-- {
		if base > limit/2 {
			return limit
		}
		base *= 2
	}
	return min(base, limit)
}
