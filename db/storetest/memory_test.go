package storetest_test

import (
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store { return storetest.NewMemory(time.Now) })
}

func TestMemoryStore_EpochChanges(t *testing.T) {
	storetest.RunEpochChanges(t, func(t *testing.T) storetest.Store { return storetest.NewMemory(time.Now) })
}

// With a frozen clock all entries are first seen at one instant, so only their identities order them.
func TestMemoryStore_FrozenClock(t *testing.T) {
	at := time.Date(2031, 3, 1, 12, 0, 0, 999, time.FixedZone("Kathmandu", 5*3600+45*60))
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return storetest.NewMemory(func() time.Time { return at })
	})
}
