// Package client is the typed Go client of a sendonce gateway, for internal services and for operators' tools. It is
// generated from the gateway's openapi.yaml.
//
// This package is the only Go API that the versions of this module promise to keep compatible. All other packages may
// change in every release.
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
//	case err != nil: // the result is unknown: repeat the same request
//	case answer.JSON200 != nil: // final, but not necessarily sent: see its State
//	case answer.JSON202 != nil: // pending: the gateway finishes it, and there is nothing left to do
//	case answer.ApplicationProblemJSON409 != nil: // the identity already exists with other content
//	case answer.StatusCode() == 429, answer.StatusCode() >= 500: // nothing is promised: repeat it after Retry-After
//	default: // refused: answer.Body has the problem
//	}
//
// Repeating a request for the same reminder is always safe, and is the right thing to do after an error or a 503: the
// gateway sends the reminder at most once. Without [WithHTTPClient] there is no timeout but that of the context.
//
// GetReminderWithResponse returns the result of a request that was answered 202. The Retry-After header of that answer
// (answer.HTTPResponse.Header), in whole seconds, says when to read it first; 429 and 503 have the header too.
//
// CancelReminderWithResponse cancels one type and channel, as its body says, or every entry of the id with the empty
// CancelRequest{}.
//
// A token of role producer requests, cancels and reads reminders. The operations of the admin API, such as ListEntries
// and GetEntry, need a token of role support, operator or admin, which can neither request nor cancel reminders, and the
// address of the admin listener where the gateway has one.
//
// The package imports nothing else of this module, and of other modules github.com/oapi-codegen/runtime only. It retries
// nothing, and covers neither the pushes of brokers nor status events nor probes.
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
