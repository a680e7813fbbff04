package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// operator looks after dead letters, now and then: redrives what they see or saw, more than once, stops it, discards,
// erases whom it was for, and pauses a provider for a while.
type operator struct {
	w      *world
	luck   *dice
	number int
	acts   int
	seen   []ledger.Entry // from a page that was left open
}

// userOf is whom a reminder is for; three of them for each.
func userOf(id ledger.Identity) string {
	var n int
	_, _ = fmt.Sscanf(id.ReminderID, "r-%d", &n)
	return fmt.Sprintf("u-%d", n%4)
}

func (o *operator) works() {
	for o.w.trouble.Load() {
		time.Sleep(5*time.Second + o.luck.upTo(50*time.Second))
		r := o.w.pick(o.luck)
		o.looks(r)
		switch n := o.luck.roll(20); {
		case n < 8:
			o.redrives(r, redriven, o.byFilter())
		case n < 11:
			o.redrives(r, redrivenNamed, o.byName())
		case n < 13:
			o.stops(r)
		case n < 16:
			o.discards(r)
		case n < 19:
			o.pauses(r)
		default:
			o.erases(r)
		}
	}
}

// looks takes in what is dead now, mostly.
func (o *operator) looks(r *replica) {
	if o.luck.roll(4) == 0 {
		return
	}
	listed := make(chan []ledger.Entry, 1)
	o.w.patiently(r, func() {
		if dead, err := (room{r, ""}).List(context.Background(), ledger.Query{State: ledger.Dead, Limit: 20}); err == nil {
			listed <- dead
		}
	})
	select {
	case o.seen = <-listed:
	default: // nobody answered in time
	}
}

// act is the next deed of this person, under a name of its own.
func (o *operator) act() ledger.Act {
	o.acts++
	return ledger.Act{By: fmt.Sprintf("o%d.%d", o.number, o.acts), Role: "operator", Why: "it is mended"}
}

// wish is what all redrives have in common.
func (o *operator) wish(ask ledger.RedriveRequest) ledger.RedriveRequest {
	ask.Limit, ask.Rate = 1+o.luck.roll(5), []float64{0.05, 0.2, 1, 5}[o.luck.roll(4)]
	if o.luck.roll(2) == 0 {
		ask.Deadline = o.w.now().Add(30*time.Second + o.luck.upTo(4*time.Minute))
	}
	ask.Act = o.act()
	ask.Act.By = fmt.Sprintf("o%d", o.number)
	ask.Asked, ask.Hash = "{}", fmt.Sprint("h", o.acts)
	return ask
}

func (o *operator) byFilter() ledger.RedriveRequest {
	class := append([]ledger.Class{"", "", ""}, ledger.DeadClasses()...)[o.luck.roll(9)]
	permanent := class == ledger.ClassPermanent || class == "" && o.luck.roll(2) == 0
	return o.wish(ledger.RedriveRequest{Filter: ledger.Query{Class: class}, Permanent: permanent})
}

func (o *operator) byName() ledger.RedriveRequest {
	var names []ledger.Identity
	for _, e := range o.seen[:min(len(o.seen), 4)] {
		names = append(names, e.Identity)
	}
	if other := o.w.ids[o.luck.roll(12)]; len(names) == 0 && o.luck.roll(2) == 0 || o.luck.roll(4) == 0 {
		names = append(names, other)
		for _, e := range o.seen {
			if e.Identity == other {
				names = names[:1] // nobody is named twice
			}
		}
	}
	return o.wish(ledger.RedriveRequest{IDs: names, Permanent: o.luck.roll(3) > 0})
}

// redrives asks once; or twice under one key, by the same or another request; or twice without.
func (o *operator) redrives(r *replica, kind fault, ask ledger.RedriveRequest) {
	if kind == redrivenNamed && len(ask.IDs) == 0 {
		return // a person who sees nothing names nothing
	}
	how := o.luck.roll(6)
	if how < 3 {
		ask.Key = fmt.Sprint("k", o.acts)
	}
	second, other, late := ask, o.w.pick(o.luck), o.luck.upTo([]time.Duration{time.Millisecond, 20 * time.Second}[o.luck.roll(2)])
	switch how {
	case 0, 1:
		o.w.background.Go(func() {
			time.Sleep(late)
			o.starts(other, askedTwice, second)
		})
	case 2:
		second.Hash += " and more"
		o.w.background.Go(func() {
			time.Sleep(late)
			o.starts(other, otherRequest, second)
		})
	case 3:
		o.w.background.Go(func() { o.starts(other, racing, second) })
	}
	o.starts(r, kind, ask)
}

func (o *operator) starts(r *replica, kind fault, ask ledger.RedriveRequest) {
	w := o.w
	w.patiently(r, func() {
		stands, err := r.redrive.Start(context.Background(), ask)
		if r.crashed.Load() {
			return
		}
		w.mu.Lock()
		fell := !w.fellBack.IsZero()
		known := w.answered[ask.Act.By+ask.Key]
		if err == nil && ask.Key != "" {
			w.answered[ask.Act.By+ask.Key] = stands.ID
		}
		w.mu.Unlock()
		switch {
		case kind == otherRequest && errors.Is(err, ledger.ErrOtherRequest), kind != otherRequest && err == nil:
			w.fire(kind, fmt.Sprintf("%s %s %s, %d items", r.name, ask.Act.By+ask.Key, stands.ID, stands.Size))
		case err == nil && stands.RequestHash != ask.Hash && !fell:
			w.breaks("redrive %s: answers another request", stands.ID)
		}
		if err == nil && ask.Key != "" && known != "" && known != stands.ID && !fell {
			w.breaks("redrives %s and %s stand under one key", known, stands.ID)
		}
	})
}

func (o *operator) stops(r *replica) {
	w, act := o.w, o.act()
	w.mu.Lock()
	n := len(w.redrives)
	w.mu.Unlock()
	if n == 0 {
		return
	}
	w.mu.Lock()
	id := w.redrives[max(0, n-1-o.luck.roll(3))]
	w.mu.Unlock()
	w.patiently(r, func() {
		if stands, err := r.redrive.Cancel(context.Background(), id, act); err == nil && !r.crashed.Load() {
			w.fire(stopped, id)
			if stands.State != ledger.RedriveCancelled {
				w.breaks("redrive %s: cancelled, and it is %s", id, stands.State)
			}
		}
	})
}

func (o *operator) discards(r *replica) {
	if len(o.seen) == 0 {
		return
	}
	w, act, seen := o.w, o.act(), o.seen[o.luck.roll(len(o.seen))]
	time.Sleep(o.luck.upTo(10 * time.Second))
	w.decided(act.By, decision{version: seen.Version})
	w.patiently(r, func() {
		stands, err := r.redrive.Discard(context.Background(), seen.Identity, seen.Version, act)
		switch {
		case r.crashed.Load():
		case err == nil:
			w.fire(discarded, act.By+" of "+seen.ReminderID)
			w.decided(act.By, decision{version: seen.Version, done: true})
			if stands.Version <= seen.Version {
				w.breaks("%v: %s discarded it, and it stands at version %d as before", seen.Identity, act.By, stands.Version)
			}
		case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrNotDead), errors.Is(err, ledger.ErrNotFound):
			w.decided(act.By, decision{version: seen.Version, refused: true})
		}
	})
}

// pauses stops a provider, and lets it go on after a while.
func (o *operator) pauses(r *replica) {
	w, name := o.w, []string{"a", "b"}[o.luck.roll(2)]
	w.patiently(r, func() {
		if _, err := r.fleet.Pause(context.Background(), name, o.steering()); err == nil && !r.crashed.Load() {
			w.fire(pausedLane, name)
		}
	})
	time.Sleep(o.luck.upTo(90 * time.Second))
	other := w.pick(o.luck)
	w.patiently(other, func() {
		if _, err := other.fleet.Resume(context.Background(), name, o.steering()); err == nil && !other.crashed.Load() {
			w.fire(resumedLane, name)
		}
	})
}

func (o *operator) steering() ledger.Act {
	return ledger.Act{By: ops, Role: "operator", Why: "they asked for it"}
}

func (o *operator) erases(r *replica) {
	w, user := o.w, fmt.Sprintf("u-%d", o.luck.roll(4))
	for range 3 {
		at, done, act := r, make(chan bool, 1), o.act()
		w.patiently(at, func() {
			if _, err := at.keep.Erase(context.Background(), user, act); err == nil && !at.crashed.Load() {
				w.fire(erased, user)
				done <- true
			}
		})
		select {
		case <-done:
			return
		default:
			r = w.pick(o.luck)
		}
	}
}

// reopensGates is the end of every pause.
func (w *world) reopensGates() {
	for _, name := range []string{"a", "b"} {
		_, _ = w.replicas[0].fleet.Resume(context.Background(), name, ledger.Act{By: ops, Role: "operator", Why: "all is well"})
	}
}
