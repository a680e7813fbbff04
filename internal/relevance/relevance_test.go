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

func TestOnlyAReadableAnswerIsAnAnswer(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
		want   ledger.Relevance
	}{
		"yes":                 {200, `{"relevant": true, "reason": "held"}`, ledger.StillWanted},
		"no":                  {200, `{"relevant": false}`, ledger.NotWanted},
		"no word on it":       {200, `{"reason": "?"}`, ledger.NoAnswer},
		"null":                {200, `{"relevant": null}`, ledger.NoAnswer},
		"text":                {200, `{"relevant": "true"}`, ledger.NoAnswer},
		"no JSON":             {200, `<html>`, ledger.NoAnswer},
		"longer than we read": {200, `{"relevant": false}` + strings.Repeat(" ", 1<<20), ledger.NoAnswer},
		"error":               {500, `{"relevant": false}`, ledger.NoAnswer},
		"not found":           {404, `{"relevant": false}`, ledger.NoAnswer},
		"redirect":            {302, `{"relevant": false}`, ledger.NoAnswer},
	}
	for name, tc := range answers {
		t.Run(name, func(t *testing.T) {
			peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			}))
			defer peer.Close()
			for silent, want := range map[bool]ledger.Relevance{false: tc.want, true: tc.want} {
				if silent && want == ledger.NoAnswer {
					want = ledger.StillWanted
				}
				desk := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Question{
					"default": {URL: peer.URL, Timeout: 5 * time.Second, SendUnanswered: silent},
				})
				if got := desk.Ask(t.Context(), entry); got != want {
					t.Errorf("send unanswered %v: got %v, want %v", silent, got, want)
				}
			}
		})
	}
}

func TestASlowPeerIsNoAnswer(t *testing.T) {
	release := make(chan struct{})
	peer := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer peer.Close()
	defer close(release)
	desk := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Question{
		"default": {URL: peer.URL, Timeout: 20 * time.Millisecond},
	})
	if got := desk.Ask(t.Context(), entry); got != ledger.NoAnswer {
		t.Errorf("got %v, want no answer", got)
	}
}

func TestAnIDStaysInItsPlace(t *testing.T) {
	var asked *http.Request
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		_, _ = w.Write([]byte(`{"relevant": true}`))
	}))
	defer peer.Close()
	desk := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Question{
		"default": {
			URL: peer.URL + "/v1/seats/{reservation_id}/relevant?reminder={reminder_id}", Timeout: 5 * time.Second,
			Headers: http.Header{"X-Key": {"k"}},
		},
	})
	if got := desk.Ask(t.Context(), entry); got != ledger.StillWanted {
		t.Fatalf("got %v", got)
	}
	if want := "/v1/seats/seat-1842%2F..%2Fadmin/relevant"; asked.URL.EscapedPath() != want {
		t.Errorf("path %s, want %s", asked.URL.EscapedPath(), want)
	}
	if got := asked.URL.Query(); got.Get("reminder") != "rem/1?x=&" || len(got) != 1 || asked.Header.Get("X-Key") != "k" {
		t.Errorf("query %v, header %v", got, asked.Header)
	}
}

func TestATypeWithoutAQuestionIsAlwaysWanted(t *testing.T) {
	desk := relevance.New(outbound.New(outbound.Options{}), map[string]relevance.Question{
		"default": {URL: "http://127.0.0.1:1/", Timeout: time.Second}, "seat_expiring": {},
	})
	if got := desk.Ask(t.Context(), entry); got != ledger.StillWanted {
		t.Errorf("got %v", got)
	}
	other := entry
	other.Type = "not_configured"
	if got := desk.Ask(t.Context(), other); got != ledger.NoAnswer {
		t.Errorf("a type that is not configured takes the default's question: got %v", got)
	}
}
