package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/db/postgres"
)

// The gateway's role is usually not a superuser: every load must work for it, and return at least the timeline.
func TestEpoch_OrdinaryRole(t *testing.T) {
	ctx := context.Background()
	raw := migrated.URL(t)
	s := open(t, postgres.Options{URL: raw})
	whole, err := s.Epoch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	system, timeline, ok := strings.Cut(whole, "/")
	if !ok || system == "" || len(timeline) != 8 {
		t.Fatalf("epoch %q, want the system identifier and eight digits of the timeline", whole)
	}
	role := "ordinary_" + strings.TrimPrefix(databaseOf(t, raw), "sendonce_test_")
	rows(t, raw, `CREATE ROLE `+role+` LOGIN PASSWORD 'x'`)
	t.Cleanup(func() {
		rows(t, raw, `DROP OWNED BY `+role)
		rows(t, raw, `DROP ROLE `+role)
	})
	rows(t, raw, `GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO `+role)
	u, _ := url.Parse(raw)
	u.User = url.UserPassword(role, "x")
	ordinary, err := postgres.Open(ctx, postgres.Options{URL: u.String()})
	if err != nil {
		t.Fatal(err)
	}
	defer ordinary.Close()
	for _, step := range []struct {
		grants string
		want   string
	}{
		{`REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC`, timeline},
		{`GRANT EXECUTE ON FUNCTION pg_control_system() TO ` + role, whole},
	} {
		rows(t, raw, step.grants)
		seen, err := ordinary.Load(ctx, identity("r"))
		if err != nil || seen.Epoch != step.want {
			t.Errorf("after %s: epoch %q, %v; want %q", step.grants, seen.Epoch, err, step.want)
		}
		if epoch, err := ordinary.Epoch(ctx); err != nil || epoch != step.want {
			t.Errorf("after %s: epoch %q, %v", step.grants, epoch, err)
		}
	}
	if again, err := s.Epoch(ctx); err != nil || again != whole {
		t.Errorf("for the owner: %q, %v; want %q", again, err, whole)
	}
}

func databaseOf(t *testing.T, raw string) string {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
