package postgres_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/internal/ledger"
)

// queryNames is a tracer that records the names of the queries in the order in which the database runs them.
type queryNames struct {
	mu    sync.Mutex
	names []string
}

func (q *queryNames) note(sql string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	name := strings.TrimSpace(sql)
	if named, ok := strings.CutPrefix(name, "-- name: "); ok {
		name, _, _ = strings.Cut(named, " ")
	}
	q.names = append(q.names, name)
}

// take returns what was recorded since it was last called.
func (q *queryNames) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := q.names
	q.names = nil
	return names
}

func (q *queryNames) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	q.note(query.SQL)
	return ctx
}

func (q *queryNames) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (q *queryNames) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (q *queryNames) TraceBatchQuery(_ context.Context, _ *pgx.Conn, query pgx.TraceBatchQueryData) {
	q.note(query.SQL)
}

func (q *queryNames) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// Symptom of another order: a reader finds no entry, since it was deleted at this moment, and a mark from before that.
// Each statement sees what was committed before it, so the mark is committed before the entry is deleted, and read
// after the entry. A transaction would hide the first order from other nodes.
func TestStore_LowWaterMarkIsRaisedBeforeADeletionAndReadAfterTheEntry(t *testing.T) {
	ctx := context.Background()
	var names queryNames
	s := open(t, postgres.Options{URL: migrated.URL(t), MaxConns: 1, Tracer: &names})
	insert := func(id string) ledger.Entry {
		e := ledger.Entry{
			Identity: ledger.Identity{ReminderID: id, Type: "seat", Channel: "email"},
			State:    ledger.Sent, Reason: ledger.ReasonAccepted, Receipt: "receipt",
		}
		e.SendKey = e.Identity.SendKey()
		stored, err := s.Insert(ctx, ledger.Change{Entry: e})
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	first, second := insert("rem-1"), insert("rem-2")
	for _, row := range []struct {
		what string
		do   func() error
		want []string
	}{
		{"the first deletion of all", func() error { return s.Delete(ctx, first) }, []string{"RaiseLowWater", "AddLowWater", "DeleteEntry"}},
		{"a later deletion", func() error { return s.Delete(ctx, second) }, []string{"RaiseLowWater", "DeleteEntry"}},
		{"a load", func() error { _, err := s.Load(ctx, first.Identity); return err }, []string{"NowAndEpoch", "LoadEntry", "LoadLowWater"}},
	} {
		names.take()
		if err := row.do(); err != nil {
			t.Fatalf("%s: %v", row.what, err)
		}
		if got := names.take(); !slices.Equal(got, row.want) {
			t.Errorf("%s runs %v, want %v", row.what, got, row.want)
		}
	}
}
