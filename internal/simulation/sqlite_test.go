package simulation_test

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/db/sqlite"
)

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
