package modelcheck_test

import (
	"flag"
	"regexp"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
)

var (
	allFlag  = flag.Bool("modelcheck.all", false, "explore every scenario, and let the first delivery arrive again")
	onlyFlag = flag.String("modelcheck.only", "", "explore only the scenarios whose name matches this regular expression")
)

// shortEvery is the share of scenarios that are explored with -short: one of so many.
const shortEvery = 10

// TestModel_KeepsInvariantsInEveryScenario explores every scenario, logs how many states each has, and reports the
// shortest path to the first violated invariant. For the whole set:
//
//	go test ./internal/simulation/modelcheck -v -timeout 30m -args -modelcheck.all
func TestModel_KeepsInvariantsInEveryScenario(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	wanted := regexp.MustCompile(*onlyFlag)
	var total struct {
		sync.Mutex
		scenarios, states, steps, resting int
	}
	var explorers sync.WaitGroup
	work := make(chan scenario)
	for range runtime.GOMAXPROCS(0) {
		explorers.Go(func() {
			for p := range work {
				g := explore(newModel(p))
				total.Lock()
				total.scenarios++
				total.states += len(g.parent)
				total.steps += g.steps
				total.resting += g.resting
				total.Unlock()
				t.Logf("%-44s %8d states %9d steps %6d resting", p, len(g.parent), g.steps, g.resting)
				if g.violation != "" {
					t.Errorf("%s:%s", p, g.violation)
				} else if endless := g.countEndless(); endless > 0 {
					t.Errorf("%s: %d states on an endless path", p, endless)
				}
			}
		})
	}
	for i, p := range scenarios(*allFlag) {
		if testing.Short() && i%shortEvery != 0 {
			continue
		}
		if wanted.MatchString(p.String()) && (!underRace || p.contract == ledger.ContractBlind) {
			work <- p
		}
	}
	close(work)
	explorers.Wait()
	t.Logf("%d scenarios, %d states, %d steps, %d resting states",
		total.scenarios, total.states, total.steps, total.resting)
}
