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

	"github.com/sendonce/sendonce/db/storetest"
)

// The flags that choose the seeds. A single seed is reported in full.
var (
	seedsFlag     = flag.Uint64("simulation.seeds", defaultSeeds, "how many seeds to run over the ledger in memory")
	sqliteFlag    = flag.Uint64("simulation.sqlite", defaultSeeds/250, "how many seeds to run over SQLite, which is slower")
	forgetfulFlag = flag.Bool("simulation.forgetful", false, "let failovers of the ledger in memory lose its last commits")
	firstFlag     = flag.Uint64("simulation.first", 0, "the first seed")
	seedFlag      = flag.Int64("simulation.seed", -1, "run only this seed, and log its history (with -v)")
)

const (
	shortSeeds    = 300              // seeds of a run with -short
	coverageSeeds = 1_000            // with so many seeds, every kind of fault is certain to occur
	logInterval   = 20 * time.Second // between two progress messages of a long run
	stopBefore    = 30 * time.Second // before the test's own timeout, which would not name the seed
	maxFailures   = 5                // failing seeds after which the run ends
)

// opener opens an empty ledger with the given clock, inside a bubble.
type opener func(now func() time.Time) (storetest.Store, error)

func inMemory(now func() time.Time) (storetest.Store, error) { return storetest.NewMemory(now), nil }

func TestSimulation_NothingSentTwiceOrLost(t *testing.T) {
	simulate(t, "simulation.seeds", *seedsFlag, inMemory)
}

func TestSimulation_HoldsOnSQLite(t *testing.T) {
	path := filepath.Join(tempDirInMemory(t), "ledger.db")
	simulate(t, "simulation.sqlite", *sqliteFlag, func(now func() time.Time) (storetest.Store, error) { return openSQLite(path, now) })
}

// simulate runs a range of seeds, or the single seed that the flags ask for, and reports the counts. A long range
// is divided among processes, one for each processor.
func simulate(t *testing.T, flagName string, count uint64, open opener) {
	from := *firstFlag
	if *seedFlag >= 0 {
		from, count = uint64(*seedFlag), 1
	}
	if testing.Short() && !isSet(flagName) {
		count = min(count, shortSeeds*count/defaultSeeds)
	}
	if os.Getenv(partFileEnv) != "" || count <= smallestPart || runtime.NumCPU() == 1 {
		runInProcess(t, flagName, from, count, open)
	} else {
		runInProcesses(t, flagName, from, count)
	}
}

// isSet reports whether the command line sets a flag.
func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// runInProcess runs one seed after another.
//
// It uses one processor: a bubble runs almost serially, and the runtime would spend half of its time waking a
// second processor for it.
func runInProcess(t *testing.T, flagName string, from, count uint64, open opener) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	started, logged, sum := time.Now(), time.Now(), newTally()
	limit, limited := t.Deadline()
	for seed := from; seed < from+count; seed++ {
		sim := runSeed(t, seed, open)
		sim.tally.runs = 1
		failure := sim.report()
		if failure != "" {
			sim.tally.failed = []uint64{seed}
		}
		sum.add(sim.tally)
		if failure != "" {
			t.Errorf("seed %d:\n%s\nrun it again, with its history:\n"+
				"go test ./internal/simulation -run '^%s$' -simulation.seed=%d -simulation.forgetful=%t -count=3 -v", seed, failure, t.Name(), seed, *forgetfulFlag)
		}
		if *seedFlag >= 0 {
			t.Logf("seed %d:\n%s", seed, sim.history())
		}
		resume := resumeFlags(flagName, seed+1, from+count)
		switch {
		case len(sum.failed) == maxFailures:
			t.Fatalf("too many failures: seeds %v; the rest: %s", sum.failed, resume)
		case limited && time.Until(limit) < stopBefore && seed+1 < from+count:
			t.Fatalf("out of time; %v failed. Resume with %s, and a longer -timeout, or -timeout=0 for none\n%s", sum.failed, resume, &sum)
		case time.Since(logged) > logInterval:
			logged = time.Now()
			t.Logf("%d of %d seeds in %v, %d failed; the rest: %s", seed+1-from, count, time.Since(started).Round(time.Second), len(sum.failed), resume)
		}
	}
	sum.report(t, from, count, started)
}

// resumeFlags returns the flags that run the seeds of a range from one on.
func resumeFlags(flagName string, from, end uint64) string {
	return fmt.Sprintf("-simulation.first=%d -%s=%d", from, flagName, end-from)
}

// report logs the counts of a range, and fails the test if a long range did not reach everything that it is meant
// to.
func (sum *tally) report(t *testing.T, from, count uint64, started time.Time) {
	t.Helper()
	if file := os.Getenv(partFileEnv); file != "" { // the parent process checks the whole
		if raw, err := json.Marshal(sum.part()); err != nil || os.WriteFile(file, raw, 0o600) != nil {
			t.Errorf("writing the counts failed: %v", err)
		}
		return
	}
	t.Logf("seeds %d to %d, in %v: %s", from, from+count-1, time.Since(started).Round(time.Second/10), sum)
	if missing := sum.unreached(); count >= coverageSeeds && len(missing) > 0 {
		t.Errorf("the runs did not reach: %s", strings.Join(missing, "; "))
	}
	if mean := sum.mean(); count >= coverageSeeds && mean < 20 {
		t.Errorf("%.1f faults a run, want at least 20", mean)
	}
}

// runSeed runs one seed in a bubble of its own.
func runSeed(t *testing.T, seed uint64, open opener) *simulation {
	sim := newSimulation(seed)
	defer func() {
		if cause := recover(); cause != nil { // most likely a deadlock
			t.Fatalf("seed %d: panic: %v\n%s", seed, cause, sim.history())
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		s, err := open(sim.now)
		if err != nil {
			t.Fatal(err)
		}
		sim.begin(s)
		sim.run()
		if err := sim.store().Close(); err != nil {
			t.Error(err)
		}
	})
	return sim
}
