package pubsub_test

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ingest/pubsub"
)

const (
	audience = "https://gw.example.test/v1/push/seats"
	email    = "push@demo.iam.gserviceaccount.com"
)

// issuer is an in-process identity provider: it signs tokens, and is the transport of the client that fetches its
// keys. It records every request, whatever its URL.
type issuer struct {
	t    *testing.T
	keys map[string]*rsa.PrivateKey

	mu       sync.Mutex
	now      time.Time
	handler  func(*http.Request) (*http.Response, error) // nil to respond with the keys
	requests []string
}

func newIssuer(t *testing.T, ids ...string) *issuer {
	t.Helper()
	i := &issuer{t: t, keys: map[string]*rsa.PrivateKey{}, now: time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)}
	for _, id := range ids {
		i.keys[id] = newKey(t)
	}
	return i
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.requests = append(i.requests, r.URL.String())
	if i.handler != nil {
		return i.handler(r)
	}
	return respond(200, i.keySet()), nil
}

func (i *issuer) keySet() string {
	var set jose.JSONWebKeySet
	for id, key := range i.keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: id, Algorithm: "RS256", Use: "sig"})
	}
	body, err := json.Marshal(set)
	if err != nil {
		i.t.Error(err)
	}
	return string(body)
}

func respond(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

func (i *issuer) fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.requests)
}

func (i *issuer) clock() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

func (i *issuer) advance(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now = i.now.Add(d)
}

func (i *issuer) respondWith(handler func(*http.Request) (*http.Response, error)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.handler = handler
}

func (i *issuer) authenticator(options ...func(*pubsub.OIDCOptions)) ingest.Authenticator {
	i.t.Helper()
	o := pubsub.OIDCOptions{Audience: audience, Email: email, Client: &http.Client{Transport: i}, Now: i.clock}
	for _, option := range options {
		option(&o)
	}
	a, err := pubsub.NewOIDC(o)
	if err != nil {
		i.t.Fatal(err)
	}
	return a
}

// claims returns the claims of a valid token, changed by pairs of name and value. A nil value removes the claim.
func (i *issuer) claims(pairs ...any) map[string]any {
	now := i.clock().Unix()
	claims := map[string]any{
		"iss": "https://accounts.google.com", "aud": audience, "azp": "1234", "sub": "1234",
		"email": email, "email_verified": true, "iat": now, "exp": now + 3600,
	}
	for n := 0; n < len(pairs); n += 2 {
		claims[pairs[n].(string)] = pairs[n+1]
	}
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

func (i *issuer) token(id string, claims map[string]any) string {
	return i.signed(i.keys[id], map[string]any{"alg": "RS256", "typ": "JWT", "kid": id}, claims)
}

func (i *issuer) claimsText() string {
	text, err := json.Marshal(i.claims())
	if err != nil {
		i.t.Fatal(err)
	}
	return string(text)
}

// signedRaw returns an RS256 token with these bytes as its claims.
func (i *issuer) signedRaw(key *rsa.PrivateKey, id, claims string) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, extraHeaders(map[string]any{"kid": id}))
	if err != nil {
		i.t.Fatal(err)
	}
	jws, err := signer.Sign([]byte(claims))
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

// signed returns an RS256 token with the given header.
func (i *issuer) signed(key *rsa.PrivateKey, header, claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, extraHeaders(header))
	if err != nil {
		i.t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		i.t.Fatal(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		i.t.Fatal(err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return token
}

func extraHeaders(header map[string]any) *jose.SignerOptions {
	o := &jose.SignerOptions{}
	for name, value := range header {
		if name != "alg" {
			o.WithHeader(jose.HeaderKey(name), value)
		}
	}
	return o
}

// unsigned returns a token with the given header and the signature returned by sign.
func unsigned(header, claims map[string]any, sign func(input string) []byte) string {
	part := func(v any) string {
		body, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(body)
	}
	input := part(header) + "." + part(claims)
	return input + "." + base64.RawURLEncoding.EncodeToString(sign(input))
}

func push(a ingest.Authenticator, token string) error {
	return a.Authenticate(context.Background(), http.Header{"Authorization": {"Bearer " + token}}, nil)
}

func TestOIDC_AcceptsTokenOfSubscription(t *testing.T) {
	i := newIssuer(t, "k1", "k2")
	a := i.authenticator()
	for name, token := range map[string]string{
		"a valid token":                  i.token("k1", i.claims()),
		"the other key":                  i.token("k2", i.claims()),
		"the issuer without its scheme":  i.token("k1", i.claims("iss", "accounts.google.com")),
		"an audience in an array of one": i.token("k1", i.claims("aud", []string{audience})),
		"the last second":                i.token("k1", i.claims("exp", i.clock().Unix())),
		"a clock one minute behind":      i.token("k1", i.claims("iat", i.clock().Unix()+60, "nbf", i.clock().Unix()+60)),
	} {
		if err := push(a, token); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if i.fetches() != 1 || i.requests[0] != pubsub.GoogleKeysURL {
		t.Errorf("keys fetched from %q", i.requests)
	}
}

func TestOIDC_RejectsEverythingElse(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator()
	if err := push(a, i.token("k1", i.claims())); err != nil { // the keys are cached from here on
		t.Fatal(err)
	}
	otherKey := newKey(t)
	embedded := jose.JSONWebKey{Key: otherKey.Public(), KeyID: "k1", Algorithm: "RS256"}
	der, err := x509.MarshalPKIXPublicKey(i.keys["k1"].Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs256 := func(input string) []byte {
		mac := hmac.New(sha256.New, publicPEM)
		mac.Write([]byte(input))
		return mac.Sum(nil)
	}
	nothing := func(string) []byte { return nil }
	now := i.clock().Unix()
	valid := i.token("k1", i.claims())
	parts := strings.Split(valid, ".")
	forged, err := json.Marshal(i.claims("email", "other@demo.iam.gserviceaccount.com"))
	if err != nil {
		t.Fatal(err)
	}

	for name, token := range map[string]string{
		"nothing":                     "",
		"no algorithm":                unsigned(map[string]any{"alg": "none", "kid": "k1"}, i.claims(), nothing),
		"no algorithm, spelt oddly":   unsigned(map[string]any{"alg": "nOnE", "kid": "k1"}, i.claims(), nothing),
		"HS256 with the public key":   unsigned(map[string]any{"alg": "HS256", "kid": "k1"}, i.claims(), hs256),
		"RS256 by name, HS256 inside": unsigned(map[string]any{"alg": "RS256", "kid": "k1"}, i.claims(), hs256),
		"no signature":                parts[0] + "." + parts[1] + ".",
		"two parts":                   parts[0] + "." + parts[1],
		"other claims, signature kept": parts[0] + "." + base64.RawURLEncoding.EncodeToString(forged) +
			"." + parts[2],
		"a JSON serialisation":       fmt.Sprintf(`{"payload":%q,"protected":%q,"signature":%q}`, parts[1], parts[0], parts[2]),
		"another audience":           i.token("k1", i.claims("aud", "https://gw.example.test/v1/push/other")),
		"the audience in upper case": i.token("k1", i.claims("aud", strings.ToUpper(audience))),
		"the audience and another":   i.token("k1", i.claims("aud", []string{audience, "https://evil.example.test"})),
		"no audience":                i.token("k1", i.claims("aud", nil)),
		"another email":              i.token("k1", i.claims("email", "other@demo.iam.gserviceaccount.com")),
		"the email in upper case":    i.token("k1", i.claims("email", strings.ToUpper(email))),
		"no email":                   i.token("k1", i.claims("email", nil)),
		"an email not verified":      i.token("k1", i.claims("email_verified", false)),
		"email_verified as a string": i.token("k1", i.claims("email_verified", "true")),
		"email in another case":      i.token("k1", i.claims("email", nil, "EMAIL", email)),
		"email in two cases":         i.token("k1", i.claims("Email", email)),
		"verified in another case":   i.token("k1", i.claims("email_verified", nil, "Email_Verified", true)),
		"audience in another case":   i.token("k1", i.claims("aud", nil, "AUD", audience)),
		"a claim twice":              i.signedRaw(i.keys["k1"], "k1", strings.Replace(i.claimsText(), `"email":`, `"email":"x@example.test","email":`, 1)),
		"no email_verified":          i.token("k1", i.claims("email_verified", nil)),
		"expired by a second":        i.token("k1", i.claims("exp", now-1)),
		"no expiry":                  i.token("k1", i.claims("exp", nil)),
		"not valid yet":              i.token("k1", i.claims("nbf", now+600)),
		"issued in the future":       i.token("k1", i.claims("iat", now+600)),
		"another issuer":             i.token("k1", i.claims("iss", "https://accounts.example.test")),
		"an issuer that looks alike": i.token("k1", i.claims("iss", "https://accounts.google.com/")),
		"no issuer":                  i.token("k1", i.claims("iss", nil)),
		"another key":                i.signed(otherKey, map[string]any{"kid": "k1"}, i.claims()),
		"an embedded key":            i.signed(otherKey, map[string]any{"kid": "k1", "jwk": embedded}, i.claims()),
		"keys elsewhere":             i.signed(otherKey, map[string]any{"kid": "k1", "jku": "https://evil.example.test/jwks"}, i.claims()),
		"a certificate elsewhere":    i.signed(otherKey, map[string]any{"kid": "k1", "x5u": "https://evil.example.test/x.pem"}, i.claims()),
		"an unknown key id":          i.signed(otherKey, map[string]any{"kid": "k9", "jku": "https://evil.example.test/jwks"}, i.claims()),
		"no key id":                  i.signed(i.keys["k1"], nil, i.claims()),
		"16 KiB of dots":             strings.Repeat(".", 16<<10-7),
		"a mebibyte of dots":         strings.Repeat(".", 1<<20),
	} {
		if err := push(a, token); !errors.Is(err, ingest.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if i.fetches() != 1 {
		t.Errorf("invalid tokens caused fetches: %q", i.requests)
	}
}

func TestOIDC_ConfiguredIssuerMustMatchExactly(t *testing.T) {
	i := newIssuer(t, "k1")
	a := i.authenticator(func(o *pubsub.OIDCOptions) {
		o.Issuer, o.KeysURL = "https://issuer.example.test", "http://127.0.0.1:1/keys"
	})
	if err := push(a, i.token("k1", i.claims("iss", "https://issuer.example.test"))); err != nil {
		t.Error(err)
	}
	for _, iss := range []string{"issuer.example.test", "https://accounts.google.com"} {
		if err := push(a, i.token("k1", i.claims("iss", iss))); !errors.Is(err, ingest.ErrUnauthenticated) {
			t.Errorf("%s: %v", iss, err)
		}
	}
	if i.fetches() != 1 || i.requests[0] != "http://127.0.0.1:1/keys" {
		t.Errorf("fetched %q", i.requests)
	}
}

func TestNewOIDC_UnsafeOptionsAreRejected(t *testing.T) {
	for name, change := range map[string]func(*pubsub.OIDCOptions){
		"no audience":              func(o *pubsub.OIDCOptions) { o.Audience = "" },
		"no email":                 func(o *pubsub.OIDCOptions) { o.Email = "" },
		"no client":                func(o *pubsub.OIDCOptions) { o.Client = nil },
		"no clock":                 func(o *pubsub.OIDCOptions) { o.Now = nil },
		"keys in the clear":        func(o *pubsub.OIDCOptions) { o.KeysURL = "http://keys.example.test/jwks" },
		"keys on a lookalike":      func(o *pubsub.OIDCOptions) { o.KeysURL = "http://127.0.0.1.example.test/jwks" },
		"keys in a file":           func(o *pubsub.OIDCOptions) { o.KeysURL = "file:///etc/keys" },
		"keys without a host":      func(o *pubsub.OIDCOptions) { o.KeysURL = "https:///jwks" },
		"a URL that can't be read": func(o *pubsub.OIDCOptions) { o.KeysURL = "https://[" },
	} {
		o := pubsub.OIDCOptions{Audience: audience, Email: email, Client: http.DefaultClient, Now: time.Now}
		change(&o)
		if a, err := pubsub.NewOIDC(o); err == nil || a != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
