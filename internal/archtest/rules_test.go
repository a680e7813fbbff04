package archtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// rules are all rules by name.
var rules = map[string]func(*tree) []string{
	"imports":             imports,
	"topLevel":            topLevel,
	"names":               names,
	"packageDocs":         packageDocs,
	"fileSizes":           fileSizes,
	"purity":              purity,
	"sqlOnlyInStore":      sqlOnlyInStore,
	"storesDoNotDecide":   storesDoNotDecide,
	"otelOnlyInTelemetry": otelOnlyInTelemetry,
	"envOnlyInConfig":     envOnlyInConfig,
	"sendReturnsOutcome":  sendReturnsOutcome,
	"noInit":              noInit,
	"noMutableGlobals":    noMutableGlobals,
	"vocabulary":          vocabulary,
}

func TestArchitecture(t *testing.T) {
	real := load(t, os.DirFS("../.."))
	if len(real.files) == 0 || countAllowed(real) == 0 {
		t.Fatal("the repository was not found")
	}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			for _, violation := range rule(real) {
				t.Error(violation)
			}
		})
	}
}

// countAllowed counts the listed packages that exist.
func countAllowed(t *tree) (n int) {
	for dir := range t.packages() {
		if _, ok := allowed(dir); ok {
			n++
		}
	}
	return n
}

// importOf is an import of a package of this module.
func importOf(dir string) string { return `import _ "` + module + "/" + dir + `"` }

func TestRules_RejectViolations(t *testing.T) {
	for name, c := range map[string]struct {
		rule     string
		path     string
		body     string // of the file, after its package clause
		rejected bool
	}{
		"pure package imports another":           {"imports", "internal/ledger/a.go", importOf("internal/reminder"), true},
		"policy imports the foundations":         {"imports", "internal/policy/a.go", importOf("internal/ledger") + "\n" + importOf("internal/reminder"), false},
		"api imports a store":                    {"imports", "api/a.go", importOf("db/postgres"), true},
		"api imports deliver":                    {"imports", "api/a.go", importOf("internal/deliver"), true},
		"api imports a format":                   {"imports", "api/a.go", importOf("internal/ingest/pubsub"), true},
		"api imports the format's interface":     {"imports", "api/a.go", importOf("internal/ingest"), false},
		"use case imports another":               {"imports", "internal/reconcile/a.go", importOf("internal/deliver"), true},
		"use case imports a provider":            {"imports", "internal/deliver/a.go", importOf("internal/provider"), true},
		"a store imports the policy":             {"imports", "db/sqlite/a.go", importOf("internal/policy"), true},
		"a store imports its own queries":        {"imports", "db/sqlite/a.go", importOf("db/sqlite/internal/litesql"), false},
		"a store imports the other's queries":    {"imports", "db/sqlite/a.go", importOf("db/postgres/internal/pgsql"), true},
		"ingest imports provider":                {"imports", "internal/ingest/a.go", importOf("internal/provider"), true},
		"format imports a provider":              {"imports", "internal/ingest/plain/a.go", importOf("internal/provider/webhook"), true},
		"an adapter imports its sibling":         {"imports", "internal/provider/smtp/a.go", importOf("internal/provider/webhook"), true},
		"adapter imports its parent":             {"imports", "internal/provider/smtp/a.go", importOf("internal/provider"), false},
		"an adapter's test imports its sibling":  {"imports", "internal/provider/smtp/a_test.go", importOf("internal/provider/webhook"), true},
		"an adapter's test imports the suite":    {"imports", "internal/provider/smtp/a_test.go", importOf("internal/provider/providertest"), false},
		"a test imports what it needs":           {"imports", "internal/deliver/a_test.go", importOf("db/storetest"), false},
		"telemetry imports deliver":              {"imports", "internal/telemetry/a.go", importOf("internal/deliver"), true},
		"config imports anything":                {"imports", "internal/config/a.go", importOf("internal/ledger"), true},
		"package imports app":                    {"imports", "internal/simulation/a.go", importOf("internal/app"), true},
		"cmd imports app":                        {"imports", "cmd/sendonce/a.go", importOf("internal/app"), false},
		"cmd imports deliver":                    {"imports", "cmd/sendonce/a.go", importOf("internal/deliver"), true},
		"app imports all":                        {"imports", "internal/app/a.go", importOf("internal/deliver") + "\n" + importOf("db/postgres"), false},
		"app imports rehearsal":                  {"imports", "internal/app/a.go", importOf("internal/rehearsal"), true},
		"unlisted package":                       {"imports", "internal/queue/a.go", "", true},
		"unlisted top-level directory":           {"topLevel", "pkg/queue/a.go", "", true},
		"package name without meaning":           {"names", "internal/util/a.go", "", true},
		"file name without meaning":              {"names", "internal/app/helpers.go", "", true},
		"package name with meaning":              {"names", "internal/app/a.go", "", false},
		"package without a comment":              {"packageDocs", "internal/app/a.go", "", true},
		"long file":                              {"fileSizes", "internal/app/a.go", strings.Repeat("\n", 450), true},
		"pure package imports net/http":          {"purity", "internal/policy/a.go", `import "net/http"`, true},
		"pure package logs":                      {"purity", "internal/ledger/a.go", `import "log/slog"`, true},
		"pure package uses a context":            {"purity", "internal/reminder/a.go", `import "context"`, true},
		"pure package uses randomness":           {"purity", "internal/policy/a.go", `import "math/rand/v2"`, true},
		"pure package traces":                    {"purity", "internal/ledger/a.go", `import "go.opentelemetry.io/otel"`, true},
		"pure package reads the clock":           {"purity", "internal/ledger/a.go", "import \"time\"\nvar _ = time.Now()", true},
		"pure package references the clock":      {"purity", "internal/ledger/a.go", "import clock \"time\"\nvar _ = clock.Now", true},
		"pure package uses durations":            {"purity", "internal/ledger/a.go", "import \"time\"\nconst d = time.Second", false},
		"test of a pure package reads the clock": {"purity", "internal/ledger/a_test.go", "import \"time\"\nvar _ = time.Now()", false},
		"other package reads the clock":          {"purity", "internal/deliver/a.go", "import \"time\"\nvar _ = time.Now()", false},
		"a driver outside db":                    {"sqlOnlyInStore", "internal/app/a.go", `import _ "github.com/jackc/pgx/v5"`, true},
		"SQL outside db":                         {"sqlOnlyInStore", "api/a.go", "const q = `\n SELECT a FROM entries`", true},
		"an English sentence with select":        {"sqlOnlyInStore", "api/a.go", `const q = "select what you want"`, false},
		"SQL in db":                              {"sqlOnlyInStore", "db/sqlite/a.go", "const q = `SELECT a FROM entries`", false},
		"a query file outside db":                {"sqlOnlyInStore", "internal/app/a.sql", "", true},
		"a store that branches":                  {"storesDoNotDecide", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f(s ledger.State) bool { return s == ledger.Sent }", true},
		"a store that switches":                  {"storesDoNotDecide", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f(s ledger.State) { switch s { case ledger.Dead: } }", true},
		"a store that lists":                     {"storesDoNotDecide", "db/sqlite/a.go", "import \"" + module + "/internal/ledger\"\nfunc f() []ledger.State { return []ledger.State{ledger.Sent} }", false},
		"the SDK outside telemetry":              {"otelOnlyInTelemetry", "internal/app/a.go", `import _ "go.opentelemetry.io/otel/sdk/trace"`, true},
		"the API outside telemetry":              {"otelOnlyInTelemetry", "internal/app/a.go", `import _ "go.opentelemetry.io/otel/trace"`, false},
		"the SDK in telemetry":                   {"otelOnlyInTelemetry", "internal/telemetry/a.go", `import _ "go.opentelemetry.io/otel/sdk/trace"`, false},
		"package reads the environment":          {"envOnlyInConfig", "internal/app/a.go", "import \"os\"\nvar _ = os.Getenv(\"HOME\")", true},
		"package references LookupEnv":           {"envOnlyInConfig", "internal/app/a.go", "import \"os\"\nvar _ = os.LookupEnv", true},
		"cmd references LookupEnv":               {"envOnlyInConfig", "cmd/sendonce/a.go", "import \"os\"\nvar _ = os.LookupEnv", false},
		"Send returns an error":                  {"sendReturnsOutcome", "internal/provider/smtp/a.go", "type P struct{}\nfunc (P) Send() (Outcome, error)", true},
		"Send returns an Outcome only":           {"sendReturnsOutcome", "internal/provider/smtp/a.go", "type P struct{}\nfunc (P) Send() ledger.Outcome", false},
		"an init":                                {"noInit", "internal/app/a.go", "func init() {}", true},
		"a method named init":                    {"noInit", "internal/app/a.go", "type T int\nfunc (T) init() {}", false},
		"a variable without a value":             {"noMutableGlobals", "internal/app/a.go", "var n int", true},
		"a variable that could be a constant":    {"noMutableGlobals", "internal/app/a.go", "var n = 5", true},
		"a function variable":                    {"noMutableGlobals", "internal/app/a.go", "import \"time\"\nvar now = time.Now", true},
		"a global pool":                          {"noMutableGlobals", "internal/app/a.go", "import \"sync\"\nvar pool = sync.Pool{}", true},
		"a map from make":                        {"noMutableGlobals", "internal/app/a.go", "var m = make(map[string]int)", true},
		"a sentinel error":                       {"noMutableGlobals", "internal/app/a.go", "import \"errors\"\nvar ErrX = errors.New(\"x\")", false},
		"a compiled expression":                  {"noMutableGlobals", "internal/app/a.go", "import \"regexp\"\nvar re = regexp.MustCompile(`x`)", false},
		"a value computed once":                  {"noMutableGlobals", "internal/app/a.go", "import \"sync\"\nvar v = sync.OnceValue(func() int { return 5 })", false},
		"an embedded tree":                       {"noMutableGlobals", "internal/app/a.go", "import \"embed\"\n//go:embed x\nvar files embed.FS", false},
		"an interface assertion":                 {"noMutableGlobals", "internal/app/a.go", "var _ error = (*T)(nil)\ntype T struct{}", false},
		"a table":                                {"noMutableGlobals", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() int { return m[\"a\"] }", false},
		"a table that is written to":             {"noMutableGlobals", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() { m[\"b\"] = 2 }", true},
		"a table that is deleted from":           {"noMutableGlobals", "internal/app/a.go", "var m = map[string]int{\"a\": 1}\nfunc f() { delete(m, \"a\") }", true},
		"a list that is replaced":                {"noMutableGlobals", "internal/app/a.go", "var l = []int{1}\nfunc f() { l = append(l, 2) }", true},
		"a struct that counts":                   {"noMutableGlobals", "internal/app/a.go", "var s = struct{ n int }{}\nfunc f() { s.n++ }", true},
		"a local variable of the same name":      {"noMutableGlobals", "internal/app/a.go", "var l = []int{1}\nfunc f() { var l []int; l = append(l, 2); _ = l }", false},
		"a former word in an identifier":         {"vocabulary", "internal/app/a.go", "type adminDesk int", true},
		"a former word in a comment":             {"vocabulary", "internal/app/a.go", "// f waits until the lease has lapsed.\nfunc f()", true},
		"a word that contains a former one":      {"vocabulary", "internal/app/a.go", "// f collapses what has elapsed.\nfunc f()", false},
		"a former word in a document":            {"vocabulary", "docs/a.md", "The heart of it.", true},
		"a local copy":                           {"noMutableGlobals", "internal/app/a.go", "var l = []int{1}\nfunc f() { l := l; l = nil; _ = l }", false},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("package a\n%s\n", c.body)
			found := rules[c.rule](load(t, fstest.MapFS{c.path: {Data: []byte(text)}}))
			if got := len(found) > 0; got != c.rejected {
				t.Errorf("%s: rejected %v, want %v: %q", c.rule, got, c.rejected, found)
			}
		})
	}
}

func TestSQLOnlyInStore_GeneratedCode(t *testing.T) {
	text := []byte("// Code generated by sqlc. DO NOT EDIT.\n\npackage a\n")
	for dir, rejected := range map[string]bool{"db/sqlite": true, "internal/app": true, "db/sqlite/internal/litesql": false} {
		if found := sqlOnlyInStore(load(t, fstest.MapFS{dir + "/a.go": {Data: text}})); len(found) > 0 != rejected {
			t.Errorf("%s: %q", dir, found)
		}
	}
}

func TestFileSizes_IgnoreGeneratedCode(t *testing.T) {
	text := []byte("// Code generated by x. DO NOT EDIT.\n\npackage a\n" + strings.Repeat("\n", 800))
	if found := fileSizes(load(t, fstest.MapFS{"api/a.go": {Data: text}})); found != nil {
		t.Errorf("%q", found)
	}
}

func TestPackageDocs(t *testing.T) {
	for text, rejected := range map[string]bool{
		"// Package a waits.\npackage a\n":                    false,
		"// A waits.\npackage a\n":                            true,
		"// Package b waits.\npackage a\n":                    true,
		"// Package a waits.\n\npackage a\n":                  true,
		"// Command app runs it.\npackage main\n":             false,
		"// Package main runs it.\npackage main\n":            true,
		"// Code generated by x. DO NOT EDIT.\n\npackage a\n": false,
	} {
		if found := packageDocs(load(t, fstest.MapFS{"internal/app/a.go": {Data: []byte(text)}})); len(found) > 0 != rejected {
			t.Errorf("%q: %q", text, found)
		}
	}
}

func TestRules_EachRejectsSomething(t *testing.T) {
	broken := load(t, fstest.MapFS{
		"pkg/models/a.go":        {Data: []byte("package models\nimport _ \"go.opentelemetry.io/otel/sdk\"\nimport \"os\"\nvar n = os.Getenv(\"X\")\nconst q = `DELETE FROM x`\nfunc init() {}\n" + strings.Repeat("\n", 450))},
		"internal/ledger/a.go":   {Data: []byte("package ledger\nimport _ \"os\"\n")},
		"internal/provider/a.go": {Data: []byte("package provider\ntype P int\nfunc (P) Send() error\n")},
		"docs/a.md":              {Data: []byte("A visitor came.")},
		"db/sqlite/a.go":         {Data: []byte("package sqlite\nimport \"" + module + "/internal/ledger\"\nvar _ = x == ledger.Sent\n")},
	})
	for name, rule := range rules {
		if len(rule(broken)) == 0 {
			t.Errorf("%s rejects nothing", name)
		}
	}
}
