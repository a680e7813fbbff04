package client_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sendonce/sendonce/api/client"
)

func Example() {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"x","reminder_id":"rem-1842","type":"seat_expiring","channel":"email",
			"state":"sent","reason":"accepted","receipt":"r-1","attempts":1,"lease_expirations":0,"deliveries":1,
			"first_seen":"2031-03-04T09:00:00Z","updated":"2031-03-04T09:00:00.2Z","version":2}`)
	}))
	defer gateway.Close()

	c, err := client.NewClientWithResponses(gateway.URL, client.WithToken("dev-producer"))
	if err != nil {
		fmt.Println(err)
		return
	}
	answer, err := c.RequestReminderWithResponse(context.Background(), client.Reminder{
		ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email", To: "ada@example.org",
		Content: map[string]any{"subject": "Your seat is about to expire"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(answer.JSON200.State, answer.JSON200.Receipt)
	// Output: sent r-1
}

func TestClient_SendsTokenAndOnlySetMembers(t *testing.T) {
	var seen *http.Request
	var body string
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		seen, body = r, string(raw)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer gateway.Close()
	c, err := client.NewClientWithResponses(gateway.URL, client.WithToken("t-1"))
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.RequestReminderWithResponse(t.Context(), client.Reminder{
		ReservationID: "seat-1", Type: "a", Channel: "b", To: "c", Content: map[string]any{"n": 1},
	}); err != nil {
		t.Fatal(err)
	}
	if got := seen.Header.Get("Authorization"); got != "Bearer t-1" {
		t.Errorf("Authorization is %q", got)
	}
	if want := `{"reservation_id":"seat-1","type":"a","channel":"b","to":"c","content":{"n":1}}`; strings.TrimSpace(body) != want {
		t.Errorf("the body is %s, not %s", body, want)
	}

	state := client.StateDead
	if _, err := c.ListEntriesWithResponse(t.Context(), &client.ListEntriesParams{State: &state}); err != nil {
		t.Fatal(err)
	}
	if seen.URL.RawQuery != "state=dead" {
		t.Errorf("the query is %q", seen.URL.RawQuery)
	}

	if _, err := c.GetReminderWithResponse(t.Context(), "a/b%c"); err != nil {
		t.Fatal(err)
	}
	if seen.URL.EscapedPath() != "/v1/reminders/a%2Fb%25c" {
		t.Errorf("the path is %q", seen.URL.EscapedPath())
	}
}
