package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/sendonce/sendonce/db/postgres/internal/pgsql"
	"github.com/sendonce/sendonce/internal/ledger"
)

var errRollback = errors.New("rolled back as intended")

// CheckWrite reports whether a delivery could be recorded now: it inserts an entry as [Store.Insert] does, and rolls
// back.
func (s *Store) CheckWrite(ctx context.Context) error {
	id := ledger.Identity{ReminderID: rand.Text(), Type: "readiness", Channel: "readiness"}
	err := s.commit(ctx, func(q *pgsql.Queries) error {
		if _, err := q.InsertEntry(ctx, insertParams(ledger.Change{
			Payload: &ledger.Payload{},
			Entry: ledger.Entry{
				Identity: id, SendKey: id.SendKey(), State: ledger.Sending, Reason: ledger.ReasonClaimed,
				Holder: "readiness", LeaseUntil: ledger.In(time.Second), ClaimedAt: ledger.In(0),
			},
		})); err != nil {
			return err
		}
		return errRollback
	})
	if errors.Is(err, errRollback) {
		return nil
	}
	return err
}
