package simulation_test

import (
	"context"
	"slices"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// How long the parts of a run last.
const (
	troubled = 10 * time.Minute
	settled  = 4 * time.Minute                               // pauses, stalls, calls and settles that began in the trouble have ended by then
	bound    = deadline + takeover + 2*lease + 2*time.Minute // nothing waits longer
)

// run is ten minutes of trouble, and then rest.
func (w *world) run() {
	begun := time.Now()
	w.over = make(chan struct{})
	shared := w.plan()
	life := func() *replica {
		if w.luck.roll(3) == 0 {
			shared = w.plan()
			w.fire(configured, "")
		}
		return w.start(shared)
	}
	w.replicas = []*replica{life(), life()}
	w.cast(begun)
	for time.Since(begun) < troubled {
		time.Sleep(5*time.Second + w.luck.upTo(5*time.Second))
		w.meddle()
		for i, r := range w.replicas {
			switch {
			case r.crashed.Load():
			case w.luck.roll(80) > 0:
				continue
			case w.luck.roll(2) == 0:
				r.crash()
			default:
				r.stop() // what is in flight goes on
				w.fire(drained, r.name)
			}
			w.replace(i, life())
		}
	}
	w.trouble.Store(false)
	for i, r := range w.replicas {
		r.stop()
		w.replace(i, w.start(shared))
	}
	w.final = shared
	w.reopensGates()
	w.calm()
	w.rest()
	w.restOfRedrives()
	w.unaudited()
	w.end()
	w.tally.time = time.Since(begun)
}

// meddle is what befalls the ledger and the gates now and then.
func (w *world) meddle() {
	if w.luck.roll(12) == 0 {
		w.leap(w.luck.upTo(farLeap+farLeap/3) - farLeap/3)
	}
	if w.ledger.Load().follows && w.luck.roll(25) == 0 {
		w.failsOver()
	}
	if w.luck.roll(50) == 0 {
		name := []string{"a", "b"}[w.luck.roll(2)]
		closeGate(w.store(), name, ops, 10*time.Second+w.luck.upTo(3*time.Minute), 0)
		w.fire(shut, name)
	}
}

// failsOver promotes a standby: now and then one that is behind, and mostly on a machine with another clock.
func (w *world) failsOver() {
	behind := max(w.luck.upTo(30*time.Second)-10*time.Second, 0)
	if !*forget {
		behind = 0
	}
	if behind == 0 {
		w.fire(failedOver, "")
	} else {
		w.fire(amnesia, behind.String())
	}
	w.fallBack(behind)
}

// calm waits until everything has come to rest, or should have.
func (w *world) calm() {
	for begun := time.Now(); time.Since(begun) < bound; time.Sleep(10 * time.Second) {
		if time.Since(begun) > 2*lease+10*time.Second {
			w.overdue()
		}
		if time.Since(begun) > settled && !w.restless() {
			return
		}
	}
}

func (w *world) restless() bool {
	for _, id := range w.ids {
		if e := w.read(id); e.State == ledger.Sending || e.State == ledger.Waiting || !e.AskAt.IsZero() && w.canAsk(e) {
			return true
		}
	}
	running, _ := w.store().RunningRedrives(context.Background())
	return running > 0
}

// canAsk tells whether the provider of an entry can be asked about it, as it is configured in the end.
func (w *world) canAsk(e ledger.Entry) bool {
	return slices.ContainsFunc(w.final.accounts, func(a *account) bool {
		return a.route.Contract.Kind == ledger.Lookup && a.route.Fingerprint == e.Fingerprint
	})
}

// leap is a failover to a machine with another clock.
func (w *world) leap(by time.Duration) {
	switch {
	case by > 0:
		w.mu.Lock()
		w.leaps = append(w.leaps, leap{time.Now(), by})
		w.mu.Unlock()
		w.fire(leaptAhead, by.String())
	case by < 0:
		w.fire(leaptBack, by.String())
	}
	w.skew.Add(int64(by))
}

func (w *world) replace(i int, next *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas[i] = next
}

// end stops everybody; then the dead may end too.
func (w *world) end() {
	for _, r := range w.everybody {
		r.stop()
	}
	for _, r := range w.replicas {
		r.worker.Wait()
		if err := r.desk.Wait(context.Background()); err != nil {
			w.breaks("%s does not end: %v", r.name, err)
		}
	}
	time.Sleep(3 * time.Minute)
	for _, r := range w.everybody {
		for _, s := range r.fleet.Status() {
			if s.InFlight != 0 && !r.crashed.Load() {
				w.breaks("%s keeps %d slots of %s", r.name, s.InFlight, s.Name)
			}
		}
	}
	close(w.over)
	for _, r := range w.everybody {
		r.worker.Wait()
		_ = r.desk.Wait(context.Background())
	}
	w.background.Wait()
}
