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

// partFileEnv names the file to which a process that runs a part of a range writes its counts.
const partFileEnv = "SENDONCE_SIMULATION_PART"

// The seeds of a part: enough to be worth a process, and so few that all processors end at about the same time.
const (
	smallestPart = 25
	largestPart  = 250
)

// part is a tally as it is passed between processes.
type part struct {
	Runs   int
	Failed []uint64
	Faults map[fault]int
	Counts map[metric]int
	Time   time.Duration
}

func (sum *tally) part() part { return part{sum.runs, sum.failed, sum.faults, sum.counts, sum.time} }

func (p part) tally() tally {
	return tally{runs: p.Runs, failed: p.Failed, faults: p.Faults, counts: p.Counts, time: p.Time}
}

// runInProcesses runs a range part by part, several parts at once. A seed has the same history as in one process.
func runInProcesses(t *testing.T, flagName string, from, count uint64) {
	var (
		started, logged = time.Now(), time.Now()
		size            = min(max(count/uint64(8*runtime.NumCPU()), smallestPart), largestPart)
		dir             = t.TempDir()
		mu              sync.Mutex // guards the fields below
		sum             = newTally()
		next            = from
		done            uint64
		failed          int
		timedOut        bool
	)
	limit, limited := t.Deadline()
	// take returns the next part, unless the run is to end.
	take := func() (at, seeds uint64, more bool) {
		mu.Lock()
		defer mu.Unlock()
		timedOut = timedOut || limited && time.Until(limit) < 2*stopBefore
		if next == from+count || failed >= maxFailures || timedOut {
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
				counts, output, err := runPart(t, filepath.Join(dir, fmt.Sprint(at)), flagName, at, seeds)
				mu.Lock()
				if err != nil {
					failed++
					t.Errorf("seeds %d to %d: %v\n%s", at, at+seeds-1, err, output)
				}
				sum.add(counts.tally())
				if done += seeds; time.Since(logged) > logInterval {
					logged = time.Now()
					t.Logf("%d of %d seeds in %v, %d parts failed; after the running parts, the rest: %s",
						done, count, time.Since(started).Round(time.Second), failed, resumeFlags(flagName, next, from+count))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	switch {
	case failed >= maxFailures:
		t.Fatalf("too many failures; the rest: %s", resumeFlags(flagName, next, from+count))
	case timedOut && next < from+count:
		t.Fatalf("out of time. Resume with %s, and a longer -timeout, or -timeout=0 for none\n%s", resumeFlags(flagName, next, from+count), &sum)
	}
	sum.report(t, from, count, started)
}

// runPart runs a part in a process of its own, with one processor, as every bubble has.
func runPart(t *testing.T, file, flagName string, from, count uint64) (counts part, output []byte, err error) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	args := []string{
		"-test.run=^" + t.Name() + "$", "-test.timeout=0",
		fmt.Sprintf("-simulation.first=%d", from), fmt.Sprintf("-%s=%d", flagName, count), fmt.Sprintf("-simulation.forgetful=%t", *forgetfulFlag),
	}
	if limit, limited := t.Deadline(); limited {
		args[1] = "-test.timeout=" + max(time.Until(limit)-stopBefore/2, time.Second).String()
	}
	executable, err := os.Executable()
	if err != nil {
		return part{}, nil, err
	}
	cmd := exec.CommandContext(ctx, executable, args...)
	cmd.Env = append(os.Environ(), partFileEnv+"="+file, "GOMAXPROCS=1")
	output, err = cmd.CombinedOutput()
	raw, readErr := os.ReadFile(file)
	if readErr == nil {
		readErr = json.Unmarshal(raw, &counts)
	}
	if err == nil {
		err = readErr
	}
	return counts, bytes.TrimSpace(output), err
}
