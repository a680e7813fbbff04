package api

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// An address may fail so many times in a row, and once more in each interval after that.
const (
	failureBurst = 10
	failureEvery = 6 * time.Second
)

// failures counts failed logins by address, in a fixed space: addresses share slots by a keyed hash.
type failures struct {
	seed  maphash.Seed
	mu    sync.Mutex
	spent [1024]time.Time // until when the slot's failures weigh
}

func newFailures() *failures { return &failures{seed: maphash.MakeSeed()} }

// count counts one failure, and tells how long the address must wait when that is one too many.
func (f *failures) count(remote string, now time.Time) time.Duration {
	slot := maphash.String(f.seed, network(remote)) % uint64(len(f.spent))
	f.mu.Lock()
	defer f.mu.Unlock()
	until := f.spent[slot]
	if until.Before(now) {
		until = now
	}
	until = until.Add(failureEvery)
	if wait := until.Sub(now) - failureBurst*failureEvery; wait > 0 {
		return wait
	}
	f.spent[slot] = until
	return 0
}

// network is what one peer holds: an IPv4 address, or the /64 of an IPv6 address.
func network(remote string) string {
	peer, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	address := peer.Addr().Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	prefix, err := address.Prefix(64)
	if err != nil {
		return remote
	}
	return prefix.String()
}
