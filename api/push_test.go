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

func TestAPushReachesTheDeskAsItCameAndIsAnsweredByItsFormat(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	var got ledger.Delivery
	replies := []ledger.Reply{{Ack: true}, {RetryAfter: 7 * time.Second}}
	h := newHouse(t, &collaborators{deliver: func(_ context.Context, d ledger.Delivery) (ledger.Reply, error) {
		got = d
		reply := replies[0]
		replies = replies[1:]
		return reply, nil
	}})
	r := push("letters", "letter-secret", "not even JSON \x00")
	r.Header.Set("Traceparent", parent)
	h.wants(r, http.StatusNoContent, "")
	if got.Source != "letters" || got.MessageID != "m-9" || string(got.Raw) != "not even JSON \x00" || got.Trace.Parent != parent {
		t.Errorf("the desk got %+v", got)
	}
	if h.pattern != "/v1/push/{source}" {
		t.Errorf("the pattern is %q", h.pattern)
	}
	w := h.wants(push("letters", "letter-secret", "x"), http.StatusServiceUnavailable, "")
	if w.Header().Get("Retry-After") != "7" {
		t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
}

func TestAPushThatIsNotAuthenticReachesNobody(t *testing.T) {
	h := newHouse(t, &collaborators{})
	h.wants(push("letters", "", "x"), http.StatusUnauthorized, wire.ProblemCodeUnauthenticated)
	h.wants(push("letters", "password-canary", "x"), http.StatusUnauthorized, wire.ProblemCodeUnauthenticated)
	h.wants(push("nobody", "letter-secret", "x"), http.StatusNotFound, wire.ProblemCodeNotFound)
	if strings.Contains(h.log.String(), "canary") {
		t.Errorf("the log has the password: %s", h.log)
	}
	if !strings.Contains(h.log.String(), `"at":"letters"`) {
		t.Errorf("the log does not tell: %s", h.log)
	}
}

func TestAPushThatCannotBeRecordedIsNacked(t *testing.T) {
	h := newHouse(t, &collaborators{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, errors.New("no ledger")
	}})
	w := h.wants(push("letters", "letter-secret", "x"), http.StatusServiceUnavailable, "")
	if w.Header().Get("Retry-After") != "5" {
		t.Errorf("Retry-After is %q", w.Header().Get("Retry-After"))
	}
}

func TestAMessageOverTheLimitIsADeadLetterAndARequestOverTheCapIsNot(t *testing.T) {
	const rawCap = 1<<10*3/2 + envelopeSlack
	var got *ledger.Delivery
	h := newHouse(t, &collaborators{deliver: func(_ context.Context, d ledger.Delivery) (ledger.Reply, error) {
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
		r := push("letters", "letter-secret", strings.Repeat("x", c.size))
		if c.chunked {
			r.ContentLength = -1
		}
		h.wants(r, c.status, "")
		if (got != nil) != (c.status == 204) || got != nil && (got.Fault != "") != c.fault {
			t.Errorf("%s: the desk got %+v", c.name, got)
		}
	}
}

func TestABodyThatDoesNotArriveWholeMayComeAgain(t *testing.T) {
	h := newHouse(t, &collaborators{})
	for _, err := range []error{io.ErrUnexpectedEOF, os.ErrDeadlineExceeded} {
		r := push("letters", "letter-secret", "")
		r.ContentLength = -1
		r.Body = io.NopCloser(&faultReader{bytes.NewReader([]byte("half")), err})
		h.wants(r, http.StatusServiceUnavailable, wire.ProblemCodeUnavailable)
	}
}

func TestACompressedPushIsNotOpened(t *testing.T) {
	h := newHouse(t, &collaborators{deliver: func(context.Context, ledger.Delivery) (ledger.Reply, error) {
		return ledger.Reply{Ack: true}, nil
	}})
	for coding, status := range map[string]int{
		"gzip": 415, "br": 415, "GZIP": 415, "identity, gzip": 415, "zstd": 415, "identity": 204, "": 204,
	} {
		r := push("letters", "letter-secret", "x")
		r.Header["Content-Encoding"] = []string{coding}
		h.wants(r, status, "")
	}
	r := push("letters", "letter-secret", "x")
	r.Header["Content-Encoding"] = []string{"identity", "deflate"}
	h.wants(r, 415, wire.ProblemCodeUnsupportedMediaType)
}
