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

// asking is a webhook that is sent to at one path of a fake, and asked at another with a query of its own.
func asking(t *testing.T, url string, c webhook.Config) *webhook.Provider {
	t.Helper()
	c.URL, c.LookupURL, c.Contract = url+"/send", url+"/send?tenant=a%2Fb&page", ledger.Contract{Kind: ledger.Lookup}
	return open(t, c)
}

func TestALookupWebhookPassesTheTableOfLookUps(t *testing.T) {
	providertest.RunLookup(t, func(t *testing.T, url string) providertest.Asking {
		return asking(t, url, webhook.Config{})
	})
}

func TestTheQuestionIsTheDocumentedOne(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var h providertest.Hostile
	p := asking(t, providertest.Serve(t, &h), webhook.Config{
		Headers: http.Header{"authorization": {"Bearer s3cret"}},
		Propagate: func(_ context.Context, header http.Header) {
			header.Set("traceparent", parent)
			header.Set("Idempotency-Key", "not yours")
		},
	})
	if finding, _ := p.Ask(t.Context(), "k&y=1#ü"); finding != ledger.NotFound {
		t.Fatalf("finding %v", finding)
	}
	got := h.LastLookup()
	if want := "/send?tenant=a%2Fb&page&send_key=k%26y%3D1%23%C3%BC"; got.Method != "GET" || got.RequestURI != want {
		t.Errorf("%s %s, want GET %s", got.Method, got.RequestURI, want)
	}
	want := http.Header{
		"Accept": {"application/json"}, "Authorization": {"Bearer s3cret"}, "Cache-Control": {"no-cache, no-store"},
		"Traceparent": {parent}, "User-Agent": {"sendonce"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("headers (-want +got)\n%s", diff)
	}
}

func TestASignedQuestionVerifiesUnderAnIDThatIsNotTheMessages(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	var h providertest.Hostile
	p := asking(t, providertest.Serve(t, &h), webhook.Config{Secret: secret})
	p.Ask(t.Context(), "k-1")
	verifier, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	header := h.LastLookup().Header
	if err := verifier.Verify(nil, header); err != nil || header.Get("webhook-id") != "lookup-k-1" {
		t.Errorf("id %q: %v", header.Get("webhook-id"), err)
	}
}

func TestTheEvidenceOfAnAnswerIsBounded(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Request-Id", strings.Repeat("r", 300))
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code": "bad_token\n` + strings.Repeat("x", 300) + `", "to": "ada@example.org"}`))
	})
	finding, o := asking(t, server, webhook.Config{}).Ask(t.Context(), "k-1")
	want := ledger.Outcome{
		Status: 401, Code: "bad_token" + strings.Repeat("x", 119), RequestID: strings.Repeat("r", 128), Cause: "status",
	}
	if diff := cmp.Diff(want, o); diff != "" || finding != ledger.Unanswered {
		t.Errorf("finding %v (-want +got)\n%s", finding, diff)
	}
}

func TestAWebhookWithoutALookupAddressAsksNobody(t *testing.T) {
	var h providertest.Hostile
	p := open(t, webhook.Config{URL: providertest.Serve(t, &h) + "/send", Contract: ledger.Contract{Kind: ledger.Idempotent, Window: time.Hour}})
	finding, o := p.Ask(t.Context(), "k-1")
	if finding != ledger.Unanswered || o.Cause != outbound.CauseRequest || h.Counts().Connections != 0 {
		t.Errorf("finding %v, %+v", finding, o)
	}
}
