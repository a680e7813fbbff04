package archtest

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// formerWords are terms that the project used before it took over the field's vocabulary (docs/decisions/0011). Those
// that are part of no English word are found inside identifiers too.
var formerWords = regexp.MustCompile(`(?i)(?:^|[^p])desk|census|turnstile|laborator|stranger|fleet|shelves|agenda|hearer|inquir` +
	`|(?:^|[^el])laps(?:e|es|ed|ing)|\b(?:visitors?|attend(?:s|ed)?|teller|the heart|the house|laid out|put to work)\b`)

// vocabulary: code, comments, documents, SQL and the contract use none of the former words.
func vocabulary(t *tree) (found []string) {
	check := func(name, text string) {
		if path.Dir(name) == "internal/archtest" || strings.HasPrefix(name, "docs/decisions/0011") {
			return // where the words are listed
		}
		for i, line := range strings.Split(text, "\n") {
			if word := formerWords.FindString(line); word != "" {
				found = append(found, fmt.Sprintf("%s:%d: %q is a former word; see docs/glossary.md", name, i+1, strings.TrimSpace(word)))
			}
		}
	}
	for _, f := range t.files {
		if !f.generated {
			check(f.path, f.text)
		}
	}
	for name, text := range t.documents {
		check(name, text)
	}
	return found
}
