// Package reminder reads a reminder: what is to be said, to whom, on which channel, by when.
//
// [Parse] is the only way in, and it is strict, because two readers that understand the same bytes
// differently see two reminders where there is one: names match to the letter, no name stands twice in
// one object, strings are valid Unicode without NUL (which PostgreSQL cannot store), nothing follows the
// document, and size, depth and count have limits. What it refuses it refuses with every fault at once,
// by the field's JSON name.
//
// Invariants: a Reminder that Parse gave has an id, type, channel and recipient in the grammar, content
// that is a JSON object with at least one member, and times in UTC. Its content and metadata are the
// bytes that came. Faults never repeat what stood in a value.
//
// What it does not do: it does not know which types and channels are configured, what a channel wants in
// its content, or what time it is.
package reminder

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Reminder is one reminder as its producer wrote it.
type Reminder struct {
	ReminderID    string // the reservation's id where the producer left it out
	ReservationID string
	Type          string
	Channel       string
	UserID        string
	To            string
	CorrelationID string
	Content       []byte    // a JSON object with at least one member, as it came
	Metadata      []byte    // a JSON object of strings, as it came; nil when absent
	CreatedAt     time.Time // UTC; zero when absent, as the two below
	NotBefore     time.Time
	Deadline      time.Time
}

// ContentHash tells other content from the same: lower-case hex SHA-256 over the length-prefixed
// recipient and the content in canonical form.
//
// The form is RFC 8785's for names, strings and spacing, so their order and escapes do not matter.
// Numbers keep the letters they came in, against its section 3.2.2.3: read as doubles, 2^53 and 2^53+1
// would be the same content and 1e400 none at all. So 1.0 and 1 are different content.
func (r Reminder) ContentHash() string {
	content := jsontext.Value(bytes.Clone(r.Content))
	// An error leaves the bytes as they are; Parse lets nothing in that could cause one.
	_ = content.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))

	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.To), content} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}
