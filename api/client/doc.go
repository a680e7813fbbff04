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
//	case answer.JSON200 != nil: // final, which is not to say sent: see its State
//	case answer.JSON202 != nil: // pending: the gateway finishes it, and there is nothing left to do
//	case answer.ApplicationProblemJSON409 != nil: // other content stands under this identity
//	case answer.StatusCode() == 429, answer.StatusCode() >= 500: // nothing is promised: ask again, after Retry-After
//	default: // refused: the problem in answer.Body says why
//	}
//
// Asking again for the same reminder is always safe, after an error or a 503 above all: the gateway
// sends it at most once. Without [WithHTTPClient] there is no timeout but the context's.
//
// What became of a 202 is told by GetReminderWithResponse. The answer's Retry-After header
// (answer.HTTPResponse.Header), in whole seconds, says when it is worth asking first; it comes with 429
// and 503 too.
//
// CancelReminderWithResponse cancels one type and channel by its body, and all that is known under the
// id by the empty CancelRequest{}.
//
// A token of role producer asks, cancels and reads reminders. ListEntries and GetEntry need one of role
// support, operator or admin, which can neither ask nor cancel, and the admin listener's address where
// the gateway has one.
//
// The package imports nothing else of this module, and of others github.com/oapi-codegen/runtime alone.
// It retries nothing, and covers neither brokers' pushes nor probes.
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
