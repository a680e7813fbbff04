package sqlite

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/sendonce/sendonce/db/sqlite/internal/litesql"
	"github.com/sendonce/sendonce/internal/ledger"
)

// Warnings returns none: the file is opened with settings that lose no commit.
func (s *Store) Warnings(context.Context) ([]string, error) { return nil, nil }

// CheckWrite reports whether a delivery could be recorded now: it inserts an entry as [Store.Insert] does, and takes
// it back. The transaction commits all the same, with a value that nobody reads, since SQLite writes nothing to the
// disk, and so never finds it full, before a commit.
func (s *Store) CheckWrite(ctx context.Context) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrapped(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, "SAVEPOINT readiness"); err != nil {
		return wrapped(err)
	}
	id := ledger.Identity{ReminderID: rand.Text(), Type: "readiness", Channel: "readiness"}
	if _, err := litesql.New(tx).InsertEntry(ctx, insertParams(ledger.Entry{
		Identity: id, SendKey: id.SendKey(), State: ledger.Sending, Reason: ledger.ReasonClaimed,
		Holder: "readiness", LeaseUntil: ledger.In(time.Second), ClaimedAt: ledger.In(0),
	})); err != nil {
		return wrapped(err)
	}
	if _, err := tx.ExecContext(ctx, "ROLLBACK TO readiness; PRAGMA user_version = 1"); err != nil {
		return wrapped(err)
	}
	return wrapped(tx.Commit())
}
