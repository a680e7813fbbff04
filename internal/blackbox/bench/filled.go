package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sendonce/sendonce/db/storetest/pgserver"
	"github.com/sendonce/sendonce/internal/ledger"
)

// openAdmin starts what runAdmin needs.
func openAdmin(ctx context.Context, o options) (*environment, error) {
	e := &environment{options: o, connecting: 1}
	var err error
	if e.dir, err = os.MkdirTemp("", "sendonce-bench-"); err != nil {
		return e, err
	}
	e.closers = append(e.closers, func() error { return os.RemoveAll(e.dir) })
	if e.server, err = pgserver.Start(filepath.Join(e.dir, "postgres"), true); err != nil {
		return e, err
	}
	e.closers = append(e.closers, e.server.Stop)
	return e, e.startProvider()
}

// serveStoppable starts a gateway that can be stopped before the others.
func (e *environment) serveStoppable(ctx context.Context, database string, changes object) (*gateway, func() error, error) {
	g, err := e.serve(ctx, database, changes)
	if err != nil {
		return nil, nil, err
	}
	stop := e.closers[len(e.closers)-1]
	e.closers = e.closers[:len(e.closers)-1]
	return g, stop, nil
}

// adminSettings returns the settings that differ between a gateway that purges the ledger and one that has
// nothing to purge, because every entry is younger than its retention.
func adminSettings(purges bool) object {
	keep, dead := "1000d", "1000d"
	if purges {
		keep, dead = "30d", "90d"
	}
	return object{
		"memory":    "2000d",
		"retention": object{"sent": keep, "dropped": keep, "dead": dead},
		"channels":  object{"email": object{"provider": "mail"}, "sms": object{"provider": "mail"}, "push": object{"provider": "mail"}},
		"callers": []object{
			{"name": "dashboard", "role": "support", "tokens": []string{supportToken}},
			{"name": "oncall", "role": "operator", "tokens": []string{operatorToken}},
		},
	}
}

func oldID(n int) string { return fmt.Sprintf("old-%09d", n) }

// filledIdentity returns the identity of the n-th entry, as the statement below writes it.
func filledIdentity(n int) ledger.Identity {
	types := []string{"seat_expiring", "seat_moved", "course_begins", "bill_due", "welcome"}
	channels := []string{"email", "sms", "push"}
	return ledger.Identity{ReminderID: oldID(n), Type: types[n%5], Channel: channels[n%3]}
}

// createFilled creates a database with entries over 300 days. Of a hundred, 96 are sent; 2 are dead, of three
// classes and ten codes; some are dropped, scheduled, or unresolved. Each has its payload and a timeline
// event; every ten thousandth has a conflict.
func (e *environment) createFilled(ctx context.Context, entries int) (string, error) {
	begun := time.Now()
	database, err := e.createDatabase(ctx, fmt.Sprintf("filled_%d", entries))
	if err != nil {
		return "", err
	}
	if err := e.migrate(ctx, database); err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	for _, statement := range []string{
		fmt.Sprintf(fillEntries, entries),
		`INSERT INTO payloads (reminder_id, type, channel, recipient, content, metadata)
			SELECT reminder_id, type, channel, 'p@example.test', '{"subject": "Your seat is about to expire", "text": "It is held until 09:10."}'::bytea, NULL FROM entries`,
		`INSERT INTO timeline SELECT reminder_id, type, channel, version, 'attempt', state, reason, 'push', 'queue', 'm-1', 1, 'h', 1, provider,
			updated, updated, 'accepted', receipt, 200, code, '', 0, 'status', updated FROM entries`,
		`INSERT INTO conflicts SELECT reminder_id, type, channel, 'other', 'queue', 'm-2', updated FROM entries WHERE right(reminder_id, 4) = '0077'`,
		`VACUUM ANALYZE`,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return "", fmt.Errorf("fill: %w", err)
		}
	}
	fmt.Fprintf(os.Stderr, "%d entries made in %s\n", entries, time.Since(begun).Round(time.Second))
	return database, nil
}

const fillEntries = `
INSERT INTO entries (reminder_id, type, channel, send_key, content_hash, state, version, class, reason, code, provider,
	fingerprint, receipt, attempts, budget_used, deliveries, owner, due, wake, doubt_since, first_seen, updated, published, source,
	correlation_id, reservation_id, user_id)
SELECT 'old-' || lpad(n::text, 9, '0'),
	(ARRAY['seat_expiring', 'seat_moved', 'course_begins', 'bill_due', 'welcome'])[n %% 5 + 1],
	(ARRAY['email', 'sms', 'push'])[n %% 3 + 1],
	md5(n::text) || md5('b' || n), md5('c' || n), state, 2,
	CASE state WHEN 'dead' THEN (ARRAY['recipient', 'exhausted', 'permanent'])[n / 50 %% 3 + 1] WHEN 'unknown' THEN 'unknown' ELSE '' END,
	CASE state WHEN 'sent' THEN 'accepted' WHEN 'dead' THEN 'refused' WHEN 'dropped' THEN 'expired' WHEN 'waiting' THEN 'scheduled' ELSE 'unanswered' END,
	CASE state WHEN 'dead' THEN 'code-' || n / 50 %% 10 ELSE '' END,
	CASE WHEN n %% 10 = 0 THEN 'relay' ELSE 'mail' END, 'f',
	CASE state WHEN 'sent' THEN 'r-' || n ELSE '' END, 1, 1, 1, 'ledger',
	CASE state WHEN 'waiting' THEN now() + interval '300 days' END, CASE state WHEN 'waiting' THEN now() + interval '300 days' END,
	CASE state WHEN 'unknown' THEN seen END, seen, seen + interval '1 second', seen, 'queue', 'req-' || n, 'seat-' || n / 2, 'user-' || n %% greatest(entries / 10, 1)
FROM (
	SELECT n, entries, now() - interval '300 days' * (entries - n) / entries AS seen,
		CASE WHEN n %% 50 = 7 THEN 'dead' WHEN n %% 100 = 3 THEN 'dropped' WHEN n %% 2000 = 11 THEN 'unknown' WHEN n %% 400 = 13 THEN 'waiting' ELSE 'sent' END AS state
	FROM (SELECT generate_series(1, %[1]d) AS n, %[1]d AS entries) AS numbers
) AS made`
