package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Clock is a server's time of day, which can be moved while it runs. Its timers are not affected.
type Clock struct {
	t    testing.TB
	file string
}

// PostgresWithClock starts a server that has a clock of its own.
func PostgresWithClock(t testing.TB) (*Server, *Clock) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		t.Fatal("testbed: no libfaketime here: install it (Debian: faketime)")
	}
	s := newServer(t)
	c := &Clock{t: t, file: filepath.Join(s.dir, "clock")}
	c.Move(0)
	s.commandPrefix = []string{
		"env", "LD_PRELOAD=" + found[0], "FAKETIME_TIMESTAMP_FILE=" + c.file, "FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1",
	}
	s.Start()
	return s, c
}

// Move sets the clock to the machine's time plus d.
func (c *Clock) Move(d time.Duration) {
	c.t.Helper()
	next := c.file + ".next" // renamed, so that it is never read half written
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(d.Seconds())), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		c.t.Fatal(err)
	}
}
