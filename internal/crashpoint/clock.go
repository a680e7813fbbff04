//go:build unix

package crashpoint

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// Clock is the machine's clock with an offset of whole seconds. The zero value has none.
type Clock struct{ offset atomic.Int64 }

// Jump adds d to the offset.
func (c *Clock) Jump(d time.Duration) { c.offset.Add(int64(d / time.Second)) }

// Now returns the current time with the offset, and with the right monotonic reading.
func (c *Clock) Now() time.Time {
	now := time.Now()
	// Time.Add changes both readings, and then every duration measured across a jump would be wrong, which is what
	// the monotonic reading prevents. A Time that has both begins with its wall clock: a flag, 33 bits of seconds,
	// 30 bits of nanoseconds.
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(c.offset.Load()) << 30
	return now
}
