package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one error in a configuration.
type Fault struct {
	File    string
	Line    int    // 1-based; 0 if it belongs to no line
	Path    string // such as sources.reservations.auth
	Problem string // what is wrong, and what to do
}

func (f Fault) String() string {
	at := f.File
	if f.Line > 0 {
		at = fmt.Sprintf("%s:%d", f.File, f.Line)
	}
	if f.Path == "" {
		return at + ": " + f.Problem
	}
	return at + ": " + f.Path + ": " + f.Problem
}

// Faults are all errors in a configuration, in the order of the file. They never show a secret, a URL, or the
// value of a variable.
type Faults []Fault

func (fs Faults) Error() string {
	lines := make([]string, len(fs))
	for i, f := range fs {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

func (fs Faults) sorted() Faults {
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), strings.Compare(a.Path, b.Path), strings.Compare(a.Problem, b.Problem))
	})
	return fs
}
