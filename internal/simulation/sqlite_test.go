package simulation_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sendonce/sendonce/db/sqlite"
	"github.com/sendonce/sendonce/db/storetest"
)

// tempDirInMemory returns a directory in memory, where the system has such a file system: power loss is not
// simulated, and a flush to disk costs a hundred times as much as its statement.
func tempDirInMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "simulation")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// openSQLite opens a new ledger in a file. It is opened inside the bubble, so that the channels and timers of the
// driver belong to the bubble. Waits for the disk do not move the bubble's clock.
func openSQLite(path string, now func() time.Time) (storetest.Store, error) {
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
