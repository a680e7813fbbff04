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

// TestRandomWalksThroughDeadLettersNeverSendTwice is the same walk once more, where operators redrive, discard
// and erase by what they saw some time ago, payloads are purged, and a broker gives up on what it brought.
func TestRandomWalksThroughDeadLettersNeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 200
	all := map[string]int{}
	for seed := range uint64(walks) {
		w := newWorld(seed)
		w.cancels, w.gaveUps, w.deadly = w.chance(5), pick(w, 0, 0, 10, 40), pick(w, 0, 30, 70)
		o := &operators{doubts: &doubts{world: w}, reached: all, purges: w.chance(30), erases: w.chance(10), most: pick(w, 1, mostRedrives)}
		for range steps {
			switch roll := w.rng.IntN(100); {
			case roll < 20 && w.exists:
				w.n++
				o.step()
			case roll < 30 && w.exists:
				w.n++
				o.doubts.step()
			default:
				w.step()
			}
			o.sentStays()
		}
		w.settleDown()
		o.comesToRest()
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "; "), strings.Join(w.told, "\n"))
		}
		all["calls"] += len(w.calls)
		all["sent after a redrive"] += count(w.entry.State == Sent && w.entry.Redrives > 0)
		all["dead after a redrive"] += count(w.entry.State == Dead && w.entry.Redrives > 0)
		all["gave up, and sent"] += count(w.entry.State == Sent && w.gaveUps > 0 && w.entry.Redrives > 0)
	}
	t.Logf("%v", all)
	for _, what := range []string{
		"reopened", "prepared", "stale", "discard", "erase", "erase in flight", "purge", "sent after a redrive", "dead after a redrive", "gave up, and sent",
		string(SkipSent), string(SkipInProgress), string(SkipUnknown), string(SkipDropped), string(SkipMoved), string(SkipPermanent),
		string(SkipParked), string(SkipPurged), string(SkipExpired), string(SkipUnroutable),
	} {
		if all[what] == 0 {
			t.Errorf("the walks do not reach %q", what)
		}
	}
}

// operators are those who steer, each by what was seen some time ago.
type operators struct {
	*doubts
	laid     Entry   // as a redrive was laid out
	prepared *Change // a write that was decided on, and is late
	sent     bool
	purges   bool
	erases   bool
	most     int
	reached  map[string]int
}

func (o *operators) step() {
	switch roll := o.rng.IntN(100); {
	case roll < 20:
		o.laid = o.entry
	case roll < 75:
		o.redrives()
	case roll < 85 && o.prepared != nil:
		o.does("prepared", *o.prepared)
		o.prepared = nil
	case roll < 88:
		if change, err := Discard(o.entry, o.laid.Version, theAct()); err == nil {
			o.does("discard", change)
		}
	case roll < 93 && o.erases:
		o.reached["erase in flight"] += count(o.entry.State == Sending)
		if o.does("erase", Erase(o.entry, theAct())); o.cancelledAt == 0 {
			o.cancelledAt = o.n
		}
	case roll >= 93 && o.purges:
		keep := Retention{Sent: time.Minute, Dead: 2 * time.Minute, Dropped: time.Minute}
		if keep.Aged(Kept{Entry: o.entry, Payload: o.purgedAt == 0}, o.now) == AgeingPayload {
			o.does("purge", Purge(o.entry))
		}
	}
}

func (o *operators) does(what string, change Change) {
	was := o.entry
	stands := o.write(change, what)
	o.reached[what] += count(stands)
	o.reached["stale"] += count(!stands)
	if o.entry.Redrives > o.most {
		o.fault("%d redrives of %d", o.entry.Redrives, o.most)
	}
	if stands && change.Event.Origin == OriginRedrive && (was.State != Dead || o.purgedAt > 0) {
		o.fault("a redrive put to work what was %s, purged at step %d", was.State, o.purgedAt)
	}
}

// redrives puts an item to work again, at once or with what was decided on some time before.
func (o *operators) redrives() {
	by := reopening(o.laid, func(by *Reopening) { by.Kept, by.Permanent, by.Most = o.purgedAt == 0, o.chance(70), o.most })
	if o.chance(50) {
		by.Deadline = o.now.Add(pick(o.world, -time.Second, time.Minute, time.Hour))
	}
	if !o.now.Before(by.Granted(o.entry).Deadline) {
		by.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
	}
	change, skip := Reopen(o.entry, by, o.plan.rules(o.entry), o.now)
	switch {
	case skip != "":
		o.reached[string(skip)]++
	case o.chance(30):
		o.prepared = &change
	default:
		o.does("reopened", change)
	}
}

// sentStays holds what was ever sent to be sent.
func (o *operators) sentStays() {
	if o.sent && o.entry.State != Sent {
		o.fault("it was sent, and is %s", o.entry.State)
	}
	o.sent = o.entry.State == Sent
}
