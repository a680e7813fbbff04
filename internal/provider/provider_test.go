package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestClassify_ResultFollowsFromResponse(t *testing.T) {
	now := time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)
	retry := func(values ...string) map[string][]string { return map[string][]string{"Retry-After": values} }
	for name, test := range map[string]struct {
		resp outbound.Response
		want ledger.Outcome
	}{
		"nothing known":        {outbound.Response{}, ledger.Outcome{Result: ledger.ResultUnreachable}},
		"called, no answer":    {outbound.Response{Called: true, Connections: 1, Cause: "reset"}, ledger.Outcome{Cause: "reset"}},
		"accepted, body cut":   {outbound.Response{Status: 202, Called: true, Connections: 1, Cause: "body_cut"}, ledger.Outcome{Result: ledger.ResultAccepted, Status: 202, Cause: "body_cut"}},
		"resent, refused last": {outbound.Response{Status: 422, Called: true, Connections: 2, Cause: "status"}, ledger.Outcome{Status: 422, Cause: provider.CauseResent}},
		"resent, accepted":     {outbound.Response{Status: 200, Called: true, Connections: 2, Cause: "status"}, ledger.Outcome{Result: ledger.ResultAccepted, Status: 200, Cause: provider.CauseResent}},
		"certificate":          {outbound.Response{Cause: "certificate"}, ledger.Outcome{Result: ledger.ResultCredentials, Cause: "certificate"}},
		"not dialled":          {outbound.Response{Cause: "not_dialled"}, ledger.Outcome{Result: ledger.ResultNotCalled, Cause: "not_dialled"}},
		"dial timeout":         {outbound.Response{Cause: "dial_timeout"}, ledger.Outcome{Result: ledger.ResultUnreachable, Cause: "dial_timeout"}},
		"timeout after a call": {outbound.Response{Called: true, Connections: 1, Cause: "timeout"}, ledger.Outcome{Cause: "timeout"}},
		"throttled": {
			outbound.Response{Status: 429, Header: retry("7"), Called: true, Connections: 1, Cause: "status"},
			ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, RetryAfter: 7 * time.Second, Cause: "status"},
		},
		"throttled until": {
			outbound.Response{Status: 503, Header: retry("Tue, 04 Mar 2031 09:01:00 GMT"), Called: true, Connections: 1, Cause: "status"},
			ledger.Outcome{Result: ledger.ResultThrottled, Status: 503, RetryAfter: time.Minute, Cause: "status"},
		},
		"throttled forever": {
			outbound.Response{Status: 429, Header: retry("9223372036854775807"), Called: true, Connections: 1, Cause: "status"},
			ledger.Outcome{Result: ledger.ResultThrottled, Status: 429, RetryAfter: outbound.MaxRetryAfter, Cause: "status"},
		},
		"busy, no Retry-After": {outbound.Response{Status: 503, Called: true, Connections: 1, Cause: "status"}, ledger.Outcome{Status: 503, Cause: "status"}},
		"upgrade":              {outbound.Response{Status: 101, Called: true, Connections: 1, Cause: "status"}, ledger.Outcome{Status: 101, Cause: "status"}},
	} {
		if got := provider.Classify(test.resp, now); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func TestClassify_FailureWithoutResponseIsUnknown(t *testing.T) {
	for _, cause := range []string{
		outbound.CauseTimeout, outbound.CauseCancelled, outbound.CauseReset, outbound.CauseEOF, outbound.CauseProtocol,
		outbound.CauseCertificate, outbound.CauseNotDialled, outbound.CauseRequest, outbound.CauseDNS, "an unknown cause", "",
	} {
		resp := outbound.Response{Called: true, Connections: 1, Cause: cause}
		if got := provider.Classify(resp, time.Time{}); got.Result != ledger.ResultUnknown {
			t.Errorf("%q after a call: %v", cause, got.Result)
		}
	}
}

func TestFingerprint_DistinguishesParts(t *testing.T) {
	seen := map[string]bool{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab", "c"}, {"a", "bc"}, {"abc"}, {"a", "b", "c"}} {
		if f := provider.Fingerprint(parts...); seen[f] || len(f) != 64 {
			t.Errorf("%q: %s", parts, f)
		} else {
			seen[f] = true
		}
	}
}

func TestPrintableAndReceipt_AreLimitedASCII(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"rate_limited":           "rate_limited",
		"a\r\nb\x00c\x7fd":       "abcd",
		"é\u202e\xff!":           "!",
		strings.Repeat("x", 999): strings.Repeat("x", 128),
	} {
		if got := provider.Printable(in); got != want {
			t.Errorf("printable %q: %q", in, got)
		}
	}
	for in, want := range map[string]string{
		"m-1": "m-1", "m 1": "m 1", "m\n1": "", "é": "", strings.Repeat("x", 255): strings.Repeat("x", 255), strings.Repeat("x", 256): "",
	} {
		if got := provider.Receipt(in); got != want {
			t.Errorf("receipt %q: %q", in, got)
		}
	}
}
