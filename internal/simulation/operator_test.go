package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// operator is an operator who now and then handles dead letters: redrives those seen now or before, sometimes
// twice, cancels a redrive, discards, erases a user, or pauses a provider for a while.
type operator struct {
	sim     *simulation
	rnd     *randSource
	number  int
	actions int
	page    []ledger.Entry // the dead letters seen last; may be outdated
}

// userOf returns the user whom a reminder is for; each user has three of them.
func userOf(id ledger.Identity) string {
	var n int
	_, _ = fmt.Sscanf(id.ReminderID, "r-%d", &n)
	return fmt.Sprintf("u-%d", n%4)
}

func (o *operator) run() {
	for o.sim.faulty.Load() {
		time.Sleep(5*time.Second + o.rnd.upTo(50*time.Second))
		r := o.sim.pickReplica(o.rnd)
		o.listDeadLetters(r)
		switch n := o.rnd.intN(20); {
		case n < 8:
			o.redrive(r, redriveByFilter, o.requestByFilter())
		case n < 11:
			o.redrive(r, redriveByName, o.requestByName())
		case n < 13:
			o.cancelRedrive(r)
		case n < 16:
			o.discard(r)
		case n < 19:
			o.pauseProvider(r)
		default:
			o.erase(r)
		}
	}
}

// listDeadLetters usually updates the operator's page.
func (o *operator) listDeadLetters(r *replica) {
	if o.rnd.intN(4) == 0 {
		return
	}
	listed := make(chan []ledger.Entry, 1)
	o.sim.withTimeout(r, func() {
		if dead, err := (component{r, ""}).List(context.Background(), ledger.Query{State: ledger.Dead, Limit: 20}); err == nil {
			listed <- dead
		}
	})
	select {
	case o.page = <-listed:
	default: // no answer in time
	}
}

// newAudit returns the audit event of the operator's next action, under an actor name of its own.
func (o *operator) newAudit() ledger.AuditEvent {
	o.actions++
	return ledger.AuditEvent{Actor: fmt.Sprintf("o%d.%d", o.number, o.actions), Role: "operator", Reason: "the cause is fixed"}
}

// fillRequest sets what all redrive requests have in common.
func (o *operator) fillRequest(request ledger.RedriveRequest) ledger.RedriveRequest {
	request.Limit, request.Rate = 1+o.rnd.intN(5), []float64{0.05, 0.2, 1, 5}[o.rnd.intN(4)]
	if o.rnd.intN(2) == 0 {
		request.Deadline = o.sim.now().Add(30*time.Second + o.rnd.upTo(4*time.Minute))
	}
	request.Audit = o.newAudit()
	request.Audit.Actor = fmt.Sprintf("o%d", o.number)
	request.Request, request.RequestHash = "{}", fmt.Sprint("h", o.actions)
	return request
}

func (o *operator) requestByFilter() ledger.RedriveRequest {
	class := append([]ledger.Class{"", "", ""}, ledger.DeadClasses()...)[o.rnd.intN(9)]
	permanent := class == ledger.ClassPermanent || class == "" && o.rnd.intN(2) == 0
	return o.fillRequest(ledger.RedriveRequest{Filter: ledger.Query{Class: class}, Permanent: permanent})
}

func (o *operator) requestByName() ledger.RedriveRequest {
	var names []ledger.Identity
	for _, e := range o.page[:min(len(o.page), 4)] {
		names = append(names, e.Identity)
	}
	if other := o.sim.ids[o.rnd.intN(12)]; len(names) == 0 && o.rnd.intN(2) == 0 || o.rnd.intN(4) == 0 {
		names = append(names, other)
		for _, e := range o.page {
			if e.Identity == other {
				names = names[:1] // nothing is named twice
			}
		}
	}
	return o.fillRequest(ledger.RedriveRequest{IDs: names, Permanent: o.rnd.intN(3) > 0})
}

// redrive sends one request; or two with the same idempotency key, by the same or another request; or two without a
// key.
func (o *operator) redrive(r *replica, kind fault, request ledger.RedriveRequest) {
	if kind == redriveByName && len(request.IDs) == 0 {
		return // without dead letters there is nothing to name
	}
	how := o.rnd.intN(6)
	if how < 3 {
		request.IdempotencyKey = fmt.Sprint("k", o.actions)
	}
	second, other, late := request, o.sim.pickReplica(o.rnd), o.rnd.upTo([]time.Duration{time.Millisecond, 20 * time.Second}[o.rnd.intN(2)])
	switch how {
	case 0, 1:
		o.sim.background.Go(func() {
			time.Sleep(late)
			o.startRedrive(other, redriveRepeated, second)
		})
	case 2:
		second.RequestHash += " and more"
		o.sim.background.Go(func() {
			time.Sleep(late)
			o.startRedrive(other, keyReused, second)
		})
	case 3:
		o.sim.background.Go(func() { o.startRedrive(other, redrivesRace, second) })
	}
	o.startRedrive(r, kind, request)
}

func (o *operator) startRedrive(r *replica, kind fault, request ledger.RedriveRequest) {
	sim := o.sim
	sim.withTimeout(r, func() {
		stored, err := r.redriver.Start(context.Background(), request)
		if r.crashed.Load() {
			return
		}
		sim.mu.Lock()
		commitsLost := !sim.commitsLostAt.IsZero()
		known := sim.redriveOfKey[request.Audit.Actor+request.IdempotencyKey]
		if err == nil && request.IdempotencyKey != "" {
			sim.redriveOfKey[request.Audit.Actor+request.IdempotencyKey] = stored.ID
		}
		sim.mu.Unlock()
		switch {
		case kind == keyReused && errors.Is(err, ledger.ErrKeyReused), kind != keyReused && err == nil:
			sim.record(kind, fmt.Sprintf("%s %s %s, %d items", r.name, request.Audit.Actor+request.IdempotencyKey, stored.ID, stored.Size))
		case err == nil && stored.RequestHash != request.RequestHash && !commitsLost:
			sim.violate("redrive %s: returned for another request", stored.ID)
		}
		if err == nil && request.IdempotencyKey != "" && known != "" && known != stored.ID && !commitsLost {
			sim.violate("redrives %s and %s have the same key", known, stored.ID)
		}
	})
}

func (o *operator) cancelRedrive(r *replica) {
	sim, audit := o.sim, o.newAudit()
	sim.mu.Lock()
	n := len(sim.redrives)
	sim.mu.Unlock()
	if n == 0 {
		return
	}
	sim.mu.Lock()
	id := sim.redrives[max(0, n-1-o.rnd.intN(3))]
	sim.mu.Unlock()
	sim.withTimeout(r, func() {
		if stored, err := r.redriver.Cancel(context.Background(), id, audit); err == nil && !r.crashed.Load() {
			sim.record(redriveCancelled, id)
			if stored.State != ledger.RedriveCancelled {
				sim.violate("redrive %s: cancelled, but it is %s", id, stored.State)
			}
		}
	})
}

func (o *operator) discard(r *replica) {
	if len(o.page) == 0 {
		return
	}
	sim, audit, seen := o.sim, o.newAudit(), o.page[o.rnd.intN(len(o.page))]
	time.Sleep(o.rnd.upTo(10 * time.Second))
	sim.setDecision(audit.Actor, decision{version: seen.Version})
	sim.withTimeout(r, func() {
		stored, err := r.redriver.Discard(context.Background(), seen.Identity, seen.Version, audit)
		switch {
		case r.crashed.Load():
		case err == nil:
			sim.record(deadLetterDiscarded, audit.Actor+" of "+seen.ReminderID)
			sim.setDecision(audit.Actor, decision{version: seen.Version, confirmed: true})
			if stored.Version <= seen.Version {
				sim.violate("%v: %s discarded it, but it is still at version %d", seen.Identity, audit.Actor, stored.Version)
			}
		case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrNotDead), errors.Is(err, ledger.ErrNotFound):
			sim.setDecision(audit.Actor, decision{version: seen.Version, refused: true})
		}
	})
}

// pauseProvider pauses a provider, and resumes it after a while.
func (o *operator) pauseProvider(r *replica) {
	sim, name := o.sim, []string{"a", "b"}[o.rnd.intN(2)]
	sim.withTimeout(r, func() {
		if _, err := r.pool.Pause(context.Background(), name, o.pauseAudit()); err == nil && !r.crashed.Load() {
			sim.record(providerPaused, name)
		}
	})
	time.Sleep(o.rnd.upTo(90 * time.Second))
	other := sim.pickReplica(o.rnd)
	sim.withTimeout(other, func() {
		if _, err := other.pool.Resume(context.Background(), name, o.pauseAudit()); err == nil && !other.crashed.Load() {
			sim.record(providerResumed, name)
		}
	})
}

func (o *operator) pauseAudit() ledger.AuditEvent {
	return ledger.AuditEvent{Actor: ops, Role: "operator", Reason: "maintenance at the provider"}
}

func (o *operator) erase(r *replica) {
	sim, user := o.sim, fmt.Sprintf("u-%d", o.rnd.intN(4))
	for range 3 {
		at, done, audit := r, make(chan bool, 1), o.newAudit()
		sim.withTimeout(at, func() {
			if _, err := at.purger.Erase(context.Background(), user, audit); err == nil && !at.crashed.Load() {
				sim.record(userErased, user)
				done <- true
			}
		})
		select {
		case <-done:
			return
		default:
			r = sim.pickReplica(o.rnd)
		}
	}
}

// resumeProviders ends every pause.
func (sim *simulation) resumeProviders() {
	for _, name := range []string{"a", "b"} {
		_, _ = sim.replicas[0].pool.Resume(context.Background(), name, ledger.AuditEvent{Actor: ops, Role: "operator", Reason: "maintenance is over"})
	}
}
