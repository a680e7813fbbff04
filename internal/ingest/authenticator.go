package ingest

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
)

// Authenticator verifies the sender of a request, over the bytes as received. Its errors are those of
// [Format].Authenticate. It is safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, h http.Header, raw []byte) error
}

// None accepts every request. It is for sources on a loopback address; the configuration enforces that.
type None struct{}

// Authenticate always returns nil.
func (None) Authenticate(context.Context, http.Header, []byte) error { return nil }

// NewBearer returns an authenticator that accepts requests with one of the tokens as a bearer token (RFC 6750 section
// 2.1).
func NewBearer(tokens []string) (Authenticator, error) {
	known, err := newSecrets(tokens)
	if err != nil {
		return nil, fmt.Errorf("ingest: bearer tokens: %w", err)
	}
	return bearer{known}, nil
}

type bearer struct{ tokens secrets }

func (a bearer) Authenticate(_ context.Context, h http.Header, _ []byte) error {
	if token, ok := BearerToken(h); ok && a.tokens.include(token) {
		return nil
	}
	return ErrUnauthenticated
}

// NewHeader returns an authenticator that accepts requests with one of the secrets as the whole value of the named
// header.
func NewHeader(name string, values []string) (Authenticator, error) {
	if name == "" {
		return nil, errors.New("ingest: a secret header needs a name")
	}
	known, err := newSecrets(values)
	if err != nil {
		return nil, fmt.Errorf("ingest: secrets of header %s: %w", name, err)
	}
	return header{name, known}, nil
}

type header struct {
	name    string
	secrets secrets
}

func (a header) Authenticate(_ context.Context, h http.Header, _ []byte) error {
	if value, ok := SingleHeader(h, a.name); ok && a.secrets.include(value) {
		return nil
	}
	return ErrUnauthenticated
}

// maxCredential is the maximum length of a credential, in bytes. It is checked before the credential is parsed:
// token parsers have been made to do work in proportion to what an unauthenticated sender sends (CVE-2025-30204).
const maxCredential = 16 << 10

// BearerToken returns the token of the only Authorization header, at most 16 KiB.
func BearerToken(h http.Header) (string, bool) {
	value, ok := SingleHeader(h, "Authorization")
	if !ok {
		return "", false
	}
	scheme, token, ok := strings.Cut(value, " ")
	token = strings.TrimLeft(token, " ") // RFC 6750 section 2.1 allows several spaces
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// SingleHeader returns the value of a header that occurs exactly once, is not empty and has at most 16 KiB. Of two
// values, a proxy and this server might use different ones.
func SingleHeader(h http.Header, name string) (string, bool) {
	values := h.Values(name)
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxCredential {
		return "", false
	}
	return values[0], true
}

// secrets are the digests of the currently valid secrets, which are several during a rotation. Digests all have the
// same length, so that the time of a comparison does not reveal the length of a secret.
type secrets [][sha256.Size]byte

// newSecrets checks the secrets and returns their digests. Its error never contains a secret.
func newSecrets(values []string) (secrets, error) {
	if len(values) == 0 {
		return nil, errors.New("no secret is given")
	}
	known := make(secrets, len(values))
	for i, value := range values {
		switch {
		case value == "":
			return nil, fmt.Errorf("secret %d is empty", i+1)
		case strings.TrimSpace(value) != value || strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("secret %d has surrounding space or a control character, so no header can carry it", i+1)
		}
		known[i] = sha256.Sum256([]byte(value))
	}
	return known, nil
}

// include compares given with every secret, even after a match, so that the time does not depend on which one
// matches.
func (s secrets) include(given string) bool {
	digest := sha256.Sum256([]byte(given))
	found := 0
	for i := range s {
		found |= subtle.ConstantTimeCompare(s[i][:], digest[:])
	}
	return found == 1
}
