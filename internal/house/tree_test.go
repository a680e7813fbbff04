package house

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

// tree is the source, parsed and not type-checked.
type tree struct {
	fset  *token.FileSet
	top   []fs.DirEntry
	files []source // every Go file, ordered by path
	paths []string // every file there is
}

// source is one Go file.
type source struct {
	path      string
	room      string // its directory
	test      bool
	generated bool
	lines     int
	text      string
	syntax    *ast.File
}

// load parses what stands in fsys. Hidden directories, testdata and what builds leave behind are no part
// of the house.
func load(t testing.TB, fsys fs.FS) *tree {
	t.Helper()
	found := &tree{fset: token.NewFileSet()}
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
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(found.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		found.files = append(found.files, source{
			path: name, room: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax), lines: strings.Count(string(text), "\n"), text: string(text), syntax: syntax,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// at is a position as a finding names it.
func (t *tree) at(f source, node ast.Node, what string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.path, t.fset.Position(node.Pos()).Line, fmt.Sprintf(what, args...))
}

// rooms maps each directory with Go files to them.
func (t *tree) rooms() map[string][]source {
	rooms := map[string][]source{}
	for _, f := range t.files {
		rooms[f.room] = append(rooms[f.room], f)
	}
	return rooms
}

// imports calls see with every import of a file: its path, and the name it goes by in that file.
func (f source) imports(see func(spec *ast.ImportSpec, imported, name string)) {
	for _, spec := range f.syntax.Imports {
		imported := strings.Trim(spec.Path.Value, "`\"")
		name := path.Base(imported)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		see(spec, imported, name)
	}
}

// calls the names of one package that a file uses, such as Now of time, be it a call or not.
func (f source) uses(pkg string, names []string, see func(node ast.Node, name string)) {
	f.imports(func(spec *ast.ImportSpec, imported, local string) {
		if imported != pkg {
			return
		}
		if local == "." {
			see(spec, ".")
			return
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			selected, ok := node.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := selected.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, selected.Sel.Name) {
				see(selected, selected.Sel.Name)
			}
			return true
		})
	})
}

// under tells whether a room is one of the given ones, or stands inside one.
func under(room string, halls ...string) bool {
	return slices.ContainsFunc(halls, func(hall string) bool {
		return room == hall || strings.HasPrefix(room, hall+"/")
	})
}
