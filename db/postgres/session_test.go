package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/internal/blackbox/testbed"
	"github.com/sendonce/sendonce/internal/ledger"
)

// insertAndSettle writes entries from several tasks at once, and returns how many writes failed for another reason than
// a race over one entry.
func insertAndSettle(t *testing.T, stores ...*postgres.Store) (failed int) {
	t.Helper()
	var (
		all  sync.WaitGroup
		lock sync.Mutex
	)
	for task := range 8 {
		all.Go(func() {
			s := stores[task%len(stores)]
			for n := range 15 {
				e, err := s.Insert(context.Background(), claimed(identity(fmt.Sprintf("r-%d-%d", task, n))))
				if err == nil {
					_, err = s.Update(context.Background(), settled(e))
				}
				if err != nil && !errors.Is(err, ledger.ErrStale) {
					lock.Lock()
					failed++
					lock.Unlock()
					t.Log(err)
				}
			}
		})
	}
	all.Wait()
	return failed
}

const setDefaults = `DO $$ BEGIN
	EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_isolation = serializable';
	EXECUTE 'ALTER DATABASE ' || current_database() || ' SET synchronous_commit = off';
END $$`

// A default that a database or role sets must weaken neither the isolation nor the durability of a commit.
func TestOpen_SessionDefaultsOfTheDatabaseDoNotApply(t *testing.T) {
	t.Parallel()
	url := migrated.URL(t)
	rows(t, url, setDefaults)
	s := open(t, postgres.Options{URL: url, MaxConns: 8})
	if failed := insertAndSettle(t, s); failed > 0 {
		t.Errorf("%d writes failed", failed)
	}
	warnings, err := s.Warnings(t.Context())
	if said := strings.Join(warnings, "\n"); err != nil || strings.Contains(said, "synchronous_commit") {
		t.Errorf("warnings: %q, %v", said, err)
	}
}

// Through a pooler in transaction mode no session can be set: a conflict proves that nothing was committed, and is
// repeated; durability is warned of.
func TestOpen_BehindAPoolerConflictsAreRepeatedAndDurabilityIsSaid(t *testing.T) {
	server := testbed.Postgres(t)
	if err := migrate(postgres.Options{URL: server.URL}); err != nil {
		t.Fatal(err)
	}
	rows(t, server.URL, setDefaults)
	pooled := postgres.Options{URL: server.Pooler(5), MaxConns: 8, Pooler: true}
	s := open(t, pooled)
	if failed := insertAndSettle(t, s, open(t, pooled)); failed > 0 {
		t.Errorf("%d writes failed", failed)
	}
	warnings, err := s.Warnings(t.Context())
	if said := strings.Join(warnings, "\n"); err != nil || !strings.Contains(said, "synchronous_commit") {
		t.Errorf("warnings: %q, %v", said, err)
	}
}
