package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/db/storetest"
)

func open(t *testing.T, path string, now func() time.Time) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: path, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	if err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSQLiteStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return open(t, filepath.Join(t.TempDir(), "ledger.db"), nil)
	})
}

// With a frozen clock all entries are first seen at one instant, so only their identities order them. The path needs
// escaping.
func TestSQLiteStore_FrozenClock(t *testing.T) {
	at := time.Date(2031, 3, 1, 12, 0, 0, 999, time.FixedZone("Kathmandu", 5*3600+45*60))
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return open(t, filepath.Join(t.TempDir(), "what? 100% #1&a=b.db"), func() time.Time { return at })
	})
}
