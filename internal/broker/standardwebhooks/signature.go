package standardwebhooks

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sendonce/sendonce/internal/broker"
)

// tolerance is how far a timestamp may lie from our clock, either way: what the specification's own
// libraries use. A captured request can be replayed for that long.
const tolerance = 5 * time.Minute

// Bounds on a decoded key, in bytes, from the specification's section "Signature scheme".
const (
	minKey = 24
	maxKey = 64
)

// Signature is version v1 of the scheme: HMAC-SHA256 over `<id>.<timestamp>.<body>`. It implements
// [broker.Authenticator].
type Signature struct {
	keys [][]byte
	now  func() time.Time
}

// NewSignature takes every secret that is valid now, each `whsec_` and the key in base64. The error
// never repeats a secret.
func NewSignature(secrets []string, now func() time.Time) (*Signature, error) {
	if len(secrets) == 0 {
		return nil, errors.New("standardwebhooks: there is no secret")
	}
	s := &Signature{now: now}
	for i, secret := range secrets {
		key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("standardwebhooks: secret number %d is not whsec_ and base64 of %d to %d bytes", i+1, minKey, maxKey)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// Authenticate accepts when any signature in the header fits any active secret.
func (s *Signature) Authenticate(_ context.Context, h http.Header, raw []byte) error {
	set := prefix(h)
	id, okID := broker.Sole(h, set+"id")
	stamp, okStamp := broker.Sole(h, set+"timestamp")
	list, okList := broker.Sole(h, set+"signature")
	if !okID || !okStamp || !okList || !broker.ValidMessageID(id) || !s.timely(stamp) {
		return broker.ErrUnauthenticated
	}
	given := signatures(list)
	for _, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(raw)
		want := mac.Sum(nil)
		for _, signature := range given {
			if hmac.Equal(signature, want) {
				return nil
			}
		}
	}
	return broker.ErrUnauthenticated
}

// timely tells whether a timestamp, whole Unix seconds in digits alone, lies within the tolerance.
func (s *Signature) timely(stamp string) bool {
	seconds, err := strconv.ParseUint(stamp, 10, 40)
	if err != nil {
		return false
	}
	return s.now().Sub(time.Unix(int64(seconds), 0)).Abs() <= tolerance
}

// signatures are those of version v1 in a header, decoded; other versions are left alone.
func signatures(list string) [][]byte {
	var found [][]byte
	for word := range strings.SplitSeq(list, " ") {
		version, encoded, _ := strings.Cut(word, ",")
		if version != "v1" {
			continue
		}
		if signature, err := base64.StdEncoding.Strict().DecodeString(encoded); err == nil {
			found = append(found, signature)
		}
	}
	return found
}
