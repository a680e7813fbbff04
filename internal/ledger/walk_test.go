package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	. "github.com/sendonce/sendonce/internal/ledger"
)

// Several tasks process one entry, each at its own pace and with its own version of the configuration, and may crash
// between any two steps. The test knows the actual result of each call; the task may not get the response.
func TestRandomWalks_NeverSendTwice(t *testing.T) {
	const walks, steps = 1500, 150
	var all counts
	for seed := range uint64(walks) {
		s := newScenario(seed)
		for range steps {
			s.step()
		}
		s.runToEnd()
		if len(s.faults) > 0 {
			t.Fatalf("seed %d: %s\n%s", seed, strings.Join(s.faults, "; "), strings.Join(s.trace, "\n"))
		}
		all.add(s)
	}
	t.Logf("%+v", all)
	if all.calls < walks/2 || all.repeats == 0 || all.expirations == 0 || all.late == 0 || all.risks == 0 || all.cancels == 0 || all.replays == 0 {
		t.Errorf("the walks do not reach every case: %+v", all)
	}
}

type counts struct{ calls, repeats, replays, expirations, late, risks, cancels int }

func (a *counts) add(s *scenario) {
	a.calls += len(s.calls)
	a.repeats += max(len(s.calls)-1, 0)
	a.replays += s.replays
	a.expirations += s.entry.LeaseExpirations
	a.late += s.late
	a.risks += s.risks
	a.cancels += count(s.cancelledAt > 0)
}

// plan is a configuration: the channel's provider, and what the providers declare.
type plan struct {
	channel   string
	routes    map[string]Route
	onUnknown OnUnknown
}

func (p plan) rules(e Entry) Rules {
	return Rules{
		Lease: lease, Margin: margin, ChannelRoute: p.routes[p.channel], BoundRoute: p.routes[e.Provider],
		OnUnknown: p.onUnknown, MaxAttempts: attempts, MaxLeaseExpirations: maxExpirations,
		RetriesBy: OwnerBroker, TakeoverAfter: takeover, LookupSchedule: lookupSchedule(),
	}
}

// call is one request that a provider received.
type call struct {
	step         int
	at           time.Time
	route        Route
	accepted     bool
	provenUnsent bool // the task got a response that proves it unsent
}

// task processes the entry once, one step at a time.
type task struct {
	trigger Trigger
	holder  string
	plan    plan
	slot    Slot
	seen    Entry
	now     time.Time // the ledger's, when the entry was read
	read    bool
	holds   bool
	attempt *Attempt
}

type scenario struct {
	rng         *rand.Rand
	now         time.Time
	n           int
	entry       Entry
	exists      bool
	plan        plan
	cancels     bool // whether the entry may be cancelled in this walk
	changes     bool // whether the configuration changes
	tasks       []*task
	calls       []call
	cancelledAt int
	riskAt      int
	claimed     map[string]int  // the step at which a holder's claim was written
	settled     map[string]bool // the holders whose own outcome is recorded

	deadLetterChance     int // percentage of pushes that come from the broker's dead-letter queue
	refuseChance         int // percentage of calls that are also refused permanently
	purgedAt             int // the step at which the payload was purged; 0 before that
	replays, late, risks int
	trace, faults        []string
}

func newScenario(seed uint64) *scenario {
	s := &scenario{rng: rand.New(rand.NewPCG(seed, 7)), now: noon(), claimed: map[string]int{}, settled: map[string]bool{}}
	s.cancels, s.changes = s.chance(25), s.chance(50)
	s.plan = plan{channel: "a", routes: map[string]Route{}, onUnknown: pick(s, Hold, Hold, AssumeSent, Resend)}
	for _, name := range []string{"a", "b"} {
		s.plan.routes[name] = s.account(name, pick(s, ContractBlind, ContractIdempotent, ContractIdempotent, ContractLookup))
	}
	return s
}

func pick[T any](s *scenario, from ...T) T { return from[s.rng.IntN(len(from))] }

func (s *scenario) chance(percent int) bool { return s.rng.IntN(100) < percent }

// account returns a provider's route; the fingerprint covers account and contract.
func (s *scenario) account(name string, kind ContractKind) Route {
	r := Route{Provider: name, Contract: Contract{Kind: kind}}
	if kind == ContractIdempotent {
		r.Contract.Window = pick(s, 2*time.Minute, 10*time.Minute, window)
	}
	r.Fingerprint = fmt.Sprintf("%s/%d/%s/%v", name, s.rng.IntN(2), kind, r.Contract.Window)
	return r
}

func (s *scenario) logf(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%3d %s ", s.n, s.now.Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

func (s *scenario) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

func (s *scenario) step() {
	s.n++
	if s.chance(30) {
		s.now = s.now.Add(pick(s, time.Microsecond, 100*time.Millisecond, time.Second, 5*time.Second, 5*time.Second, lease, takeover))
	}
	switch roll := s.rng.IntN(100); {
	case roll < 2:
		if s.cancels {
			s.cancel()
		}
	case roll < 4:
		if s.changes {
			s.reconfigure()
		}
	case roll < 18 || len(s.tasks) == 0:
		s.start(pick(s, OriginPush, OriginPush, OriginAPI, OriginWorker))
	case roll < 21:
		s.remove(s.rng.IntN(len(s.tasks))) // a crash: its state is lost
	default:
		i := s.rng.IntN(len(s.tasks))
		if s.advance(s.tasks[i]) {
			s.remove(i)
		}
	}
}

func (s *scenario) remove(i int) { s.tasks = append(s.tasks[:i], s.tasks[i+1:]...) }

func (s *scenario) start(o Origin) *task {
	tk := &task{trigger: trigger(o), holder: fmt.Sprintf("h%d", s.n), plan: s.plan}
	tk.trigger.DeadLettered = o == OriginPush && s.chance(s.deadLetterChance)
	if tk.trigger.NewEntry != nil {
		tk.trigger.NewEntry.UserID = "user-77"
		tk.trigger.NewEntry.Deadline = noon().Add(pick(s, 10*time.Minute, 2*time.Hour))
	}
	s.tasks = append(s.tasks, tk)
	return tk
}

func (s *scenario) reconfigure() {
	routes := map[string]Route{"a": s.plan.routes["a"], "b": s.plan.routes["b"]}
	name := pick(s, "a", "b")
	switch s.rng.IntN(4) {
	case 0:
		delete(routes, name)
	case 1:
		routes[name] = s.account(name, pick(s, ContractBlind, ContractIdempotent, ContractLookup))
	case 2:
		s.plan.onUnknown = pick(s, Hold, AssumeSent, Resend)
	}
	s.plan = plan{channel: pick(s, "a", "b"), routes: routes, onUnknown: s.plan.onUnknown}
	s.logf("new configuration: %+v", s.plan)
}

func (s *scenario) cancel() {
	change := Tombstone(identity(), trigger(OriginAPI), s.now)
	if s.exists {
		var writes bool
		if change, _, writes = Cancel(s.entry, trigger(OriginAPI)); !writes {
			return
		}
	}
	s.write(change, "cancel")
	if s.cancelledAt == 0 {
		s.cancelledAt = s.n
	}
}

// write is the store: it checks existence and version, increments the version and fixes the moments.
func (s *scenario) write(c Change, actor string) bool {
	if c.Entry.Version != s.entry.Version || s.exists != (c.Entry.Version > 0) {
		s.logf("%s: stale", actor)
		return false
	}
	before := s.entry
	s.entry, s.exists = stored(c, s.now), true
	s.logf("%s: %s -> %s %s, doubt %t, v%d", actor, before.State, s.entry.State, s.entry.Reason, s.entry.InDoubt(), s.entry.Version)
	if s.entry.Version != before.Version+1 {
		s.fault("version %d after %d", s.entry.Version, before.Version)
	}
	if err := s.entry.Check(); err != nil {
		s.fault("check: %v", err)
	}
	if s.entry.BudgetUsed > attempts {
		s.fault("%d spent of %d", s.entry.BudgetUsed, attempts)
	}
	if c.Event != nil && c.Event.Reason == ReasonRiskTaken {
		s.riskAt, s.risks = s.n, s.risks+1
	}
	if before.Version > 0 && before.UserID == "" && s.entry.UserID != "" {
		s.fault("an erased user id is back")
	}
	if s.entry.Redrives < before.Redrives {
		s.fault("%d redrives after %d", s.entry.Redrives, before.Redrives)
	}
	if c.Purge != PurgeNothing && s.purgedAt == 0 {
		s.purgedAt = s.n
	}
	if c.Event != nil && c.Event.Kind == EventLate {
		s.late++
	}
	return true
}

// advance runs one step of a task, and reports whether the task is done.
func (s *scenario) advance(tk *task) bool {
	switch {
	case tk.attempt != nil:
		return s.settle(tk)
	case tk.holds:
		s.call(tk)
		return false
	case !tk.read:
		tk.seen, tk.now, tk.read = s.entry, s.now, true
		if tk.seen.State == Sending && tk.seen.Holder == tk.holder {
			tk.holds = true // its claim was written, and only the reply was lost
		}
		return false
	}
	return s.decide(tk)
}

func (s *scenario) decide(tk *task) bool {
	facts := Facts{Holder: tk.holder, Wait: 5 * time.Second, Slot: tk.slot}
	candidate := tk.seen
	if candidate.Absent() && tk.trigger.NewEntry != nil {
		candidate = *tk.trigger.NewEntry
	}
	if !tk.now.Before(candidate.Deadline) {
		facts.Admission = Admission{State: Dropped, Reason: ReasonExpired}
	}
	switch step := Decide(tk.seen, tk.trigger, facts, tk.plan.rules(candidate), tk.now); step.Action {
	case ActionAcquireSlot:
		tk.slot = Slot{Provider: step.Provider, Held: s.chance(85), Reason: ReasonGateClosed, Wait: 10 * time.Second}
		tk.read = false
	case ActionInsert, ActionUpdate:
		ok := s.write(step.Change, tk.holder)
		tk.read = false
		if ok && s.entry.Holder == tk.holder {
			s.claimed[tk.holder] = s.n
		}
		if ok && s.entry.Holder == tk.holder && s.chance(80) {
			tk.seen, tk.holds, tk.read = s.entry, true, true // tk.now stays: the call's budget counts from there
		}
	default:
		return true
	}
	return false
}

// call calls the provider, unless the claim's time is over.
func (s *scenario) call(tk *task) {
	rules := tk.plan.rules(tk.seen)
	budget := CallBudget(tk.seen, pick(s, time.Second, 10*time.Second, time.Hour), rules, tk.now)
	tk.attempt = &Attempt{
		Trigger: tk.trigger, Holder: tk.holder, Provider: tk.seen.Provider, Started: s.now, Finished: s.now,
		Wait: pick(s, time.Second, 5*time.Second, time.Minute),
	}
	if !s.now.Before(tk.now.Add(budget)) {
		tk.attempt.Outcome.Result = ResultNotCalled
		return
	}
	s.checkCall(tk, rules.BoundRoute)
	c := call{step: s.n, at: s.now, route: rules.BoundRoute}
	actual := pick(s, ResultAccepted, ResultAccepted, ResultAccepted, ResultRefused, ResultGone,
		ResultCredentials, ResultThrottled, ResultThrottled, ResultUnreachable, ResultUnreachable, ResultDeferred)
	if s.chance(s.refuseChance) {
		actual = pick(s, ResultRefused, ResultGone)
	}
	c.accepted = actual == ResultAccepted
	tk.attempt.Outcome.Result = actual
	if s.chance(40) {
		tk.attempt.Outcome.Result = ResultUnknown // the response is lost
	}
	if c.accepted {
		tk.attempt.Outcome.Receipt = c.route.Fingerprint
	}
	c.provenUnsent = !c.accepted && tk.attempt.Outcome.Result != ResultUnknown
	s.calls = append(s.calls, c)
	s.logf("%s: calls %s, actually %s, reported %s", tk.holder, c.route.Fingerprint, actual, tk.attempt.Outcome.Result)
}

// checkCall checks the invariants of a call about to be made, by the actual results of the earlier calls.
func (s *scenario) checkCall(tk *task, to Route) {
	if s.cancelledAt > 0 && s.cancelledAt < s.claimed[tk.holder] {
		s.fault("%s claimed after the cancel, and calls", tk.holder)
	}
	if s.purgedAt > 0 && s.purgedAt < s.claimed[tk.holder] {
		s.fault("%s claimed after the purge, and has nothing to send", tk.holder)
	}
	if !s.now.Before(tk.seen.Deadline) {
		s.fault("%s calls past the deadline", tk.holder)
	}
	if s.entry.Holder != tk.holder && s.entry.State != Sent && s.entry.State != Unknown {
		s.fault("%s calls while the entry is %s by %q", tk.holder, s.entry.State, s.entry.Holder)
	}
	for _, earlier := range s.calls {
		if earlier.provenUnsent || earlier.step < s.riskAt {
			continue
		}
		remembered := earlier.route == to && to.Contract.Kind == ContractIdempotent && s.now.Before(earlier.at.Add(to.Contract.Window))
		if !remembered {
			s.fault("%s repeats the call of step %d, which may have been accepted", tk.holder, earlier.step)
		}
		s.replays++
	}
}

// settle writes the outcome: over the claimed entry, over the entry read again, or as a late outcome.
func (s *scenario) settle(tk *task) bool {
	rules := tk.plan.rules(tk.seen)
	if s.write(Settle(tk.seen, *tk.attempt, rules, s.now), tk.holder) {
		s.settled[tk.holder] = true
		return s.chance(90) || !s.reload(tk) // sometimes the reply of the commit is lost
	}
	return !s.reload(tk)
}

// reload loads the entry again after a settle that failed, or seemed to; it reports whether there is something left to
// write.
func (s *scenario) reload(tk *task) bool {
	tk.seen = s.entry
	if s.entry.State == Sending && s.entry.Holder == tk.holder {
		return true
	}
	if !s.settled[tk.holder] { // else its own outcome is recorded, and only the reply was lost
		s.write(SettleLate(s.entry, *tk.attempt), tk.holder)
	}
	return false
}

// runToEnd lets time pass with a fixed configuration and a worker, until the entry is final or unknown.
func (s *scenario) runToEnd() {
	s.tasks, s.plan.channel = nil, "a"
	s.n++
	for range 300 {
		if !s.exists || s.entry.Final() || s.entry.State == Unknown {
			return
		}
		s.now = s.now.Add(lease)
		tk := s.start(OriginWorker)
		for done := false; !done; s.n++ {
			done = s.advance(tk)
		}
	}
	s.fault("it does not end: %+v", s.entry)
}
