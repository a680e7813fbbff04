package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// TestRandomWalksNeverSendTwice lets several visitors at one entry, each at its own pace and with its
// own idea of the configuration, and crashes them between any two steps. The provider tells the truth to
// the test and not always to the caller.
func TestRandomWalksNeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 150
	var all tally
	for seed := range uint64(walks) {
		w := newWorld(seed)
		for range steps {
			w.step()
		}
		w.settleDown()
		if len(w.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(w.faults, "; "), strings.Join(w.told, "\n"))
		}
		all.add(w)
	}
	t.Logf("%+v", all)
	if all.calls < walks/2 || all.repeats == 0 || all.lapses == 0 || all.lates == 0 || all.risks == 0 || all.cancels == 0 || all.replays == 0 {
		t.Errorf("the walks do not reach what they are for: %+v", all)
	}
}

type tally struct{ calls, repeats, replays, lapses, lates, risks, cancels int }

func (a *tally) add(w *world) {
	a.calls += len(w.calls)
	a.repeats += max(len(w.calls)-1, 0)
	a.replays += w.replays
	a.lapses += w.entry.Lapses
	a.lates += w.lates
	a.risks += w.risks
	a.cancels += count(w.cancelledAt > 0)
}

// plan is a configuration: where the channel leads, and what the providers declare.
type plan struct {
	channel   string
	routes    map[string]Route
	onUnknown OnUnknown
}

func (p plan) rules(e Entry) Rules {
	return Rules{
		Lease: lease, Margin: margin, Channel: p.routes[p.channel], Bound: p.routes[e.Provider],
		OnUnknown: p.onUnknown, MaxAttempts: attempts, MaxLapses: maxLapses,
		RetriesBy: OwnerBroker, TakeoverAfter: takeover, Asks: asks(),
	}
}

// call is one request that a provider saw.
type call struct {
	step     int
	at       time.Time
	route    Route
	accepted bool
	denied   bool // the caller was told, in a way that proves it unsent
}

// visitor walks one visit, one step at a time.
type visitor struct {
	visit   Visit
	holder  string
	plan    plan
	slot    Slot
	seen    Entry
	now     time.Time // the ledger's, as it was read
	read    bool
	holds   bool
	attempt *Attempt
}

type world struct {
	rng         *rand.Rand
	now         time.Time
	n           int
	entry       Entry
	exists      bool
	plan        plan
	cancels     bool // whether anybody cancels in this walk
	changes     bool // whether the configuration changes
	visitors    []*visitor
	calls       []call
	cancelledAt int
	riskAt      int
	claimed     map[string]int  // the step at which a holder's claim was written
	settled     map[string]bool // the holders whose own line stands

	gaveUps               int // of 100 pushes, how many come from the broker's dead-letter queue
	deadly                int // of 100 calls, how many more are refused for good
	purgedAt              int // the step at which the payload was purged; 0 while it is kept
	replays, lates, risks int
	told, faults          []string
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 7)), now: noon(), claimed: map[string]int{}, settled: map[string]bool{}}
	w.cancels, w.changes = w.chance(25), w.chance(50)
	w.plan = plan{channel: "a", routes: map[string]Route{}, onUnknown: pick(w, Hold, Hold, AssumeSent, Resend)}
	for _, name := range []string{"a", "b"} {
		w.plan.routes[name] = w.account(name, pick(w, Blind, Idempotent, Idempotent, Lookup))
	}
	return w
}

func pick[T any](w *world, from ...T) T { return from[w.rng.IntN(len(from))] }

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// account is a provider's declaration; the fingerprint covers account and contract.
func (w *world) account(name string, kind ContractKind) Route {
	r := Route{Provider: name, Contract: Contract{Kind: kind}}
	if kind == Idempotent {
		r.Contract.Window = pick(w, 2*time.Minute, 10*time.Minute, window)
	}
	r.Fingerprint = fmt.Sprintf("%s/%d/%s/%v", name, w.rng.IntN(2), kind, r.Contract.Window)
	return r
}

func (w *world) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf("%3d %s ", w.n, w.now.Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *world) step() {
	w.n++
	if w.chance(30) {
		w.now = w.now.Add(pick(w, time.Microsecond, 100*time.Millisecond, time.Second, 5*time.Second, 5*time.Second, lease, takeover))
	}
	switch roll := w.rng.IntN(100); {
	case roll < 2:
		if w.cancels {
			w.cancel()
		}
	case roll < 4:
		if w.changes {
			w.reconfigure()
		}
	case roll < 18 || len(w.visitors) == 0:
		w.arrive(pick(w, OriginPush, OriginPush, OriginAPI, OriginWorker))
	case roll < 21:
		w.leave(w.rng.IntN(len(w.visitors))) // a crash: whatever it knew is gone
	default:
		i := w.rng.IntN(len(w.visitors))
		if w.advance(w.visitors[i]) {
			w.leave(i)
		}
	}
}

func (w *world) leave(i int) { w.visitors = append(w.visitors[:i], w.visitors[i+1:]...) }

func (w *world) arrive(o Origin) *visitor {
	v := &visitor{visit: visit(o), holder: fmt.Sprintf("h%d", w.n), plan: w.plan}
	v.visit.GaveUp = o == OriginPush && w.chance(w.gaveUps)
	if v.visit.Birth != nil {
		v.visit.Birth.UserID = "user-77"
		v.visit.Birth.Deadline = noon().Add(pick(w, 10*time.Minute, 2*time.Hour))
	}
	w.visitors = append(w.visitors, v)
	return v
}

func (w *world) reconfigure() {
	routes := map[string]Route{"a": w.plan.routes["a"], "b": w.plan.routes["b"]}
	name := pick(w, "a", "b")
	switch w.rng.IntN(4) {
	case 0:
		delete(routes, name)
	case 1:
		routes[name] = w.account(name, pick(w, Blind, Idempotent, Lookup))
	case 2:
		w.plan.onUnknown = pick(w, Hold, AssumeSent, Resend)
	}
	w.plan = plan{channel: pick(w, "a", "b"), routes: routes, onUnknown: w.plan.onUnknown}
	w.tell("reconfigured: %+v", w.plan)
}

func (w *world) cancel() {
	change := Tombstone(identity(), visit(OriginAPI), w.now)
	if w.exists {
		var writes bool
		if change, _, writes = Cancel(w.entry, visit(OriginAPI)); !writes {
			return
		}
	}
	w.write(change, "cancel")
	if w.cancelledAt == 0 {
		w.cancelledAt = w.n
	}
}

// write is the store: it checks existence and version, raises the version and fixes the moments.
func (w *world) write(c Change, by string) bool {
	if c.Entry.Version != w.entry.Version || w.exists != (c.Entry.Version > 0) {
		w.tell("%s: stale", by)
		return false
	}
	was := w.entry
	w.entry, w.exists = stored(c, w.now), true
	w.tell("%s: %s -> %s %s, doubt %t, v%d", by, was.State, w.entry.State, w.entry.Reason, w.entry.InDoubt(), w.entry.Version)
	if w.entry.Version != was.Version+1 {
		w.fault("version %d after %d", w.entry.Version, was.Version)
	}
	if err := w.entry.Check(); err != nil {
		w.fault("check: %v", err)
	}
	if w.entry.Spent > attempts {
		w.fault("%d spent of %d", w.entry.Spent, attempts)
	}
	if c.Event != nil && c.Event.Reason == ReasonRiskTaken {
		w.riskAt, w.risks = w.n, w.risks+1
	}
	if was.Version > 0 && was.UserID == "" && w.entry.UserID != "" {
		w.fault("an erased person is back")
	}
	if w.entry.Redrives < was.Redrives {
		w.fault("%d redrives after %d", w.entry.Redrives, was.Redrives)
	}
	if c.Forget != ForgetNothing && w.purgedAt == 0 {
		w.purgedAt = w.n
	}
	if c.Event != nil && c.Event.Kind == EventLate {
		w.lates++
	}
	return true
}

// advance takes a visitor one step further, and tells whether it is done.
func (w *world) advance(v *visitor) bool {
	switch {
	case v.attempt != nil:
		return w.settle(v)
	case v.holds:
		w.call(v)
		return false
	case !v.read:
		v.seen, v.now, v.read = w.entry, w.now, true
		if v.seen.State == Sending && v.seen.Holder == v.holder {
			v.holds = true // its claim stood, and only the reply was lost
		}
		return false
	}
	return w.decide(v)
}

func (w *world) decide(v *visitor) bool {
	facts := Facts{Holder: v.holder, Wait: 5 * time.Second, Slot: v.slot}
	subject := v.seen
	if subject.Absent() && v.visit.Birth != nil {
		subject = *v.visit.Birth
	}
	if !v.now.Before(subject.Deadline) {
		facts.Admission = Admission{Refusal: Dropped, Reason: ReasonExpired}
	}
	switch step := Meet(v.seen, v.visit, facts, v.plan.rules(subject), v.now); step.Verb {
	case TakeSlot:
		v.slot = Slot{Provider: step.Provider, Held: w.chance(85), Reason: ReasonGateClosed, Wait: 10 * time.Second}
		v.read = false
	case Create, Swap:
		stands := w.write(step.Change, v.holder)
		v.read = false
		if stands && w.entry.Holder == v.holder {
			w.claimed[v.holder] = w.n
		}
		if stands && w.entry.Holder == v.holder && w.chance(80) {
			v.seen, v.holds, v.read = w.entry, true, true // v.now stays: the deadline counts from there
		}
	default:
		return true
	}
	return false
}

// call dials, unless the claim's time is over.
func (w *world) call(v *visitor) {
	rules := v.plan.rules(v.seen)
	budget := CallBudget(v.seen, pick(w, time.Second, 10*time.Second, time.Hour), rules, v.now)
	v.attempt = &Attempt{
		Visit: v.visit, Holder: v.holder, Provider: v.seen.Provider, Started: w.now, Finished: w.now,
		Wait: pick(w, time.Second, 5*time.Second, time.Minute),
	}
	if !w.now.Before(v.now.Add(budget)) {
		v.attempt.Outcome.Result = ResultNotCalled
		return
	}
	w.mayCall(v, rules.Bound)
	c := call{step: w.n, at: w.now, route: rules.Bound}
	truth := pick(w, ResultAccepted, ResultAccepted, ResultAccepted, ResultRefused, ResultGone,
		ResultCredentials, ResultThrottled, ResultThrottled, ResultUnreachable, ResultUnreachable)
	if w.chance(w.deadly) {
		truth = pick(w, ResultRefused, ResultGone)
	}
	c.accepted = truth == ResultAccepted
	v.attempt.Outcome.Result = truth
	if w.chance(40) {
		v.attempt.Outcome.Result = ResultUnknown // the answer is lost
	}
	if c.accepted {
		v.attempt.Outcome.Receipt = c.route.Fingerprint
	}
	c.denied = !c.accepted && v.attempt.Outcome.Result != ResultUnknown
	w.calls = append(w.calls, c)
	w.tell("%s: calls %s, truly %s, told %s", v.holder, c.route.Fingerprint, truth, v.attempt.Outcome.Result)
}

// mayCall holds a call that is about to be made to the promises, by what the provider truly knows.
func (w *world) mayCall(v *visitor, to Route) {
	if w.cancelledAt > 0 && w.cancelledAt < w.claimed[v.holder] {
		w.fault("%s claimed after the cancel, and calls", v.holder)
	}
	if w.purgedAt > 0 && w.purgedAt < w.claimed[v.holder] {
		w.fault("%s claimed after the purge, and has nothing to send", v.holder)
	}
	if !w.now.Before(v.seen.Deadline) {
		w.fault("%s calls past the deadline", v.holder)
	}
	if w.entry.Holder != v.holder && w.entry.State != Sent && w.entry.State != Unknown {
		w.fault("%s calls while the entry is %s by %q", v.holder, w.entry.State, w.entry.Holder)
	}
	for _, earlier := range w.calls {
		if earlier.denied || earlier.step < w.riskAt {
			continue
		}
		remembered := earlier.route == to && to.Contract.Kind == Idempotent && w.now.Before(earlier.at.Add(to.Contract.Window))
		if !remembered {
			w.fault("%s repeats the call of step %d, which may have been accepted", v.holder, earlier.step)
		}
		w.replays++
	}
}

// settle writes the outcome: on what was claimed, on what stands, or as a late one.
func (w *world) settle(v *visitor) bool {
	rules := v.plan.rules(v.seen)
	if w.write(Settle(v.seen, *v.attempt, rules, w.now), v.holder) {
		w.settled[v.holder] = true
		return w.chance(90) || !w.read(v) // now and then the reply of the commit is lost
	}
	return !w.read(v)
}

// read loads again after a settle that failed, or seemed to; true when there is something left to write.
func (w *world) read(v *visitor) bool {
	v.seen = w.entry
	if w.entry.State == Sending && w.entry.Holder == v.holder {
		return true
	}
	if !w.settled[v.holder] { // else its own line stands, and only the reply was lost
		w.write(Late(w.entry, *v.attempt), v.holder)
	}
	return false
}

// settleDown lets time pass with a configuration that stands and a worker that comes round.
func (w *world) settleDown() {
	w.visitors, w.plan.channel = nil, "a"
	w.n++
	for range 300 {
		if !w.exists || w.entry.Final() || w.entry.State == Unknown {
			return
		}
		w.now = w.now.Add(lease)
		v := w.arrive(OriginWorker)
		for done := false; !done; w.n++ {
			done = w.advance(v)
		}
	}
	w.fault("it never comes to rest: %+v", w.entry)
}
