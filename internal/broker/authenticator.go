package broker

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

// Authenticator proves who sent a request, over the bytes as they came. Its errors are those of
// [Format].Authenticate. It is safe for concurrent use.
type Authenticator interface {
	Authenticate(ctx context.Context, h http.Header, raw []byte) error
}

// None lets everybody in. It is for sources on loopback; the configuration sees to that.
type None struct{}

// Authenticate is always nil.
func (None) Authenticate(context.Context, http.Header, []byte) error { return nil }

// NewBearer lets in who presents one of the tokens as RFC 6750 section 2.1 has it.
func NewBearer(tokens []string) (Authenticator, error) {
	known, err := newSecrets(tokens)
	if err != nil {
		return nil, fmt.Errorf("broker: bearer tokens: %w", err)
	}
	return bearer{known}, nil
}

type bearer struct{ tokens secrets }

func (b bearer) Authenticate(_ context.Context, h http.Header, _ []byte) error {
	if token, ok := BearerToken(h); ok && b.tokens.include(token) {
		return nil
	}
	return ErrUnauthenticated
}

// NewHeader lets in who presents one of the secrets as the whole value of the named header.
func NewHeader(name string, values []string) (Authenticator, error) {
	if name == "" {
		return nil, errors.New("broker: a secret header needs a name")
	}
	known, err := newSecrets(values)
	if err != nil {
		return nil, fmt.Errorf("broker: secrets of header %s: %w", name, err)
	}
	return header{name, known}, nil
}

type header struct {
	name    string
	secrets secrets
}

func (s header) Authenticate(_ context.Context, h http.Header, _ []byte) error {
	if value, ok := Sole(h, s.name); ok && s.secrets.include(value) {
		return nil
	}
	return ErrUnauthenticated
}

// maxCredential bounds a credential before anything looks into it, in bytes: parsers of tokens have
// been made to work in proportion to what strangers send (CVE-2025-30204).
const maxCredential = 16 << 10

// BearerToken is the token of the only Authorization header, at most 16 KiB.
func BearerToken(h http.Header) (string, bool) {
	value, ok := Sole(h, "Authorization")
	if !ok {
		return "", false
	}
	scheme, token, ok := strings.Cut(value, " ")
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

// Sole is a header that came once, not empty and at most 16 KiB long. Of two values, a proxy and we might
// read different ones.
func Sole(h http.Header, name string) (string, bool) {
	values := h.Values(name)
	if len(values) != 1 || values[0] == "" || len(values[0]) > maxCredential {
		return "", false
	}
	return values[0], true
}

// secrets are digests of what is valid now; during a rotation that is more than one. A digest has one
// length, so that the time of a comparison tells nothing of the secret's.
type secrets [][sha256.Size]byte

// newSecrets never repeats a secret in its error.
func newSecrets(values []string) (secrets, error) {
	if len(values) == 0 {
		return nil, errors.New("there is none")
	}
	known := make(secrets, len(values))
	for i, value := range values {
		switch {
		case value == "":
			return nil, fmt.Errorf("number %d is empty", i+1)
		case strings.TrimSpace(value) != value || strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("number %d has space around it or a control character, so no header could carry it", i+1)
		}
		known[i] = sha256.Sum256([]byte(value))
	}
	return known, nil
}

// include compares with every secret, whichever fits.
func (s secrets) include(given string) bool {
	digest := sha256.Sum256([]byte(given))
	found := 0
	for i := range s {
		found |= subtle.ConstantTimeCompare(s[i][:], digest[:])
	}
	return found == 1
}
