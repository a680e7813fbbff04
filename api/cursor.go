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

	"github.com/sendonce/sendonce/internal/ledger"
)

// cursors say where a list goes on. A cursor is a position and a MAC over it and the filters that it was
// made for, so that it can be neither made up nor carried into another list.
type cursors struct{ key []byte }

func newCursors(key []byte) cursors {
	if len(key) == 0 {
		key = make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
	}
	return cursors{key}
}

// seal is the cursor for what follows a position: microseconds, entry id and MAC, with dots between.
func (c cursors) seal(at ledger.Position, filters string) string {
	place := strconv.FormatInt(at.FirstSeen.UnixMicro(), 10) + "." + at.EntryID()
	return place + "." + c.mac(place, filters)
}

// open reads back what seal wrote for the same filters; false for anything else.
func (c cursors) open(cursor, filters string) (ledger.Position, bool) {
	cut := strings.LastIndexByte(cursor, '.')
	if cut < 0 || !hmac.Equal([]byte(cursor[cut+1:]), []byte(c.mac(cursor[:cut], filters))) {
		return ledger.Position{}, false
	}
	micros, word, _ := strings.Cut(cursor[:cut], ".")
	at, err := strconv.ParseInt(micros, 10, 64)
	id, ok := ledger.ParseEntryID(word)
	if err != nil || !ok {
		return ledger.Position{}, false
	}
	return ledger.Position{FirstSeen: time.UnixMicro(at).UTC(), Identity: id}, true
}

func (c cursors) mac(place, filters string) string {
	h := hmac.New(sha256.New, c.key)
	for _, part := range []string{"sendonce entries cursor 1", filters, place} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		h.Write(length[:])
		h.Write([]byte(part))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
