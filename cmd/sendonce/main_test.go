package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/internal/config"
)

func TestRun_WrongArgumentsAreUsageErrors(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing": {}, "no command": {"sned"}, "no configuration": {"serve"}, "a stray argument": {"serve", "-config", "x", "y"},
		"an unknown flag": {"dev", "-port", "1"}, "no file to check": {"check-config"}, "two files": {"migrate", "-config", "x", "y"},
		"an argument of dev": {"dev", "here"}, "an address and a file": {"health", "-addr", "x:1", "-config", "y"}, "help on nothing": {"help", "sned"},
	} {
		var out, errOut bytes.Buffer
		if err := run(args, &out, &errOut); !errors.Is(err, errUsage) || errOut.Len() == 0 {
			t.Errorf("%s: error %v, stderr %q", name, err, errOut.String())
		}
	}
}

func TestUsage_NamesEveryCommand(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--help"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"dev", "serve", "migrate", "check-config", "health", "rehearse", "version"} {
		if !strings.Contains(out.String(), "sendonce "+command) {
			t.Errorf("help does not name %s", command)
		}
	}
}

func TestHelp_OfEachCommand(t *testing.T) {
	for _, c := range commands() {
		for _, args := range [][]string{{c.name, "-h"}, {c.name, "--help"}, {"help", c.name}} {
			var out, errOut bytes.Buffer
			if err := run(args, &out, &errOut); !errors.Is(err, flag.ErrHelp) || errOut.Len() > 0 {
				t.Errorf("%q: %v, stderr %q", args, err, errOut.String())
			}
			for _, part := range []string{c.help, "Usage:    sendonce " + c.name, "Example:  sendonce " + c.name} {
				if !strings.Contains(out.String(), part) {
					t.Errorf("%q does not say %q:\n%s", args, part, out.String())
				}
			}
		}
	}
}

func TestVersion_InEverySpelling(t *testing.T) {
	for _, spelling := range []string{"version", "-v", "-version", "--version"} {
		var out bytes.Buffer
		if err := run([]string{spelling}, &out, &out); err != nil || !strings.HasPrefix(out.String(), "sendonce ") || !strings.Contains(out.String(), "go1.") {
			t.Errorf("%s: %v, %q", spelling, err, out.String())
		}
	}
}

func TestConfigFile_AsFlagOrArgument(t *testing.T) {
	file := t.TempDir() + "/none.yaml"
	for _, command := range []string{"serve", "migrate", "check-config"} {
		for _, args := range [][]string{{command, file}, {command, "-config", file}, {command, "--config=" + file}} {
			var out bytes.Buffer
			if err := run(args, &out, &out); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), file) {
				t.Errorf("%q: %v", args, err)
			}
		}
	}
}

func TestFormatError_IndentsFurtherLines(t *testing.T) {
	if got, want := formatError(errors.New("one\ntwo\n\tthree\n")), "sendonce: one\n  two\n  \tthree\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestErrors_ShowNoDatabasePassword covers the errors of sendonce and of the driver.
func TestErrors_ShowNoDatabasePassword(t *testing.T) {
	const canary = "canary-s3cr3t"
	for name, url := range map[string]string{
		"unreachable":       "postgres://gw:" + canary + "@127.0.0.1:1/db?connect_timeout=2",
		"a bad mode":        "postgres://gw:" + canary + "@127.0.0.1:1/db?sslmode=nope",
		"a bad port":        "postgres://gw:" + canary + "@127.0.0.1:x/db",
		"in the query":      "postgres://127.0.0.1:1/db?user=gw&password=" + canary + "&sslmode=nope",
		"a key's password":  "postgres://127.0.0.1:1/db?sslkey=/none&sslcert=/none&sslpassword=" + canary,
		"cut at an @":       "postgres://gw:x@" + canary + "@127.0.0.1:1/db",
		"cut at a /":        "postgres://gw:1/" + canary + "@127.0.0.1:1/db",
		"cut at a ?":        "postgres://gw:1?" + canary + "@127.0.0.1:1/db",
		"cut at a #":        "postgres://gw:1#" + canary + "@127.0.0.1:1/db",
		"a space":           "postgres://gw: " + canary + "@127.0.0.1:1/db",
		"a percent sign":    "postgres://gw:%" + canary + "@127.0.0.1:1/db",
		"another scheme":    "mysql://gw:" + canary + "@127.0.0.1:1/db",
		"a keyword string":  "host=127.0.0.1 password=" + canary,
		"a relative ledger": "sqlite://" + canary + "?",
	} {
		t.Setenv("SENDONCE_TEST_URL", url)
		file := configuration(t, `database: {url: "${SENDONCE_TEST_URL}"}`)
		for _, command := range []string{"migrate", "check-config"} {
			var out bytes.Buffer
			err := run([]string{command, file}, &out, &out)
			if command == "migrate" && err == nil {
				t.Errorf("%s: %s succeeds", name, command)
			}
			if err != nil && strings.Contains(formatError(err), canary) || strings.Contains(out.String(), canary) {
				t.Errorf("%s: %s shows it: %v %s", name, command, err, out.String())
			}
		}
	}
}

// configuration writes a minimal valid configuration with more lines, and returns its path.
func configuration(t *testing.T, lines string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	err := os.WriteFile(file, []byte(lines+`
providers: {mail: {kind: webhook, url: "https://mail.example.org/"}}
channels: {email: {provider: mail}}
types: {default: {}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestMigrate_ReportsSuccessAlsoWhenRepeated(t *testing.T) {
	file := configuration(t, "database: {url: 'sqlite://"+t.TempDir()+"/ledger.db'}")
	for range 2 {
		var out bytes.Buffer
		if err := run([]string{"migrate", file}, &out, &out); err != nil || out.String() != "the ledger's schema is up to date\n" {
			t.Errorf("%v, said %q", err, out.String())
		}
	}
}

func TestDev_SuggestsAnotherAddressAndDirectory(t *testing.T) {
	inUse, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	var out bytes.Buffer
	err = run([]string{"dev", "-addr", inUse.Addr().String(), "-data", t.TempDir()}, &out, &out)
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "use another -data (and -addr)") {
		t.Errorf("error %v", err)
	}
}

func TestDevGuide_IsShortAndNamesTokensAndAddresses(t *testing.T) {
	guide := strings.TrimSpace(fmt.Sprintf(devGuide, "127.0.0.1:8080", "127.0.0.1:9090"))
	for _, word := range []string{
		"http://127.0.0.1:8080 ", "http://127.0.0.1:9090/metrics", "another reminder_id", "conflict",
		config.DevProducer, config.DevSupport, config.DevOperator, config.DevAdmin,
	} {
		if !strings.Contains(guide, word) {
			t.Errorf("the guide lacks %q", word)
		}
	}
	if lines := strings.Count(guide, "\n") + 1; lines > 14 {
		t.Errorf("the guide has %d lines", lines)
	}
}

func TestRun_MissingFileOrOpenAddressIsAnError(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"check-config", t.TempDir() + "/none.yaml"}, &out, &out); err == nil || errors.Is(err, errUsage) {
		t.Errorf("a missing file: %v", err)
	}
	if err := run([]string{"dev", "-addr", "0.0.0.0:8080", "-data", t.TempDir()}, &out, &out); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("dev on every address: %v", err)
	}
}

// TestDevGuide_MatchesTheReadme keeps the commands to paste identical in both.
func TestDevGuide_MatchesTheReadme(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	pasted := 0
	for line := range strings.Lines(strings.ReplaceAll(devGuide, "%[1]s", "127.0.0.1:8080")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "curl ") {
			pasted++
			if !strings.Contains(string(readme), line) {
				t.Errorf("the README lacks: %s", line)
			}
		}
	}
	if pasted != 2 {
		t.Errorf("%d commands to paste, want 2", pasted)
	}
}
