package webhook_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider"
	"github.com/sendonce/sendonce/internal/provider/providertest"
	"github.com/sendonce/sendonce/internal/provider/webhook"
)

func open(t *testing.T, c webhook.Config) *webhook.Provider {
	t.Helper()
	if c.Client == nil {
		c.Client = outbound.New(outbound.Options{})
		t.Cleanup(c.Client.CloseIdle)
	}
	if c.Name == "" {
		c.Name = "mail"
	}
	p, err := webhook.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSend_BlindContractPassesClassTable(t *testing.T) {
	providertest.RunHTTP(t, func(t *testing.T, url string) provider.Provider {
		return open(t, webhook.Config{URL: url + "/send", Client: reusing(t)})
	})
}

func TestSend_SecondResponseIsNotOutcomeOfNextMessage(t *testing.T) {
	providertest.RunOneCall(t, func(t *testing.T, url string) provider.Provider {
		return open(t, webhook.Config{URL: url + "/send"})
	})
}

// reusing returns a client whose connections are reused, so that the class table also covers what net/http does on
// a reused connection.
func reusing(t *testing.T) *outbound.Client {
	t.Helper()
	c := outbound.New(outbound.Options{Reuse: true})
	t.Cleanup(c.CloseIdle)
	return c
}

// Here the header is set that lets net/http replay a POST; the table's counts show that it is not replayed.
func TestSend_IdempotentContractPassesClassTable(t *testing.T) {
	providertest.RunHTTP(t, func(t *testing.T, url string) provider.Provider {
		contract := ledger.Contract{Kind: ledger.ContractIdempotent, Window: 24 * time.Hour}
		return open(t, webhook.Config{URL: url + "/send", Contract: contract, Client: reusing(t)})
	})
}

func TestSend_RequestIsAsDocumented(t *testing.T) {
	var h providertest.Hostile
	p := open(t, webhook.Config{
		URL:     providertest.Serve(t, &h) + "/send",
		Headers: http.Header{"authorization": {"Bearer s3cret"}},
		Propagate: func(_ context.Context, header http.Header) {
			header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			header.Set("Idempotency-Key", "overwritten")
		},
	})
	s := providertest.Shipment(1)
	o := p.Send(t.Context(), s)
	if o.Result != ledger.ResultAccepted || o.Receipt != "fake-1" || o.Status != 200 {
		t.Fatalf("got %+v", o)
	}
	req, body := h.Last()
	want := `{"send_key":"` + s.SendKey + `","reminder_id":"rem-1","reservation_id":"seat-1842","type":"seat_expiring",` +
		`"channel":"email","to":"ada@example.org","content":{"subject":"Your seat \u003cis\u003e about to expire",` +
		`"text":"It is held until 09:10."},"correlation_id":"req-5f"}`
	if string(body) != want {
		t.Errorf("body\n%s\nwant\n%s", body, want)
	}
	for name, value := range map[string]string{
		"Webhook-Id": s.SendKey, "Authorization": "Bearer s3cret", "Content-Type": "application/json",
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "User-Agent": "sendonce",
		"Idempotency-Key": "", "Accept-Encoding": "", "Webhook-Signature": "",
	} {
		if got := req.Header.Get(name); got != value {
			t.Errorf("%s: %q, want %q", name, got, value)
		}
	}
}

func TestSend_IdempotencyKeyOnlyUnderIdempotentContract(t *testing.T) {
	for kind, want := range map[ledger.ContractKind]bool{ledger.ContractBlind: false, ledger.ContractLookup: false, ledger.ContractIdempotent: true} {
		var h providertest.Hostile
		p := open(t, webhook.Config{URL: providertest.Serve(t, &h) + "/send", LookupURL: "https://a.example/", Contract: ledger.Contract{Kind: kind, Window: time.Hour}})
		p.Send(t.Context(), providertest.Shipment(1))
		req, _ := h.Last()
		if got := req.Header.Get("Idempotency-Key"); (got == providertest.Shipment(1).SendKey) != want {
			t.Errorf("%v: key %q", kind, got)
		}
	}
}

func TestSend_SignatureVerifies(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	var h providertest.Hostile
	p := open(t, webhook.Config{URL: providertest.Serve(t, &h) + "/send", Secret: secret})
	p.Send(t.Context(), providertest.Shipment(1))
	req, body := h.Last()
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(body, req.Header); err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
	if verifier.Verify(append(body, ' '), req.Header) == nil {
		t.Error("a changed body verifies")
	}
}

func TestSend_ReceiptIsUnchangedOrEmpty(t *testing.T) {
	for name, test := range map[string]struct{ body, receipt string }{
		"plain":         {`{"id": "m-1"}`, "m-1"},
		"number":        {`{"id": 17}`, ""},
		"other case":    {`{"ID": "m-1"}`, ""},
		"null":          {`{"id": null}`, ""},
		"list":          {`[{"id": "m-1"}]`, ""},
		"line break":    {`{"id": "m\n1"}`, ""},
		"not ASCII":     {`{"id": "é"}`, ""},
		"longest":       {`{"id": "` + strings.Repeat("a", 255) + `"}`, strings.Repeat("a", 255)},
		"too long":      {`{"id": "` + strings.Repeat("a", 256) + `"}`, ""},
		"broken":        {`{"id": "m-1"`, ""},
		"empty":         {``, ""},
		"trailing data": {`{"id": "m-1"} {"id": "m-2"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(test.body)) })
			o := open(t, webhook.Config{URL: server}).Send(t.Context(), providertest.Shipment(1))
			if o.Result != ledger.ResultAccepted || o.Receipt != test.receipt {
				t.Errorf("got %v with receipt %q, want %q", o.Result, o.Receipt, test.receipt)
			}
		})
	}
}

func TestSend_RefusalDetailsAreLimited(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", strings.Repeat("r", 300))
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write([]byte(`{"code": "bad\n\u0000` + strings.Repeat("x", 300) + `é"}`))
	})
	o := open(t, webhook.Config{URL: server}).Send(t.Context(), providertest.Shipment(1))
	if o.Result != ledger.ResultRefused || o.Code != "bad"+strings.Repeat("x", 125) || len(o.RequestID) != 128 {
		t.Errorf("got %+v", o)
	}
}

func TestSend_InvalidJSONContentIsRefusedWithoutCall(t *testing.T) {
	var h providertest.Hostile
	p := open(t, webhook.Config{URL: providertest.Serve(t, &h) + "/send"})
	s := providertest.Shipment(1)
	s.Content = []byte(`{"subject": `)
	if o := p.Send(t.Context(), s); o.Result != ledger.ResultRefused || h.Counts().Connections != 0 {
		t.Errorf("got %+v over %d connections", o, h.Counts().Connections)
	}
}

func TestRoute_FingerprintDependsOnEndpointAndContractOnly(t *testing.T) {
	base := webhook.Config{URL: "https://a.example/send", Contract: ledger.Contract{Kind: ledger.ContractIdempotent, Window: time.Hour}}
	fingerprint := func(change func(*webhook.Config)) string {
		c := base
		change(&c)
		return open(t, c).Route().Fingerprint
	}
	same := fingerprint(func(*webhook.Config) {})
	for name, change := range map[string]func(*webhook.Config){
		"url":    func(c *webhook.Config) { c.URL = "https://b.example/send" },
		"lookup": func(c *webhook.Config) { c.LookupURL = "https://a.example/send" },
		"window": func(c *webhook.Config) { c.Contract.Window = 2 * time.Hour },
		"kind":   func(c *webhook.Config) { c.Contract = ledger.Contract{} },
	} {
		if fingerprint(change) == same {
			t.Errorf("%s: the fingerprint does not change", name)
		}
	}
	for name, change := range map[string]func(*webhook.Config){
		"secret":  func(c *webhook.Config) { c.Secret = "whsec_c2VjcmV0" },
		"headers": func(c *webhook.Config) { c.Headers = http.Header{"Authorization": {"Bearer new"}} },
	} {
		if fingerprint(change) != same {
			t.Errorf("%s: a rotated secret must not change the route of entries in doubt", name)
		}
	}
}

func TestNew_InvalidConfigIsRejected(t *testing.T) {
	for name, c := range map[string]webhook.Config{
		"no address":         {},
		"no host":            {URL: "https:///send"},
		"other scheme":       {URL: "ftp://a.example/"},
		"credentials in URL": {URL: "https://u:p@a.example/"},
		"lookup address":     {URL: "https://a.example/", LookupURL: "file:///etc/passwd"},
		"no lookup address":  {URL: "https://a.example/", Contract: ledger.Contract{Kind: ledger.ContractLookup}},
		"two send keys":      {URL: "https://a.example/", LookupURL: "https://a.example/?x=1&send_key=2"},
		"replay header":      {URL: "https://a.example/", Headers: http.Header{"x-idempotency-key": {"1"}}},
		"framing header":     {URL: "https://a.example/", Headers: http.Header{"Transfer-Encoding": {"chunked"}}},
		"header injection":   {URL: "https://a.example/", Headers: http.Header{"X-A": {"a\r\nB: c"}}},
		"header name":        {URL: "https://a.example/", Headers: http.Header{"X A": {"a"}}},
		"secret":             {URL: "https://a.example/", Secret: "whsec_%%%"},
	} {
		if _, err := webhook.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "%%%") || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: the error contains the secret: %v", name, err)
		}
	}
}

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}
