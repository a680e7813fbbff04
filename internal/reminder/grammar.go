package reminder

import (
	"bytes"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-playground/validator/v10"
)

var wordGrammar = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// textRules are the grammars of strings, by validation tag, each with the problem reported for a string that does not
// match. Ids are opaque: no case is folded, nothing is trimmed.
var textRules = map[string]struct {
	allows  func(string) bool
	problem string
}{
	"id": {
		func(s string) bool { return ascii(s, '!', 255) },
		"must be 1 to 255 printable ASCII characters without space",
	},
	"segment": {
		func(s string) bool { return s != "." && s != ".." },
		"must not be '.' or '..', which no URL can hold as one segment of its path",
	},
	"line": {
		func(s string) bool { return ascii(s, ' ', 255) },
		"must be 1 to 255 printable ASCII characters",
	},
	"word": {
		wordGrammar.MatchString,
		"must be 1 to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter",
	},
	"recipient": {
		func(s string) bool { return plain(s, 1024) },
		"must be 1 to 1024 bytes without control characters",
	},
	"label": {
		func(s string) bool { return plain(s, 64) },
		"must have a name of 1 to 64 bytes without control characters",
	},
	"note": {
		func(s string) bool { return len(s) <= 512 },
		"must be at most 512 bytes",
	},
}

// tagProblems are the problems reported for the tags that are not about text.
var tagProblems = map[string]string{
	"required":         "is required",
	"required_without": "is required unless reservation_id is given",
	"filled":           "must have at least one member",
	"max":              "must have at most 32 members",
	"era":              "must lie in the years 2000 to 9999",
	"after_not_before": "must be later than not_before",
}

// grammar returns the validator with these rules. It is built once and only read after that.
var grammar = sync.OnceValue(func() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string { return f.Tag.Get("json") })
	rule := func(tag string, allows func(reflect.Value) bool) {
		err := v.RegisterValidation(tag, func(field validator.FieldLevel) bool { return allows(field.Field()) })
		if err != nil {
			panic("reminder: rule " + tag + ": " + err.Error()) // only for an invalid tag name
		}
	}
	for tag, r := range textRules {
		rule(tag, func(field reflect.Value) bool { return r.allows(field.String()) })
	}
	rule("filled", func(field reflect.Value) bool {
		members := bytes.TrimLeft(field.Bytes()[1:], " \t\r\n")
		return members[0] != '}'
	})
	rule("era", func(field reflect.Value) bool {
		t, ok := field.Interface().(time.Time)
		return ok && 2000 <= t.Year() && t.Year() <= 9999
	})
	v.RegisterStructValidation(func(level validator.StructLevel) {
		f, ok := level.Current().Interface().(form)
		if ok && f.NotBefore != nil && f.Deadline != nil && !f.NotBefore.Before(*f.Deadline) {
			level.ReportError(f.Deadline, "deadline", "Deadline", "after_not_before", "")
		}
	}, form{})
	return v
})

// check returns the faults that the grammar finds, except for fields that already have one: a field of the wrong type
// is not reported as missing as well.
func (f form) check(known Faults) Faults {
	var found validator.ValidationErrors
	if !errors.As(grammar().Struct(f), &found) {
		return nil
	}
	reported := make(map[string]bool, len(known))
	for _, fault := range known {
		reported[fault.Field] = true
	}
	var faults Faults
	for _, e := range found {
		name := e.Field()
		if key, ok := strings.CutPrefix(name, "metadata["); ok {
			name = "metadata." + quoteName(strings.TrimSuffix(key, "]"))
		}
		if reported[name] {
			continue
		}
		problem := tagProblems[e.Tag()]
		if rule, ok := textRules[e.Tag()]; ok {
			problem = rule.problem
		}
		faults = append(faults, Fault{name, problem})
	}
	return faults
}

// ascii reports whether s is 1 to limit characters of printable ASCII, none below first.
func ascii(s string, first rune, limit int) bool {
	outside := func(r rune) bool { return r < first || r > '~' }
	return 0 < len(s) && len(s) <= limit && !strings.ContainsFunc(s, outside)
}

// plain reports whether s is 1 to limit bytes of valid UTF-8 without control characters.
func plain(s string, limit int) bool {
	return 0 < len(s) && len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
