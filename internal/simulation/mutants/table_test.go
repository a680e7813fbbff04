package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const top = "../../.."

func TestMutants_EveryPatchFitsAndEveryTestExists(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.name] {
			t.Errorf("%s: listed twice", m.name)
		}
		names[m.name] = true
		if _, _, err := m.apply(top); err != nil {
			t.Error(err)
		}
		if !hasTest(t, filepath.Join(top, m.pkg), m.test) {
			t.Errorf("%s: no %s in %s", m.name, m.test, m.pkg)
		}
	}
	if len(names) < 25 {
		t.Errorf("only %d mutants", len(names))
	}
}

func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name + `\(t \*testing\.T\)`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if declared.Match(text) {
			return true
		}
	}
	return false
}
