package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// decision is what a person made up their mind to, on a version that they saw.
type decision struct {
	version int64
	done    bool // and were told so
	refused bool // since the entry had moved on, or there was nothing to decide
}

// person looks, now and then, at what may have been sent, thinks, and decides; not always rightly, and not
// always on what they saw last.
type person struct {
	w      *world
	luck   *dice
	number int
	acts   int
	before []ledger.Entry // what they saw the time before
}

func (p *person) works() {
	for p.w.trouble.Load() {
		time.Sleep(10*time.Second + p.luck.upTo(3*time.Minute))
		r := p.w.pick(p.luck)
		if p.luck.roll(6) == 0 {
			p.w.patiently(r, func() { p.startsASweep(r) })
			continue
		}
		listed := make(chan []ledger.Story, 1)
		p.w.patiently(r, func() {
			waiting, _ := r.sweep.Waiting(context.Background(), ledger.Doubt{}, 20)
			listed <- waiting
		})
		var now []ledger.Entry
		select {
		case waiting := <-listed:
			for _, story := range waiting {
				now = append(now, story.Entry)
			}
		default: // nobody answered in time
		}
		seen := now
		if p.luck.roll(4) == 0 {
			seen = p.before // from a page that was left open
		}
		p.before = now
		if len(seen) > 0 {
			p.decides(seen[p.luck.roll(len(seen))])
		}
	}
}

func (p *person) startsASweep(r *replica) {
	_, err := r.sweep.Start(context.Background(), ledger.Act{By: fmt.Sprintf("p%d", p.number), Role: "operator", Why: "an incident"})
	if err == nil {
		p.w.fire(swept, r.name)
	}
}

func (p *person) decides(seen ledger.Entry) {
	w, id := p.w, seen.Identity
	time.Sleep(p.luck.upTo([]time.Duration{2 * time.Second, 40 * time.Second}[p.luck.roll(2)]))
	p.acts++
	by := fmt.Sprintf("p%d.%d", p.number, p.acts)
	kind := p.luck.roll(3)
	resolution := ledger.Resolution{
		Verdict: ledger.Verdicts()[kind], Version: seen.Version,
		Act: ledger.Act{By: by, Role: "operator", Why: "I looked"},
	}
	if resolution.Verdict == ledger.VerdictSent && p.luck.roll(2) == 0 {
		resolution.Receipt = "found by " + by
	}
	w.decided(by, decision{version: seen.Version})
	r := w.pick(p.luck)
	w.patiently(r, func() {
		stands, err := r.sweep.Resolve(context.Background(), id, resolution)
		switch {
		case r.crashed.Load():
		case err == nil:
			w.fire([]fault{saidSent, saidUnsent, abandoned}[kind], by+" of "+id.ReminderID)
			w.decided(by, decision{version: seen.Version, done: true})
			if stands.Version <= seen.Version {
				w.breaks("%v: %s decided, and it stands at version %d as before", id, by, stands.Version)
			}
		case errors.Is(err, ledger.ErrStale), errors.Is(err, ledger.ErrNotInDoubt), errors.Is(err, ledger.ErrNotFound):
			if errors.Is(err, ledger.ErrStale) {
				w.fire(outdated, by+" of "+id.ReminderID)
			}
			w.decided(by, decision{version: seen.Version, refused: true})
		}
	})
}

// patiently does something at a replica, and does not wait for one that has died over it.
func (w *world) patiently(r *replica, do func()) {
	done := make(chan struct{})
	w.background.Go(func() {
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

func (w *world) decided(by string, d decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.decisions[by] = d
}

func (w *world) deciding(by string) decision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.decisions[by]
}

// audited checks that what people were told stands in the audit: done once, or refused and not there.
func (w *world) audited(id ledger.Identity, acts []ledger.Act) {
	times := map[string]int{}
	for _, act := range acts {
		times[act.By]++
		switch d := w.deciding(act.By); {
		case d.refused:
			w.breaks("%v: %s was refused, and it stands in the audit: %s", id, act.By, act.Verb)
		case times[act.By] > 1:
			w.breaks("%v: %s acted once, and the audit tells it twice", id, act.By)
		}
		w.count(resolved, 1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for by := range times {
		delete(w.decisions, by)
	}
}

// unaudited checks, when all entries have been looked at, that no decision is missing.
func (w *world) unaudited() {
	w.mu.Lock()
	fell := !w.fellBack.IsZero()
	var missing []string
	for by, d := range w.decisions {
		if d.done && !fell {
			missing = append(missing, by)
		}
	}
	w.mu.Unlock()
	for _, by := range missing {
		w.breaks("%s decided and was told so, and the audit does not know it", by)
	}
}
