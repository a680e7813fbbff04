package relevance_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/relevance"
)

var entry = ledger.Entry{
	Identity:      ledger.Identity{ReminderID: "rem/1?x=&", Type: "seat_expiring", Channel: "email"},
	ReservationID: "seat-1842/../admin",
}

func TestCheck_OnlyAReadableResponseIsAnAnswer(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
		want   ledger.Relevance
	}{
		"yes":                 {200, `{"relevant": true, "reason": "held"}`, ledger.RelevanceWanted},
		"no":                  {200, `{"relevant": false}`, ledger.RelevanceNotWanted},
		"no word on it":       {200, `{"reason": "?"}`, ledger.RelevanceUnanswered},
		"null":                {200, `{"relevant": null}`, ledger.RelevanceUnanswered},
		"text":                {200, `{"relevant": "true"}`, ledger.RelevanceUnanswered},
		"no JSON":             {200, `<html>`, ledger.RelevanceUnanswered},
		"longer than we read": {200, `{"relevant": false}` + strings.Repeat(" ", 1<<20), ledger.RelevanceUnanswered},
		"error":               {500, `{"relevant": false}`, ledger.RelevanceUnanswered},
		"not found":           {404, `{"relevant": false}`, ledger.RelevanceUnanswered},
		"redirect":            {302, `{"relevant": false}`, ledger.RelevanceUnanswered},
	}
	for name, tc := range answers {
		t.Run(name, func(t *testing.T) {
			peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer peer.Close()
			for silent, want := range map[bool]ledger.Relevance{false: tc.want, true: tc.want} {
				if silent && want == ledger.RelevanceUnanswered {
					want = ledger.RelevanceWanted
				}
				checker := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Check{
					"default": {URL: peer.URL, Timeout: 5 * time.Second, SendWithoutAnswer: silent},
				})
				if got := checker.Check(t.Context(), entry); got != want {
					t.Errorf("send unanswered %v: got %v, want %v", silent, got, want)
				}
			}
		})
	}
}

func TestCheck_SlowPeerIsNoAnswer(t *testing.T) {
	release := make(chan struct{})
	peer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer peer.Close()
	defer close(release)
	checker := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Check{
		"default": {URL: peer.URL, Timeout: 20 * time.Millisecond},
	})
	if got := checker.Check(t.Context(), entry); got != ledger.RelevanceUnanswered {
		t.Errorf("got %v, want no answer", got)
	}
}

func TestCheck_IDIsEscapedInURL(t *testing.T) {
	var received *http.Request
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received = r
		_, _ = w.Write([]byte(`{"relevant": true}`))
	}))
	defer peer.Close()
	checker := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Check{
		"default": {
			URL: peer.URL + "/v1/seats/{reservation_id}/relevant?reminder={reminder_id}", Timeout: 5 * time.Second,
			Headers: http.Header{"X-Key": {"k"}},
		},
	})
	if got := checker.Check(t.Context(), entry); got != ledger.RelevanceWanted {
		t.Fatalf("got %v", got)
	}
	if want := "/v1/seats/seat-1842%2F..%2Fadmin/relevant"; received.URL.EscapedPath() != want {
		t.Errorf("path %s, want %s", received.URL.EscapedPath(), want)
	}
	if got := received.URL.Query(); got.Get("reminder") != "rem/1?x=&" || len(got) != 1 || received.Header.Get("X-Key") != "k" {
		t.Errorf("query %v, header %v", got, received.Header)
	}
}

func TestCheck_IDOfDotsIsNotAskedAbout(t *testing.T) {
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("requested %s", r.RequestURI)
		_, _ = w.Write([]byte(`{"relevant": false}`))
	}))
	defer peer.Close()
	for template, id := range map[string]string{
		"/v1/seats/{reservation_id}/relevant": "..", "/v1/seats/{reservation_id}": ".", "/v1/seats/.{reservation_id}/x": ".",
	} {
		checker := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Check{
			"default": {URL: peer.URL + template, Timeout: 5 * time.Second},
		})
		dots := entry
		dots.ReservationID = id
		if got := checker.Check(t.Context(), dots); got != ledger.RelevanceUnanswered {
			t.Errorf("%s with %q: got %v, want no answer", template, id, got)
		}
	}
}

func TestCheck_TypeWithoutURLIsAlwaysWanted(t *testing.T) {
	checker := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Check{
		"default": {URL: "http://127.0.0.1:1/", Timeout: time.Second}, "seat_expiring": {},
	})
	if got := checker.Check(t.Context(), entry); got != ledger.RelevanceWanted {
		t.Errorf("got %v", got)
	}
	other := entry
	other.Type = "not_configured"
	if got := checker.Check(t.Context(), other); got != ledger.RelevanceUnanswered {
		t.Errorf("a type that is not configured takes the default's question: got %v", got)
	}
}
