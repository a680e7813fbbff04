package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
)

// anything allows a package to import every other one.
const anything = "*"

// allowedImports lists for each package the packages that it may import. A name that ends in /* stands for the
// packages directly below. A package that is not listed must not exist.
var allowedImports = map[string][]string{
	"cmd/sendonce":          {"internal/app", "internal/rehearsal", "internal/config"},
	"api":                   {"api/internal/wire", "internal/ingest", "internal/ledger", "internal/reminder"},
	"api/internal/wire":     {},
	"api/client":            {},
	"db/postgres":           {"internal/ledger", "db/postgres/internal/*", "db/postgres/migrations"},
	"db/sqlite":             {"internal/ledger", "db/sqlite/internal/*", "db/sqlite/migrations"},
	"db/*/internal/*":       {},
	"db/*/migrations":       {},
	"db/storetest":          {"internal/ledger"},
	"db/storetest/pgserver": {},
	"internal/ledger":       {},
	"internal/reminder":     {},
	"internal/policy":       {"internal/ledger", "internal/reminder"},
	"internal/ingest":       {"internal/ledger"},
	"internal/ingest/*":     {"internal/ingest", "internal/ledger"},
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
	"internal/rehearsal":    {"api/client"},
	"internal/app":          {anything},
	"internal/archtest":     {anything},
	"internal/simulation":   {anything},
	"internal/blackbox":     {anything},
	"internal/blackbox/*":   {anything},
	"internal/simulation/*": {anything},
}

// allowed returns the list of a package. An exact name takes precedence over a pattern.
func allowed(dir string) ([]string, bool) {
	if list, ok := allowedImports[dir]; ok {
		return list, true
	}
	for pattern, list := range allowedImports {
		if matches(pattern, dir) {
			return list, true
		}
	}
	return nil, false
}

func matches(pattern, dir string) bool {
	ok, err := path.Match(pattern, dir)
	return ok && err == nil
}

// imports: a package imports only what the table allows. Tests may import anything, except that the test of an adapter
// must not import a sibling other than the suites that all adapters share (names that end in "test").
func imports(t *tree) (found []string) {
	for _, f := range t.files {
		list, ok := allowed(f.dir)
		if !ok {
			found = append(found, t.at(f, f.syntax.Name, "the package %s is not in the table of allowed imports", f.dir))
			continue
		}
		f.imports(func(spec *ast.ImportSpec, imported, _ string) {
			other, inModule := strings.CutPrefix(imported, module+"/")
			switch {
			case !inModule || f.test && other == f.dir: // an external test of the package itself
			case siblings(f.dir, other):
				if !f.test || !strings.HasSuffix(other, "test") {
					found = append(found, t.at(f, spec, "%s imports its sibling %s", f.dir, other))
				}
			case f.test:
			case under(other, "cmd"), other == "internal/app" && !under(f.dir, "cmd"):
				found = append(found, t.at(f, spec, "only cmd imports app, and nobody imports cmd; %s imports %s", f.dir, other))
			case f.dir == "internal/app" && other == "internal/rehearsal":
				found = append(found, t.at(f, spec, "app may not import rehearsal"))
			case slices.Contains(list, anything):
			case !slices.ContainsFunc(list, func(pattern string) bool { return matches(pattern, other) }):
				found = append(found, t.at(f, spec, "%s may not import %s", f.dir, other))
			}
		})
	}
	return found
}

// siblings reports whether both packages are adapters of the same kind.
func siblings(dir, other string) bool {
	parent := path.Dir(dir)
	return dir != other && parent == path.Dir(other) && (parent == "internal/ingest" || parent == "internal/provider")
}

// topLevel: the top-level directory contains only these.
func topLevel(t *tree) (found []string) {
	known := []string{
		"cmd", "api", "db", "internal", "deploy", "docs", "openapi.yaml", "sqlc.yaml", "Dockerfile", "Makefile",
		"go.mod", "go.sum", "README.md", "LICENSE",
		".ci", ".gitignore", ".gitattributes", ".dockerignore", ".editorconfig", ".golangci.yaml", "staticcheck.conf",
		".git", ".sendonce", "bin", // not in the repository
	}
	for _, entry := range t.top {
		name := entry.Name()
		if !slices.Contains(known, name) && !strings.HasSuffix(name, ".test") && !strings.HasSuffix(name, ".out") {
			found = append(found, fmt.Sprintf("%s: not allowed in the top-level directory", name))
		}
	}
	return found
}

// names: no package or file has a name that does not describe its content.
func names(t *tree) (found []string) {
	empty := []string{"util", "utils", "common", "models", "model", "types", "helper", "helpers", "service", "services", "misc", "shared"}
	for _, f := range t.files {
		if pkg := f.syntax.Name.Name; slices.Contains(empty, pkg) || slices.Contains(empty, path.Base(f.dir)) {
			found = append(found, t.at(f, f.syntax.Name, "the name %s does not describe the package", pkg))
		}
		if base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test"); slices.Contains(empty, base) && !f.generated {
			found = append(found, fmt.Sprintf("%s:1: the name does not describe the file", f.path))
		}
	}
	return found
}

// packageDocs: every package has a package comment, unless all of it is generated.
func packageDocs(t *tree) (found []string) {
	for dir, files := range t.packages() {
		want := "Package " + strings.TrimSuffix(files[0].syntax.Name.Name, "_test") + " "
		if files[0].syntax.Name.Name == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		if !slices.ContainsFunc(files, func(f source) bool {
			return f.generated || strings.HasPrefix(f.syntax.Doc.Text(), want)
		}) {
			found = append(found, fmt.Sprintf("%s: no package comment that begins with %q", dir, want))
		}
	}
	return found
}

// fileSizes: files stay short enough to be read at once. Tests may be longer because of their tables.
func fileSizes(t *tree) (found []string) {
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
