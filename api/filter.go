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

// How many entries a page has, in entries.
const (
	pageDefault = 50
	pageMax     = 200
)

// page is what a request for a list asks for.
type page struct {
	query   ledger.Query
	filters string // what narrows the list, in one form; a cursor holds for it alone
}

// filters read one parameter each into a query, and tell what is wrong with its value. What is not here
// is no parameter.
var filters = map[string]func(q *ledger.Query, value string) (problem string){
	"reminder_id":    word(func(q *ledger.Query) *string { return &q.ReminderID }),
	"reservation_id": word(func(q *ledger.Query) *string { return &q.ReservationID }),
	"user_id":        word(func(q *ledger.Query) *string { return &q.UserID }),
	"type":           word(func(q *ledger.Query) *string { return &q.Type }),
	"channel":        word(func(q *ledger.Query) *string { return &q.Channel }),
	"provider":       word(func(q *ledger.Query) *string { return &q.Provider }),
	"state":          oneOf(ledger.States(), func(q *ledger.Query) *ledger.State { return &q.State }),
	"class": oneOf(append(ledger.DeadClasses(), ledger.ClassCredentials, ledger.ClassThrottled,
		ledger.ClassUnreachable, ledger.ClassUnknown), func(q *ledger.Query) *ledger.Class { return &q.Class }),
	"from": instant(func(q *ledger.Query) *time.Time { return &q.From }),
	"to":   instant(func(q *ledger.Query) *time.Time { return &q.To }),
}

// readPage reads the parameters of a list, all faults at once. A parameter that is unknown, empty or
// given twice is a fault: a filter that fell away in silence would show more than was asked for.
func (s *server) readPage(rawQuery string) (page, error) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return page{}, reminder.Faults{{Problem: "the query is not well-formed"}}
	}
	p := page{query: ledger.Query{Limit: pageDefault}}
	var faults reminder.Faults
	fault := func(field, problem string) {
		if problem != "" {
			faults = append(faults, reminder.Fault{Field: field, Problem: problem})
		}
	}
	cursor := values.Get("cursor")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		read, known := filters[name]
		value := values[name][0]
		switch {
		case !known && name != "limit" && name != "cursor":
			fault(shown(name), "is not a parameter of this list")
		case len(values[name]) > 1:
			fault(name, "is given more than once")
		case value == "":
			fault(name, "is empty")
		case name == "limit":
			fault(name, readLimit(&p.query, value))
			delete(values, name) // pages may differ in size
		case name == "cursor":
			delete(values, name)
		default:
			fault(name, read(&p.query, value))
		}
	}
	if q := p.query; !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		fault("to", "must be later than from")
	}
	p.filters = values.Encode()
	if cursor != "" && len(faults) == 0 {
		position, ok := s.cursors.open(cursor, p.filters)
		if !ok {
			fault("cursor", "is not the next of a page with these filters")
		}
		p.query.After = &position
	}
	if len(faults) > 0 {
		return page{}, faults
	}
	return p, nil
}

// shown is a parameter's name, safe to repeat and bounded to 64 bytes: what is more is cut, what is no
// printable ASCII is escaped.
func shown(name string) string {
	quoted := strconv.QuoteToASCII(name[:min(len(name), 64)])
	return quoted[1 : len(quoted)-1]
}

func readLimit(q *ledger.Query, value string) string {
	limit, err := strconv.Atoi(value)
	if err != nil || limit < 1 || limit > pageMax {
		return "must be a number from 1 to " + strconv.Itoa(pageMax)
	}
	q.Limit = limit
	return ""
}

// word reads a text that is compared as it stands: printable ASCII, as all of ours are.
func word(field func(*ledger.Query) *string) func(*ledger.Query, string) string {
	return func(q *ledger.Query, value string) string {
		if len(value) > 255 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return "must be 1 to 255 printable ASCII characters"
		}
		*field(q) = value
		return ""
	}
}

func oneOf[T ~string](words []T, field func(*ledger.Query) *T) func(*ledger.Query, string) string {
	allowed := make([]string, len(words))
	for i, word := range words {
		allowed[i] = string(word)
	}
	return func(q *ledger.Query, value string) string {
		if !slices.Contains(allowed, value) {
			return "must be one of " + strings.Join(allowed, ", ")
		}
		*field(q) = T(value)
		return ""
	}
}

func instant(field func(*ledger.Query) *time.Time) func(*ledger.Query, string) string {
	return func(q *ledger.Query, value string) string {
		var at time.Time
		// UnmarshalText holds to RFC 3339 where time.Parse lets a comma or a lone digit pass. The years
		// are those that every store can compare with.
		if err := at.UnmarshalText([]byte(value)); err != nil || at.Year() < 2000 || at.Year() > 9998 {
			return "must be an RFC 3339 time, such as 2031-03-04T09:00:00Z"
		}
		*field(q) = at.UTC()
		return ""
	}
}
