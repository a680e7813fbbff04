package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is processor time that a cell used, by whom, and what the rest of the machine used meanwhile. It is
// read from Linux's /proc and stays zero elsewhere.
type usage struct {
	gateways, postgres, load time.Duration // load: senders, provider, pgbench, and the SQLite baseline
	all                      time.Duration // of the whole machine
}

// tick is the unit of times in /proc: USER_HZ, which is 100 on every architecture of Linux's (time(7)).
const tick = 10 * time.Millisecond

func (u usage) since(before usage) usage {
	return usage{u.gateways - before.gateways, u.postgres - before.postgres, u.load - before.load, u.all - before.all}
}

// others returns the processor time of unrelated processes.
func (u usage) others() time.Duration { return max(0, u.all-u.gateways-u.postgres-u.load) }

// usageNow returns the usage until now. A child that ended counts as its parent's (proc(5), cutime).
func (e *environment) usageNow() (u usage) {
	type process struct {
		parent int
		name   string
		took   time.Duration
	}
	processes := map[int]process{}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		begin, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
		if err != nil || begin < 1 || end < begin {
			continue
		}
		fields := strings.Fields(string(raw[end+1:])) // from field 3, the state
		if len(fields) < 15 {
			continue
		}
		pid, _ := strconv.Atoi(string(raw[:begin-1]))
		parent, _ := strconv.Atoi(fields[1])
		processes[pid] = process{parent, string(raw[begin+1 : end]), ticks(fields[11:15])}
	}
	self := os.Getpid()
	for pid, p := range processes {
		up := pid
		for up > 1 && up != self {
			up = processes[up].parent
		}
		switch {
		case up != self:
		case pid == e.postgres.pid, pid == e.sqlite.pid:
			u.gateways += p.took
		case p.name == "postgres":
			u.postgres += p.took
		default:
			u.load += p.took
		}
	}
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	if fields := strings.Fields(line); len(fields) > 8 { // cpu user nice system idle iowait irq softirq steal
		u.all = ticks(fields[1:4]) + ticks(fields[6:9])
	}
	return u
}

func ticks(fields []string) (sum time.Duration) {
	for _, f := range fields {
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}
