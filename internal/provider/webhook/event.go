package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

// maxFaults bounds an answer to an event that is wrong all over.
const maxFaults = 32

// maxCode is how long a provider's machine code may be, in bytes.
const maxCode = 128

// Fault is one thing that is wrong with an event.
type Fault struct {
	Field   string // a JSON name; empty for the whole event
	Problem string // what is wrong and what is allowed; never what stood there
}

// Faults is what is wrong with an authentic event, ordered by field: 400.
type Faults []Fault

// Error is all faults on one line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Problem
		if fault.Field != "" {
			lines[i] = fault.Field + ": " + fault.Problem
		}
	}
	return strings.Join(lines, "; ")
}

// rule is what a text may be, and what to tell whoever breaks it.
type rule struct {
	allows  func(string) bool
	problem string
}

// The grammars of a reminder hold here too: an event may be the first that this ledger hears of one.
func idRule() rule {
	return rule{func(s string) bool { return printable(s, '!', maxID) }, "must be 1 to 255 printable ASCII characters without space"}
}

func lineRule(limit int) rule {
	return rule{
		func(s string) bool { return printable(s, ' ', limit) },
		fmt.Sprintf("must be 1 to %d printable ASCII characters", limit),
	}
}

func wordRule() rule {
	return rule{wordGrammar.MatchString, "must be 1 to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter"}
}

var wordGrammar = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// keyRule ties an event to the send key that its identity hashes to, where that could be read.
func keyRule(id ledger.Identity, readable bool) rule {
	return rule{
		func(s string) bool { return !readable || s == id.SendKey() },
		"is not the send key of this reminder_id, type and channel",
	}
}

func kindRule() rule {
	return rule{
		func(s string) bool { return slices.Contains(ledger.ReportKinds(), ledger.ReportKind(s)) },
		"must be accepted, delivered, bounced, failed or complained",
	}
}

// readEvent reads an event's JSON: one object of texts, with no name that it does not know, so that a
// recipient or a content is turned away at the door.
func readEvent(raw []byte, now time.Time) (ledger.Report, Faults) {
	if len(raw) > MaxEvent {
		return ledger.Report{}, Faults{{Problem: fmt.Sprintf("is over the limit of %d bytes", MaxEvent)}}
	}
	var members map[string]jsontext.Value
	switch err := json.Unmarshal(raw, &members); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return ledger.Report{}, Faults{{Problem: "has a name that stands twice"}}
	case err != nil || members == nil:
		return ledger.Report{}, Faults{{Problem: "must be one JSON object in valid UTF-8"}}
	}
	r := eventReader{members: members}
	id := ledger.Identity{
		ReminderID: r.required("reminder_id", idRule()), Type: r.required("type", wordRule()), Channel: r.required("channel", wordRule()),
	}
	r.required("send_key", keyRule(id, len(r.faults) == 0))
	report := ledger.Report{
		Identity: id,
		Kind:     ledger.ReportKind(r.required("status", kindRule())),
		Receipt:  r.optional("id", lineRule(maxID)),
		Code:     r.optional("code", lineRule(maxCode)),
		At:       r.moment("at", now),
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.fault(provider.Word(name), "is not a member of an event; names match to the letter")
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Field, b.Field) })
	return report, r.faults[:min(len(r.faults), maxFaults)]
}

// eventReader takes members out of an event and notes what is wrong with them.
type eventReader struct {
	members map[string]jsontext.Value
	faults  Faults
}

func (r *eventReader) fault(field, problem string) {
	r.faults = append(r.faults, Fault{field, problem})
}

func (r *eventReader) required(name string, is rule) string {
	if value, ok := r.members[name]; !ok || value.Kind() == 'n' {
		delete(r.members, name)
		r.fault(name, "is required")
		return ""
	}
	return r.optional(name, is)
}

// optional is a member's text; one that is null counts as left out.
func (r *eventReader) optional(name string, is rule) string {
	value, ok := r.members[name]
	delete(r.members, name)
	if !ok || value.Kind() == 'n' {
		return ""
	}
	if value.Kind() != '"' {
		r.fault(name, "must be a string")
		return ""
	}
	words := text(value)
	if !is.allows(words) {
		r.fault(name, is.problem)
		return ""
	}
	return words
}

// moment is when it happened. What lies ahead of the clock that the signature was judged by has not.
func (r *eventReader) moment(name string, now time.Time) time.Time {
	var at time.Time
	r.required(name, rule{func(s string) bool {
		quoted, err := jsontext.AppendQuote(nil, s)
		// This holds to RFC 3339 where time.Parse lets a comma or a lone digit pass.
		return err == nil && json.Unmarshal(quoted, &at) == nil && at.Year() >= 2000 && !at.After(now.Add(tolerance))
	}, "must be an RFC 3339 time from the year 2000 on and not ahead of our clock, such as 2031-03-04T09:00:00Z"})
	return at.UTC()
}
