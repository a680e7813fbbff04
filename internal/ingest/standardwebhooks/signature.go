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

	"github.com/sendonce/sendonce/internal/ingest"
)

// tolerance is how far a timestamp may differ from our clock in either direction. It is the value that the
// specification's own libraries use. A captured request can be replayed for that long.
const tolerance = 5 * time.Minute

// Limits on a decoded key, in bytes, from the specification's section "Signature scheme".
const (
	minKey = 24
	maxKey = 64
)

// Signature verifies version v1 of the signature scheme, HMAC-SHA256 over `<id>.<timestamp>.<body>`. It implements
// [ingest.Authenticator].
type Signature struct {
	keys [][]byte
	now  func() time.Time
}

// NewSignature takes every secret that is currently valid, each `whsec_` followed by the key in base64. The error never
// contains a secret.
func NewSignature(secrets []string, now func() time.Time) (*Signature, error) {
	if len(secrets) == 0 {
		return nil, errors.New("standardwebhooks: no secret is given")
	}
	s := &Signature{now: now}
	for i, secret := range secrets {
		key, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("standardwebhooks: secret %d is not whsec_ and base64 of %d to %d bytes", i+1, minKey, maxKey)
		}
		s.keys = append(s.keys, key)
	}
	return s, nil
}

// Authenticate accepts a request if any signature in its header matches any of the secrets.
func (s *Signature) Authenticate(_ context.Context, h http.Header, raw []byte) error {
	names := prefix(h)
	id, okID := ingest.SingleHeader(h, names+"id")
	stamp, okStamp := ingest.SingleHeader(h, names+"timestamp")
	list, okList := ingest.SingleHeader(h, names+"signature")
	if !okID || !okStamp || !okList || !ingest.ValidMessageID(id) || !s.withinTolerance(stamp) {
		return ingest.ErrUnauthenticated
	}
	received := signatures(list)
	for _, key := range s.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(raw)
		want := mac.Sum(nil)
		for _, signature := range received {
			if hmac.Equal(signature, want) {
				return nil
			}
		}
	}
	return ingest.ErrUnauthenticated
}

// withinTolerance reports whether a timestamp, Unix seconds as digits only, is within the tolerance.
func (s *Signature) withinTolerance(stamp string) bool {
	seconds, err := strconv.ParseUint(stamp, 10, 40)
	if err != nil {
		return false
	}
	return s.now().Sub(time.Unix(int64(seconds), 0)).Abs() <= tolerance
}

// signatures returns the decoded signatures of version v1 in a header; other versions are ignored.
func signatures(list string) [][]byte {
	var found [][]byte
	for item := range strings.SplitSeq(list, " ") {
		version, encoded, _ := strings.Cut(item, ",")
		if version != "v1" {
			continue
		}
		if signature, err := base64.StdEncoding.Strict().DecodeString(encoded); err == nil {
			found = append(found, signature)
		}
	}
	return found
}
