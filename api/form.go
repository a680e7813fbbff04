package api

import (
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sendonce/sendonce/internal/reminder"
)

// Bounds of a form.
const (
	maxWhy    = 500 // characters
	maxFaults = 32  // that are told
)

// form is what a person sends: one JSON object, taken apart member by member. Names match to the letter and
// stand once, and a member that is null is a fault, not an absence.
type form struct {
	members map[string]jsontext.Value
	faults  reminder.Faults
}

func readForm(w http.ResponseWriter, r *http.Request) (*form, error) {
	raw, err := readJSON(w, r)
	if err != nil {
		return nil, err
	}
	f := &form{}
	if err := json.Unmarshal(raw, &f.members); err != nil || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, reminder.Faults{{Problem: "must be one JSON object, no name twice, in valid UTF-8"}}
	}
	return f, nil
}

func (f *form) fault(field, problem string) {
	f.faults = append(f.faults, reminder.Fault{Field: field, Problem: problem})
}

// take is a member, taken out.
func (f *form) take(name string) (jsontext.Value, bool) {
	value, given := f.members[name]
	delete(f.members, name)
	return value, given
}

// text is a member that fits; one that does not is a fault.
func (f *form) text(name string, required bool, wanted string, fits func(string) bool) string {
	value, given := f.take(name)
	switch {
	case !given && required:
		f.fault(name, "is required: "+wanted)
	case !given:
	case value.Kind() != '"':
		f.fault(name, "must be "+wanted)
	default:
		var text string
		if err := json.Unmarshal(value, &text); err == nil && fits(text) {
			return text
		}
		f.fault(name, "must be "+wanted)
	}
	return ""
}

// why is a person's reason for an act.
func (f *form) why() string {
	return f.text("reason", true, "1 to 500 characters on one line, without control characters", func(text string) bool {
		return strings.TrimSpace(text) != "" && utf8.RuneCountInString(text) <= maxWhy && !strings.ContainsFunc(text, unicode.IsControl)
	})
}

// version is that of an entry as a person saw it.
func (f *form) version() int64 {
	const wanted = "the entry's version, as it was seen: a whole number of at least 1"
	value, given := f.take("version")
	if !given {
		f.fault("version", "is required: "+wanted)
		return 0
	}
	version, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || version < 1 {
		f.fault("version", "must be "+wanted)
	}
	return version
}

// done gives all faults at once; what was not taken is one too.
func (f *form) done() error {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		f.fault(shown(name), "is not known here; names match to the letter")
	}
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortFunc(f.faults, func(a, b reminder.Fault) int { return cmp.Compare(a.Field, b.Field) })
	return f.faults[:min(len(f.faults), maxFaults)]
}
