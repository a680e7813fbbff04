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

// maxFaults is how many faults of one event are returned at most.
const maxFaults = 32

// maxCode is the maximum length of a provider's code, in bytes.
const maxCode = 128

// Fault is one fault of an event.
type Fault struct {
	Field   string // a JSON name; empty for the whole event
	Problem string // what is wrong and what is allowed; never the value itself
}

// Faults are the faults of an authentic event, ordered by field; the API responds with 400.
type Faults []Fault

// Error returns all faults on one line.
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

// rule is a condition on a string, and the problem to report if the string violates it.
type rule struct {
	allows  func(string) bool
	problem string
}

// idRule is the rule for ids. Like nameRule it is the same as for a reminder, because an event may be the first record
// of a reminder in the ledger.
func idRule() rule {
	return rule{func(s string) bool { return printable(s, '!', maxID) }, "must be 1 to 255 printable ASCII characters without space"}
}

func lineRule(limit int) rule {
	return rule{
		func(s string) bool { return printable(s, ' ', limit) },
		fmt.Sprintf("must be 1 to %d printable ASCII characters", limit),
	}
}

func nameRule() rule {
	return rule{namePattern.MatchString, "must be 1 to 64 of a-z, 0-9, '_', '.' and '-', starting with a letter"}
}

var namePattern = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// keyRule requires the send key that the event's identity hashes to, if the identity could be read.
func keyRule(id ledger.Identity, readable bool) rule {
	return rule{
		func(s string) bool { return !readable || s == id.SendKey() },
		"is not the send key of this reminder_id, type and channel",
	}
}

func kindRule() rule {
	return rule{
		func(s string) bool { return slices.Contains(ledger.StatusKinds(), ledger.StatusKind(s)) },
		"must be accepted, delivered, bounced, failed or complained",
	}
}

// readEvent reads an event: one JSON object of strings. Unknown names are rejected, so that an event with a recipient
// or content is never accepted.
func readEvent(raw []byte, now time.Time) (ledger.StatusEvent, Faults) {
	if len(raw) > MaxEvent {
		return ledger.StatusEvent{}, Faults{{Problem: fmt.Sprintf("is over the limit of %d bytes", MaxEvent)}}
	}
	var members map[string]jsontext.Value
	switch err := json.Unmarshal(raw, &members); {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return ledger.StatusEvent{}, Faults{{Problem: "contains a duplicate name"}}
	case err != nil || members == nil:
		return ledger.StatusEvent{}, Faults{{Problem: "must be one JSON object in valid UTF-8"}}
	}
	r := eventReader{members: members}
	id := ledger.Identity{
		ReminderID: r.required("reminder_id", idRule()), Type: r.required("type", nameRule()), Channel: r.required("channel", nameRule()),
	}
	r.required("send_key", keyRule(id, len(r.faults) == 0))
	event := ledger.StatusEvent{
		Identity: id,
		Kind:     ledger.StatusKind(r.required("status", kindRule())),
		Receipt:  r.optional("id", lineRule(maxID)),
		Code:     r.optional("code", lineRule(maxCode)),
		At:       r.pastTime("at", now),
	}
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.fault(provider.Printable(name), "is not a member of an event; names are case-sensitive")
	}
	slices.SortStableFunc(r.faults, func(a, b Fault) int { return cmp.Compare(a.Field, b.Field) })
	return event, r.faults[:min(len(r.faults), maxFaults)]
}

// eventReader takes members out of an event and collects their faults.
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

// optional returns a string member. A member that is null counts as absent.
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
	s := stringOf(value)
	if !is.allows(s) {
		r.fault(name, is.problem)
		return ""
	}
	return s
}

// pastTime returns the time of the event. It must not be later than now, the clock reading that the signature was
// checked against, by more than the tolerance.
func (r *eventReader) pastTime(name string, now time.Time) time.Time {
	var at time.Time
	r.required(name, rule{func(s string) bool {
		quoted, err := jsontext.AppendQuote(nil, s)
		// Unlike time.Parse, UnmarshalJSON enforces RFC 3339: no decimal comma, no single-digit hour.
		return err == nil && json.Unmarshal(quoted, &at) == nil && at.Year() >= 2000 && !at.After(now.Add(tolerance))
	}, "must be an RFC 3339 time from the year 2000 on and not ahead of our clock, such as 2031-03-04T09:00:00Z"})
	return at.UTC()
}
