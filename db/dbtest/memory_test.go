package dbtest_test

import (
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
)

func TestMemoryIsAStore(t *testing.T) {
	dbtest.Run(t, func(t *testing.T) dbtest.Store { return dbtest.NewMemory(time.Now) })
}

func TestMemoryNoticesThatItsDatabaseChanged(t *testing.T) {
	dbtest.RunNotices(t, func(t *testing.T) dbtest.Store { return dbtest.NewMemory(time.Now) })
}

// All entries are first seen in one instant, so that identity alone orders them.
func TestMemoryIsAStoreWhenTimeStandsStill(t *testing.T) {
	at := time.Date(2031, 3, 1, 12, 0, 0, 999, time.FixedZone("Kathmandu", 5*3600+45*60))
	dbtest.Run(t, func(t *testing.T) dbtest.Store {
		return dbtest.NewMemory(func() time.Time { return at })
	})
}
