package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// The same random walk with lookups, status events and operators' verdicts, each at its own pace. A lookup that finds
// nothing may be wrong; one that finds the message is right.
func TestRandomWalks_ThroughDoubtNeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 150
	var all reconciler
	for seed := range uint64(walks) {
		s := newScenario(seed)
		s.cancels = s.chance(10)
		rc := &reconciler{scenario: s}
		for range steps {
			if s.chance(25) && s.exists {
				s.n++
				rc.step()
			} else {
				s.step()
			}
		}
		s.runToEnd()
		rc.finish()
		if len(s.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(s.faults, "; "), strings.Join(s.trace, "\n"))
		}
		all.found, all.notFound, all.resends = all.found+rc.found, all.notFound+rc.notFound, all.resends+rc.resends
		all.resolved, all.refused, all.statuses = all.resolved+rc.resolved, all.refused+rc.refused, all.statuses+rc.statuses
	}
	t.Logf("found %d, not found %d, resent %d, resolved %d, refused %d, status events %d", all.found, all.notFound, all.resends, all.resolved, all.refused, all.statuses)
	if all.found == 0 || all.notFound == 0 || all.resends == 0 || all.resolved == 0 || all.refused == 0 || all.statuses == 0 {
		t.Error("the walks do not reach every case")
	}
}

// reconciler makes the lookups, status events and verdicts of a walk.
type reconciler struct {
	*scenario
	pending []*pendingLookup
	seen    Entry // by an operator, who decides some time later

	found, notFound, resends, resolved, refused, statuses int
}

// pendingLookup is one lookup, made one step at a time.
type pendingLookup struct {
	seen   Entry
	rules  Rules
	lookup *Lookup
}

func (rc *reconciler) step() {
	switch roll := rc.rng.IntN(100); {
	case roll < 2:
		rc.recordStatus()
	case roll < 4:
		rc.resolve()
	case roll < 12:
		rc.seen = rc.entry
	case roll < 50 || len(rc.pending) == 0:
		rc.startLookup()
	default:
		i := rc.rng.IntN(len(rc.pending))
		if rc.advance(rc.pending[i]) || rc.chance(10) { // a crash
			rc.pending = append(rc.pending[:i], rc.pending[i+1:]...)
		}
	}
}

// startLookup starts a lookup that is due; two replicas may do so at once.
func (rc *reconciler) startLookup() {
	rules := rc.plan.rules(rc.entry)
	switch {
	case rc.entry.State != Unknown:
	case rc.entry.NextLookup.IsZero():
		if change, changed := ScheduleLookup(rc.entry, rules); changed {
			rc.write(change, "schedule lookup")
		}
	case !rules.CanLookup(rc.entry):
		rc.write(CancelLookup(rc.entry, Trigger{Origin: OriginReconcile}), "cancel lookup")
	case !rc.entry.NextLookup.On(rc.now).After(rc.now):
		rc.pending = append(rc.pending, &pendingLookup{seen: rc.entry, rules: rules})
	default:
		rc.now = rc.entry.NextLookup.On(rc.now)
	}
}

// lookupResult returns the provider's answer: found only if it did accept the key.
func (rc *reconciler) lookupResult(p *pendingLookup) *Lookup {
	l := lookup(LookupUnanswered, "")
	l.Provider = p.seen.Provider
	if rc.chance(30) {
		return &l
	}
	l.Result = LookupNotFound
	for _, c := range rc.calls {
		if c.accepted && c.route.Fingerprint == p.seen.Fingerprint && rc.chance(60) {
			l.Result, l.Outcome.Receipt = LookupFound, c.route.Fingerprint
		}
	}
	return &l
}

func (rc *reconciler) advance(p *pendingLookup) bool {
	if p.lookup == nil {
		p.lookup = rc.lookupResult(p)
		return false
	}
	before := rc.entry
	change, changed := RecordLookup(p.seen, *p.lookup, p.rules, rc.now)
	if !changed {
		return true
	}
	if !rc.write(change, "lookup") {
		p.seen = rc.entry
		return p.lookup.Result != LookupFound
	}
	rc.found += count(p.lookup.Result == LookupFound)
	rc.notFound += count(p.lookup.Result == LookupNotFound)
	if rc.entry.State == Waiting {
		rc.resends++
		rc.riskAt = rc.n
		if p.rules.OnUnknown != Resend || before.LookupsNotFound+1 < len(lookupSchedule()) || before.CancelRequested {
			rc.fault("sent again after %d of %d lookups, policy %s", before.LookupsNotFound+1, len(lookupSchedule()), p.rules.OnUnknown)
		}
	}
	if p.lookup.Result == LookupNotFound && rc.entry.LookupsNotFound > len(lookupSchedule()) {
		rc.fault("%d lookups", rc.entry.LookupsNotFound)
	}
	return true
}

// recordStatus records a status event about an accepted call, or a bounce about any call.
func (rc *reconciler) recordStatus() {
	for _, c := range rc.calls {
		if !rc.chance(50) {
			continue
		}
		r := statusEvent(pick(rc.scenario, StatusBounced, StatusFailed, StatusComplained), "")
		if c.accepted {
			r = statusEvent(pick(rc.scenario, StatusKinds()...), c.route.Fingerprint)
		}
		r.Provider, r.MessageID = c.route.Provider, fmt.Sprintf("evt-%d", rc.n)
		before := rc.entry
		if change, changed := RecordStatus(rc.entry, r); changed && rc.write(change, "status "+string(r.Kind)) {
			rc.statuses++
			proves := r.Kind == StatusAccepted || r.Kind == StatusDelivered
			if proves && rc.entry.State != Sent || !proves && rc.entry.State != before.State {
				rc.fault("%s makes it %s", r.Kind, rc.entry.State)
			}
		}
		return
	}
}

// resolve is an operator's verdict on the version seen some time ago.
func (rc *reconciler) resolve() {
	v := pick(rc.scenario, Verdicts()...)
	change, err := Resolve(rc.entry, verdict(v, rc.seen), rc.now)
	if err != nil {
		rc.refused++
		if rc.seen.Version == rc.entry.Version && !errors.Is(err, ErrNotInDoubt) {
			rc.fault("an operator who saw this version gets %v", err)
		}
		return
	}
	if rc.write(change, "resolve "+string(v)) {
		rc.resolved++
		if v == VerdictNotSent {
			rc.riskAt = rc.n
		}
	}
}

// finish makes lookups until none is scheduled any more.
func (rc *reconciler) finish() {
	rc.pending = nil
	for range 300 {
		if !rc.exists || rc.entry.State != Unknown || rc.entry.NextLookup.IsZero() {
			return
		}
		rc.n++
		rc.now = rc.now.Add(time.Minute)
		rc.startLookup()
		for _, p := range rc.pending {
			for done := false; !done; {
				done = rc.advance(p)
			}
		}
		rc.pending = nil
		rc.runToEnd() // a resend must end too
	}
	rc.fault("lookups without end: %+v", rc.entry)
}

// The same random walk once more, where operators redrive, discard and erase by what they saw some time ago, payloads
// are purged, and a broker dead-letters messages.
func TestRandomWalks_ThroughDeadLettersNeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 200
	all := map[string]int{}
	for seed := range uint64(walks) {
		s := newScenario(seed)
		s.cancels, s.deadLetterChance, s.refuseChance = s.chance(5), pick(s, 0, 0, 10, 40), pick(s, 0, 30, 70)
		o := &operator{reconciler: &reconciler{scenario: s}, reached: all, purges: s.chance(30), erases: s.chance(10), maxRedrives: pick(s, 1, maxRedrives)}
		for range steps {
			switch roll := s.rng.IntN(100); {
			case roll < 20 && s.exists:
				s.n++
				o.step()
			case roll < 30 && s.exists:
				s.n++
				o.reconciler.step()
			default:
				s.step()
			}
			o.checkStaysSent()
		}
		s.runToEnd()
		o.finish()
		if len(s.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(s.faults, "; "), strings.Join(s.trace, "\n"))
		}
		all["calls"] += len(s.calls)
		all["sent after a redrive"] += count(s.entry.State == Sent && s.entry.Redrives > 0)
		all["dead after a redrive"] += count(s.entry.State == Dead && s.entry.Redrives > 0)
		all["dead-lettered, and sent"] += count(s.entry.State == Sent && s.deadLetterChance > 0 && s.entry.Redrives > 0)
	}
	t.Logf("%v", all)
	for _, action := range []string{
		"redriven", "prepared", "stale", "discard", "erase", "erase in flight", "purge", "sent after a redrive", "dead after a redrive", "dead-lettered, and sent",
		string(SkipSent), string(SkipInProgress), string(SkipUnknown), string(SkipDropped), string(SkipMoved), string(SkipPermanent),
		string(SkipParked), string(SkipPurged), string(SkipExpired), string(SkipUnroutable),
	} {
		if all[action] == 0 {
			t.Errorf("the walks do not reach %q", action)
		}
	}
}

// operator makes the operators' changes of a walk, each by what was seen some time ago.
type operator struct {
	*reconciler
	seenDead    Entry   // when a redrive was created
	prepared    *Change // a change decided on earlier and not written yet
	sent        bool
	purges      bool
	erases      bool
	maxRedrives int
	reached     map[string]int
}

func (o *operator) step() {
	switch roll := o.rng.IntN(100); {
	case roll < 20:
		o.seenDead = o.entry
	case roll < 75:
		o.redrive()
	case roll < 85 && o.prepared != nil:
		o.apply("prepared", *o.prepared)
		o.prepared = nil
	case roll < 88:
		if change, err := Discard(o.entry, o.seenDead.Version, auditEvent()); err == nil {
			o.apply("discard", change)
		}
	case roll < 93 && o.erases:
		o.reached["erase in flight"] += count(o.entry.State == Sending)
		if o.apply("erase", Erase(o.entry, auditEvent())); o.cancelledAt == 0 {
			o.cancelledAt = o.n
		}
	case roll >= 93 && o.purges:
		keep := Retention{Sent: time.Minute, Dead: 2 * time.Minute, Dropped: time.Minute}
		if keep.Expiry(RetentionCandidate{Entry: o.entry, HasPayload: o.purgedAt == 0}, o.now) == ExpirePayload {
			o.apply("purge", Purge(o.entry))
		}
	}
}

func (o *operator) apply(action string, change Change) {
	before := o.entry
	ok := o.write(change, action)
	o.reached[action] += count(ok)
	o.reached["stale"] += count(!ok)
	if o.entry.Redrives > o.maxRedrives {
		o.fault("%d redrives of %d", o.entry.Redrives, o.maxRedrives)
	}
	if ok && change.Event.Origin == OriginRedrive && (before.State != Dead || o.purgedAt > 0) {
		o.fault("a redrive of an entry that was %s, purged at step %d", before.State, o.purgedAt)
	}
}

// redrive redrives the entry as an item, and writes the change at once or some steps later.
func (o *operator) redrive() {
	rr := redriveRules(o.seenDead, func(rr *RedriveRules) {
		rr.HasPayload, rr.Permanent, rr.MaxRedrives = o.purgedAt == 0, o.chance(70), o.maxRedrives
	})
	if o.chance(50) {
		rr.Deadline = o.now.Add(pick(o.scenario, -time.Second, time.Minute, time.Hour))
	}
	if !o.now.Before(rr.WithDeadline(o.entry).Deadline) {
		rr.Admission = Admission{State: Dropped, Reason: ReasonExpired}
	}
	change, skip := RedriveEntry(o.entry, rr, o.plan.rules(o.entry), o.now)
	switch {
	case skip != "":
		o.reached[string(skip)]++
	case o.chance(30):
		o.prepared = &change
	default:
		o.apply("redriven", change)
	}
}

// checkStaysSent reports a fault if a sent entry is not sent any more.
func (o *operator) checkStaysSent() {
	if o.sent && o.entry.State != Sent {
		o.fault("it was sent, and is %s", o.entry.State)
	}
	o.sent = o.entry.State == Sent
}
