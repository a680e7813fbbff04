package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// setSession sets on a new connection what a role's, a database's or the URL's defaults must not weaken: a commit is on
// disk when it is acknowledged, and a statement sees what was committed before it, which the fence by version expects.
// Behind a pooler in transaction mode no session state can be set; there [Store.Warnings] reports the first, and
// repeats make up for the second.
func setSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.PgConn().Exec(ctx, "SET default_transaction_isolation = 'read committed'; "+
		"SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') <> 'remote_apply'").ReadAll()
	return err
}

// Warnings returns which of the server's settings may lose an acknowledged commit in a crash: a reminder that was sent
// is then sent again.
func (s *Store) Warnings(ctx context.Context) ([]string, error) {
	ctx, stop := context.WithTimeout(ctx, s.acquire)
	defer stop()
	rows, err := s.pool.Query(ctx, `SELECT name::text FROM unnest(ARRAY['fsync', 'full_page_writes', 'synchronous_commit']) AS name
		WHERE current_setting(name) = 'off'`)
	if err != nil {
		return nil, wrapped(err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, wrapped(err)
	}
	var warnings []string
	for _, name := range names {
		warning := fmt.Sprintf("the database runs with %s = off: after a crash of its server it may have forgotten sends, which are then made again; set it to on", name)
		if name == "synchronous_commit" {
			warning += " for the role (ALTER ROLE … SET), since it cannot be set through a pooler"
		}
		warnings = append(warnings, warning)
	}
	return warnings, nil
}
