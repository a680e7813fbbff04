package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sendonce/sendonce/db/postgres"
	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/ledger"
)

func identity(word string) ledger.Identity {
	return ledger.Identity{ReminderID: word, Type: "t", Channel: "c"}
}

func claimed(id ledger.Identity) ledger.Change {
	return ledger.Change{
		Payload: &ledger.Payload{Recipient: "a@example.com", Content: []byte(`{}`)},
		Entry: ledger.Entry{
			Identity: id, SendKey: id.SendKey(), State: ledger.Sending, Reason: ledger.ReasonClaimed,
			Provider: "mailer", Holder: "h", LeaseUntil: ledger.In(time.Minute), ClaimedAt: ledger.In(0),
		},
	}
}

func settled(e ledger.Entry) ledger.Change {
	e.State, e.Reason, e.Receipt = ledger.Sent, ledger.ReasonAccepted, "receipt"
	e.Holder, e.LeaseUntil, e.Attempts = "", ledger.Moment{}, 1
	return ledger.Change{Entry: e, Event: &ledger.TimelineEvent{Kind: ledger.EventAttempt, State: e.State}}
}

// rows runs a query and returns its rows as text, one per line.
func rows(t *testing.T, url, query string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	found, err := conn.Query(ctx, query)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(found, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// A statement that waited for a lock must not judge a lease by the time at which its transaction began.
func TestLedgerNow_AdvancesInsideATransaction(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), migrated.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var first, second time.Time
	if err := tx.QueryRow(t.Context(), "select ledger_now()").Scan(&first); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select pg_sleep(0.01)"); err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), "select ledger_now()").Scan(&second); err != nil {
		t.Fatal(err)
	}
	if passed := second.Sub(first); passed < 10*time.Millisecond {
		t.Errorf("the clock advanced by %v in 10 ms", passed)
	}
}

func TestMigrate_ConcurrentMigrationsSucceed(t *testing.T) {
	url := pgserver.URL(t)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			s, err := postgres.Open(context.Background(), postgres.Options{URL: url})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Migrate(context.Background()); err != nil {
				t.Error(err)
			}
			if err := s.Ping(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestPing_ChecksServerAndSchema(t *testing.T) {
	ctx := context.Background()
	s, err := postgres.Open(ctx, postgres.Options{URL: pgserver.URL(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ping(ctx); !errors.Is(err, postgres.ErrSchema) {
		t.Errorf("before the migrations: %v, want ErrSchema", err)
	}
	nobody, err := postgres.Open(ctx, postgres.Options{URL: "postgres://nobody@127.0.0.1:1/none?sslmode=disable"})
	if err != nil {
		t.Fatal(err)
	}
	defer nobody.Close()
	if err := nobody.Ping(ctx); err == nil || errors.Is(err, postgres.ErrSchema) {
		t.Errorf("without a server: %v", err)
	}
}

// blockingTracer is a tracer that blocks the first query until it is released.
type blockingTracer struct {
	once    sync.Once
	started chan struct{}
	release chan struct{}
}

func (b *blockingTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	b.once.Do(func() {
		close(b.started)
		<-b.release
	})
	return ctx
}

func (b *blockingTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestStore_WaitForAConnectionIsBounded(t *testing.T) {
	ctx := context.Background()
	url := migrated.URL(t)
	open(t, postgres.Options{URL: url})
	tracer := &blockingTracer{started: make(chan struct{}), release: make(chan struct{})}
	s, err := postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 1, AcquireTimeout: 10 * time.Millisecond, Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan error)
	go func() {
		// Connecting may take longer than the acquire timeout, so it is retried until the query starts.
		var err error
		for done := false; !done; {
			_, err = s.Insert(ctx, claimed(identity("first")))
			select {
			case <-tracer.started:
				done = true
			default:
			}
		}
		done <- err
	}()
	<-tracer.started
	_, err = s.Insert(ctx, claimed(identity("second")))
	if err == nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ledger.ErrExists) {
		t.Errorf("with no connection free: %v; want an error that is neither DeadlineExceeded nor ErrExists", err)
	}
	close(tracer.release)
	if err := <-done; err != nil {
		t.Errorf("the first: %v", err)
	}
}

func TestUpdate_EntryAndEventShareATransaction(t *testing.T) {
	ctx := context.Background()
	url := migrated.URL(t)
	s := open(t, postgres.Options{URL: url, MaxConns: 1})
	e, err := s.Insert(ctx, claimed(identity("r")))
	if err != nil {
		t.Fatal(err)
	}
	if e, err = s.Update(ctx, settled(e)); err != nil {
		t.Fatal(err)
	}
	// The last version of the entry and its event were written by one transaction, the payload by an earlier one.
	got := rows(t, url, `SELECT (e.xmin = t.xmin AND e.xmin <> p.xmin)::text FROM entries e, timeline t, payloads p`)
	if got != "true" || e.Version != 2 {
		t.Errorf("entry and event by one transaction: %s, version %d", got, e.Version)
	}
}

// The update from sending to sent must be heap-only (HOT): it stays on its page and touches no index.
func TestUpdate_SendingToSentIsHOT(t *testing.T) {
	ctx := context.Background()
	url := migrated.URL(t)
	s := open(t, postgres.Options{URL: url, MaxConns: 1})
	const entries = 50
	for n := range entries {
		e, err := s.Insert(ctx, claimed(identity(strings.Repeat("r", n+1))))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Update(ctx, settled(e)); err != nil {
			t.Fatal(err)
		}
	}
	s.Close() // a session reports its counts when it ends
	counts := func() string {
		return rows(t, url, "SELECT n_tup_upd || ' of which hot ' || n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'entries'")
	}
	deadline := time.Now().Add(time.Minute)
	got := counts()
	for strings.HasPrefix(got, "0 ") && time.Now().Before(deadline) {
		got = counts()
	}
	// Each update follows its insert at once, so all of them fit on their page.
	if got != "50 of which hot 50" {
		t.Errorf("updates: %s", got)
	}
}

func TestQueries_UseTheirIndexes(t *testing.T) {
	ctx := context.Background()
	url := migrated.URL(t)
	open(t, postgres.Options{URL: url})
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for query, index := range map[string]string{
		`SELECT reminder_id FROM entries WHERE provider = 'p' AND wake <= ledger_now() ORDER BY wake LIMIT 10`: "entries_wake_idx",
		`SELECT reminder_id FROM entries WHERE lease_until <= ledger_now()
			AND claimed_at >= ledger_at(NULL, -2592000000000)`: "entries_claimed_idx",
		`SELECT * FROM entries WHERE ('u' = '' OR (user_id = 'u' AND user_id <> ''))`:                                                 "entries_user_idx",
		`SELECT * FROM entries WHERE ('r' = '' OR (reservation_id = 'r' AND reservation_id <> ''))`:                                   "entries_reservation_idx",
		`SELECT class, count(*) FROM entries WHERE class <> '' AND state = 'dead' GROUP BY class`:                                     "entries_class_idx",
		`SELECT count(*) FROM entries WHERE doubt_since IS NOT NULL AND state = 'unknown'`:                                            "entries_doubt_idx",
		`SELECT * FROM entries WHERE first_seen <= now() ORDER BY first_seen DESC, reminder_id DESC, type DESC, channel DESC LIMIT 5`: "entries_first_seen_idx",
	} {
		found, err := pool.Query(ctx, "EXPLAIN "+query)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(found, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(plan, "\n"); !strings.Contains(got, index) || !strings.Contains(got, "Cond:") && !strings.Contains(got, "Index Scan") {
			t.Errorf("%s\ndoes not use %s:\n%s", query, index, got)
		}
	}
}

// A server that crashes under concurrent writers must lose nothing that it acknowledged, and its errors must not match
// ErrExists or ErrStale.
func TestInsert_AcknowledgedEntriesSurviveACrash(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	server, err := pgserver.Start(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrate(postgres.Options{URL: server.URL}); err != nil {
		t.Fatal(err)
	}
	s := open(t, postgres.Options{URL: server.URL, MaxConns: 4})
	var (
		all     sync.WaitGroup
		lock    sync.Mutex
		written []ledger.Identity
		enough  = make(chan struct{})
	)
	for writer := range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				id := identity(strings.Repeat("r", writer+1) + strings.Repeat("-", n))
				_, err := s.Insert(ctx, claimed(id))
				if errors.Is(err, ledger.ErrExists) || errors.Is(err, ledger.ErrStale) {
					t.Errorf("a crash is reported as a conflict: %v", err)
				}
				if err != nil {
					return
				}
				lock.Lock()
				if written = append(written, id); len(written) == 40 {
					close(enough)
				}
				lock.Unlock()
			}
		})
	}
	<-enough
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	again, err := pgserver.Start(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	s2 := open(t, postgres.Options{URL: again.URL})
	for _, id := range written {
		if detail, err := s2.EntryDetail(ctx, id); err != nil || detail.Payload == nil {
			t.Errorf("acknowledged, then lost: %v: %v", id.ReminderID, err)
		}
	}
}
