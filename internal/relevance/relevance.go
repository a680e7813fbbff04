// Package relevance checks over HTTP whether a reminder is still wanted.
//
// Invariants: each check makes at most one request, within its type's timeout, and only a 200 with a readable
// `{"relevant": bool}` is an answer. Everything else is no answer, and the type's configuration decides what that
// means: wait, or send without an answer.
//
// What it does not do: it does not retry, and it decides nothing about the entry.
package relevance

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
)

// Check is the configuration of the check for one type of reminder.
type Check struct {
	URL               string        // may contain {reservation_id}, {reminder_id}, {type} and {channel}
	Headers           http.Header   // sent with the request, to authenticate at the peer
	Timeout           time.Duration // for the whole request
	SendWithoutAnswer bool          // send if there is no answer
}

// Checker checks whether reminders are still wanted.
type Checker struct {
	client *outbound.Client
	checks map[string]Check
}

// New returns a Checker with one check for each type. A type without an entry in checks uses that of "default". A check
// without a URL makes no request: its reminders are always wanted.
func New(client *outbound.Client, checks map[string]Check) *Checker {
	return &Checker{client: client, checks: checks}
}

// Check makes the check for one entry. The result is wanted, not wanted, or unanswered.
func (c *Checker) Check(ctx context.Context, e ledger.Entry) ledger.Relevance {
	check, named := c.checks[e.Type]
	if !named {
		check = c.checks["default"]
	}
	if check.URL == "" {
		return ledger.RelevanceWanted
	}
	relevant, answered := c.request(ctx, check, e)
	switch {
	case answered && relevant, !answered && check.SendWithoutAnswer:
		return ledger.RelevanceWanted
	case answered:
		return ledger.RelevanceNotWanted
	default:
		return ledger.RelevanceUnanswered
	}
}

// request reports what the peer answered; answered is false if there was no readable answer.
func (c *Checker) request(ctx context.Context, check Check, e ledger.Entry) (relevant, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, expand(check.URL, e), nil)
	if err != nil || leavesPlace(req.URL, check.URL) {
		return false, false
	}
	for name, values := range check.Headers {
		req.Header[name] = values
	}
	response := c.client.Do(ctx, req)
	if response.Status != http.StatusOK || response.BodyCut {
		return false, false
	}
	var answer struct {
		Relevant *bool `json:"relevant"`
	}
	if json.Unmarshal(response.Body, &answer) != nil || answer.Relevant == nil {
		return false, false
	}
	return *answer.Relevant, true
}

// leavesPlace reports whether an id made a dot segment of the path, for example an id of ".." from before ids were
// checked for it. Escaped or not, whoever receives such a path resolves it to another one (RFC 3986 section 6.2.2.3).
func leavesPlace(expanded *url.URL, template string) bool {
	dots := func(path string) (n int) {
		for segment := range strings.SplitSeq(path, "/") {
			if segment == "." || segment == ".." {
				n++
			}
		}
		return n
	}
	configured, err := url.Parse(template)
	return err != nil || dots(expanded.EscapedPath()) != dots(configured.EscapedPath())
}

// expand replaces the placeholders of a URL by the entry's ids. Each is escaped as one path segment or query value, so
// that an id can neither change the path nor add a parameter.
func expand(template string, e ledger.Entry) string {
	return strings.NewReplacer(
		"{reservation_id}", url.QueryEscape(e.ReservationID),
		"{reminder_id}", url.QueryEscape(e.ReminderID),
		"{type}", url.QueryEscape(e.Type),
		"{channel}", url.QueryEscape(e.Channel),
	).Replace(template)
}
