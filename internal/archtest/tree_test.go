package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sendonce/sendonce"

// tree is the source code, parsed but not type-checked.
type tree struct {
	fset  *token.FileSet
	top   []fs.DirEntry
	files []source // every Go file, ordered by path
	paths []string // every file

	documents map[string]string // the text of Markdown, YAML and SQL files, by path
}

// source is one Go file.
type source struct {
	path      string
	dir       string
	test      bool
	generated bool
	lines     int
	text      string
	syntax    *ast.File
}

// load parses the Go files of fsys and reads its documents, except in hidden directories, testdata and build output.
func load(t testing.TB, fsys fs.FS) *tree {
	t.Helper()
	found := &tree{fset: token.NewFileSet(), documents: map[string]string{}}
	var err error
	if found.top, err = fs.ReadDir(fsys, "."); err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base := path.Base(name); entry.IsDir() && name != "." && (base[0] == '.' || base == "testdata" || name == "bin") {
			return fs.SkipDir
		}
		if entry.IsDir() {
			return nil
		}
		found.paths = append(found.paths, name)
		ext := path.Ext(name)
		if ext != ".go" && ext != ".md" && ext != ".yaml" && ext != ".sql" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		if ext != ".go" {
			found.documents[name] = string(text)
			return nil
		}
		syntax, err := parser.ParseFile(found.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		found.files = append(found.files, source{
			path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax), lines: strings.Count(string(text), "\n"), text: string(text), syntax: syntax,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// at formats a violation with its position.
func (t *tree) at(f source, node ast.Node, what string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, t.fset.Position(node.Pos()).Line, fmt.Sprintf(what, args...))
}

// packages maps each directory with Go files to these files.
func (t *tree) packages() map[string][]source {
	packages := map[string][]source{}
	for _, f := range t.files {
		packages[f.dir] = append(packages[f.dir], f)
	}
	return packages
}

// imports calls visit with every import of a file: its path, and its local name in that file.
func (f source) imports(visit func(spec *ast.ImportSpec, imported, name string)) {
	for _, spec := range f.syntax.Imports {
		imported := strings.Trim(spec.Path.Value, "`\"")
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		visit(spec, imported, name)
	}
}

// uses calls visit with each use of one of the names of a package, such as Now of package time, called or not.
func (f source) uses(pkg string, names []string, visit func(node ast.Node, name string)) {
	f.imports(func(spec *ast.ImportSpec, imported, local string) {
		if imported != pkg {
			return
		}
		if local == "." {
			visit(spec, ".")
			return
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			selected, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selected.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, selected.Sel.Name) {
				visit(selected, selected.Sel.Name)
			}
			return true
		})
	})
}

// under reports whether a directory is one of the given ones or below one of them.
func under(dir string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(parent string) bool {
		return dir == parent || strings.HasPrefix(dir, parent+"/")
	})
}
