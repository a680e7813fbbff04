// Command mutants checks that the tests detect bugs. Each mutant in its table removes one guard by a small patch, and
// names the test that must fail then. The mutants are applied to a copy of the tree, one at a time, and a table of
// mutants and tests is printed. A mutant that its test does not catch fails the run.
//
//	go run ./internal/simulation/mutants [-only PART-OF-A-NAME]
//
// Run it at the top of the tree. It takes minutes, since every mutant is compiled. Mutants that need PostgreSQL need
// its server binaries, as the tests do. The package's own tests check that every patch still fits and that every
// named test exists.
//
// It never changes the tree that it is run in.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run only the mutants whose name contains this text")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("mutants: run it at the top of the tree")
	}
	tree, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	if err := copyTree(".", tree); err != nil {
		return err
	}
	fmt.Println("| mutant | caught by | after |\n| --- | --- | --- |")
	missed, tried := 0, 0
	for _, m := range mutants() {
		if !strings.Contains(m.name, only) {
			continue
		}
		tried++
		took, err := m.caught(ctx, tree)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			missed++
			fmt.Printf("| %s | NOT CAUGHT | |\n\n%v\n\n", m.name, err)
			continue
		}
		fmt.Printf("| %s | %s in %s | %.0f s |\n", m.name, m.test, m.pkg, took.Seconds())
	}
	if missed > 0 || tried == 0 {
		return fmt.Errorf("mutants: %d of %d were not caught", missed, tried)
	}
	fmt.Printf("\nall %d mutants were caught\n", tried)
	return nil
}

// caught applies the mutant to tree, runs its test, and reverts it. It returns how long the test took to fail. It is an
// error if the test passes with the mutant or fails without it, or if the mutant does not compile.
func (m mutant) caught(ctx context.Context, tree string) (time.Duration, error) {
	mutated, original, err := m.apply(tree)
	if err != nil {
		return 0, err
	}
	if out, err := goTest(ctx, tree, m.pkg, m.test); err != nil {
		return 0, fmt.Errorf("%s fails without the mutant:\n%s", m.test, out)
	}
	path := filepath.Join(tree, m.file)
	if err := os.WriteFile(path, mutated, 0o600); err != nil {
		return 0, err
	}
	defer func() { _ = os.WriteFile(path, original, 0o600) }()
	if out, err := goTest(ctx, tree, m.pkg, "NoTestOfThisName"); err != nil {
		return 0, fmt.Errorf("the mutant does not compile:\n%s", out)
	}
	started := time.Now()
	out, err := goTest(ctx, tree, m.pkg, m.test)
	switch {
	case err == nil:
		return 0, fmt.Errorf("%s passes with the mutant", m.test)
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "test timed out"):
		return 0, fmt.Errorf("%s ended without a test failure:\n%s", m.test, out)
	}
	return time.Since(started), nil
}

// apply returns the mutant's file with the patch, and without it.
func (m mutant) apply(tree string) (mutated, original []byte, _ error) {
	original, err := os.ReadFile(filepath.Join(tree, m.file))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", m.name, err)
	}
	if n := strings.Count(string(original), m.old); n != 1 || m.old == m.new {
		return nil, nil, fmt.Errorf("%s: its text occurs %d times in %s, want once", m.name, n, m.file)
	}
	return []byte(strings.Replace(string(original), m.old, m.new, 1)), original, nil
}

func goTest(ctx context.Context, tree, pkg, test string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-timeout", "5m", "-run", "^"+test+"$", "./"+pkg)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyTree copies the files that the module is built and tested from.
func copyTree(from, into string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(into, name), 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(into, name), text, 0o600)
	})
}
