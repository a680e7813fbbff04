package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestACommandLineThatIsNotUnderstoodSaysSoAndEndsWithUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"nothing": {}, "no command": {"sned"}, "no configuration": {"serve"}, "a stray argument": {"serve", "-config", "x", "y"},
		"an unknown flag": {"dev", "-port", "1"}, "no file to check": {"check-config"},
	} {
		var out, errOut bytes.Buffer
		if err := run(args, &out, &errOut); !errors.Is(err, errUsage) || errOut.Len() == 0 {
			t.Errorf("%s: error %v, said %q", name, err, errOut.String())
		}
	}
}

func TestHelpTeachesEveryCommand(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"--help"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"dev", "serve", "migrate", "check-config", "health", "version"} {
		if !strings.Contains(out.String(), "sendonce "+command) {
			t.Errorf("help does not name %s", command)
		}
	}
}

func TestAMissingFileOrAnOpenAddressIsAnError(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"check-config", t.TempDir() + "/none.yaml"}, &out, &out); err == nil || errors.Is(err, errUsage) {
		t.Errorf("a missing file: %v", err)
	}
	if err := run([]string{"dev", "-addr", "0.0.0.0:8080", "-data", t.TempDir()}, &out, &out); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("dev on every address: %v", err)
	}
}

// TestTheGuideAndTheReadmeSayTheSame keeps what people paste in one piece.
func TestTheGuideAndTheReadmeSayTheSame(t *testing.T) {
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
