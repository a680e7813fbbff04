package api

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
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
	within  string // the member that it stands under; empty for the whole
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

// fault is told under the path to the field; an empty one is the form itself.
func (f *form) fault(field, problem string) {
	if f.within != "" && field != "" {
		field = "." + field
	}
	f.faults = append(f.faults, reminder.Fault{Field: f.within + field, Problem: problem})
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

// object is a member that is a form itself.
func (f *form) object(name string, read func(within *form)) {
	value, given := f.take(name)
	if !given {
		return
	}
	inner := &form{within: name}
	if value.Kind() != '{' || json.Unmarshal(value, &inner.members) != nil {
		f.fault(name, "must be an object")
		return
	}
	read(inner)
	inner.leftovers()
	f.faults = append(f.faults, inner.faults...)
}

// list is a member that lists 1 to most texts that fit, none of them twice.
func (f *form) list(name string, most int, wanted string, fits func(string) bool) []string {
	value, given := f.take(name)
	if !given {
		return nil
	}
	var texts []string
	bad := func(text string) bool { return !fits(text) }
	err := json.Unmarshal(value, &texts)
	switch {
	case err != nil || value.Kind() != '[' || slices.ContainsFunc(texts, bad) || len(slices.Compact(slices.Sorted(slices.Values(texts)))) < len(texts):
		f.fault(name, "must be a list, each of it "+wanted)
	case len(texts) < 1 || len(texts) > most:
		f.fault(name, "must be 1 to "+strconv.Itoa(most))
	default:
		return texts
	}
	return nil
}

// number is a member from least to most; one that is not given is otherwise.
func (f *form) number(name string, otherwise, least, most float64) float64 {
	value, given := f.take(name)
	if !given {
		return otherwise
	}
	number, err := strconv.ParseFloat(string(value), 64)
	if value.Kind() != '0' || err != nil || number < least || number > most {
		f.fault(name, fmt.Sprintf("must be a number from %v to %v", least, most))
	}
	return number
}

// whole is a member that is a whole number from 1 to most.
func (f *form) whole(name string, most int) (number int, given bool) {
	value, given := f.take(name)
	if !given {
		return 0, false
	}
	number, err := strconv.Atoi(string(value))
	if err != nil || number < 1 || number > most {
		f.fault(name, "must be a whole number from 1 to "+strconv.Itoa(most))
		return 0, true
	}
	return number, true
}

// flag is a member that is true or false; one that is not given is false.
func (f *form) flag(name string) bool {
	value, given := f.take(name)
	if given && value.Kind() != 't' && value.Kind() != 'f' {
		f.fault(name, "must be true or false")
	}
	return value.Kind() == 't'
}

// instant is a member that is a time; zero where it is not given.
func (f *form) instant(name string) time.Time {
	at, _ := instantOf(f.text(name, false, anInstant, func(text string) bool {
		_, ok := instantOf(text)
		return ok
	}))
	return at.Truncate(time.Microsecond)
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

// leftovers are the members that nobody took.
func (f *form) leftovers() {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		f.fault(shown(name), "is not known here; names match to the letter")
	}
}

// done gives all faults at once; what was not taken is one too.
func (f *form) done() error {
	f.leftovers()
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortFunc(f.faults, func(a, b reminder.Fault) int { return cmp.Compare(a.Field, b.Field) })
	return f.faults[:min(len(f.faults), maxFaults)]
}
