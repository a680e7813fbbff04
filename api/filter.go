package api

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Sizes of a page of entries.
const (
	pageDefault = 50
	pageMax     = 200
)

// notNext is the problem of a cursor that does not come from the same list.
const notNext = "is not the next of a page with these filters"

// page is the part of a list that a request asks for.
type page struct {
	limit int
	after *listPosition // continue after it; nil for the beginning
	list  string        // name and filters in canonical form; a cursor is valid for this list only
}

// filters are the parameters that narrow a list of entries. Each parses its value into the query, and returns what is
// wrong with it.
var filters = map[string]func(q *ledger.Query, value string) (problem string){
	"reminder_id":    word(func(q *ledger.Query) *string { return &q.ReminderID }),
	"reservation_id": word(func(q *ledger.Query) *string { return &q.ReservationID }),
	"user_id":        word(func(q *ledger.Query) *string { return &q.UserID }),
	"type":           word(func(q *ledger.Query) *string { return &q.Type }),
	"channel":        word(func(q *ledger.Query) *string { return &q.Channel }),
	"provider":       word(func(q *ledger.Query) *string { return &q.Provider }),
	"code":           word(func(q *ledger.Query) *string { return &q.Code }),
	"conflict":       boolOf(func(q *ledger.Query) *bool { return &q.Conflict }),
	"state":          oneOf(ledger.States(), func(q *ledger.Query) *ledger.State { return &q.State }),
	"class": oneOf(append(ledger.DeadClasses(), ledger.ClassCredentials, ledger.ClassThrottled,
		ledger.ClassUnreachable, ledger.ClassUnknown), func(q *ledger.Query) *ledger.Class { return &q.Class }),
	"from": instant(func(q *ledger.Query) *time.Time { return &q.From }),
	"to":   instant(func(q *ledger.Query) *time.Time { return &q.To }),
}

// readEntries parses the parameters of a list of entries.
func (s *server) readEntries(rawQuery, name string, filters map[string]func(*ledger.Query, string) string) (ledger.Query, page, error) {
	var q ledger.Query
	p, err := readPage(s.cursors, rawQuery, name, &q, filters, func() bool { return ordered(q.From, q.To) })
	if err != nil {
		return ledger.Query{}, page{}, err
	}
	q.Limit = p.limit + 1 // one more than the page, to know whether there is a next one
	if p.after != nil {
		id, ok := ledger.ParseEntryID(p.after.id)
		if !ok {
			return ledger.Query{}, page{}, reminder.Faults{{Field: "cursor", Problem: notNext}}
		}
		q.After = &ledger.EntryPosition{FirstSeen: p.after.at, Identity: id}
	}
	return q, p, nil
}

// readPage parses the parameters of a list: limit, cursor and the filters. It returns all faults at once. inOrder
// reports whether the time span in the query, if any, does not end before it begins.
func readPage[Q any](
	c cursors, rawQuery, name string, query *Q, filters map[string]func(*Q, string) string, inOrder func() bool,
) (page, error) {
	p := page{limit: pageDefault}
	var cursor string
	given := make(url.Values)
	known := map[string]func(string) string{
		"limit":  intIn(pageMax, &p.limit),
		"cursor": textOf(&cursor),
	}
	for name, read := range filters {
		known[name] = func(value string) string {
			given.Set(name, value)
			return read(query, value)
		}
	}
	faults := readParams(rawQuery, known)
	if !inOrder() {
		faults = append(faults, notOrdered)
	}
	p.list = name + "?" + given.Encode()
	if cursor != "" && len(faults) == 0 {
		after, ok := c.open(cursor, p.list)
		if !ok {
			faults = append(faults, reminder.Fault{Field: "cursor", Problem: notNext})
		}
		p.after = &after
	}
	if len(faults) > 0 {
		return page{}, faults
	}
	return p, nil
}

// notOrdered is the fault of a span that ends before it begins.
var notOrdered = reminder.Fault{Field: "to", Problem: "must be later than from"}

// ordered reports whether a span ends after it begins; an end that is not given is open.
func ordered(from, to time.Time) bool { return from.IsZero() || to.IsZero() || from.Before(to) }

// readParams parses each parameter with the function of its name. A parameter that is unknown, empty or given twice is
// a fault: ignoring a filter would show more than was asked for.
func readParams(rawQuery string, known map[string]func(value string) (problem string)) (faults reminder.Faults) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return reminder.Faults{{Problem: "the query is not well-formed"}}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field, problem := name, ""
		read, exists := known[name]
		switch {
		case !exists:
			field, problem = shown(name), "is not a parameter of this list"
		case len(values[name]) > 1:
			problem = "is given more than once"
		case values[name][0] == "":
			problem = "is empty"
		default:
			problem = read(values[name][0])
		}
		if problem != "" {
			faults = append(faults, reminder.Fault{Field: field, Problem: problem})
		}
	}
	return faults
}

// shown returns a member's or parameter's name in a form that is safe to repeat: cut after 64 bytes, with everything
// but printable ASCII escaped.
func shown(name string) string {
	quoted := strconv.QuoteToASCII(name[:min(len(name), 64)])
	return quoted[1 : len(quoted)-1]
}

func intIn(most int, limit *int) func(string) string {
	return func(value string) string {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return "must be a number from 1 to " + strconv.Itoa(most)
		}
		*limit = n
		return ""
	}
}

// textOf stores a value unparsed, to be parsed after the other parameters.
func textOf(value *string) func(string) string {
	return func(given string) string {
		*value = given
		return ""
	}
}

// word parses a text that is compared literally: printable ASCII, as all stored ones are.
func word[Q any](field func(*Q) *string) func(*Q, string) string {
	return func(q *Q, value string) string {
		if !isWord(value) {
			return "must be " + wordProblem
		}
		*field(q) = value
		return ""
	}
}

// wordProblem describes what [isWord] accepts.
const wordProblem = "1 to 255 printable ASCII characters"

func isWord(text string) bool {
	return len(text) >= 1 && len(text) <= 255 && !strings.ContainsFunc(text, unprintable)
}

// boolOf parses a filter that is either true or left out.
func boolOf[Q any](field func(*Q) *bool) func(*Q, string) string {
	return func(q *Q, value string) string {
		if value != "true" {
			return "must be true, or left out"
		}
		*field(q) = true
		return ""
	}
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

func oneOf[T ~string](words []T, field func(*ledger.Query) *T) func(*ledger.Query, string) string {
	return func(q *ledger.Query, value string) string {
		if !slices.Contains(words, T(value)) {
			return "must be one of " + listed(words)
		}
		*field(q) = T(value)
		return ""
	}
}

// listed returns a closed set of words as text for an error message.
func listed[T ~string](words []T) string {
	all := make([]string, len(words))
	for i, word := range words {
		all[i] = string(word)
	}
	return strings.Join(all, ", ")
}

func instant[Q any](field func(*Q) *time.Time) func(*Q, string) string {
	return func(q *Q, value string) string {
		at, ok := instantOf(value)
		if !ok {
			return "must be " + instantProblem
		}
		*field(q) = at
		return ""
	}
}

// instantProblem describes what [instantOf] accepts.
const instantProblem = "an RFC 3339 time, such as 2031-03-04T09:00:00Z"

// instantOf parses a time. The years are limited to those that every store can compare.
func instantOf(text string) (at time.Time, ok bool) {
	at, err := reminder.Instant(text)
	if err != nil || at.Year() < 2000 || at.Year() > 9998 {
		return time.Time{}, false
	}
	return at, true
}
