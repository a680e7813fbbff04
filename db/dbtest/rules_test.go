package dbtest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// statements reads the SQL files that match, without comments, one statement each, in lower case.
func statements(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", pattern, paths, err)
	}
	var all []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		bare := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(up, "")
		for statement := range strings.SplitSeq(bare, ";") {
			if statement = strings.ToLower(strings.TrimSpace(statement)); statement != "" {
				all = append(all, statement)
			}
		}
	}
	return all
}

// What would run on one PostgreSQL and not on a distributed one, or would break a promise there.
func TestEachQueryKeepsTheRulesOfADistributedLedger(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"another clock than ledger_now":            regexp.MustCompile(`\b(now|clock_timestamp|statement_timestamp|transaction_timestamp)\(|current_(timestamp|time|date)`),
		"a value that the database draws":          regexp.MustCompile(`\b(random|gen_random_uuid|nextval)\(`),
		"a locking read":                           regexp.MustCompile(`\bfor (no key )?(update|share|key share)\b|skip locked|nowait`),
		"CASE or COALESCE":                         regexp.MustCompile(`\bcase\b|\bcoalesce\(|\bnullif\(`),
		"ON CONFLICT that writes":                  regexp.MustCompile(`on conflict.*do update`),
		"interval arithmetic":                      regexp.MustCompile(`\binterval\b`),
		"advisory locks, LISTEN, LOCK or NOTIFY":   regexp.MustCompile(`advisory|\blisten\b|\bnotify\b|^lock\b`),
		"a transaction that the store should open": regexp.MustCompile(`^(begin|commit|rollback|savepoint)\b`),
	}
	returning := regexp.MustCompile(`returning\s+([^)]*)`)
	plain := regexp.MustCompile(`^(\*|[a-z_]+(\s*,\s*[a-z_]+)*)\s*$`)
	lone := regexp.MustCompile(`^select ledger_now\(\)`)
	update := regexp.MustCompile(`(?s)\b(update|delete from)\s+entries\b.*?where(.*)`)
	for _, query := range statements(t, "../queries/*.sql") {
		flat := strings.Join(strings.Fields(query), " ")
		for what, pattern := range forbidden {
			if pattern.MatchString(flat) {
				t.Errorf("%s in\n%s", what, query)
			}
		}
		for _, list := range returning.FindAllStringSubmatch(query, -1) {
			if !plain.MatchString(strings.TrimSpace(list[1])) {
				t.Errorf("RETURNING of more than plain columns in\n%s", query)
			}
		}
		if strings.HasPrefix(flat, "select") && !lone.MatchString(flat) {
			if list, _, _ := strings.Cut(flat, " from "); strings.Contains(list, "ledger_") {
				t.Errorf("a read that tells the clock of the node that holds the row:\n%s", query)
			}
		}
		if guard := update.FindStringSubmatch(query); guard != nil && !strings.Contains(guard[2], "version =") &&
			!strings.Contains(guard[2], "lease_until > ledger_now()") {
			t.Errorf("a write without the version that was read:\n%s", query)
		}
	}
}

// small are the tables that every node may hold whole.
var small = []string{"gates", "epochs", "redrives", "redrive_items"}

// Each key, foreign key and unique index leads with reminder_id; each constraint has a name.
func TestTheSchemaKeepsTheRulesOfADistributedLedger(t *testing.T) {
	key := regexp.MustCompile(`(primary key|foreign key|unique|references [a-z]+) ?\(([^)]*)\)`)
	unnamed := regexp.MustCompile(`(?m)^\s*(primary key|foreign key|unique|check)|[a-z] (primary key|unique|references|check)\b.*,$`)
	for _, path := range []string{"../postgres/migrations/*.sql", "../sqlite/migrations/*.sql"} {
		for _, statement := range statements(t, path) {
			table := strings.Fields(statement)
			if len(table) > 2 && !slices.Contains(small, table[2]) {
				for _, columns := range key.FindAllStringSubmatch(statement, -1) {
					if !strings.HasPrefix(columns[2], "reminder_id, type, channel") {
						t.Errorf("%s: a key on (%s)", table[2], columns[2])
					}
				}
			}
			for line := range strings.Lines(statement) {
				if unnamed.MatchString(line) && !strings.Contains(line, "constraint") && !strings.HasPrefix(strings.TrimSpace(line), "references") {
					t.Errorf("a constraint without a name: %s", line)
				}
			}
			for _, never := range []string{"trigger", "create unique index", "create type", "serial", "default now", "default ledger_now"} {
				if strings.Contains(statement, never) {
					t.Errorf("%q in\n%s", never, statement)
				}
			}
		}
	}
}

// An index that names what settling changes would take the happy path off its page.
func TestNoIndexNamesWhatSettlingChanges(t *testing.T) {
	hot := regexp.MustCompile(`\b(state|version|reason|code|receipt|missing|attempts|spent|deliveries|holder|lease_until|updated)\b`)
	indexes := 0
	for _, statement := range statements(t, "../postgres/migrations/*.sql") {
		if !strings.HasPrefix(statement, "create index") {
			continue
		}
		indexes++
		if found := hot.FindString(statement); found != "" {
			t.Errorf("%s in %s", found, statement)
		}
	}
	if indexes == 0 {
		t.Error("no index was read")
	}
}

// Both dialects keep the same columns under the same constraints.
func TestBothSchemasSayTheSame(t *testing.T) {
	names := regexp.MustCompile(`(?m)^\s{4}(constraint\s+)?([a-z_]+)\b|^create table ([a-z]+)`)
	var said [2][]string
	for i, path := range []string{"../postgres/migrations/*.sql", "../sqlite/migrations/*.sql"} {
		for _, statement := range statements(t, path) {
			if strings.HasPrefix(statement, "create table") {
				for _, name := range names.FindAllStringSubmatch(statement, -1) {
					said[i] = append(said[i], name[2]+name[3])
				}
			}
		}
	}
	if len(said[0]) < 50 || !slices.Equal(said[0], said[1]) {
		t.Errorf("postgres: %d names, sqlite: %d\n%v\n%v", len(said[0]), len(said[1]), said[0], said[1])
	}
}
