// Package webhook sends a reminder as one JSON POST to a service of the user's own, or to any gateway that
// implements this protocol.
//
// Invariants: the body of a shipment is the same bytes at every attempt and in every process; the header
// webhook-id carries the send key (Standard Webhooks); the header Idempotency-Key carries it only if the contract
// says that the receiver honours it, because otherwise that header only allows clients and proxies to replay the
// request.
//
// Under a lookup contract the receiver can be asked whether it accepted a send key ([Provider.Lookup]), and under
// any contract it may report status events on its own ([Events]). Both are read strictly: a response or event that
// is not exactly the documented one counts as none.
//
// What it does not do: it follows no redirect, retries nothing, and stores nothing.
package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/net/http/httpguts"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
)

// formatVersion is the version of the request format. Change it whenever any byte of the body changes.
const formatVersion = "webhook/1"

// Config configures one webhook provider.
type Config struct {
	Name      string
	URL       string // http or https; credentials belong in Headers
	Contract  ledger.Contract
	LookupURL string      // endpoint for lookups; required by a lookup contract
	Headers   http.Header // sent with every request, such as Authorization
	Secret    string      // "whsec_…", signs each request by Standard Webhooks; empty for unsigned requests
	Client    *outbound.Client
	Propagate func(context.Context, http.Header) // writes trace context; nil for none
	Now       func() time.Time                   // default time.Now
}

// Provider sends to one webhook.
type Provider struct {
	Config
	route  ledger.Route
	signer *standardwebhooks.Webhook
}

// New checks the configuration and returns the provider.
func New(c Config) (*Provider, error) {
	for _, address := range []string{c.URL, c.LookupURL} {
		if err := checkURL(address); err != nil && (address != "" || c.URL == "") {
			return nil, fmt.Errorf("webhook: %w", err)
		}
	}
	for name, values := range c.Headers {
		if reserved(name) || !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("webhook: the header %q cannot be configured", name)
		}
		for _, value := range values {
			if !httpguts.ValidHeaderFieldValue(value) {
				return nil, fmt.Errorf("webhook: the header %q has an invalid value", name)
			}
		}
	}
	if err := checkLookup(c); err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	p := &Provider{Config: c}
	if c.Secret != "" {
		signer, err := standardwebhooks.NewWebhook(c.Secret)
		if err != nil {
			return nil, errors.New("webhook: the signing secret is not base64") // do not wrap err: it may contain the secret
		}
		p.signer = signer
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	p.route = ledger.Route{
		Provider: c.Name, Contract: c.Contract,
		Fingerprint: provider.Fingerprint("webhook", c.URL, c.LookupURL, provider.ContractPart(c.Contract), formatVersion),
	}
	return p, nil
}

func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("the address is not a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return errors.New("the address is not an http or https URL with a host")
	case u.User != nil:
		return errors.New("credentials belong in a header, not in the address")
	}
	return nil
}

// checkLookup rejects a lookup contract without a lookup address, and a lookup address that would put two send keys
// in the query.
func checkLookup(c Config) error {
	u, err := url.Parse(c.LookupURL)
	switch {
	case c.Contract.Kind == ledger.ContractLookup && c.LookupURL == "":
		return errors.New("a lookup contract needs a lookup address")
	case err != nil || u.Query().Has("send_key"):
		return errors.New("the lookup address must not contain the query parameter send_key")
	}
	return nil
}

// reserved reports whether a header cannot be configured: this package sets it, or it would let net/http replay a
// request, or it would break the request's framing.
func reserved(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Idempotency-Key", "X-Idempotency-Key", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Host",
		"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Trailer", "Upgrade",
		"Expect", "Te":
		return true
	}
	return false
}

// Route returns the provider's route as configured.
func (p *Provider) Route() ledger.Route { return p.route }

// message is the request body. The order of its fields is part of the format.
type message struct {
	SendKey       string          `json:"send_key"`
	ReminderID    string          `json:"reminder_id"`
	ReservationID string          `json:"reservation_id,omitempty"`
	Type          string          `json:"type"`
	Channel       string          `json:"channel"`
	To            string          `json:"to"`
	Content       json.RawMessage `json:"content"`
	CorrelationID string          `json:"correlation_id,omitempty"`
}

// Send posts the shipment once.
func (p *Provider) Send(ctx context.Context, s ledger.Shipment) ledger.Outcome {
	req, err := p.request(ctx, s)
	if err != nil {
		return ledger.Outcome{Result: ledger.ResultRefused, Cause: outbound.CauseRequest}
	}
	resp := p.Client.Do(ctx, req)
	o := provider.Classify(resp, p.Now())
	if o.Result == ledger.ResultAccepted {
		o.Receipt = provider.Receipt(field(resp, "id"))
	} else {
		o.Code = provider.Printable(field(resp, "code"))
	}
	return o
}

func (p *Provider) request(ctx context.Context, s ledger.Shipment) (*http.Request, error) {
	body, err := json.Marshal(message{
		SendKey: s.SendKey, ReminderID: s.ReminderID, ReservationID: s.ReservationID, Type: s.Type,
		Channel: s.Channel, To: s.Recipient, Content: s.Content, CorrelationID: s.CorrelationID,
	})
	if err != nil {
		return nil, fmt.Errorf("webhook: the content is not JSON: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	p.setHeaders(ctx, req)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", s.SendKey)
	if p.Contract.Kind == ledger.ContractIdempotent {
		req.Header.Set("Idempotency-Key", s.SendKey)
	}
	if err := p.sign(req, s.SendKey, body); err != nil {
		return nil, err
	}
	return req, nil
}

// setHeaders sets the headers that every request carries.
func (p *Provider) setHeaders(ctx context.Context, req *http.Request) {
	if p.Propagate != nil {
		p.Propagate(ctx, req.Header)
	}
	for name, values := range p.Headers {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Accept", "application/json")
	// Only this package may set these two, whatever Propagate wrote.
	req.Header.Del("Idempotency-Key")
	req.Header.Del("X-Idempotency-Key")
}

// sign adds the signature headers if a secret is configured.
func (p *Provider) sign(req *http.Request, id string, body []byte) error {
	if p.signer == nil {
		return nil
	}
	now := p.Now()
	signature, err := p.signer.Sign(id, now, body)
	if err != nil {
		return fmt.Errorf("webhook: signing: %w", err)
	}
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	return nil
}

// field returns the string member of the response's JSON object with exactly this name, or "" if there is no
// reliable one. A truncated body is not read at all.
func field(resp outbound.Response, name string) string {
	var object map[string]json.RawMessage // a map, since struct fields match without regard to case
	var value string
	if resp.BodyCut || json.Unmarshal(resp.Body, &object) != nil || json.Unmarshal(object[name], &value) != nil {
		return ""
	}
	return value
}
