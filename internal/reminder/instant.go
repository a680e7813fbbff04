package reminder

import (
	"errors"
	"strings"
	"time"
)

// Instant parses a time strictly by RFC 3339 section 5.6, where time.Parse accepts a comma or a single digit. T and Z
// may be in lower case. A leap second, 23:59:60 in UTC, is the second after it, since Go and the databases count none.
func Instant(text string) (time.Time, error) {
	const date, second = len("2031-03-04"), len("2031-03-04T09:00:")
	raw := []byte(text)
	if len(raw) < second+len("00Z") || strings.Contains(text, ",") {
		return time.Time{}, errors.New("too short, or with a comma")
	}
	if raw[date] == 't' {
		raw[date] = 'T'
	}
	if last := len(raw) - 1; raw[last] == 'z' {
		raw[last] = 'Z'
	}
	leap := string(raw[second:second+2]) == "60"
	if leap {
		copy(raw[second:], "59")
	}
	var at time.Time
	if err := at.UnmarshalText(raw); err != nil {
		return time.Time{}, err
	}
	at = at.UTC()
	if leap {
		if at.Hour() != 23 || at.Minute() != 59 {
			return time.Time{}, errors.New("a leap second ends a day in UTC")
		}
		at = at.Add(time.Second)
	}
	return at, nil
}
