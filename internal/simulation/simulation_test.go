package simulation_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
)

// The seeds to run. One alone is told whole.
var (
	seeds  = flag.Uint64("simulation.seeds", ordinary, "how many seeds to run over the ledger in memory")
	onDisk = flag.Uint64("simulation.sqlite", ordinary/250, "how many seeds to run over SQLite, which is slower")
	forget = flag.Bool("simulation.forgetful", false, "let failovers of the ledger in memory forget its last commits")
	first  = flag.Uint64("simulation.first", 0, "the first seed")
	alone  = flag.Int64("simulation.seed", -1, "run this seed alone, and tell all of its story (with -v)")
)

const (
	quick      = 300              // seeds of a run with -short
	enough     = 1_000            // seeds reach every kind of fault for certain
	tellEvery  = 20 * time.Second // between two words of how far a long run is
	stopBefore = 30 * time.Second // the test's own timeout, which would say nothing of the seed
	patience   = 5                // seeds that fail; then the run ends
)

// opener opens an empty ledger with a clock, inside a bubble.
type opener func(now func() time.Time) (dbtest.Store, error)

func inMemory(now func() time.Time) (dbtest.Store, error) { return dbtest.NewMemory(now), nil }

func TestWhateverHappensNobodyIsToldTwiceAndNothingIsForgotten(t *testing.T) {
	simulate(t, "simulation.seeds", *seeds, inMemory)
}

func TestWhateverHappensItHoldsOverSQLiteToo(t *testing.T) {
	path := filepath.Join(aDisk(t), "ledger.db")
	simulate(t, "simulation.sqlite", *onDisk, func(now func() time.Time) (dbtest.Store, error) { return openSQLite(path, now) })
}

// simulate runs a range of seeds, or the one that is asked for, and reports the figures. A long range is
// shared out to processes, one for each processor.
func simulate(t *testing.T, asked string, count uint64, open opener) {
	from := *first
	if *alone >= 0 {
		from, count = uint64(*alone), 1
	}
	if testing.Short() && !given(asked) {
		count = min(count, quick*count/ordinary)
	}
	if os.Getenv(asPart) != "" || count <= smallestPart || runtime.NumCPU() == 1 {
		inOneProcess(t, asked, from, count, open)
	} else {
		inProcesses(t, asked, from, count)
	}
}

// given tells whether the command line sets a flag.
func given(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// inOneProcess runs seed after seed.
//
// A bubble is as good as serial, and the runtime spends half of its time waking a second processor for it.
func inOneProcess(t *testing.T, asked string, from, count uint64, open opener) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	begun, told, sum := time.Now(), time.Now(), newTally()
	limit, limited := t.Deadline()
	for seed := from; seed < from+count; seed++ {
		w := play(t, seed, open)
		w.tally.runs = 1
		broken := w.told()
		if broken != "" {
			w.tally.broken = []uint64{seed}
		}
		sum.add(w.tally)
		if broken != "" {
			t.Errorf("seed %d:\n%s\nplay it again, and see its whole history:\n"+
				"go test ./internal/simulation -run '^%s$' -simulation.seed=%d -simulation.forgetful=%t -count=3 -v", seed, broken, t.Name(), seed, *forget)
		}
		if *alone >= 0 {
			t.Logf("seed %d:\n%s", seed, w.history())
		}
		goOn := goOn(asked, seed+1, from+count)
		switch {
		case len(sum.broken) == patience:
			t.Fatalf("seeds %v fail; that is enough. The rest: %s", sum.broken, goOn)
		case limited && time.Until(limit) < stopBefore && seed+1 < from+count:
			t.Fatalf("out of time; %v failed. Go on with %s, and give it more by -timeout, or all by -timeout=0\n%s", sum.broken, goOn, &sum)
		case time.Since(told) > tellEvery:
			told = time.Now()
			t.Logf("%d of %d seeds in %v, %d failed; the rest: %s", seed+1-from, count, time.Since(begun).Round(time.Second), len(sum.broken), goOn)
		}
	}
	sum.report(t, from, count, begun)
}

// goOn are the flags that run the seeds from one on.
func goOn(asked string, from, end uint64) string {
	return fmt.Sprintf("-simulation.first=%d -%s=%d", from, asked, end-from)
}

// report ends a range: it must have reached what it is for.
func (a *tally) report(t *testing.T, from, count uint64, begun time.Time) {
	t.Helper()
	if file := os.Getenv(asPart); file != "" { // who started this process looks at the whole
		if raw, err := json.Marshal(a.part()); err != nil || os.WriteFile(file, raw, 0o600) != nil {
			t.Errorf("the figures are lost: %v", err)
		}
		return
	}
	t.Logf("seeds %d to %d, in %v: %s", from, from+count-1, time.Since(begun).Round(time.Second/10), a)
	if missing := a.unreached(); count >= enough && len(missing) > 0 {
		t.Errorf("the runs do not reach what they are for: %s", strings.Join(missing, "; "))
	}
	if mean := a.mean(); count >= enough && mean < 20 {
		t.Errorf("%.1f faults a run", mean)
	}
}

// play is one seed in a bubble of its own.
func play(t *testing.T, seed uint64, open opener) *world {
	w := newWorld(seed)
	defer func() {
		if cause := recover(); cause != nil { // a deadlock, most likely
			t.Fatalf("seed %d: panic: %v\n%s", seed, cause, w.history())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s, err := open(w.now)
		if err != nil {
			t.Fatal(err)
		}
		w.begin(s)
		w.run()
		if err := w.store().Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}
