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

// fakeEvents reads events whose signature is a word, and whose body is the kind of the status.
type fakeEvents struct{}

func (fakeEvents) Open(h http.Header, raw []byte) (ledger.StatusEvent, error) {
	switch {
	case h.Get("Signature") != "signed":
		return ledger.StatusEvent{}, fmt.Errorf("%w: secret-canary matches nothing", ErrNotAuthentic)
	case !strings.HasPrefix(string(raw), "b"):
		return ledger.StatusEvent{}, reminder.Faults{{Field: "status", Problem: "is not a kind"}, {Field: "at", Problem: "is required"}}
	}
	return ledger.StatusEvent{Identity: entry(nil).Identity, Kind: ledger.StatusBounced, Provider: "mail", MessageID: "ev-1"}, nil
}

func event(provider, signature, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/providers/"+provider+"/events", strings.NewReader(body))
	if signature != "" {
		r.Header.Set("Signature", signature)
	}
	return r
}

func TestStatusEvent_RecordedWhenSignatureIsValid(t *testing.T) {
	var recorded []ledger.StatusEvent
	h := newHarness(t, &fakeServices{recordStatus: func(_ context.Context, r ledger.StatusEvent) (bool, error) {
		recorded = append(recorded, r)
		return len(recorded) == 1, nil
	}})
	for _, recorded := range []bool{true, false} {
		w := h.expect(event("mail", "signed", "bounced"), 200, "")
		if got := strings.TrimSpace(w.Body.String()); got != fmt.Sprintf(`{"recorded":%v}`, recorded) {
			t.Errorf("answered with %s", got)
		}
	}
	report := ledger.StatusEvent{Identity: entry(nil).Identity, Kind: ledger.StatusBounced, Provider: "mail", MessageID: "ev-1"}
	if diff := cmp.Diff([]ledger.StatusEvent{report, report}, recorded); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusEvent_NeedsProviderSignatureNotCallerToken(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, signature := range []string{"", "signature-canary"} {
		r := event("mail", signature, "bounced")
		r.Header.Set("Authorization", "Bearer admin")
		w := h.expect(r, 401, wire.ProblemCodeUnauthenticated)
		if w.Header().Get("WWW-Authenticate") != "Bearer" || strings.Contains(w.Body.String(), "canary") {
			t.Errorf("answered with %v %s", w.Header(), w.Body)
		}
	}
	if log := h.log.String(); strings.Count(log, `"at":"mail"`) != 2 || strings.Contains(log, "canary") {
		t.Errorf("the log says %s", log)
	}
}

func TestStatusEvent_ForgeriesAreThrottledInTheLogAndValidEventsNever(t *testing.T) {
	h := newHarness(t, &fakeServices{recordStatus: func(context.Context, ledger.StatusEvent) (bool, error) { return true, nil }})
	for range 10 * authFailureBurst {
		h.expect(event("mail", "forged", "bounced"), 401, wire.ProblemCodeUnauthenticated)
	}
	if lines := strings.Count(h.log.String(), "authentication failed"); lines != authFailureBurst {
		t.Errorf("%d lines in the log", lines)
	}
	h.expect(event("mail", "signed", "bounced"), 200, "")
}

func TestStatusEvent_FaultsAreReported(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	w := h.expect(event("mail", "signed", "canary"), 400, wire.ProblemCodeInvalid)
	want := []wire.Fault{{Field: "status", Problem: "is not a kind"}, {Field: "at", Problem: "is required"}}
	if diff := cmp.Diff(want, decoded[wire.Problem](t, w).Errors); diff != "" || h.log.Len() != 0 {
		t.Errorf("the log says %q (-want +got):\n%s", h.log, diff)
	}
}

func TestStatusEvent_BodyIsBoundedAndUncompressed(t *testing.T) {
	h := newHarness(t, &fakeServices{recordStatus: func(context.Context, ledger.StatusEvent) (bool, error) { return true, nil }})
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
		{name: "cut off", change: func(r *http.Request) {
			r.ContentLength, r.Body = -1, io.NopCloser(&faultReader{bytes.NewReader([]byte("b")), io.ErrUnexpectedEOF})
		}, status: 400, code: wire.ProblemCodeInvalid, detail: "The body is incomplete."},
		{name: "too slow", change: func(r *http.Request) {
			r.ContentLength, r.Body = -1, io.NopCloser(&faultReader{bytes.NewReader([]byte("b")), os.ErrDeadlineExceeded})
		}, status: 408, code: wire.ProblemCodeTimeout, detail: "The body did not arrive in time."},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			r := event("mail", "signed", c.body)
			if c.change != nil {
				c.change(r)
			}
			w := h.expect(r, c.status, c.code)
			if c.code != "" && decoded[wire.Problem](t, w).Detail != c.detail {
				t.Errorf("got %s", w.Body)
			}
		})
	}
}

func TestStatusEvent_UnrecordedEventIsRetried(t *testing.T) {
	for _, err := range []error{io.ErrUnexpectedEOF, fmt.Errorf("report: %w", ledger.ErrStale), ledger.ErrExists} {
		h := newHarness(t, &fakeServices{recordStatus: func(context.Context, ledger.StatusEvent) (bool, error) { return true, err }})
		w := h.expect(event("mail", "signed", "bounced"), 503, wire.ProblemCodeUnavailable)
		if w.Header().Get("Retry-After") != "5" {
			t.Errorf("%v: Retry-After is %q", err, w.Header().Get("Retry-After"))
		}
	}
}
