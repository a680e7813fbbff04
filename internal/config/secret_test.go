package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const canary = "canary-7f3a-do-not-print"

func TestSecret_NeverPrintsItsValue(t *testing.T) {
	s := NewSecret(canary)
	held := struct {
		Public  Secret
		private Secret
		list    []Secret
		named   map[string]Secret
	}{s, s, []Secret{s}, map[string]Secret{"x": s}}
	var printed bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&printed, verb+"\n", s)
		fmt.Fprintf(&printed, verb+"\n", &s)
		fmt.Fprintf(&printed, verb+"\n", held)
		fmt.Fprintf(&printed, verb+"\n", &held)
	}
	for _, handler := range []slog.Handler{slog.NewJSONHandler(&printed, nil), slog.NewTextHandler(&printed, nil)} {
		slog.New(handler).Info("x", "secret", s, "held", held, "list", held.list)
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		for _, v := range []any{s, map[string]any{"a": s, "b": []Secret{s}}} {
			out, err := marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			printed.Write(out)
		}
	}
	// %x of the redacted text is harmless; %x of the value would be the canary in hexadecimal.
	for _, leak := range []string{canary, fmt.Sprintf("%x", canary)} {
		if strings.Contains(printed.String(), leak) {
			t.Errorf("printed %q in\n%s", leak, printed.String())
		}
	}
	if !strings.Contains(printed.String(), "[secret]") {
		t.Error("the output does not show that there is a secret")
	}
	if s.Reveal() != canary {
		t.Error("Reveal does not return the value")
	}
}

func TestSecret_ConfigPrintsNoSecret(t *testing.T) {
	c, err := Parse([]byte(`database: {url: "postgres://u:`+canary+`@db/x"}
sources:
  a: {format: plain, max_age: 1d, auth: {bearer: {tokens: [`+canary+`]}}}
  b: {format: plain, max_age: 1d, auth: {header: {name: X-Key, secrets: [`+canary+`]}}}
providers:
  mail: {kind: webhook, url: "https://mail.example.org/", headers: {Authorization: `+canary+`}}
  relay: {kind: smtp, smtp: {host: relay.example.org, from: a@example.org, username: u, password: `+canary+`}}
channels: {email: {provider: mail}}
types: {default: {}}
callers: [{name: a, role: admin, tokens: [`+canary+`-2]}]
`), environment())
	if err != nil {
		t.Fatal(err)
	}
	marshalled, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprintf("%v", c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), string(marshalled)} {
		if strings.Contains(text, canary) {
			t.Errorf("shows a secret: %s", text)
		}
	}
}

func TestFaults_ShowNoSecretOrVariable(t *testing.T) {
	env := environment("CANARY", canary, "LINES", canary+"\n")
	for _, raw := range []string{
		`database: {url: "mysql://u:` + canary + `@db/x"}`,
		`database: {url: "postgres://u:` + canary + `%zz@db/x"}`,
		`database: {url: "${LINES}"}`,
		`database: [` + canary + `]`,
		`providers: {mail: {kind: webhook, url: "https://u:` + canary + `@mail.example.org/"}}`,
		`providers: {mail: {kind: webhook, url: "${CANARY}", headers: {Idempotency-Key: ` + canary + `}}}`,
		`lease: ${CANARY}`,
		`listen: ${CANARY}`,
		`limit: ${CANARY}`,
		`log: {level: "${CANARY}"}`,
		`types: {default: {max_attempts: "${CANARY}", relevance: {url: "${CANARY}"}}}`,
		`sources: {a: {format: standard-webhooks, auth: {standard_webhooks: {secrets: [` + canary + `]}}}}`,
		`callers: [{name: a, role: admin, tokens: ["sha256:` + canary + `"]}]`,
		"callers:\n  - tokens: [" + canary + "\n",
		"database: {url: " + canary + "\n\tx",
		`channels: {email: {provider: "${CANARY}"}}`,
	} {
		_, err := Parse([]byte(raw), env)
		if err == nil {
			t.Errorf("accepted: %s", raw)
		} else if strings.Contains(err.Error(), canary) {
			t.Errorf("%s\n  is reported as: %v", raw, err)
		}
	}
}
