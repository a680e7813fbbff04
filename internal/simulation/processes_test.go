package simulation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// asPart names the file in which a process that runs a part of a range leaves its figures.
const asPart = "SENDONCE_SIMULATION_PART"

// Seeds of a part: enough to be worth a process, and so few that all processors end at about the same time.
const (
	smallestPart = 25
	largestPart  = 250
)

// part is a tally as it goes from one process to another.
type part struct {
	Runs    int
	Broken  []uint64
	Fired   map[fault]int
	Counted map[figure]int
	Time    time.Duration
}

func (a *tally) part() part { return part{a.runs, a.broken, a.fired, a.counted, a.time} }

func (p part) tally() tally {
	return tally{runs: p.Runs, broken: p.Broken, fired: p.Fired, counted: p.Counted, time: p.Time}
}

// inProcesses runs a range part by part, several at once. A seed has the same history as in one process.
func inProcesses(t *testing.T, asked string, from, count uint64) {
	var (
		begun, told = time.Now(), time.Now()
		size        = min(max(count/uint64(8*runtime.NumCPU()), smallestPart), largestPart)
		dir         = t.TempDir()
		mu          sync.Mutex // guards what follows
		sum         = newTally()
		next        = from
		done        uint64
		failed      int
		out         bool // of time
	)
	limit, limited := t.Deadline()
	// take gives the next part, unless that is enough.
	take := func() (at, seeds uint64, more bool) {
		mu.Lock()
		defer mu.Unlock()
		out = out || limited && time.Until(limit) < 2*stopBefore
		if next == from+count || failed >= patience || out {
			return 0, 0, false
		}
		at, seeds = next, min(size, from+count-next)
		next += seeds
		return at, seeds, true
	}
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for at, seeds, more := take(); more; at, seeds, more = take() {
				figures, said, err := runPart(t, filepath.Join(dir, fmt.Sprint(at)), asked, at, seeds)
				mu.Lock()
				if err != nil {
					failed++
					t.Errorf("seeds %d to %d: %v\n%s", at, at+seeds-1, err, said)
				}
				sum.add(figures.tally())
				if done += seeds; time.Since(told) > tellEvery {
					told = time.Now()
					t.Logf("%d of %d seeds in %v, %d parts failed; when those that run have ended, the rest: %s",
						done, count, time.Since(begun).Round(time.Second), failed, goOn(asked, next, from+count))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	switch {
	case failed >= patience:
		t.Fatalf("that is enough. The rest: %s", goOn(asked, next, from+count))
	case out && next < from+count:
		t.Fatalf("out of time. Go on with %s, and give it more by -timeout, or all by -timeout=0\n%s", goOn(asked, next, from+count), &sum)
	}
	sum.report(t, from, count, begun)
}

// runPart runs a part in a process of its own. It has one processor, as every bubble has.
func runPart(t *testing.T, file, asked string, from, count uint64) (figures part, said []byte, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{
		"-test.run=^" + t.Name() + "$", "-test.timeout=0",
		fmt.Sprintf("-simulation.first=%d", from), fmt.Sprintf("-%s=%d", asked, count), fmt.Sprintf("-simulation.forgetful=%t", *forget),
	}
	if limit, limited := t.Deadline(); limited {
		args[1] = "-test.timeout=" + max(time.Until(limit)-stopBefore/2, time.Second).String()
	}
	self, err := os.Executable()
	if err != nil {
		return part{}, nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asPart+"="+file, "GOMAXPROCS=1")
	said, err = cmd.CombinedOutput()
	raw, lost := os.ReadFile(file)
	if lost == nil {
		lost = json.Unmarshal(raw, &figures)
	}
	if err == nil {
		err = lost
	}
	return figures, bytes.TrimSpace(said), err
}
