package webhook

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// The words of a lookup's answer.
const (
	statusAccepted = "accepted"
	statusNotFound = "not_found"
)

// Ask asks the lookup address once whether the receiver took what was sent under a key.
//
// The body decides, and the status must fit: a bare 404 may come from a router, a proxy or a wrong address,
// none of which knows anything about the key. Whatever is not the documented answer is none, of the cause
// "protocol" where a status alone would look like one.
func (p *Provider) Ask(ctx context.Context, sendKey string) (ledger.Finding, ledger.Outcome) {
	req, err := p.question(ctx, sendKey)
	if err != nil {
		return ledger.Unanswered, ledger.Outcome{Cause: outbound.CauseRequest}
	}
	x := p.Client.Do(ctx, req)
	o := ledger.Outcome{
		Status: x.Status, Cause: x.Cause, RequestID: provider.RequestID(x.Header), Code: provider.Word(field(x, "code")),
	}
	if x.BodyCut || x.Status != http.StatusOK && x.Status != http.StatusNotFound {
		return ledger.Unanswered, o
	}
	switch status, id := answer(x.Body, sendKey); {
	case status == statusAccepted && x.Status == http.StatusOK:
		o.Result, o.Receipt = ledger.ResultAccepted, provider.Receipt(id)
		return ledger.Found, o
	case status == statusNotFound:
		return ledger.NotFound, o
	}
	o.Cause = outbound.CauseProtocol
	return ledger.Unanswered, o
}

func (p *Provider) question(ctx context.Context, sendKey string) (*http.Request, error) {
	u, err := url.Parse(p.LookupURL)
	if err != nil {
		return nil, fmt.Errorf("webhook: the lookup address: %w", err)
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "send_key=" + url.QueryEscape(sendKey)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	p.dress(ctx, req)
	req.Header.Set("Cache-Control", "no-cache, no-store") // what was true of the key a minute ago is no answer
	// A question has an id of its own: a receiver that drops what it has seen an id of must not take it for
	// the message.
	return req, p.sign(req, "lookup-"+sendKey, nil)
}

// answer is what a lookup's body says: nothing, unless it is one strict JSON object about this very key. A
// name that stands twice says two things, and an answer that names another key is somebody else's.
func answer(body []byte, sendKey string) (status, id string) {
	var members map[string]jsontext.Value
	if json.Unmarshal(body, &members) != nil {
		return "", ""
	}
	if named, ok := members["send_key"]; ok && text(named) != sendKey {
		return "", ""
	}
	return text(members["status"]), text(members["id"])
}

// text is a JSON string's, and empty for everything else.
func text(value jsontext.Value) string {
	unquoted, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(unquoted)
}
