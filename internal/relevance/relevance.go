// Package relevance asks the question "is this reminder still wanted?" over HTTP.
//
// Invariants: a question is asked at most once per call, within its type's timeout, and only a 200 with
// a readable `{"relevant": bool}` is an answer. Everything else is silence, and what silence means is
// the type's choice: wait, or send all the same.
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

// Question is what one type of reminder asks.
type Question struct {
	URL            string        // may name {reservation_id}, {reminder_id}, {type} and {channel}
	Headers        http.Header   // sent along, for the peer's authentication
	Timeout        time.Duration // for the whole exchange
	SendUnanswered bool          // when nobody answers: send all the same
}

// Asker asks each type's question.
type Asker struct {
	client    *outbound.Client
	questions map[string]Question
}

// New is an asker of these questions, by type; types that are not named ask the question of "default". A
// question without an address is not asked: what it is about is always wanted.
func New(client *outbound.Client, questions map[string]Question) *Asker {
	return &Asker{client: client, questions: questions}
}

// Ask puts the question for one entry. It answers wanted, not wanted, or that there was no answer.
func (a *Asker) Ask(ctx context.Context, e ledger.Entry) ledger.Relevance {
	q, named := a.questions[e.Type]
	if !named {
		q = a.questions["default"]
	}
	if q.URL == "" {
		return ledger.StillWanted
	}
	relevant, answered := a.ask(ctx, q, e)
	switch {
	case answered && relevant, !answered && q.SendUnanswered:
		return ledger.StillWanted
	case answered:
		return ledger.NotWanted
	default:
		return ledger.NoAnswer
	}
}

func (a *Asker) ask(ctx context.Context, q Question, e ledger.Entry) (relevant, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address(q.URL, e), nil)
	if err != nil {
		return false, false
	}
	for name, values := range q.Headers {
		req.Header[name] = values
	}
	exchange := a.client.Do(ctx, req)
	if exchange.Status != http.StatusOK || exchange.BodyCut {
		return false, false
	}
	var answer struct {
		Relevant *bool `json:"relevant"`
	}
	if json.Unmarshal(exchange.Body, &answer) != nil || answer.Relevant == nil {
		return false, false
	}
	return *answer.Relevant, true
}

// address fills the entry's ids into the question's URL, each escaped as one path segment or query
// value: an id can neither leave its place nor bring a parameter of its own.
func address(template string, e ledger.Entry) string {
	return strings.NewReplacer(
		"{reservation_id}", url.QueryEscape(e.ReservationID),
		"{reminder_id}", url.QueryEscape(e.ReminderID),
		"{type}", url.QueryEscape(e.Type),
		"{channel}", url.QueryEscape(e.Channel),
	).Replace(template)
}
