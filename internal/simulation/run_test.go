package simulation_test

import (
	"context"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// The durations of a run's parts.
const (
	faultPhase  = 10 * time.Minute
	settleTime  = 4 * time.Minute                                    // pauses, stalls, calls and settles that began in the fault phase have ended by then
	restTimeout = deadline + takeoverAfter + 2*lease + 2*time.Minute // nothing waits longer
)

// run runs ten minutes with faults, and then waits until everything is at rest.
func (sim *simulation) run() {
	started := time.Now()
	sim.done = make(chan struct{})
	shared := sim.newConfig()
	life := func() *replica {
		if sim.rnd.intN(3) == 0 {
			shared = sim.newConfig()
			sim.record(reconfigured, "")
		}
		return sim.start(shared)
	}
	sim.replicas = []*replica{life(), life()}
	sim.startActors(started)
	for time.Since(started) < faultPhase {
		time.Sleep(5*time.Second + sim.rnd.upTo(5*time.Second))
		sim.disturb()
		for i, r := range sim.replicas {
			switch {
			case r.crashed.Load():
			case sim.rnd.intN(80) > 0:
				continue
			case sim.rnd.intN(2) == 0:
				r.crash()
			default:
				r.stop() // tasks in flight continue
				sim.record(replicaStopped, r.name)
			}
			sim.setReplica(i, life())
		}
	}
	sim.faulty.Store(false)
	for i, r := range sim.replicas {
		r.stop()
		sim.setReplica(i, sim.start(shared))
	}
	sim.lastConfig = shared
	sim.resumeProviders()
	sim.waitForRest()
	sim.checkFinalStates()
	sim.checkRedrivesEnded()
	sim.checkMissingAudit()
	sim.stopAll()
	sim.tally.time = time.Since(started)
}

// disturb injects, now and then, a fault of the ledger's clock, of the database or of a gate.
func (sim *simulation) disturb() {
	if sim.rnd.intN(12) == 0 {
		sim.jumpClock(sim.rnd.upTo(maxJump+maxJump/3) - maxJump/3)
	}
	if sim.ledger.Load().journaled && sim.rnd.intN(25) == 0 {
		sim.injectFailover()
	}
	if sim.rnd.intN(50) == 0 {
		name := []string{"a", "b"}[sim.rnd.intN(2)]
		closeGate(sim.store(), name, ops, 10*time.Second+sim.rnd.upTo(3*time.Minute), 0)
		sim.record(gateClosed, name)
	}
}

// injectFailover promotes a standby, sometimes one that lags behind.
func (sim *simulation) injectFailover() {
	behind := max(sim.rnd.upTo(30*time.Second)-10*time.Second, 0)
	if !*forgetfulFlag {
		behind = 0
	}
	if behind == 0 {
		sim.record(failedOver, "")
	} else {
		sim.record(failedOverWithLoss, behind.String())
	}
	sim.failOver(behind)
}

// waitForRest waits until everything is at rest, or should be.
func (sim *simulation) waitForRest() {
	for started := time.Now(); time.Since(started) < restTimeout; time.Sleep(10 * time.Second) {
		if time.Since(started) > 2*lease+10*time.Second {
			sim.checkOverdue()
		}
		if time.Since(started) > settleTime && !sim.unsettled() {
			return
		}
	}
}

func (sim *simulation) unsettled() bool {
	for _, id := range sim.ids {
		if e := sim.read(id); e.State == ledger.Sending || e.State == ledger.Waiting || !e.NextLookup.IsZero() && sim.canLookup(e) {
			return true
		}
	}
	running, _ := sim.store().RunningRedrives(context.Background())
	return running > 0
}

// canLookup reports whether the provider of an entry supports lookups in the last configuration.
func (sim *simulation) canLookup(e ledger.Entry) bool {
	return slices.ContainsFunc(sim.lastConfig.providers, func(a *simProvider) bool {
		return a.route.Contract.Kind == ledger.ContractLookup && a.route.Fingerprint == e.Fingerprint
	})
}

// jumpClock moves the ledger's clock, as a failover to a machine with another clock does.
func (sim *simulation) jumpClock(by time.Duration) {
	switch {
	case by > 0:
		sim.mu.Lock()
		sim.jumps = append(sim.jumps, clockJump{time.Now(), by})
		sim.mu.Unlock()
		sim.record(clockAhead, by.String())
	case by < 0:
		sim.record(clockBack, by.String())
	}
	sim.clockOffset.Add(int64(by))
}

func (sim *simulation) setReplica(i int, next *replica) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.replicas[i] = next
}

// stopAll stops all replicas, and then lets the goroutines of crashed ones end too.
func (sim *simulation) stopAll() {
	for _, r := range sim.allReplicas {
		r.stop()
	}
	for _, r := range sim.replicas {
		r.worker.Wait()
		if err := r.deliverer.Wait(context.Background()); err != nil {
			sim.violate("%s does not stop: %v", r.name, err)
		}
	}
	time.Sleep(3 * time.Minute)
	for _, r := range sim.allReplicas {
		for _, s := range r.pool.Status() {
			if s.InFlight != 0 && !r.crashed.Load() {
				sim.violate("%s still holds %d slots of %s", r.name, s.InFlight, s.Name)
			}
		}
	}
	close(sim.done)
	for _, r := range sim.allReplicas {
		r.worker.Wait()
		_ = r.deliverer.Wait(context.Background())
	}
	sim.background.Wait()
}
