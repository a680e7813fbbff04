package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const redacted = "[secret]"

// Secret is a value that prints itself as [secret], whatever prints it. The value stands behind a
// pointer: fmt does not call methods on unexported fields, and would show a plain string there.
type Secret struct{ value *string }

// NewSecret hides a value.
func NewSecret(value string) Secret { return Secret{value: &value} }

// Reveal is the value itself; empty when none was set. Call it where the value is used, and nowhere else.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet tells whether there is a value that is not empty.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// Equal tells whether both hide the same value; for tests, since it takes as long as they are alike.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

func (s Secret) String() string   { return redacted }
func (s Secret) GoString() string { return redacted }

// MarshalText serves JSON, YAML and slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Digest is the SHA-256 of a caller's token. Only a token of full strength may be kept so: a digest
// slows nobody down who guesses.
type Digest [sha256.Size]byte

// DigestOf is what a token is compared by.
func DigestOf(token string) Digest { return sha256.Sum256([]byte(token)) }

const digestPrefix = "sha256:"

// parseDigest reads sha256: and 64 hex digits.
func parseDigest(text string) (Digest, bool) {
	raw, err := hex.DecodeString(strings.TrimPrefix(text, digestPrefix))
	if err != nil || len(raw) != sha256.Size {
		return Digest{}, false
	}
	return Digest(raw), true
}
