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

// page is what a request for a list asks for.
type page struct {
	limit int
	after *place // continue behind it; nil at the beginning
	list  string // by name and filters, in one form; a cursor holds for it alone
}

// filters read one parameter each into a query of entries, and tell what is wrong with its value. What is not
// here is no parameter.
var filters = map[string]func(q *ledger.Query, value string) (problem string){
	"reminder_id":    word(func(q *ledger.Query) *string { return &q.ReminderID }),
	"reservation_id": word(func(q *ledger.Query) *string { return &q.ReservationID }),
	"user_id":        word(func(q *ledger.Query) *string { return &q.UserID }),
	"type":           word(func(q *ledger.Query) *string { return &q.Type }),
	"channel":        word(func(q *ledger.Query) *string { return &q.Channel }),
	"provider":       word(func(q *ledger.Query) *string { return &q.Provider }),
	"code":           word(func(q *ledger.Query) *string { return &q.Code }),
	"conflict":       yes(func(q *ledger.Query) *bool { return &q.Conflict }),
	"state":          oneOf(ledger.States(), func(q *ledger.Query) *ledger.State { return &q.State }),
	"class": oneOf(append(ledger.DeadClasses(), ledger.ClassCredentials, ledger.ClassThrottled,
		ledger.ClassUnreachable, ledger.ClassUnknown), func(q *ledger.Query) *ledger.Class { return &q.Class }),
	"from": instant(func(q *ledger.Query) *time.Time { return &q.From }),
	"to":   instant(func(q *ledger.Query) *time.Time { return &q.To }),
}

// readEntries reads the parameters of a list of entries.
func (s *server) readEntries(rawQuery, name string, filters map[string]func(*ledger.Query, string) string) (ledger.Query, page, error) {
	var q ledger.Query
	p, err := readPage(s.cursors, rawQuery, name, &q, filters, func() bool { return ordered(q.From, q.To) })
	if err != nil {
		return ledger.Query{}, page{}, err
	}
	q.Limit = p.limit + 1 // one more tells whether there is a next page
	if p.after != nil {
		id, ok := ledger.ParseEntryID(p.after.id)
		if !ok {
			return ledger.Query{}, page{}, reminder.Faults{{Field: "cursor", Problem: notNext}}
		}
		q.After = &ledger.Position{FirstSeen: p.after.at, Identity: id}
	}
	return q, p, nil
}

// readPage reads the parameters of a list, all faults at once: limit and cursor, and what narrows it. inOrder tells
// whether what was read of a span of time is one.
func readPage[Q any](
	c cursors, rawQuery, name string, query *Q, filters map[string]func(*Q, string) string, inOrder func() bool,
) (page, error) {
	p := page{limit: pageDefault}
	var cursor string
	narrowing := make(url.Values)
	known := map[string]func(string) string{
		"limit":  upTo(pageMax, &p.limit),
		"cursor": kept(&cursor),
	}
	for name, read := range filters {
		known[name] = func(value string) string {
			narrowing.Set(name, value)
			return read(query, value)
		}
	}
	faults := readParams(rawQuery, known)
	if !inOrder() {
		faults = append(faults, notOrdered)
	}
	p.list = name + "?" + narrowing.Encode()
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

// ordered tells whether a span has a length; an end that is not given is open.
func ordered(from, to time.Time) bool { return from.IsZero() || to.IsZero() || from.Before(to) }

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
func word[Q any](field func(*Q) *string) func(*Q, string) string {
	return func(q *Q, value string) string {
		if !isWord(value) {
			return "must be " + aWord
		}
		*field(q) = value
		return ""
	}
}

// aWord is what [isWord] takes.
const aWord = "1 to 255 printable ASCII characters"

func isWord(text string) bool {
	return len(text) >= 1 && len(text) <= 255 && !strings.ContainsFunc(text, unprintable)
}

// yes reads a narrowing that is there or is not; to say no is to leave it out.
func yes[Q any](field func(*Q) *bool) func(*Q, string) string {
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

// listed is a closed set as people read it.
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
			return "must be " + anInstant
		}
		*field(q) = at
		return ""
	}
}

// anInstant is what [instantOf] takes.
const anInstant = "an RFC 3339 time, such as 2031-03-04T09:00:00Z"

// instantOf reads a time. UnmarshalText holds to RFC 3339 where time.Parse lets a comma or a lone digit pass. The
// years are those that every store can compare with.
func instantOf(text string) (at time.Time, ok bool) {
	if err := at.UnmarshalText([]byte(text)); err != nil || at.Year() < 2000 || at.Year() > 9998 {
		return time.Time{}, false
	}
	return at.UTC(), true
}
