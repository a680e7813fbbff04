// Package client asks a sendonce gateway for reminders: the typed client for internal services and for
// operators' tools, generated from the gateway's openapi.yaml.
//
//	gateway, err := client.NewClientWithResponses("https://gw.example.org",
//		client.WithToken(os.Getenv("GATEWAY_TOKEN")),
//		client.WithHTTPClient(&http.Client{Timeout: 15 * time.Second}))
//	…
//	answer, err := gateway.RequestReminderWithResponse(ctx, client.Reminder{
//		ReminderID: "rem-1842", Type: "seat_expiring", Channel: "email", To: "ada@example.org",
//		Content: map[string]any{"subject": "Your seat is about to expire"},
//	})
//	switch {
//	case err != nil: // nobody knows: ask again, with the same reminder
//	case answer.JSON200 != nil: // final: see its State
//	case answer.JSON202 != nil: // pending: the gateway finishes it
//	case answer.ApplicationProblemJSON409 != nil: // other content stands under this identity
//	}
//
// Asking again for the same reminder is always safe, after an error or a 503 above all: the gateway
// sends it at most once. Without [WithHTTPClient] there is no timeout but the context's.
//
// The package imports nothing else of this module. It retries nothing, and covers neither brokers' pushes
// nor probes.
package client

import (
	"context"
	"net/http"
)

// WithToken sends the caller's bearer token with every request.
func WithToken(token string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+token)
		return nil
	})
}
