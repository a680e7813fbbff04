// Package webhook sends a reminder as one POST of JSON to a service of the user's own, or to any gateway
// that speaks this dialect.
//
// Invariants: the body of a shipment is the same bytes at every attempt and in every process; the header
// webhook-id carries the send key (Standard Webhooks), and Idempotency-Key does so only where the contract
// says that the receiver honours it, since for everybody else it is an invitation to replay.
//
// Under a lookup contract the receiver can be asked what became of a send key ([Provider.Ask]), and under
// any contract it may tell of its own accord ([Events]). Neither takes a word for more than it says: an
// answer or event that is not exactly the documented one is none.
//
// What it does not do: it follows no redirect, retries nothing, and keeps nothing.
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

// shape is the version of the request's shape. Change it with any byte of the body.
const shape = "webhook/1"

// Config is one webhook provider.
type Config struct {
	Name      string
	URL       string // http or https; credentials belong in Headers
	Contract  ledger.Contract
	LookupURL string      // under a lookup contract: where to ask later
	Headers   http.Header // sent with every request, such as Authorization
	Secret    string      // "whsec_…" signs each request by Standard Webhooks; empty for unsigned
	Client    *outbound.Client
	Propagate func(context.Context, http.Header) // writes trace context; nil for none
	Now       func() time.Time                   // time.Now
}

// Provider sends to one webhook.
type Provider struct {
	Config
	route  ledger.Route
	signer *standardwebhooks.Webhook
}

// New checks the configuration.
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
				return nil, fmt.Errorf("webhook: the header %q has a value that cannot be sent", name)
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
			return nil, errors.New("webhook: the signing secret is no base64") // its text stays out of the error
		}
		p.signer = signer
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	p.route = ledger.Route{
		Provider: c.Name, Contract: c.Contract,
		Fingerprint: provider.Fingerprint("webhook", c.URL, c.LookupURL, provider.ContractWord(c.Contract), shape),
	}
	return p, nil
}

func checkURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("the address is no URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		return errors.New("the address is no http or https URL with a host")
	case u.User != nil:
		return errors.New("credentials belong in a header, not in the address")
	}
	return nil
}

// checkLookup refuses a contract that nobody could keep, and an address that would ask about two keys.
func checkLookup(c Config) error {
	u, err := url.Parse(c.LookupURL)
	switch {
	case c.Contract.Kind == ledger.Lookup && c.LookupURL == "":
		return errors.New("a lookup contract needs an address to ask at")
	case err != nil || u.Query().Has("send_key"):
		return errors.New("the lookup address has a send_key of its own")
	}
	return nil
}

// reserved names are ours, or would let net/http replay a request, or break its framing.
func reserved(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Idempotency-Key", "X-Idempotency-Key", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "Host",
		"Content-Type", "Content-Length", "Content-Encoding", "Transfer-Encoding", "Connection", "Trailer", "Upgrade",
		"Expect", "Te":
		return true
	}
	return false
}

// Route is the provider as configured.
func (p *Provider) Route() ledger.Route { return p.route }

// message is the body. The order of its fields is part of the shape.
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
	x := p.Client.Do(ctx, req)
	o := provider.Classify(x, p.Now())
	if o.Result == ledger.ResultAccepted {
		o.Receipt = provider.Receipt(field(x, "id"))
	} else {
		o.Code = provider.Word(field(x, "code"))
	}
	return o
}

func (p *Provider) request(ctx context.Context, s ledger.Shipment) (*http.Request, error) {
	body, err := json.Marshal(message{
		SendKey: s.SendKey, ReminderID: s.ReminderID, ReservationID: s.ReservationID, Type: s.Type,
		Channel: s.Channel, To: s.Recipient, Content: s.Content, CorrelationID: s.CorrelationID,
	})
	if err != nil {
		return nil, fmt.Errorf("webhook: the content is no JSON: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("webhook: %w", err)
	}
	p.dress(ctx, req)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", s.SendKey)
	if p.Contract.Kind == ledger.Idempotent {
		req.Header.Set("Idempotency-Key", s.SendKey)
	}
	if err := p.sign(req, s.SendKey, body); err != nil {
		return nil, err
	}
	return req, nil
}

// dress gives a request what every request carries.
func (p *Provider) dress(ctx context.Context, req *http.Request) {
	if p.Propagate != nil {
		p.Propagate(ctx, req.Header)
	}
	for name, values := range p.Headers {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	req.Header.Set("Accept", "application/json")
	// Whatever Propagate wrote, these two are ours alone.
	req.Header.Del("Idempotency-Key")
	req.Header.Del("X-Idempotency-Key")
}

// sign adds the signature, where requests are signed.
func (p *Provider) sign(req *http.Request, id string, body []byte) error {
	if p.signer == nil {
		return nil
	}
	now := p.Now()
	signature, err := p.signer.Sign(id, now, body)
	if err != nil {
		return fmt.Errorf("webhook: sign: %w", err)
	}
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("Webhook-Signature", signature)
	return nil
}

// field is a string of the answer's JSON object, by its exact name; empty when there is none that can be
// trusted: a body that broke off is not read at all.
func field(x outbound.Exchange, name string) string {
	var object map[string]json.RawMessage // a map, since struct fields match without regard to case
	var value string
	if x.BodyCut || json.Unmarshal(x.Body, &object) != nil || json.Unmarshal(object[name], &value) != nil {
		return ""
	}
	return value
}
