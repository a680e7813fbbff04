package ledger

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// Identity identifies one logical reminder. Its three parts are kept apart: as a joined string, ("a:b", "c") and
// ("a", "b:c") would be the same reminder.
type Identity struct {
	ReminderID string
	Type       string
	Channel    string
}

// MalformedType is the type of an entry that holds a message which could not be parsed. No reminder can have it: '!'
// is outside the grammar of types.
const MalformedType = "!malformed"

// SendKey returns the key by which a provider may recognise a repeat: lower-case hex SHA-256 over the
// length-prefixed identity. It is the same for every attempt, on every replica, after every restart.
func (id Identity) SendKey() string {
	return hexDigest([]byte(id.ReminderID), []byte(id.Type), []byte(id.Channel))
}

// MalformedIdentity returns the identity of a message that could not be parsed: the same bytes under the same message
// id from the same source are the same dead letter, however often they are delivered. raw must not include
// anything that the broker changes between deliveries, such as a counter.
func MalformedIdentity(source, messageID string, raw []byte) Identity {
	return Identity{
		ReminderID: hexDigest([]byte(source), []byte(messageID), raw),
		Type:       MalformedType,
		Channel:    source,
	}
}

// EntryID returns the identity as one opaque, reversible, URL-safe word.
func (id Identity) EntryID() string {
	// No part can contain NUL, so the separator is unambiguous.
	joined := strings.Join([]string{id.ReminderID, id.Type, id.Channel}, "\x00")
	return base64.RawURLEncoding.EncodeToString([]byte(joined))
}

// ParseEntryID parses what [Identity.EntryID] returned; it returns false for anything else.
func ParseEntryID(word string) (Identity, bool) {
	joined, err := base64.RawURLEncoding.Strict().DecodeString(word)
	if err != nil {
		return Identity{}, false
	}
	parts := strings.Split(string(joined), "\x00")
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" || !utf8.Valid(joined) {
		return Identity{}, false
	}
	id := Identity{ReminderID: parts[0], Type: parts[1], Channel: parts[2]}
	return id, id.EntryID() == word // the decoder ignores line breaks
}

// hexDigest returns the lower-case hex SHA-256 over the length-prefixed parts.
func hexDigest(parts ...[]byte) string {
	h := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
