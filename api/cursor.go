package api

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"time"
)

// cursors seals and opens the cursors of lists. A cursor is a position and a MAC over it and over the list's name and
// filters, so that it can neither be forged nor be used for another list.
type cursors struct{ key []byte }

func newCursors(key []byte) cursors {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
	}
	return cursors{key}
}

// listPosition is the position of an item in a list that is ordered by a time, then by what its id identifies.
type listPosition struct {
	at time.Time
	id string
}

// seal returns the cursor for what follows a position: microseconds, id and MAC, separated by dots.
func (c cursors) seal(p listPosition, list string) string {
	position := strconv.FormatInt(p.at.UnixMicro(), 10) + "." + p.id
	return position + "." + c.mac(position, list)
}

// open returns the position that seal encoded for the same list; false for anything else.
func (c cursors) open(cursor, list string) (listPosition, bool) {
	cut := strings.LastIndexByte(cursor, '.')
	if cut < 0 || !hmac.Equal([]byte(cursor[cut+1:]), []byte(c.mac(cursor[:cut], list))) {
		return listPosition{}, false
	}
	micros, id, _ := strings.Cut(cursor[:cut], ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return listPosition{}, false
	}
	return listPosition{at: time.UnixMicro(at).UTC(), id: id}, true
}

func (c cursors) mac(position, list string) string {
	h := hmac.New(sha256.New, c.key)
	for _, part := range []string{"sendonce cursor 1", list, position} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
