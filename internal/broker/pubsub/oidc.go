package pubsub

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/sendonce/sendonce/internal/broker"
)

// Google's issuer, also found without its scheme, and where its keys are
// (https://accounts.google.com/.well-known/openid-configuration).
const (
	GoogleIssuer  = "https://accounts.google.com"
	GoogleKeysURL = "https://www.googleapis.com/oauth2/v3/certs"
)

// maxAhead is how far ahead of our clock a token may have been issued.
const maxAhead = 5 * time.Minute

// OIDCOptions say whose tokens are let in.
type OIDCOptions struct {
	Audience string           // the subscription's audience, to the letter
	Email    string           // the subscription's service account, to the letter
	Issuer   string           // empty for Google
	KeysURL  string           // of the issuer's JSON Web Key Set; empty for Google's
	Client   *http.Client     // for the keys; its timeout is cut to 5 s and it follows no redirect
	Now      func() time.Time // for the life of tokens and keys
}

// NewOIDC lets in pushes that carry the subscription's token.
//
// Signature and audience alone prove nothing: whoever can mint a Google token chooses its audience. So
// the verified email must be the subscription's service account. Tokens are RS256 by a key of the
// issuer's set; keys and addresses of keys inside a token are not looked at.
func NewOIDC(o OIDCOptions) (broker.Authenticator, error) {
	if o.Issuer == "" {
		o.Issuer = GoogleIssuer
	}
	if o.KeysURL == "" {
		o.KeysURL = GoogleKeysURL
	}
	switch {
	case o.Audience == "":
		return nil, errors.New("pubsub: OIDC needs the audience")
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
	token, ok := broker.BearerToken(h)
	if !ok {
		return broker.ErrUnauthenticated
	}
	// The compact form alone: JOSE has a JSON form too, which may hold several signatures.
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.RS256})
	if err != nil {
		return fmt.Errorf("%w: %w", broker.ErrUnauthenticated, err)
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
		return fmt.Errorf("%w: %w", broker.ErrUnauthenticated, err)
	}
	return a.check(verified)
}

// check is what the library leaves to its user.
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
		return broker.ErrUnauthenticated
	}
	return nil
}
