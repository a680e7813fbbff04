package pubsub

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/sendonce/sendonce/internal/ingest"
)

// Google's issuer, which also occurs without its scheme, and the URL of its keys
// (https://accounts.google.com/.well-known/openid-configuration).
const (
	GoogleIssuer  = "https://accounts.google.com"
	GoogleKeysURL = "https://www.googleapis.com/oauth2/v3/certs"
)

// maxAhead is how far ahead of our clock the issue time of a token may be.
const maxAhead = 5 * time.Minute

// OIDCOptions configure which tokens are accepted.
type OIDCOptions struct {
	Audience string           // the subscription's audience; must match exactly
	Email    string           // the subscription's service account; must match exactly
	Issuer   string           // empty for Google
	KeysURL  string           // URL of the issuer's JSON Web Key Set; empty for Google's
	Client   *http.Client     // for fetching the keys; used with a timeout of at most 5 s and without redirects
	Now      func() time.Time // clock for the expiry of tokens and keys
}

// NewOIDC returns an authenticator that accepts pushes with the subscription's token.
//
// Signature and audience alone prove nothing, since anyone who can get a Google token chooses its audience. So the
// verified email must be the subscription's service account. Tokens must be signed with RS256 by a key of the
// issuer's key set; keys and key URLs inside a token are ignored.
func NewOIDC(o OIDCOptions) (ingest.Authenticator, error) {
	if o.Issuer == "" {
		o.Issuer = GoogleIssuer
	}
	if o.KeysURL == "" {
		o.KeysURL = GoogleKeysURL
	}
	switch {
	case o.Audience == "":
		return nil, errors.New("pubsub: OIDC needs an audience")
	case o.Email == "":
		return nil, errors.New("pubsub: OIDC needs the service account's email: an audience proves nothing by itself")
	case o.Client == nil, o.Now == nil:
		return nil, errors.New("pubsub: OIDC needs a client and a clock")
	}
	keys, err := newKeySet(o.KeysURL, o.Client, o.Now)
	if err != nil {
		return nil, err
	}
	return &oidcAuthenticator{o, keys}, nil
}

type oidcAuthenticator struct {
	options OIDCOptions
	keys    *keySet
}

func (a *oidcAuthenticator) Authenticate(ctx context.Context, h http.Header, _ []byte) error {
	token, ok := ingest.BearerToken(h)
	if !ok {
		return ingest.ErrUnauthenticated
	}
	// Accept only the compact serialization: the JSON serialization of JOSE may hold several signatures.
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return fmt.Errorf("%w: %w", ingest.ErrUnauthenticated, err)
	}
	if !strictObject(jws.UnsafePayloadWithoutVerification()) {
		return ingest.ErrUnauthenticated
	}
	key, err := a.keys.find(ctx, jws.Signatures[0].Header.KeyID)
	if err != nil {
		return err
	}
	verifier := oidc.NewVerifier(a.options.Issuer,
		&oidc.StaticKeySet{PublicKeys: []crypto.PublicKey{key}},
		&oidc.Config{ClientID: a.options.Audience, SupportedSigningAlgs: []string{oidc.RS256}, Now: a.options.Now})
	verified, err := verifier.Verify(ctx, token)
	if err != nil {
		return fmt.Errorf("%w: %w", ingest.ErrUnauthenticated, err)
	}
	return a.check(verified)
}

// claimNames are the claims that decide whether a token is accepted.
var claimNames = []string{"iss", "aud", "exp", "nbf", "iat", "email", "email_verified"}

// strictObject reports whether the claims are one JSON object with no name twice, in which none of the names that
// decide occurs in another case: encoding/json, by which the library reads them, would take it for the claim.
func strictObject(claims []byte) bool {
	var members map[string]jsontext.Value
	if json.Unmarshal(claims, &members) != nil || members == nil {
		return false
	}
	for name := range members {
		for _, claim := range claimNames {
			if name != claim && strings.EqualFold(name, claim) {
				return false
			}
		}
	}
	return true
}

// check verifies the claims that the library does not check. A string "true" does not verify an email: Google's tokens
// have a boolean there.
func (a *oidcAuthenticator) check(token *oidc.IDToken) error {
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	switch {
	case token.Claims(&claims) != nil,
		len(token.Audience) != 1,
		!claims.Verified, claims.Email != a.options.Email,
		token.IssuedAt.After(a.options.Now().Add(maxAhead)):
		return ingest.ErrUnauthenticated
	}
	return nil
}
