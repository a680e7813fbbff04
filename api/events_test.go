package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// sealed reads events whose signature is a word, and whose body is the kind of the report.
type sealed struct{}

func (sealed) Open(h http.Header, raw []byte) (ledger.Report, error) {
	switch {
	case h.Get("Seal") != "sealed":
		return ledger.Report{}, fmt.Errorf("%w: secret-canary fits nothing", ErrForged)
	case !strings.HasPrefix(string(raw), "b"):
		return ledger.Report{}, reminder.Faults{{Field: "status", Problem: "is no kind"}, {Field: "at", Problem: "is required"}}
	}
	return ledger.Report{Identity: entry(nil).Identity, Kind: ledger.ReportBounced, Provider: "mail", Message: "ev-1"}, nil
}

func event(provider, seal, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/providers/"+provider+"/events", strings.NewReader(body))
	if seal != "" {
		r.Header.Set("Seal", seal)
	}
	return r
}

func TestAnEventOfAProviderIsHeardOnceItsSealHolds(t *testing.T) {
	var heard []ledger.Report
	h := newHouse(t, &collaborators{hear: func(_ context.Context, r ledger.Report) (bool, error) {
		heard = append(heard, r)
		return len(heard) == 1, nil
	}})
	for _, recorded := range []bool{true, false} {
		w := h.wants(event("mail", "sealed", "bounced"), 200, "")
		if got := strings.TrimSpace(w.Body.String()); got != fmt.Sprintf(`{"recorded":%v}`, recorded) {
			t.Errorf("answered with %s", got)
		}
	}
	report := ledger.Report{Identity: entry(nil).Identity, Kind: ledger.ReportBounced, Provider: "mail", Message: "ev-1"}
	if diff := cmp.Diff([]ledger.Report{report, report}, heard); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAnEventNeedsTheProvidersSealAndNoCallersToken(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for _, seal := range []string{"", "seal-canary"} {
		r := event("mail", seal, "bounced")
		r.Header.Set("Authorization", "Bearer admin")
		w := h.wants(r, 401, wire.ProblemCodeUnauthenticated)
		if w.Header().Get("WWW-Authenticate") != "Bearer" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("answered with %v %s", w.Header(), w.Body)
		}
	}
	if log := h.log.String(); strings.Count(log, `"at":"mail"`) != 2 || strings.Contains(log, "canary") {
		t.Errorf("the log says %s", log)
	}
}

func TestForgedEventsFillNoLogAndARightOneIsNeverHeldUp(t *testing.T) {
	h := newHouse(t, &collaborators{hear: func(context.Context, ledger.Report) (bool, error) { return true, nil }})
	for range 10 * failureBurst {
		h.wants(event("mail", "forged", "bounced"), 401, wire.ProblemCodeUnauthenticated)
	}
	if lines := strings.Count(h.log.String(), "authentication failed"); lines != failureBurst {
		t.Errorf("%d lines in the log", lines)
	}
	h.wants(event("mail", "sealed", "bounced"), 200, "")
}

func TestAnEventThatCannotBeReadIsToldWhy(t *testing.T) {
	h := newHouse(t, &collaborators{})
	w := h.wants(event("mail", "sealed", "canary"), 400, wire.ProblemCodeInvalid)
	want := []wire.Fault{{Field: "status", Problem: "is no kind"}, {Field: "at", Problem: "is required"}}
	if diff := cmp.Diff(want, decoded[wire.Problem](t, w).Errors); diff != "" || h.log.Len() != 0 {
		t.Errorf("the log says %q (-want +got):\n%s", h.log, diff)
	}
}

func TestAnEventIsBoundedAndPlain(t *testing.T) {
	h := newHouse(t, &collaborators{hear: func(context.Context, ledger.Report) (bool, error) { return true, nil }})
	filled := func(size int) string { return strings.Repeat("b", size) }
	for _, c := range []struct {
		name   string
		body   string
		change func(*http.Request)
		status int
		code   wire.ProblemCode
		detail string
	}{
		{name: "at the limit", body: filled(eventLimit), status: 200},
		{name: "over the limit", body: filled(eventLimit + 1), status: 413, code: wire.ProblemCodeTooLarge, detail: "The event is larger than 64 KiB."},
		{
			name: "over the limit, chunked", body: filled(eventLimit + 1), change: func(r *http.Request) { r.ContentLength = -1 },
			status: 413, code: wire.ProblemCodeTooLarge, detail: "The event is larger than 64 KiB.",
		},
		{
			name: "compressed", body: "b", change: func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
			status: 415, code: wire.ProblemCodeUnsupportedMediaType, detail: "Send the body without a Content-Encoding.",
		},
		{name: "torn", change: func(r *http.Request) {
			r.ContentLength, r.Body = -1, io.NopCloser(&faultReader{bytes.NewReader([]byte("b")), io.ErrUnexpectedEOF})
		}, status: 400, code: wire.ProblemCodeInvalid, detail: "The body did not arrive whole."},
		{name: "too slow", change: func(r *http.Request) {
			r.ContentLength, r.Body = -1, io.NopCloser(&faultReader{bytes.NewReader([]byte("b")), os.ErrDeadlineExceeded})
		}, status: 408, code: wire.ProblemCodeTimeout, detail: "The body did not arrive in time."},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			r := event("mail", "sealed", c.body)
			if c.change != nil {
				c.change(r)
			}
			w := h.wants(r, c.status, c.code)
			if c.code != "" && decoded[wire.Problem](t, w).Detail != c.detail {
				t.Errorf("told %s", w.Body)
			}
		})
	}
}

func TestAnEventThatCannotBeRecordedIsToComeAgain(t *testing.T) {
	for _, err := range []error{io.ErrUnexpectedEOF, fmt.Errorf("report: %w", ledger.ErrStale), ledger.ErrExists} {
		h := newHouse(t, &collaborators{hear: func(context.Context, ledger.Report) (bool, error) { return true, err }})
		w := h.wants(event("mail", "sealed", "bounced"), 503, wire.ProblemCodeUnavailable)
		if w.Header().Get("Retry-After") != "5" {
			t.Errorf("%v: Retry-After is %q", err, w.Header().Get("Retry-After"))
		}
	}
}
