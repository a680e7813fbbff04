package outbound_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/outbound"
)

func TestRetryAfter_ReadsOnlySecondsAndDates(t *testing.T) {
	now := time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0":                               0,
		"1":                               time.Second,
		" 120 ":                           2 * time.Minute,
		"0000000000000000000000000000060": time.Minute,
		"2591999":                         outbound.MaxRetryAfter - time.Second,
		"2592000":                         outbound.MaxRetryAfter,
		"9223372036":                      outbound.MaxRetryAfter,
		"9223372037":                      outbound.MaxRetryAfter,
		"9223372036854775807":             outbound.MaxRetryAfter,
		"99999999999999999999999999":      outbound.MaxRetryAfter,
		"-5":                              0,
		"+5":                              0,
		"1.5":                             0,
		"1e3":                             0,
		"0x10":                            0,
		"٣":                               0,
		"abc":                             0,
		"":                                0,
		"5, 60":                           0,
		"5s":                              0,
		"Thu, 01 Jan 1970 00:00:00 GMT":   0,
		"Tue, 04 Mar 2031 09:00:00 GMT":   0,
		"Tue, 04 Mar 2031 09:00:30 GMT":   30 * time.Second,
		"Tuesday, 04-Mar-31 09:00:30 GMT": 30 * time.Second,
		"Tue Mar  4 09:00:30 2031":        30 * time.Second,
		"Sun, 06 Sep 2099 00:00:00 GMT":   outbound.MaxRetryAfter,
		"Fri, 31 Dec 9999 23:59:59 GMT":   outbound.MaxRetryAfter,
		"2031-03-04T09:00:30Z":            0,
	} {
		if got := outbound.RetryAfter(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if got := outbound.RetryAfter(http.Header{"Retry-After": {"5", "60"}}, now); got != 0 {
		t.Errorf("given twice: %v", got)
	}
	if got := outbound.RetryAfter(nil, now); got != 0 {
		t.Errorf("absent: %v", got)
	}
}
