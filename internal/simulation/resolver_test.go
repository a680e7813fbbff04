package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// decision is an operator's decision about an entry at the version that the operator saw.
type decision struct {
	version   int64
	confirmed bool // the operator was told that it was carried out
	refused   bool // because the entry had changed, or there was nothing to decide
}

// resolver is an operator who now and then looks at the unresolved entries, and decides about one: not always
// correctly, and not always on the latest version.
type resolver struct {
	sim      *simulation
	rnd      *randSource
	number   int
	actions  int
	lastPage []ledger.Entry // what the operator saw the time before
}

func (res *resolver) run() {
	for res.sim.faulty.Load() {
		time.Sleep(10*time.Second + res.rnd.upTo(3*time.Minute))
		r := res.sim.pickReplica(res.rnd)
		if res.rnd.intN(6) == 0 {
			res.sim.withTimeout(r, func() { res.startSweep(r) })
			continue
		}
		listed := make(chan []ledger.EntryDetail, 1)
		res.sim.withTimeout(r, func() {
			waiting, _ := r.reconciler.Unresolved(context.Background(), ledger.DoubtPosition{}, 20)
			listed <- waiting
		})
		var now []ledger.Entry
		select {
		case waiting := <-listed:
			for _, detail := range waiting {
				now = append(now, detail.Entry)
			}
		default: // no answer in time
		}
		seen := now
		if res.rnd.intN(4) == 0 {
			seen = res.lastPage // from a page that was left open
		}
		res.lastPage = now
		if len(seen) > 0 {
			res.resolve(seen[res.rnd.intN(len(seen))])
		}
	}
}

func (res *resolver) startSweep(r *replica) {
	_, err := r.reconciler.StartSweep(context.Background(), ledger.AuditEvent{Actor: fmt.Sprintf("p%d", res.number), Role: "operator", Reason: "an incident"})
	if err == nil {
		res.sim.record(sweepStarted, r.name)
	}
}

func (res *resolver) resolve(seen ledger.Entry) {
	sim, id := res.sim, seen.Identity
	time.Sleep(res.rnd.upTo([]time.Duration{2 * time.Second, 40 * time.Second}[res.rnd.intN(2)]))
	res.actions++
	actor := fmt.Sprintf("p%d.%d", res.number, res.actions)
	kind := res.rnd.intN(3)
	resolution := ledger.Resolution{
		Verdict: ledger.Verdicts()[kind], Version: seen.Version,
		Audit: ledger.AuditEvent{Actor: actor, Role: "operator", Reason: "checked with the provider"},
	}
	if resolution.Verdict == ledger.VerdictSent && res.rnd.intN(2) == 0 {
		resolution.Receipt = "found by " + actor
	}
	sim.setDecision(actor, decision{version: seen.Version})
	r := sim.pickReplica(res.rnd)
	sim.withTimeout(r, func() {
		stored, err := r.reconciler.Resolve(context.Background(), id, resolution)
		switch {
		case r.crashed.Load():
		case err == nil:
			sim.record([]fault{resolvedSent, resolvedNotSent, resolvedAbandoned}[kind], actor+" of "+id.ReminderID)
			sim.setDecision(actor, decision{version: seen.Version, confirmed: true})
			if stored.Version <= seen.Version {
				sim.violate("%v: %s decided, but it is still at version %d", id, actor, stored.Version)
			}
		case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrNotInDoubt), errors.Is(err, ledger.ErrNotFound):
			if errors.Is(err, ledger.ErrStale) {
				sim.record(decisionStale, actor+" of "+id.ReminderID)
			}
			sim.setDecision(actor, decision{version: seen.Version, refused: true})
		}
	})
}

// withTimeout does something at a replica, and does not wait for one that has crashed meanwhile.
func (sim *simulation) withTimeout(r *replica, do func()) {
	done := make(chan struct{})
	sim.background.Go(func() {
		do()
		if !r.crashed.Load() {
			close(done)
		}
	})
	select {
	case <-done:
	case <-time.After(20 * time.Second):
	}
}

func (sim *simulation) setDecision(actor string, d decision) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.decisions[actor] = d
}

func (sim *simulation) decisionOf(actor string) decision {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.decisions[actor]
}

// checkAudit checks the audit against what the operators were told: a confirmed decision is there once, a refused
// one is not there.
func (sim *simulation) checkAudit(id ledger.Identity, audit []ledger.AuditEvent) {
	times := map[string]int{}
	for _, audit := range audit {
		times[audit.Actor]++
		switch d := sim.decisionOf(audit.Actor); {
		case d.refused:
			sim.violate("%v: %s was refused, but is in the audit: %s", id, audit.Actor, audit.Action)
		case times[audit.Actor] > 1:
			sim.violate("%v: %s acted once, but is in the audit twice", id, audit.Actor)
		}
		sim.count(decisions, 1)
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for actor := range times {
		delete(sim.decisions, actor)
	}
}

// checkMissingAudit checks, after all entries have been checked, that no confirmed decision is missing from the
// audit.
func (sim *simulation) checkMissingAudit() {
	sim.mu.Lock()
	commitsLost := !sim.commitsLostAt.IsZero()
	var missing []string
	for actor, d := range sim.decisions {
		if d.confirmed && !commitsLost {
			missing = append(missing, actor)
		}
	}
	sim.mu.Unlock()
	for _, actor := range missing {
		sim.violate("%s decided and got a confirmation, but is not in the audit", actor)
	}
}
