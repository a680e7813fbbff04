package api

import (
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// An address may fail authFailureBurst times in a row, and once more in each interval after that.
const (
	authFailureBurst = 10
	authFailureEvery = 6 * time.Second
)

// authLimit counts failed authentications by address in constant memory: addresses share slots by a keyed hash.
type authLimit struct {
	seed  maphash.Seed
	mu    sync.Mutex
	spent [1024]time.Time // until when the slot's failures count
}

func newAuthLimit() *authLimit { return &authLimit{seed: maphash.MakeSeed()} }

// count counts one failure, and returns how long the address has to wait where that is one too many.
func (l *authLimit) count(remote string, now time.Time) time.Duration {
	slot := maphash.String(l.seed, network(remote)) % uint64(len(l.spent))
	l.mu.Lock()
	defer l.mu.Unlock()
	until := l.spent[slot]
	if until.Before(now) {
		until = now
	}
	until = until.Add(authFailureEvery)
	if wait := until.Sub(now) - authFailureBurst*authFailureEvery; wait > 0 {
		return wait
	}
	l.spent[slot] = until
	return 0
}

// network is the part of an address that one peer controls: the IPv4 address, or the /64 of an IPv6 address.
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
