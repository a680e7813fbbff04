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

// Limits of a form.
const (
	maxReason = 500 // characters
	maxFaults = 32  // that are reported
)

// form is the body of an admin request: one JSON object that is read strictly, member by member. Names are compared
// exactly and must be unique, and null is a fault, not an absent member.
type form struct {
	within  string // the member that contains this object; empty for the whole body
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

// fault records a problem under the path to the field; an empty field is the form itself.
func (f *form) fault(field, problem string) {
	if f.within != "" && field != "" {
		field = "." + field
	}
	f.faults = append(f.faults, reminder.Fault{Field: f.within + field, Problem: problem})
}

// take returns a member and removes it from those that are left to read.
func (f *form) take(name string) (jsontext.Value, bool) {
	value, given := f.members[name]
	delete(f.members, name)
	return value, given
}

// text reads a string member. It is a fault where fits is false; wanted describes what fits.
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

// object reads a member that is an object, with the same rules.
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
	inner.unknownMembers()
	f.faults = append(f.faults, inner.faults...)
}

// list reads a member that is an array of 1 to most distinct strings that fit.
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
		f.fault(name, "must be a list of "+wanted)
	case len(texts) < 1 || len(texts) > most:
		f.fault(name, "must have 1 to "+strconv.Itoa(most)+" items")
	default:
		return texts
	}
	return nil
}

// number reads a member that is a number from least to most; absent is the default.
func (f *form) number(name string, absent, least, most float64) float64 {
	value, given := f.take(name)
	if !given {
		return absent
	}
	number, err := strconv.ParseFloat(string(value), 64)
	if value.Kind() != '0' || err != nil || number < least || number > most {
		f.fault(name, fmt.Sprintf("must be a number from %v to %v", least, most))
	}
	return number
}

// whole reads a member that is an integer from 1 to most.
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

// flag reads a boolean member; an absent one is false.
func (f *form) flag(name string) bool {
	value, given := f.take(name)
	if given && value.Kind() != 't' && value.Kind() != 'f' {
		f.fault(name, "must be true or false")
	}
	return value.Kind() == 't'
}

// instant reads a member that is a time; an absent one is the zero time.
func (f *form) instant(name string) time.Time {
	at, _ := instantOf(f.text(name, false, instantProblem, func(text string) bool {
		_, ok := instantOf(text)
		return ok
	}))
	return at.Truncate(time.Microsecond)
}

// reason reads the actor's reason.
func (f *form) reason() string {
	return f.text("reason", true, "1 to 500 characters on one line, without control characters", func(text string) bool {
		return strings.TrimSpace(text) != "" && utf8.RuneCountInString(text) <= maxReason && !strings.ContainsFunc(text, unicode.IsControl)
	})
}

// version reads the version of the entry that the decision is based on.
func (f *form) version() int64 {
	const wanted = "the version of the entry that was read: a whole number of at least 1"
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

// unknownMembers records a fault for each member that was not read.
func (f *form) unknownMembers() {
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		f.fault(shown(name), "is not a known member; names are case-sensitive")
	}
}

// done returns all faults at once, unknown members included.
func (f *form) done() error {
	f.unknownMembers()
	if len(f.faults) == 0 {
		return nil
	}
	slices.SortFunc(f.faults, func(a, b reminder.Fault) int { return cmp.Compare(a.Field, b.Field) })
	return f.faults[:min(len(f.faults), maxFaults)]
}
