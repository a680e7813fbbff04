// Command planted shows that the suites bite: each bug in its table is a guard taken out by a small patch,
// and the named test that must fail then. Each is planted in a copy of the tree, one at a time, and the
// table of bug and test is printed; a bug that its test does not catch fails the run.
//
//	go run ./internal/simulation/planted [-only PART-OF-A-NAME]
//
// Run it at the top of the tree; it takes minutes, since each bug is compiled. Bugs that need PostgreSQL need
// its server binaries, as the suites do. The ordinary tests check that every patch still fits and that every
// named test exists.
//
// What it does not do: it never touches the tree that it is run in.
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
	only := flag.String("only", "", "plant only the bugs whose name contains this")
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
		return errors.New("planted: run it at the top of the tree")
	}
	tree, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	if err := copyTree(".", tree); err != nil {
		return err
	}
	fmt.Println("| planted bug | caught by | after |\n| --- | --- | --- |")
	missed, tried := 0, 0
	for _, b := range bugs() {
		if !strings.Contains(b.name, only) {
			continue
		}
		tried++
		took, err := b.caught(ctx, tree)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			missed++
			fmt.Printf("| %s | NOT CAUGHT | |\n\n%v\n\n", b.name, err)
			continue
		}
		fmt.Printf("| %s | %s in %s | %.0f s |\n", b.name, b.test, b.room, took.Seconds())
	}
	if missed > 0 || tried == 0 {
		return fmt.Errorf("planted: %d of %d bugs were not caught", missed, tried)
	}
	fmt.Printf("\nall %d bugs were caught\n", tried)
	return nil
}

// caught plants the bug in tree and takes it out again. It is an error when the bug's test passes with it,
// fails without it, or does not even compile.
func (b bug) caught(ctx context.Context, tree string) (time.Duration, error) {
	bad, sound, err := b.planted(tree)
	if err != nil {
		return 0, err
	}
	if out, err := goTest(ctx, tree, b.room, b.test); err != nil {
		return 0, fmt.Errorf("%s fails without it:\n%s", b.test, out)
	}
	path := filepath.Join(tree, b.file)
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		return 0, err
	}
	defer func() { _ = os.WriteFile(path, sound, 0o600) }()
	if out, err := goTest(ctx, tree, b.room, "NoTestOfThisName"); err != nil {
		return 0, fmt.Errorf("it does not compile, so it shows nothing:\n%s", out)
	}
	begun := time.Now()
	out, err := goTest(ctx, tree, b.room, b.test)
	switch {
	case err == nil:
		return 0, fmt.Errorf("%s passes with it", b.test)
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "test timed out"):
		return 0, fmt.Errorf("%s ended otherwise than by failing:\n%s", b.test, out)
	}
	return time.Since(begun), nil
}

// planted is the bug's file with the bug in it, and without.
func (b bug) planted(tree string) (bad, sound []byte, _ error) {
	sound, err := os.ReadFile(filepath.Join(tree, b.file))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", b.name, err)
	}
	if n := strings.Count(string(sound), b.old); n != 1 || b.old == b.new {
		return nil, nil, fmt.Errorf("%s: there are %d places for it in %s, and must be one", b.name, n, b.file)
	}
	return []byte(strings.Replace(string(sound), b.old, b.new, 1)), sound, nil
}

func goTest(ctx context.Context, tree, room, test string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-timeout", "5m", "-run", "^"+test+"$", "./"+room)
	cmd.Dir = tree
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyTree copies what the module is built and tested from.
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
