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

// How many entries a page has.
const (
	pageDefault = 50
	pageMax     = 200
)

// notNext is what is wrong with a cursor that another list, or nobody, gave.
const notNext = "is not the next of a page with these filters"

// page is what a request for a list of entries asks for.
type page struct {
	query ledger.Query
	list  string // by name and filters, in one form; a cursor holds for it alone
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

// readPage reads the parameters of a list of entries, all faults at once.
func (s *server) readPage(rawQuery string) (page, error) {
	p := page{query: ledger.Query{Limit: pageDefault}}
	var cursor string
	narrowing := make(url.Values)
	known := map[string]func(string) string{
		"limit":  upTo(pageMax, &p.query.Limit),
		"cursor": kept(&cursor),
	}
	for name, read := range filters {
		known[name] = func(value string) string {
			narrowing.Set(name, value)
			return read(&p.query, value)
		}
	}
	faults := readParams(rawQuery, known)
	if q := p.query; !q.From.IsZero() && !q.To.IsZero() && !q.From.Before(q.To) {
		faults = append(faults, reminder.Fault{Field: "to", Problem: "must be later than from"})
	}
	p.list = "entries?" + narrowing.Encode()
	if cursor != "" && len(faults) == 0 {
		after, ok := s.cursors.open(cursor, p.list)
		if !ok {
			faults = append(faults, reminder.Fault{Field: "cursor", Problem: notNext})
		}
		p.query.After = &ledger.Position{FirstSeen: after.at, Identity: after.id}
	}
	if len(faults) > 0 {
		return page{}, faults
	}
	return p, nil
}

// readParams has each parameter read by its name. One that is unknown, empty or given twice is a fault: a
// filter that fell away in silence would show more than was asked for.
func readParams(rawQuery string, known map[string]func(value string) (problem string)) (faults reminder.Faults) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return reminder.Faults{{Problem: "the query is not well-formed"}}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field, problem := name, ""
		read, is := known[name]
		switch {
		case !is:
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

// shown is a parameter's name, safe to repeat and bounded to 64 bytes: what is more is cut, what is no
// printable ASCII is escaped.
func shown(name string) string {
	quoted := strconv.QuoteToASCII(name[:min(len(name), 64)])
	return quoted[1 : len(quoted)-1]
}

func upTo(most int, limit *int) func(string) string {
	return func(value string) string {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return "must be a number from 1 to " + strconv.Itoa(most)
		}
		*limit = n
		return ""
	}
}

// kept keeps a value as it stands, to be read when the others are.
func kept(value *string) func(string) string {
	return func(given string) string {
		*value = given
		return ""
	}
}

// word reads a text that is compared as it stands: printable ASCII, as all of ours are.
func word(field func(*ledger.Query) *string) func(*ledger.Query, string) string {
	return func(q *ledger.Query, value string) string {
		if len(value) > 255 || strings.ContainsFunc(value, unprintable) {
			return "must be 1 to 255 printable ASCII characters"
		}
		*field(q) = value
		return ""
	}
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

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
