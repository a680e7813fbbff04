package webhook

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// tolerance is how far an event's timestamp may differ from our clock in either direction. It is the value that the
// specification's own libraries use.
const tolerance = 5 * time.Minute

// Limits on a decoded key, in bytes, from the specification's section "Signature scheme".
const (
	minKey = 24
	maxKey = 64
)

// Limits on the length of a header's value, in bytes.
const (
	maxID        = 255
	maxSignature = 4 << 10
)

// newKeys decodes the secrets and checks them more strictly than the library, which accepts an empty one.
func newKeys(secrets []string) ([]*standardwebhooks.Webhook, error) {
	if len(secrets) == 0 {
		return nil, errors.New("webhook: no secret for events")
	}
	var keys []*standardwebhooks.Webhook
	for i, secret := range secrets {
		raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(raw) < minKey || len(raw) > maxKey {
			return nil, fmt.Errorf("webhook: secret %d for events is not whsec_ and base64 of %d to %d bytes", i+1, minKey, maxKey)
		}
		key, err := standardwebhooks.NewWebhookRaw(raw)
		if err != nil {
			return nil, errors.New("webhook: a secret for events is not a valid key") // do not wrap err: it may contain the secret
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// verify returns the signed id of a request that was signed with one of the keys within the tolerance.
func verify(keys []*standardwebhooks.Webhook, h http.Header, raw []byte, now time.Time) (string, error) {
	id, okID := singleHeader(h, standardwebhooks.HeaderWebhookID, maxID)
	stamp, okStamp := singleHeader(h, standardwebhooks.HeaderWebhookTimestamp, maxID)
	_, okSignature := singleHeader(h, standardwebhooks.HeaderWebhookSignature, maxSignature)
	if !okID || !okStamp || !okSignature {
		return "", fmt.Errorf("%w: a webhook-… header is missing, repeated or invalid", ErrNotAuthentic)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	// The library also accepts a sign and leading zeros; the signed timestamp has only one valid spelling.
	if err != nil || strconv.FormatInt(seconds, 10) != stamp || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return "", fmt.Errorf("%w: webhook-timestamp is invalid or differs more than %s from our clock", ErrNotAuthentic, tolerance)
	}
	for _, key := range keys {
		if key.VerifyIgnoringTimestamp(raw, h) == nil {
			return id, nil
		}
	}
	return "", fmt.Errorf("%w: no signature matches", ErrNotAuthentic)
}

// singleHeader returns the value of a header that occurs exactly once and is printable ASCII. Of two values, a proxy
// and this server might use different ones.
func singleHeader(h http.Header, name string, limit int) (string, bool) {
	values := h.Values(name)
	if len(values) != 1 || !printable(values[0], ' ', limit) {
		return "", false
	}
	return values[0], true
}

// printable reports whether s is 1 to limit characters of printable ASCII, none below first.
func printable(s string, first rune, limit int) bool {
	outside := func(r rune) bool { return r < first || r > '~' }
	return s != "" && len(s) <= limit && !strings.ContainsFunc(s, outside)
}
