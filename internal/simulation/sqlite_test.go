package simulation_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/db/sqlite"
)

// aDisk is a folder in memory, where the system has such a thing: what is simulated is no loss of power, and
// a flush costs a hundred times what its statement does.
func aDisk(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "simulation")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// openSQLite opens a new ledger in a file. It is opened in the bubble, so that what the driver waits for
// is the bubble's own; the disk is not waited for in a way that the bubble's clock would notice.
func openSQLite(path string, now func() time.Time) (dbtest.Store, error) {
	for _, file := range []string{path, path + "-wal", path + "-shm"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	s, err := sqlite.Open(context.Background(), sqlite.Options{Path: path, Now: now})
	if err != nil {
		return nil, err
	}
	return s, s.Migrate(context.Background())
}
