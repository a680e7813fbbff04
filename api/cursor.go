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

// cursors say where a list goes on. A cursor is a place and a MAC over it and the list that it was made for,
// by name and filters, so that it can be neither made up nor carried into another list.
type cursors struct{ key []byte }

func newCursors(key []byte) cursors {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
	}
	return cursors{key}
}

// place is where an item stands in a list that is ordered by a time, then by what its id stands for.
type place struct {
	at time.Time
	id string
}

// seal is the cursor for what follows a place: microseconds, id and MAC, with dots between.
func (c cursors) seal(p place, list string) string {
	word := strconv.FormatInt(p.at.UnixMicro(), 10) + "." + p.id
	return word + "." + c.mac(word, list)
}

// open reads back what seal wrote for the same list; false for anything else.
func (c cursors) open(cursor, list string) (place, bool) {
	cut := strings.LastIndexByte(cursor, '.')
	if cut < 0 || !hmac.Equal([]byte(cursor[cut+1:]), []byte(c.mac(cursor[:cut], list))) {
		return place{}, false
	}
	micros, id, _ := strings.Cut(cursor[:cut], ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	if err != nil {
		return place{}, false
	}
	return place{at: time.UnixMicro(at).UTC(), id: id}, true
}

func (c cursors) mac(word, list string) string {
	h := hmac.New(sha256.New, c.key)
	for _, part := range []string{"sendonce cursor 1", list, word} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
