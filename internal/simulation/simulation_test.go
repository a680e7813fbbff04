package simulation_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// enough is how many seeds reach every kind of fault for certain.
const enough = 100

// The seeds to run. One alone is told whole.
var (
	seeds = flag.Uint64("simulation.seeds", 300, "how many seeds to run")
	first = flag.Uint64("simulation.first", 0, "the first seed")
	alone = flag.Int64("simulation.seed", -1, "run this seed alone, and tell all of its story (with -v)")
)

// fault is a kind of trouble.
type fault string

const (
	away        fault = "the ledger is away"
	lost        fault = "the reply of a write or a read is lost"
	slow        fault = "a statement is slow"
	stalled     fault = "a statement stalls past a lease"
	paused      fault = "a replica is paused"
	crashed     fault = "a replica crashes"
	drained     fault = "a replica leaves in good order"
	configured  fault = "another configuration"
	leaptAhead  fault = "the ledger's clock leaps ahead"
	leaptBack   fault = "the ledger's clock leaps back"
	shut        fault = "a person closes a gate"
	redelivered fault = "a message comes again after its ack"
	impatient   fault = "a broker hangs up"
	contested   fault = "other content"
	cancelled   fault = "a cancel"
	obsolete    fault = "not wanted any more"
	unasked     fault = "no answer to the question"
)

// faults lists every kind that a run is for.
func faults() []fault {
	all := []fault{
		away, lost, slow, stalled, paused, crashed, drained, configured, leaptAhead, leaptBack, shut,
		redelivered, impatient, contested, cancelled, obsolete, unasked,
	}
	for m := range moods {
		all = append(all, m.fault())
	}
	return all
}

// tally is what came about, over all seeds.
type tally struct {
	fired                                          map[fault]int
	entries, calls, sends, repeats, acks, cancels  int
	lapses, lates, risks, unknown, doubtful, gates int
	time                                           time.Duration
}

func (a *tally) add(b tally) {
	for kind, n := range b.fired {
		a.fired[kind] += n
	}
	for _, sum := range []struct {
		to   *int
		more int
	}{
		{&a.entries, b.entries},
		{&a.calls, b.calls},
		{&a.sends, b.sends},
		{&a.repeats, b.repeats},
		{&a.acks, b.acks},
		{&a.cancels, b.cancels},
		{&a.lapses, b.lapses},
		{&a.lates, b.lates},
		{&a.risks, b.risks},
		{&a.unknown, b.unknown},
		{&a.doubtful, b.doubtful},
		{&a.gates, b.gates},
	} {
		*sum.to += sum.more
	}
	a.time += b.time
}

func (a *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v simulated; %d entries, %d acks and 202s, %d cancels\n", a.time.Round(time.Second), a.entries, a.acks, a.cancels)
	fmt.Fprintf(&b, "%d calls (%d repeats, %d of them in doubt), %d accepts\n", a.calls, a.repeats, a.doubtful, a.sends)
	fmt.Fprintf(&b, "%d lapses, %d late holders, %d risks taken, %d ended unknown, %d closed gates met\n", a.lapses, a.lates, a.risks, a.unknown, a.gates)
	for _, kind := range faults() {
		fmt.Fprintf(&b, "%9d  %s\n", a.fired[kind], kind)
	}
	return b.String()
}

// unreached lists what a run is for and did not meet.
func (a *tally) unreached() (missing []string) {
	for _, kind := range faults() {
		if a.fired[kind] == 0 {
			missing = append(missing, string(kind))
		}
	}
	for name, n := range map[string]int{
		"a repeat": a.repeats, "a repeat in doubt": a.doubtful, "a lapse": a.lapses, "a late holder": a.lates,
		"a risk taken": a.risks, "an unknown end": a.unknown, "a closed gate": a.gates,
	} {
		if n == 0 {
			missing = append(missing, name)
		}
	}
	return missing
}

func TestWhateverHappensNobodyIsToldTwiceAndNothingIsForgotten(t *testing.T) {
	from, count := *first, *seeds
	if *alone >= 0 {
		from, count = uint64(*alone), 1
	}
	sum := tally{fired: map[fault]int{}}
	for seed := from; seed < from+count; seed++ {
		w := newWorld(seed)
		synctest.Test(t, func(*testing.T) { w.run() })
		sum.add(w.tally)
		if broken := w.told(); broken != "" {
			t.Errorf("seed %d:\n%s\nplay it again, some times over, for what happens close together may change places:\n"+
				"go test ./internal/simulation -run %s -simulation.seed=%d -count=10 -v", seed, broken, t.Name(), seed)
		}
		if *alone >= 0 {
			t.Logf("seed %d:\n%s", seed, strings.Join(w.stories, "\n"))
		}
	}
	t.Logf("seeds %d to %d: %s", from, from+count-1, &sum)
	if missing := sum.unreached(); count >= enough && len(missing) > 0 {
		t.Errorf("the runs do not reach what they are for: %s", strings.Join(missing, "; "))
	}
}
