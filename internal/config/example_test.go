package config

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const exampleFile = "../../deploy/config.example.yaml"

// optional matches a commented-out setting of the example; removing its # enables the setting.
var optional = regexp.MustCompile(`(?m)^( *)#((?:  )*(?:- \{|[a-z_]+:))`)

// wholeExample returns the example with every setting enabled, on loopback since one of its sources is open.
func wholeExample(t *testing.T) []byte {
	t.Helper()
	raw, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	raw = optional.ReplaceAll(raw, []byte("$1$2"))
	return []byte(strings.Replace(string(raw), "listen: 0.0.0.0:8080", "listen: 127.0.0.1:8080", 1))
}

func TestExample_LoadsWithEverySettingInUse(t *testing.T) {
	raw := wholeExample(t)
	env := func(name string) (string, bool) {
		switch {
		case name == "DATABASE_URL":
			return "postgres://db.internal/sendonce", true
		case strings.HasSuffix(name, "_SIGNING_SECRET"):
			return signing, true
		case strings.HasSuffix(name, "_SHA256"):
			return strings.Repeat("0f", 32), true
		case strings.HasPrefix(name, "OTEL_"):
			return "", false
		}
		return name + "-0123456789abcdef", true
	}
	c, err := Parse(raw, env)
	if err != nil {
		t.Fatal(err)
	}
	if !c.AllowSandbox || !c.Database.Pooler || c.AdminListen == "" || c.AcceptSince.IsZero() || c.Callers[3].Role != RoleAdmin ||
		!c.Sources["local"].Auth.None || c.Sources["elsewhere"].Auth.OIDC.KeysURL != "https://id.example.org/keys" || !c.Providers["inside"].Insecure {
		t.Errorf("not every setting is enabled: %+v", c)
	}
}

// unknownWord is neither a setting nor a valid value of any setting.
const unknownWord = "zzzzzzzzzzzz"

var (
	knownHere = regexp.MustCompile(`^unknown setting; known here: (.+)$`)
	choices   = regexp.MustCompile(`^"` + unknownWord + `" is not one of (.+)$`)
	place     = regexp.MustCompile(`^(sources|providers|channels|types)\.[^.]+|\[[0-9]+\]`)
)

// TestExample_NamesEverySetting finds the settings by the faults of the reader: each section of the example gets
// a setting that does not exist, and each value is replaced with a word that is not valid.
func TestExample_NamesEverySetting(t *testing.T) {
	raw := wholeExample(t)
	var whole map[string]any
	if err := yaml.Unmarshal(raw, &whole); err != nil {
		t.Fatal(err)
	}
	written := map[string][]string{}
	corrupted, err := json.Marshal(corrupt("", whole, written))
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse(corrupted, environment())
	faults, _ := err.(Faults)
	sections, words := 0, 0
	for _, f := range faults {
		if m := knownHere.FindStringSubmatch(f.Problem); m != nil {
			sections++
			section := place.ReplaceAllString(strings.TrimSuffix(strings.TrimSuffix(f.Path, unknownWord), "."), "$1")
			for _, key := range strings.Split(m[1], ", ") {
				if !slices.Contains(written[section], key) {
					t.Errorf("the example lacks %s in %q", key, section)
				}
			}
		}
		if m := choices.FindStringSubmatch(f.Problem); m != nil {
			for _, word := range strings.Split(m[1], ", ") {
				words++
				if !regexp.MustCompile(`\b` + word + `\b`).Match(raw) {
					t.Errorf("the example lacks the word %s of %s", word, f.Path)
				}
			}
		}
	}
	if sections < 20 || words < 30 {
		t.Errorf("only %d sections and %d words were found", sections, words)
	}
}

// corrupt returns a copy of the settings with an unknown setting in each section and invalid values; written
// receives the keys of each kind of section.
func corrupt(at string, value any, written map[string][]string) any {
	switch value := value.(type) {
	case map[string]any:
		section := place.ReplaceAllString(at, "$1")
		copied := map[string]any{unknownWord: 1}
		for key, v := range value {
			written[section] = append(written[section], key)
			copied[key] = corrupt(join(at, key), v, written)
		}
		return copied
	case []any:
		var copied []any
		for _, v := range value {
			copied = append(copied, corrupt(at, v, written))
		}
		return copied
	default:
		return unknownWord
	}
}
