package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const top = "../../.."

func TestEveryPatchFitsAndEveryNamedTestExists(t *testing.T) {
	names := map[string]bool{}
	for _, b := range bugs() {
		if names[b.name] {
			t.Errorf("%s: twice in the table", b.name)
		}
		names[b.name] = true
		if _, _, err := b.planted(top); err != nil {
			t.Error(err)
		}
		if !hasTest(t, filepath.Join(top, b.room), b.test) {
			t.Errorf("%s: there is no %s in %s", b.name, b.test, b.room)
		}
	}
	if len(names) < 25 {
		t.Errorf("only %d bugs", len(names))
	}
}

func hasTest(t *testing.T, room, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(room, "*_test.go"))
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
