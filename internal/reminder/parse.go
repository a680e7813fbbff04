package reminder

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Parse parses one reminder from its JSON. The error is [Faults]: only the first syntax fault, since nothing after it
// can be trusted, else all faults of the fields. Parse does not retain raw.
func Parse(raw []byte) (Reminder, error) {
	if err := checkSyntax(raw); err != nil {
		return Reminder{}, err
	}
	form, faults := read(raw)
	faults = append(faults, form.check(faults)...)
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b Fault) int {
			return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Problem, b.Problem))
		})
		return Reminder{}, faults[:min(len(faults), maxFaults)]
	}
	return form.reminder(), nil
}

// form is the document with its members in their JSON types, nil for an absent member. The tags name the rules of
// grammar.go.
type form struct {
	ReminderID    *string           `json:"reminder_id" validate:"required_without=ReservationID,omitnil,id,segment"`
	ReservationID *string           `json:"reservation_id" validate:"omitnil,id,segment"`
	Type          *string           `json:"type" validate:"required,word"`
	Channel       *string           `json:"channel" validate:"required,word"`
	UserID        *string           `json:"user_id" validate:"omitnil,line"`
	To            *string           `json:"to" validate:"required,recipient"`
	CorrelationID *string           `json:"correlation_id" validate:"omitnil,line"`
	Content       jsontext.Value    `json:"content" validate:"required,filled"`
	Metadata      map[string]string `json:"metadata" validate:"omitnil,max=32,dive,keys,label,endkeys,note"`
	CreatedAt     *time.Time        `json:"created_at" validate:"omitnil,era"`
	NotBefore     *time.Time        `json:"not_before" validate:"omitnil,era"`
	Deadline      *time.Time        `json:"deadline" validate:"omitnil,era"`

	metadata jsontext.Value // as received
}

// reminder returns the valid form as a Reminder.
func (f form) reminder() Reminder {
	r := Reminder{
		ReminderID: orZero(f.ReminderID), ReservationID: orZero(f.ReservationID),
		Type: *f.Type, Channel: *f.Channel, UserID: orZero(f.UserID), To: *f.To,
		CorrelationID: orZero(f.CorrelationID), Content: f.Content, Metadata: f.metadata,
		CreatedAt: orZero(f.CreatedAt), NotBefore: orZero(f.NotBefore), Deadline: orZero(f.Deadline),
	}
	if r.ReminderID == "" {
		r.ReminderID = r.ReservationID
	}
	return r
}

// orZero returns what p points to, or the zero value if p is nil.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// read reads the members of a document into a form.
func read(raw []byte) (form, Faults) {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(raw, &members); err != nil {
		return form{}, Faults{{Problem: "must be one JSON object"}}
	}
	r := reader{members: members}
	f := form{
		ReminderID: r.text("reminder_id"), ReservationID: r.text("reservation_id"),
		Type: r.text("type"), Channel: r.text("channel"), UserID: r.text("user_id"), To: r.text("to"),
		CorrelationID: r.text("correlation_id"), Content: r.object("content"), metadata: r.object("metadata"),
		CreatedAt: r.time("created_at"), NotBefore: r.time("not_before"), Deadline: r.time("deadline"),
	}
	f.Metadata = r.texts("metadata", f.metadata)
	for _, name := range slices.Sorted(maps.Keys(r.members)) {
		r.fault(quoteName(name), "is not a member of a reminder; names are case-sensitive")
	}
	return f, r.faults
}

// reader takes members out of a document and records those of the wrong type as faults.
type reader struct {
	members map[string]jsontext.Value
	faults  Faults
}

func (r *reader) fault(field, problem string) { r.faults = append(r.faults, Fault{field, problem}) }

// take removes and returns a member of the wanted kind. A null member counts as absent, except for reminder_id: for a
// producer that lost the id, the reservation's must not take its place.
func (r *reader) take(name string, kind jsontext.Kind, wanted string) (jsontext.Value, bool) {
	value, ok := r.members[name]
	delete(r.members, name)
	switch {
	case !ok, value.Kind() == 'n' && name != "reminder_id":
		return nil, false
	case value.Kind() != kind:
		r.fault(name, "must be "+wanted)
		return nil, false
	}
	return value, true
}

func (r *reader) text(name string) *string {
	value, ok := r.take(name, '"', "a string")
	if !ok {
		return nil
	}
	text := unquoted(value)
	return &text
}

func (r *reader) time(name string) *time.Time {
	const wanted = "an RFC 3339 time, such as 2031-03-04T09:00:00Z"
	value, ok := r.take(name, '"', wanted)
	if !ok {
		return nil
	}
	t, err := Instant(unquoted(value))
	if err != nil {
		r.fault(name, "must be "+wanted)
		return nil
	}
	return &t
}

func (r *reader) object(name string) jsontext.Value {
	value, _ := r.take(name, '{', "a JSON object")
	return value
}

func (r *reader) texts(name string, object jsontext.Value) map[string]string {
	if object == nil {
		return nil
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(object, &members); err != nil {
		r.fault(name, "must be a JSON object")
		return nil
	}
	texts := make(map[string]string, len(members))
	for key, value := range members {
		if value.Kind() != '"' {
			r.fault(name+"."+quoteName(key), "must be a string")
			continue
		}
		texts[key] = unquoted(value)
	}
	return texts
}

// unquoted returns the text of a JSON string that checkSyntax has accepted.
func unquoted(value jsontext.Value) string {
	text, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(text)
}
