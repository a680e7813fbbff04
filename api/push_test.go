package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

func push(source, password, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/push/"+source, strings.NewReader(body))
	if password != "" {
		r.Header.Set("Password", password)
	}
	r.Header.Set("Message", "m-9")
	return r
}

func TestPush_DelivererGetsRawMessageAndFormatAnswers(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var got ledger.Delivery
	replies := []ledger.Reply{{Ack: true}, {RetryAfter: 7 * time.Second}}
	h := newHarness(t, &fakeServices{deliver: func(_ context.Context, d ledger.Delivery) (ledger.Reply, error) {
		got = d
		reply := replies[0]
		replies = replies[1:]
		return reply, nil
	}})
	r := push("seats", "push-secret", "not even JSON \x00")
	r.Header.Set("Traceparent", parent)
	h.expect(r, http.StatusNoContent, "")
	if got.Source != "seats" || got.MessageID != "m-9" || string(got.Raw) != "not even JSON \x00" || got.Trace.Parent != parent {
		t.Errorf("the deliverer got %+v", got)
	}
	if h.pattern != "/v1/push/{source}" {
		t.Errorf("the pattern is %q", h.pattern)
	}
	w := h.expect(push("seats", "push-secret", "x"), http.StatusServiceUnavailable, "")
	if w.Header().Get("Retry-After") != "7" {
		t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
}

func TestPush_UnauthenticatedIsNotDelivered(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	h.expect(push("seats", "", "x"), http.StatusUnauthorized, wire.ProblemCodeUnauthenticated)
	h.expect(push("seats", "password-canary", "x"), http.StatusUnauthorized, wire.ProblemCodeUnauthenticated)
	h.expect(push("nobody", "push-secret", "x"), http.StatusNotFound, wire.ProblemCodeNotFound)
	if strings.Contains(h.log.String(), "canary") {
		t.Errorf("the log has the password: %s", h.log)
	}
	if !strings.Contains(h.log.String(), `"at":"seats"`) {
		t.Errorf("the log does not have it: %s", h.log)
	}
}

func TestPush_UnrecordedIsNacked(t *testing.T) {
	h := newHarness(t, &fakeServices{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, errors.New("no ledger")
	}})
	w := h.expect(push("seats", "push-secret", "x"), http.StatusServiceUnavailable, "")
	if w.Header().Get("Retry-After") != "5" {
		t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
}

func TestPush_OversizeMessageIsDeadLetterOversizeRequestIsRefused(t *testing.T) {
	const rawCap = 1<<10*3/2 + envelopeSlack
	var got *ledger.Delivery
	h := newHarness(t, &fakeServices{deliver: func(_ context.Context, d ledger.Delivery) (ledger.Reply, error) {
		got = &d
		return ledger.Reply{Ack: true}, nil
	}})
	for _, c := range []struct {
		name    string
		size    int
		chunked bool
		status  int
		fault   bool
	}{
		{"at the limit", 1 << 10, false, 204, false},
		{"over the limit", 1<<10 + 1, false, 204, true},
		{"at the cap", rawCap, false, 204, true},
		{"at the cap, chunked", rawCap, true, 204, true},
		{"over the cap", rawCap + 1, false, 413, false},
		{"over the cap, chunked", rawCap + 1, true, 413, false},
		{"far over the cap, chunked", 8 << 20, true, 413, false},
	} {
		got = nil
		r := push("seats", "push-secret", strings.Repeat("x", c.size))
		if c.chunked {
			r.ContentLength = -1
		}
		h.expect(r, c.status, "")
		if (got != nil) != (c.status == 204) || got != nil && (got.Fault != "") != c.fault {
			t.Errorf("%s: the deliverer got %+v", c.name, got)
		}
	}
}

func TestPush_IncompleteBodyIsRetried(t *testing.T) {
	h := newHarness(t, &fakeServices{})
	for _, err := range []error{io.ErrUnexpectedEOF, os.ErrDeadlineExceeded} {
		r := push("seats", "push-secret", "")
		r.ContentLength = -1
		r.Body = io.NopCloser(&faultReader{bytes.NewReader([]byte("half")), err})
		h.expect(r, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable)
	}
}

func TestPush_CompressedIsRefused(t *testing.T) {
	h := newHarness(t, &fakeServices{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, nil
	}})
	for coding, status := range map[string]int{
		"gzip": 415, "br": 415, "GZIP": 415, "identity, gzip": 415, "zstd": 415, "identity": 204, "": 204,
	} {
		r := push("seats", "push-secret", "x")
		r.Header["Content-Encoding"] = []string{coding}
		h.expect(r, status, "")
	}
	r := push("seats", "push-secret", "x")
	r.Header["Content-Encoding"] = []string{"identity", "deflate"}
	h.expect(r, 415, wire.ProblemCodeUnsupportedMediaType)
}
