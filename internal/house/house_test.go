package house

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// rules are all of them, by name.
var rules = map[string]func(*tree) []string{
	"walls": walls, "entrances": entrances, "names": names, "signs": signs, "sizes": sizes, "purity": purity,
	"cellar": cellar, "storing": storing, "meters": meters, "surroundings": surroundings, "outcomes": outcomes,
	"beginnings": beginnings, "stillness": stillness,
}

func TestTheHouseKeepsItsRules(t *testing.T) {
	real := load(t, os.DirFS("../.."))
	if len(real.files) == 0 || planOf(real) == 0 {
		t.Fatal("the house was not found")
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, finding := range rule(real) {
				t.Error(finding)
			}
		})
	}
}

// planOf counts the planned rooms that stand.
func planOf(t *tree) (n int) {
	for room := range t.rooms() {
		if _, ok := planned(room); ok {
			n++
		}
	}
	return n
}

// ours is an import of a room.
func ours(room string) string { return `import _ "` + module + "/" + room + `"` }

func TestEachRuleBites(t *testing.T) {
	for name, c := range map[string]struct {
		rule  string
		path  string
		body  string // the file, after its package clause
		bites bool
	}{
		"a pure room imports another":           {"walls", "internal/ledger/a.go", ours("internal/reminder"), true},
		"policy imports the foundations":        {"walls", "internal/policy/a.go", ours("internal/ledger") + "\n" + ours("internal/reminder"), false},
		"api imports a store":                   {"walls", "api/a.go", ours("db/postgres"), true},
		"api imports deliver":                   {"walls", "api/a.go", ours("internal/deliver"), true},
		"api imports a format":                  {"walls", "api/a.go", ours("internal/broker/pubsub"), true},
		"api imports the format's interface":    {"walls", "api/a.go", ours("internal/broker"), false},
		"a use-case imports another":            {"walls", "internal/reconcile/a.go", ours("internal/deliver"), true},
		"a use-case imports a provider":         {"walls", "internal/deliver/a.go", ours("internal/provider"), true},
		"a store imports the policy":            {"walls", "db/sqlite/a.go", ours("internal/policy"), true},
		"a store imports its own queries":       {"walls", "db/sqlite/a.go", ours("db/sqlite/internal/litesql"), false},
		"a store imports the other's queries":   {"walls", "db/sqlite/a.go", ours("db/postgres/internal/pgsql"), true},
		"broker meets provider":                 {"walls", "internal/broker/a.go", ours("internal/provider"), true},
		"a format meets a provider":             {"walls", "internal/broker/plain/a.go", ours("internal/provider/webhook"), true},
		"an adapter imports its sibling":        {"walls", "internal/provider/smtp/a.go", ours("internal/provider/webhook"), true},
		"an adapter imports its wing":           {"walls", "internal/provider/smtp/a.go", ours("internal/provider"), false},
		"an adapter's test imports its sibling": {"walls", "internal/provider/smtp/a_test.go", ours("internal/provider/webhook"), true},
		"an adapter's test imports the suite":   {"walls", "internal/provider/smtp/a_test.go", ours("internal/provider/providertest"), false},
		"a test imports what it needs":          {"walls", "internal/deliver/a_test.go", ours("db/dbtest"), false},
		"telemetry imports deliver":             {"walls", "internal/telemetry/a.go", ours("internal/deliver"), true},
		"config imports anything":               {"walls", "internal/config/a.go", ours("internal/ledger"), true},
		"a room imports app":                    {"walls", "internal/simulation/a.go", ours("internal/app"), true},
		"cmd imports app":                       {"walls", "cmd/sendonce/a.go", ours("internal/app"), false},
		"cmd imports deliver":                   {"walls", "cmd/sendonce/a.go", ours("internal/deliver"), true},
		"app joins":                             {"walls", "internal/app/a.go", ours("internal/deliver") + "\n" + ours("db/postgres"), false},
		"app imports cli":                       {"walls", "internal/app/a.go", ours("internal/cli"), true},
		"a room nobody planned":                 {"walls", "internal/queue/a.go", "", true},
		"a door nobody planned":                 {"entrances", "pkg/queue/a.go", "", true},
		"a room named for nothing":              {"names", "internal/util/a.go", "", true},
		"a file named for nothing":              {"names", "internal/app/helpers.go", "", true},
		"a room named for its work":             {"names", "internal/app/a.go", "", false},
		"a room without a sign":                 {"signs", "internal/app/a.go", "", true},
		"a file beyond one reading":             {"sizes", "internal/app/a.go", strings.Repeat("\n", 450), true},
		"a pure room calls out":                 {"purity", "internal/policy/a.go", `import "net/http"`, true},
		"a pure room logs":                      {"purity", "internal/ledger/a.go", `import "log/slog"`, true},
		"a pure room takes a context":           {"purity", "internal/reminder/a.go", `import "context"`, true},
		"a pure room draws":                     {"purity", "internal/policy/a.go", `import "math/rand/v2"`, true},
		"a pure room traces":                    {"purity", "internal/ledger/a.go", `import "go.opentelemetry.io/otel"`, true},
		"a pure room reads the clock":           {"purity", "internal/ledger/a.go", "import \"time\"\nvar _ = time.Now()", true},
		"a pure room holds the clock":           {"purity", "internal/ledger/a.go", "import clock \"time\"\nvar _ = clock.Now", true},
		"a pure room reckons with time":         {"purity", "internal/ledger/a.go", "import \"time\"\nconst d = time.Second", false},
		"a pure room's test reads the clock":    {"purity", "internal/ledger/a_test.go", "import \"time\"\nvar _ = time.Now()", false},
		"another room reads the clock":          {"purity", "internal/deliver/a.go", "import \"time\"\nvar _ = time.Now()", false},
		"a driver outside db":                   {"cellar", "internal/app/a.go", `import _ "github.com/jackc/pgx/v5"`, true},
		"SQL outside db":                        {"cellar", "api/a.go", "const q = `\n SELECT a FROM entries`", true},
		"an English sentence with select":       {"cellar", "api/a.go", `const q = "select what you want"`, false},
		"SQL in db":                             {"cellar", "db/sqlite/a.go", "const q = `SELECT a FROM entries`", false},
		"a query file outside db":               {"cellar", "internal/app/a.sql", "", true},
		"a store that branches":                 {"storing", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f(s ledger.State) bool { return s == ledger.Sent }", true},
		"a store that switches":                 {"storing", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f(s ledger.State) { switch s { case ledger.Dead: } }", true},
		"a store that lists":                    {"storing", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f() []ledger.State { return []ledger.State{ledger.Sent} }", false},
		"an SDK outside telemetry":              {"meters", "internal/app/a.go", `import _ "go.opentelemetry.io/otel/sdk/trace"`, true},
		"the API outside telemetry":             {"meters", "internal/app/a.go", `import _ "go.opentelemetry.io/otel/trace"`, false},
		"an SDK in telemetry":                   {"meters", "internal/telemetry/a.go", `import _ "go.opentelemetry.io/otel/sdk/trace"`, false},
		"a room reads the environment":          {"surroundings", "internal/app/a.go", "import \"os\"\nvar _ = os.Getenv(\"HOME\")", true},
		"a room hands the lookup on":            {"surroundings", "internal/app/a.go", "import \"os\"\nvar _ = os.LookupEnv", true},
		"cmd hands it in":                       {"surroundings", "cmd/sendonce/a.go", "import \"os\"\nvar _ = os.LookupEnv", false},
		"a provider that fails":                 {"outcomes", "internal/provider/smtp/a.go", "type P struct{}\nfunc (P) Send() (Outcome, error)", true},
		"a provider that tells":                 {"outcomes", "internal/provider/smtp/a.go", "type P struct{}\nfunc (P) Send() ledger.Outcome", false},
		"an init":                               {"beginnings", "internal/app/a.go", "func init() {}", true},
		"a method named init":                   {"beginnings", "internal/app/a.go", "type T int\nfunc (T) init() {}", false},
		"a variable without a value":            {"stillness", "internal/app/a.go", "var n int", true},
		"a variable that could be a constant":   {"stillness", "internal/app/a.go", "var n = 5", true},
		"a function that can be swapped":        {"stillness", "internal/app/a.go", "import \"time\"\nvar now = time.Now", true},
		"a lock for all":                        {"stillness", "internal/app/a.go", "import \"sync\"\nvar pool = sync.Pool{}", true},
		"a made map":                            {"stillness", "internal/app/a.go", "var m = make(map[string]int)", true},
		"a sentinel":                            {"stillness", "internal/app/a.go", "import \"errors\"\nvar ErrX = errors.New(\"x\")", false},
		"a compiled expression":                 {"stillness", "internal/app/a.go", "import \"regexp\"\nvar re = regexp.MustCompile(`x`)", false},
		"a value worked out once":               {"stillness", "internal/app/a.go", "import \"sync\"\nvar v = sync.OnceValue(func() int { return 5 })", false},
		"an embedded tree":                      {"stillness", "internal/app/a.go", "import \"embed\"\n//go:embed x\nvar files embed.FS", false},
		"an assertion":                          {"stillness", "internal/app/a.go", "var _ error = (*T)(nil)\ntype T struct{}", false},
		"a table":                               {"stillness", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() int { return m[\"a\"] }", false},
		"a table that is written to":            {"stillness", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() { m[\"b\"] = 2 }", true},
		"a table that is deleted from":          {"stillness", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() { delete(m, \"a\") }", true},
		"a list that is replaced":               {"stillness", "internal/app/a.go", "var l = []int{1}\nfunc f() { l = append(l, 2) }", true},
		"a struct that counts":                  {"stillness", "internal/app/a.go", "var s = struct{ n int }{}\nfunc f() { s.n++ }", true},
		"a local variable of the same name":     {"stillness", "internal/app/a.go", "var l = []int{1}\nfunc f() { var l []int; l = append(l, 2); _ = l }", false},
		"a local copy":                          {"stillness", "internal/app/a.go", "var l = []int{1}\nfunc f() { l := l; l = nil; _ = l }", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("package a\n%s\n", c.body)
			found := rules[c.rule](load(t, fstest.MapFS{c.path: {Data: []byte(text)}}))
			if bitten := len(found) > 0; bitten != c.bites {
				t.Errorf("%s: bites: %v, want %v: %q", c.rule, bitten, c.bites, found)
			}
		})
	}
}

func TestWhatSqlcWroteStaysInside(t *testing.T) {
	text := []byte("// Code generated by sqlc. DO NOT EDIT.\n\npackage a\n")
	for room, bites := range map[string]bool{"db/sqlite": true, "internal/app": true, "db/sqlite/internal/litesql": false} {
		if found := cellar(load(t, fstest.MapFS{room + "/a.go": {Data: text}})); len(found) > 0 != bites {
			t.Errorf("%s: %q", room, found)
		}
	}
}

func TestWhatAToolWroteHasAnyLength(t *testing.T) {
	text := []byte("// Code generated by x. DO NOT EDIT.\n\npackage a\n" + strings.Repeat("\n", 800))
	if found := sizes(load(t, fstest.MapFS{"api/a.go": {Data: text}})); found != nil {
		t.Errorf("%q", found)
	}
}

func TestARoomSaysWhatItIsFor(t *testing.T) {
	for text, bites := range map[string]bool{
		"// Package a waits.\npackage a\n":                    false,
		"// A waits.\npackage a\n":                            true,
		"// Package b waits.\npackage a\n":                    true,
		"// Package a waits.\n\npackage a\n":                  true,
		"// Command app runs it.\npackage main\n":             false,
		"// Package main runs it.\npackage main\n":            true,
		"// Code generated by x. DO NOT EDIT.\n\npackage a\n": false,
	} {
		if found := signs(load(t, fstest.MapFS{"internal/app/a.go": {Data: []byte(text)}})); len(found) > 0 != bites {
			t.Errorf("%q: %q", text, found)
		}
	}
}

func TestEveryRuleIsShownToBite(t *testing.T) {
	broken := load(t, fstest.MapFS{
		"pkg/models/a.go":        {Data: []byte("package models\nimport _ \"go.opentelemetry.io/otel/sdk\"\nimport \"os\"\nvar n = os.Getenv(\"X\")\nconst q = `DELETE FROM x`\nfunc init() {}\n" + strings.Repeat("\n", 450))},
		"internal/ledger/a.go":   {Data: []byte("package ledger\nimport _ \"os\"\n")},
		"internal/provider/a.go": {Data: []byte("package provider\ntype P int\nfunc (P) Send() error\n")},
		"db/sqlite/a.go":         {Data: []byte("package sqlite\nimport \"" + module + "/internal/ledger\"\nvar _ = x == ledger.Sent\n")},
	})
	for name, rule := range rules {
		if len(rule(broken)) == 0 {
			t.Errorf("%s bites nothing", name)
		}
	}
}
