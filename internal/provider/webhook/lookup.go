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

// Values of status in a lookup response.
const (
	statusAccepted = "accepted"
	statusNotFound = "not_found"
)

// Lookup asks the lookup address once whether the receiver accepted the message sent under a send key.
//
// The body decides, and the HTTP status must match it: a bare 404 may come from a router, a proxy or a wrong
// address, none of which knows anything about the key. Every response other than a documented one counts as
// unanswered, with the cause "protocol" if its HTTP status is one that a documented response has.
func (p *Provider) Lookup(ctx context.Context, sendKey string) (ledger.LookupResult, ledger.Outcome) {
	req, err := p.lookupRequest(ctx, sendKey)
	if err != nil {
		return ledger.LookupUnanswered, ledger.Outcome{Cause: outbound.CauseRequest}
	}
	resp := p.Client.Do(ctx, req)
	o := ledger.Outcome{
		Status: resp.Status, Cause: resp.Cause, RequestID: provider.RequestID(resp.Header), Code: provider.Printable(field(resp, "code")),
	}
	if resp.BodyCut || resp.Status != http.StatusOK && resp.Status != http.StatusNotFound {
		return ledger.LookupUnanswered, o
	}
	switch status, id := readLookup(resp.Body, sendKey); {
	case status == statusAccepted && resp.Status == http.StatusOK:
		o.Result, o.Receipt = ledger.ResultAccepted, provider.Receipt(id)
		return ledger.LookupFound, o
	case status == statusNotFound:
		return ledger.LookupNotFound, o
	}
	o.Cause = outbound.CauseProtocol
	return ledger.LookupUnanswered, o
}

func (p *Provider) lookupRequest(ctx context.Context, sendKey string) (*http.Request, error) {
	u, err := url.Parse(p.LookupURL)
	if err != nil {
		return nil, fmt.Errorf("webhook: lookup address: %w", err)
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += "send_key=" + url.QueryEscape(sendKey)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	p.setHeaders(ctx, req)
	req.Header.Set("Cache-Control", "no-cache, no-store") // a cached result about the key may be outdated
	// A lookup has an id of its own: a receiver that drops ids it has seen must not take it for the message.
	return req, p.sign(req, "lookup-"+sendKey, nil)
}

// readLookup returns the status and the id in the body of a lookup response, or "" unless the body is one strict JSON
// object about this send key. A duplicate name is ambiguous, and a response that names another key is about another
// message.
func readLookup(body []byte, sendKey string) (status, id string) {
	var members map[string]jsontext.Value
	if json.Unmarshal(body, &members) != nil {
		return "", ""
	}
	if key, ok := members["send_key"]; ok && stringOf(key) != sendKey {
		return "", ""
	}
	return stringOf(members["status"]), stringOf(members["id"])
}

// stringOf returns the value of a JSON string, and "" for any other JSON value.
func stringOf(value jsontext.Value) string {
	unquoted, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return ""
	}
	return string(unquoted)
}
