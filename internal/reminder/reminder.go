// Package reminder parses a reminder: recipient, channel, content and times.
//
// [Parse] is the only entry point, and it is strict, because parsers that read the same bytes differently would see
// two reminders where there is one: names are case-sensitive, no name occurs twice in one object, strings are
// valid Unicode without NUL (which PostgreSQL cannot store), nothing follows the document, and size, depth and
// number of members are limited. It reports every fault at once, by the field's JSON name.
//
// Invariants: a Reminder that Parse returned has an id, type, channel and recipient that match the grammar, content
// that is a JSON object with at least one member, and times in UTC. Its content and metadata are the bytes as
// received. Faults never quote a value.
//
// What it does not do: it does not know which types and channels are configured, what a channel requires of its
// content, or what time it is.
package reminder

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Reminder is one reminder as its producer sent it.
type Reminder struct {
	ReminderID    string // ReservationID if the producer left it out
	ReservationID string
	Type          string
	Channel       string
	UserID        string
	To            string
	CorrelationID string
	Content       []byte    // a JSON object with at least one member, as received
	Metadata      []byte    // a JSON object of strings, as received; nil if absent
	CreatedAt     time.Time // in UTC; zero if absent, as the two below
	NotBefore     time.Time
	Deadline      time.Time
}

// ContentHash returns a hash by which different content is detected: lower-case hex SHA-256 over the length-prefixed
// recipient and the content in canonical form.
//
// The form is that of RFC 8785 for names, strings and spacing, so the order of names and the escapes do not matter.
// Numbers keep their spelling, unlike in its section 3.2.2.3: read as doubles, 2^53 and 2^53+1 would be the same
// content, and 1e400 could not be read. So 1.0 and 1 are different content.
func (r Reminder) ContentHash() string {
	content := jsontext.Value(bytes.Clone(r.Content))
	// An error leaves the bytes unchanged; Parse accepts nothing that could cause one.
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
