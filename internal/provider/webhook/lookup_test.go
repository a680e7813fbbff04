package webhook_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/outbound"
	"github.com/sendonce/sendonce/internal/provider/providertest"
	"github.com/sendonce/sendonce/internal/provider/webhook"
)

// newLookup returns a webhook for the fake at url, with a lookup URL that already has a query.
func newLookup(t *testing.T, url string, c webhook.Config) *webhook.Provider {
	t.Helper()
	c.URL, c.LookupURL, c.Contract = url+"/send", url+"/send?tenant=a%2Fb&page", ledger.Contract{Kind: ledger.ContractLookup}
	return open(t, c)
}

func TestLookup_PassesLookupTable(t *testing.T) {
	providertest.RunLookup(t, func(t *testing.T, url string) providertest.LookupProvider {
		return newLookup(t, url, webhook.Config{})
	})
}

func TestLookup_RequestIsAsDocumented(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var h providertest.Hostile
	p := newLookup(t, providertest.Serve(t, &h), webhook.Config{
		Headers: http.Header{"authorization": {"Bearer s3cret"}},
		Propagate: func(_ context.Context, header http.Header) {
			header.Set("traceparent", parent)
			header.Set("Idempotency-Key", "overwritten")
		},
	})
	if result, _ := p.Lookup(t.Context(), "k&y=1#ü"); result != ledger.LookupNotFound {
		t.Fatalf("result %v", result)
	}
	got := h.LastLookup()
	if want := "/send?tenant=a%2Fb&page&send_key=k%26y%3D1%23%C3%BC"; got.Method != "GET" || got.RequestURI != want {
		t.Errorf("%s %s, want GET %s", got.Method, got.RequestURI, want)
	}
	want := http.Header{
		"Accept": {"application/json"}, "Authorization": {"Bearer s3cret"}, "Cache-Control": {"no-cache, no-store"},
		"Connection": {"close"}, "Traceparent": {parent}, "User-Agent": {"sendonce"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers (-want +got)\n%s", diff)
	}
}

func TestLookup_SignatureVerifiesUnderItsOwnID(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	var h providertest.Hostile
	p := newLookup(t, providertest.Serve(t, &h), webhook.Config{Secret: secret})
	p.Lookup(t.Context(), "k-1")
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	header := h.LastLookup().Header
	if err := verifier.Verify(nil, header); err != nil || header.Get("webhook-id") != "lookup-k-1" {
		t.Errorf("id %q: %v", header.Get("webhook-id"), err)
	}
}

func TestLookup_ResponseDetailsAreLimited(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", strings.Repeat("r", 300))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code": "bad_token\n` + strings.Repeat("x", 300) + `", "to": "ada@example.org"}`))
	})
	result, o := newLookup(t, server, webhook.Config{}).Lookup(t.Context(), "k-1")
	want := ledger.Outcome{
		Status: 401, Code: "bad_token" + strings.Repeat("x", 119), RequestID: strings.Repeat("r", 128), Cause: "status",
	}
	if diff := cmp.Diff(want, o); diff != "" || result != ledger.LookupUnanswered {
		t.Errorf("result %v (-want +got)\n%s", result, diff)
	}
}

func TestLookup_WithoutLookupURLMakesNoRequest(t *testing.T) {
	var h providertest.Hostile
	p := open(t, webhook.Config{URL: providertest.Serve(t, &h) + "/send", Contract: ledger.Contract{Kind: ledger.ContractIdempotent, Window: time.Hour}})
	result, o := p.Lookup(t.Context(), "k-1")
	if result != ledger.LookupUnanswered || o.Cause != outbound.CauseRequest || h.Counts().Connections != 0 {
		t.Errorf("result %v, %+v", result, o)
	}
}
