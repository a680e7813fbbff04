package outbound

import (
	"net/http"
	"strings"
	"time"
)

// MaxRetryAfter is the longest wait that [RetryAfter] returns; larger values are cut to it.
const MaxRetryAfter = 30 * 24 * time.Hour

// RetryAfter reads a Retry-After field (RFC 9110, section 10.2.3): whole seconds, or a date relative to now. It
// returns 0, no usable wait, for anything else, and for a value that is negative, in the past, or given twice.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	values := h.Values("Retry-After")
	if len(values) != 1 {
		return 0
	}
	value := strings.TrimSpace(values[0])
	if digits(value) {
		return seconds(value)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter) // Sub saturates
}

// digits reports whether s consists of decimal digits only.
func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// seconds converts digits to seconds, and stops before they could overflow.
func seconds(digits string) time.Duration {
	var d time.Duration
	for _, c := range digits {
		if d = d*10 + time.Duration(c-'0')*time.Second; d >= MaxRetryAfter {
			return MaxRetryAfter
		}
	}
	return d
}
