package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// TestRandomWalksThroughDoubtNeverSendTwice is the same walk where providers are asked and report, and people
// decide, all of them at their own pace. A lookup that finds nothing may be wrong; one that finds is right.
func TestRandomWalksThroughDoubtNeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 150
	var all doubts
	for seed := range uint64(walks) {
		w := newWorld(seed)
		w.cancels = w.chance(10)
		d := &doubts{world: w}
		for range steps {
			if w.chance(25) && w.exists {
				w.n++
				d.step()
			} else {
				w.step()
			}
		}
		w.settleDown()
		d.comesToRest()
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "; "), strings.Join(w.told, "\n"))
		}
		all.found, all.notFound, all.resends = all.found+d.found, all.notFound+d.notFound, all.resends+d.resends
		all.decided, all.refused, all.heard = all.decided+d.decided, all.refused+d.refused, all.heard+d.heard
	}
	t.Logf("found %d, not found %d, resent %d, decided %d, refused %d, heard %d", all.found, all.notFound, all.resends, all.decided, all.refused, all.heard)
	if all.found == 0 || all.notFound == 0 || all.resends == 0 || all.decided == 0 || all.refused == 0 || all.heard == 0 {
		t.Error("the walks do not reach what they are for")
	}
}

// doubts are those who look after what may have been sent.
type doubts struct {
	*world
	askers []*asker
	seen   Entry // by a person, who takes time to think

	found, notFound, resends, decided, refused, heard int
}

// asker puts one question, one step at a time.
type asker struct {
	seen    Entry
	rules   Rules
	inquiry *Inquiry
}

func (d *doubts) step() {
	switch roll := d.rng.IntN(100); {
	case roll < 2:
		d.hears()
	case roll < 4:
		d.decides()
	case roll < 12:
		d.seen = d.entry
	case roll < 50 || len(d.askers) == 0:
		d.asksAbout()
	default:
		i := d.rng.IntN(len(d.askers))
		if d.advance(d.askers[i]) || d.chance(10) { // a crash
			d.askers = append(d.askers[:i], d.askers[i+1:]...)
		}
	}
}

// asksAbout begins a question that is due, as two replicas may at once.
func (d *doubts) asksAbout() {
	rules := d.plan.rules(d.entry)
	switch {
	case d.entry.State != Unknown:
	case d.entry.AskAt.IsZero():
		if change, news := Arm(d.entry, rules); news {
			d.write(change, "arm")
		}
	case !rules.CanAsk(d.entry):
		d.write(Disarm(d.entry, Visit{Origin: OriginReconcile}), "disarm")
	case !d.entry.AskAt.On(d.now).After(d.now):
		d.askers = append(d.askers, &asker{seen: d.entry, rules: rules})
	default:
		d.now = d.entry.AskAt.On(d.now)
	}
}

// answers is what a provider says about the key: found only where it did accept it there.
func (d *doubts) answers(a *asker) *Inquiry {
	q := question(Unanswered, "")
	q.Provider = a.seen.Provider
	if d.chance(30) {
		return &q
	}
	q.Finding = NotFound
	for _, c := range d.calls {
		if c.accepted && c.route.Fingerprint == a.seen.Fingerprint && d.chance(60) {
			q.Finding, q.Outcome.Receipt = Found, c.route.Fingerprint
		}
	}
	return &q
}

func (d *doubts) advance(a *asker) bool {
	if a.inquiry == nil {
		a.inquiry = d.answers(a)
		return false
	}
	was := d.entry
	change, news := Asked(a.seen, *a.inquiry, a.rules, d.now)
	if !news {
		return true
	}
	if !d.write(change, "asked") {
		a.seen = d.entry
		return a.inquiry.Finding != Found
	}
	d.found += count(a.inquiry.Finding == Found)
	d.notFound += count(a.inquiry.Finding == NotFound)
	if d.entry.State == Waiting {
		d.resends++
		d.riskAt = d.n
		if a.rules.OnUnknown != Resend || was.Asked+1 < len(asks()) || was.CancelAsked {
			d.fault("sent again after %d of %d answers, policy %s", was.Asked+1, len(asks()), a.rules.OnUnknown)
		}
	}
	if a.inquiry.Finding == NotFound && d.entry.Asked > len(asks()) {
		d.fault("asked %d times", d.entry.Asked)
	}
	return true
}

// hears is a report about some call that was accepted, or a bounce about any.
func (d *doubts) hears() {
	for _, c := range d.calls {
		if !d.chance(50) {
			continue
		}
		r := report(pick(d.world, ReportBounced, ReportFailed, ReportComplained), "")
		if c.accepted {
			r = report(pick(d.world, ReportKinds()...), c.route.Fingerprint)
		}
		r.Provider, r.Message = c.route.Provider, fmt.Sprintf("evt-%d", d.n)
		was := d.entry
		if change, news := Heard(d.entry, r); news && d.write(change, "report "+string(r.Kind)) {
			d.heard++
			proves := r.Kind == ReportAccepted || r.Kind == ReportDelivered
			if proves && d.entry.State != Sent || !proves && d.entry.State != was.State {
				d.fault("%s makes it %s", r.Kind, d.entry.State)
			}
		}
		return
	}
}

// decides is a person who goes by what was seen some time ago.
func (d *doubts) decides() {
	v := pick(d.world, Verdicts()...)
	change, err := Resolve(d.entry, verdict(v, d.seen), d.now)
	if err != nil {
		d.refused++
		if d.seen.Version == d.entry.Version && !errors.Is(err, ErrNotInDoubt) {
			d.fault("a person who saw it is told %v", err)
		}
		return
	}
	if d.write(change, "resolve "+string(v)) {
		d.decided++
		if v == VerdictNotSent {
			d.riskAt = d.n
		}
	}
}

// comesToRest lets the provider answer until nobody asks it any more.
func (d *doubts) comesToRest() {
	d.askers = nil
	for range 300 {
		if !d.exists || d.entry.State != Unknown || d.entry.AskAt.IsZero() {
			return
		}
		d.n++
		d.now = d.now.Add(time.Minute)
		d.asksAbout()
		for _, a := range d.askers {
			for done := false; !done; {
				done = d.advance(a)
			}
		}
		d.askers = nil
		d.settleDown() // what is sent again has to end too
	}
	d.fault("its provider is asked without end: %+v", d.entry)
}
