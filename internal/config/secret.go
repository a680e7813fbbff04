package config

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

const redacted = "[secret]"

// Secret is a value that is always printed as [secret]. The value is a pointer: fmt does not call methods on
// unexported fields, and would show a plain string there.
type Secret struct{ value *string }

// NewSecret returns the Secret of a value.
func NewSecret(value string) Secret { return Secret{value: &value} }

// Reveal returns the value; "" if none was set. Call it only where the value is used.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsSet reports whether there is a value that is not empty.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// Equal reports whether both have the same value. It is for tests: it does not take constant time.
func (s Secret) Equal(other Secret) bool { return s.Reveal() == other.Reveal() }

func (s Secret) String() string   { return redacted }
func (s Secret) GoString() string { return redacted }

// MarshalText is used by JSON, YAML and slog.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Digest is the SHA-256 of a caller's token. Only tokens of full strength may be stored so: a fast hash does not
// slow down guessing.
type Digest [sha256.Size]byte

// DigestOf returns the digest by which a token is compared.
func DigestOf(token string) Digest { return sha256.Sum256([]byte(token)) }

const digestPrefix = "sha256:"

// parseDigest reads sha256: followed by 64 hex digits.
func parseDigest(text string) (Digest, bool) {
	raw, err := hex.DecodeString(strings.TrimPrefix(text, digestPrefix))
	if err != nil || len(raw) != sha256.Size {
		return Digest{}, false
	}
	return Digest(raw), true
}
