package house

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// anything : the room may import every other one.
const anything = "*"

// plan is who may import whom. A name that ends in /* stands for the rooms directly inside; inside an
// import, "beside" is the room around them. What is not planned may not be built.
var plan = map[string][]string{
	"cmd/sendonce":          {"internal/app", "internal/cli", "internal/config"},
	"api":                   {"api/internal/wire", "internal/broker", "internal/ledger", "internal/reminder"},
	"api/internal/wire":     {},
	"api/client":            {},
	"db/postgres":           {"internal/ledger", "db/postgres/internal/*", "db/postgres/migrations"},
	"db/sqlite":             {"internal/ledger", "db/sqlite/internal/*", "db/sqlite/migrations"},
	"db/*/internal/*":       {},
	"db/*/migrations":       {},
	"db/dbtest":             {"internal/ledger"},
	"db/dbtest/pgserver":    {},
	"internal/ledger":       {},
	"internal/reminder":     {},
	"internal/policy":       {"internal/ledger", "internal/reminder"},
	"internal/broker":       {"internal/ledger"},
	"internal/broker/*":     {"internal/broker", "internal/ledger"},
	"internal/outbound":     {},
	"internal/provider":     {"internal/ledger", "internal/outbound"},
	"internal/provider/*":   {"internal/provider", "internal/ledger", "internal/outbound"},
	"internal/relevance":    {"internal/ledger", "internal/reminder", "internal/outbound"},
	"internal/deliver":      {"internal/ledger", "internal/reminder", "internal/policy"},
	"internal/reconcile":    {"internal/ledger"},
	"internal/redrive":      {"internal/ledger"},
	"internal/retention":    {"internal/ledger"},
	"internal/dashboard":    {"internal/ledger"},
	"internal/telemetry":    {"internal/ledger", "internal/reminder"},
	"internal/crashpoint":   {"internal/ledger"},
	"internal/config":       {},
	"internal/cli":          {"api/client"},
	"internal/app":          {anything},
	"internal/house":        {anything},
	"internal/simulation":   {anything},
	"internal/blackbox":     {anything},
	"internal/blackbox/*":   {anything},
	"internal/simulation/*": {anything},
}

// planned is the line of the plan for a room; a line that names it comes before a pattern.
func planned(room string) ([]string, bool) {
	if may, ok := plan[room]; ok {
		return may, true
	}
	for pattern, may := range plan {
		if matches(pattern, room) {
			return may, true
		}
	}
	return nil, false
}

func matches(pattern, room string) bool {
	ok, err := path.Match(pattern, room)
	return ok && err == nil
}

// walls: a room imports only what the plan lets it. Tests may look anywhere, but an adapter's test
// knows no sibling either, except for the suites that all of them share (names that end in "test").
func walls(t *tree) (found []string) {
	for _, f := range t.files {
		may, ok := planned(f.room)
		if !ok {
			found = append(found, t.at(f, f.syntax.Name, "the room %s is not in the plan", f.room))
			continue
		}
		f.imports(func(spec *ast.ImportSpec, imported, _ string) {
			other, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case !ours || f.test && other == f.room: // an external test of the room itself
			case siblings(f.room, other):
				if !f.test || !strings.HasSuffix(other, "test") {
					found = append(found, t.at(f, spec, "%s imports its sibling %s", f.room, other))
				}
			case f.test:
			case under(other, "cmd"), other == "internal/app" && !under(f.room, "cmd"):
				found = append(found, t.at(f, spec, "only cmd imports app, and nobody imports cmd; %s imports %s", f.room, other))
			case f.room == "internal/app" && other == "internal/cli":
				found = append(found, t.at(f, spec, "app does not know the command line"))
			case slices.Contains(may, anything):
			case !slices.ContainsFunc(may, func(pattern string) bool { return matches(pattern, other) }):
				found = append(found, t.at(f, spec, "%s may not import %s", f.room, other))
			}
		})
	}
	return found
}

// siblings tells whether both are adapters in one wing.
func siblings(room, other string) bool {
	wing := path.Dir(room)
	return room != other && wing == path.Dir(other) && (wing == "internal/broker" || wing == "internal/provider")
}

// entrances: only these stand at the top.
func entrances(t *tree) (found []string) {
	allowed := []string{
		"cmd", "api", "db", "internal", "deploy", "docs", "openapi.yaml", "sqlc.yaml", "Dockerfile", "Makefile",
		"go.mod", "go.sum", "README.md", "LICENSE",
		".ci", ".gitignore", ".gitattributes", ".dockerignore", ".editorconfig", ".golangci.yaml", "staticcheck.conf",
		".git", ".sendonce", "bin", // not in the repository
	}
	for _, entry := range t.top {
		name := entry.Name()
		if !slices.Contains(allowed, name) && !strings.HasSuffix(name, ".test") && !strings.HasSuffix(name, ".out") {
			found = append(found, fmt.Sprintf("%s: nothing but the planned stands at the top", name))
		}
	}
	return found
}

// names: none that says nothing about the room's work.
func names(t *tree) (found []string) {
	empty := []string{"util", "utils", "common", "models", "model", "types", "helper", "helpers", "service", "services", "misc", "shared"}
	for _, f := range t.files {
		if pkg := f.syntax.Name.Name; slices.Contains(empty, pkg) || slices.Contains(empty, path.Base(f.room)) {
			found = append(found, t.at(f, f.syntax.Name, "%s does not say what the room is for", pkg))
		}
		if base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test"); slices.Contains(empty, base) && !f.generated {
			found = append(found, fmt.Sprintf("%s:1: the file's name does not say what is in it", f.path))
		}
	}
	return found
}

// signs: every room says at its door what it is for, unless a tool wrote all of it.
func signs(t *tree) (found []string) {
	for room, files := range t.rooms() {
		want := "Package " + strings.TrimSuffix(files[0].syntax.Name.Name, "_test") + " "
		if files[0].syntax.Name.Name == "main" {
			want = "Command " + path.Base(room) + " "
		}
		if !slices.ContainsFunc(files, func(f source) bool {
			return f.generated || strings.HasPrefix(f.syntax.Doc.Text(), want)
		}) {
			found = append(found, fmt.Sprintf("%s: no package comment that begins with %q", room, want))
		}
	}
	return found
}

// sizes: a file is read in one go. Tables make tests longer.
func sizes(t *tree) (found []string) {
	for _, f := range t.files {
		limit := 450
		if f.test {
			limit = 700
		}
		if f.lines > limit && !f.generated {
			found = append(found, fmt.Sprintf("%s: %d lines are more than %d", f.path, f.lines, limit))
		}
	}
	return found
}
