package worlds_test

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
	whole = flag.Bool("worlds.all", false, "explore every world, and let the first delivery come again")
	only  = flag.String("worlds.only", "", "explore the worlds whose name matches this expression")
)

// part : with -short, one world of so many is explored.
const part = 10

// TestEveryWorldKeepsThePromises explores world by world, prints how many states each has, and of the first
// promise that one breaks the shortest way to it. For the whole set:
//
//	go test ./internal/simulation/worlds -v -timeout 30m -args -worlds.all
func TestEveryWorldKeepsThePromises(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	wanted := regexp.MustCompile(*only)
	var found struct {
		sync.Mutex
		worlds, states, steps, rests int
	}
	var explorers sync.WaitGroup
	work := make(chan plan)
	for range runtime.GOMAXPROCS(0) {
		explorers.Go(func() {
			for p := range work {
				g := explore(newWorld(p))
				found.Lock()
				found.worlds++
				found.states += len(g.parent)
				found.steps += g.steps
				found.rests += g.rests
				found.Unlock()
				t.Logf("%-44s %8d states %9d steps %6d at rest", p, len(g.parent), g.steps, g.rests)
				if g.fault != "" {
					t.Errorf("%s:%s", p, g.fault)
				} else if endless := g.endless(); endless > 0 {
					t.Errorf("%s: %d states on or behind a way that never ends", p, endless)
				}
			}
		})
	}
	for i, p := range plans(*whole) {
		if testing.Short() && i%part != 0 {
			continue
		}
		if wanted.MatchString(p.String()) && (!raced || p.contract == ledger.Blind) {
			work <- p
		}
	}
	close(work)
	explorers.Wait()
	t.Logf("%d worlds, %d states, %d steps, %d states in which nobody has anything left to do",
		found.worlds, found.states, found.steps, found.rests)
}
