//go:build unix

package crashpoint

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Clock is the machine's clock, set wrong by whole seconds. The zero value is right.
type Clock struct{ off atomic.Int64 }

// Jump sets the clock by so much.
func (c *Clock) Jump(by time.Duration) { c.off.Add(int64(by / time.Second)) }

// Now is the wrong time, with the right monotonic reading.
func (c *Clock) Now() time.Time {
	now := time.Now()
	// time's own arithmetic moves both readings, and then every span that is taken across a jump is wrong,
	// which is what the monotonic one is there to prevent. A Time that has both begins with its wall clock: a
	// flag, 33 bits of seconds, 30 bits of nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(c.off.Load()) << 30
	return now
}
