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

// tolerance is how far an event's timestamp may lie from our clock, either way, as the specification's own
// libraries have it.
const tolerance = 5 * time.Minute

// Bounds on a decoded key, in bytes, from the specification's section "Signature scheme".
const (
	minKey = 24
	maxKey = 64
)

// Bounds on what a header may hold, in bytes.
const (
	maxID        = 255
	maxSignature = 4 << 10
)

// newKeys holds secrets to more than the library does, which takes an empty one.
func newKeys(secrets []string) ([]*standardwebhooks.Webhook, error) {
	if len(secrets) == 0 {
		return nil, errors.New("webhook: there is no secret to know events by")
	}
	var keys []*standardwebhooks.Webhook
	for i, secret := range secrets {
		raw, err := base64.StdEncoding.Strict().DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(raw) < minKey || len(raw) > maxKey {
			return nil, fmt.Errorf("webhook: secret number %d for events is not whsec_ and base64 of %d to %d bytes", i+1, minKey, maxKey)
		}
		key, err := standardwebhooks.NewWebhookRaw(raw)
		if err != nil {
			return nil, errors.New("webhook: a secret for events is no key") // its text stays out of the error
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// authentic answers the signed id of a request that one of the keys signed just now.
func authentic(keys []*standardwebhooks.Webhook, h http.Header, raw []byte, now time.Time) (string, error) {
	id, okID := sole(h, standardwebhooks.HeaderWebhookID, maxID)
	stamp, okStamp := sole(h, standardwebhooks.HeaderWebhookTimestamp, maxID)
	_, okSignature := sole(h, standardwebhooks.HeaderWebhookSignature, maxSignature)
	if !okID || !okStamp || !okSignature {
		return "", fmt.Errorf("%w: a webhook-… header is missing, stands twice or cannot be kept", ErrNotAuthentic)
	}
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	// The library takes a sign and leading noughts too; what was signed has one spelling.
	if err != nil || strconv.FormatInt(seconds, 10) != stamp || now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return "", fmt.Errorf("%w: webhook-timestamp lies more than %s from our clock", ErrNotAuthentic, tolerance)
	}
	for _, key := range keys {
		if key.VerifyIgnoringTimestamp(raw, h) == nil {
			return id, nil
		}
	}
	return "", fmt.Errorf("%w: no signature fits", ErrNotAuthentic)
}

// sole is a header that came once, as printable ASCII. Of two values, a proxy and we might read different
// ones.
func sole(h http.Header, name string, limit int) (string, bool) {
	values := h.Values(name)
	if len(values) != 1 || !printable(values[0], ' ', limit) {
		return "", false
	}
	return values[0], true
}

// printable tells whether s is 1 to limit characters of printable ASCII, none below first.
func printable(s string, first rune, limit int) bool {
	outside := func(r rune) bool { return r < first || r > '~' }
	return s != "" && len(s) <= limit && !strings.ContainsFunc(s, outside)
}
