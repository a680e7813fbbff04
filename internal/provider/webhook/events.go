package webhook

import (
	"errors"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/ledger"
)

// MaxEvent is the maximum length of an event, in bytes.
const MaxEvent = 16 << 10

// ErrNotAuthentic is returned for an event that is not proven to come from the provider; the API responds with 401.
// Errors that wrap it give the reason, for our logs only.
var ErrNotAuthentic = errors.New("webhook: not authentic")

// Events authenticates and reads the status events of one provider. It is safe for concurrent use.
type Events struct {
	provider string
	keys     []*standardwebhooks.Webhook
	now      func() time.Time
}

// NewEvents takes a provider's name and every secret that is currently valid, each `whsec_` followed by the key in
// base64. now defaults to time.Now. The error never contains a secret.
func NewEvents(provider string, secrets []string, now func() time.Time) (*Events, error) {
	keys, err := newKeys(secrets)
	if err != nil {
		return nil, err
	}
	if now == nil {
		now = time.Now
	}
	return &Events{provider: provider, keys: keys, now: now}, nil
}

// Open authenticates an event over its bytes as received, and reads it. The error wraps [ErrNotAuthentic], or is
// [Faults] if an authentic event cannot be read. A repetition within the signature's five minutes opens like the
// first event; it has the same message id, by which it can be recognised.
func (e *Events) Open(h http.Header, raw []byte) (ledger.StatusEvent, error) {
	now := e.now()
	id, err := verify(e.keys, h, raw, now)
	if err != nil {
		return ledger.StatusEvent{}, err
	}
	event, faults := readEvent(raw, now)
	if len(faults) > 0 {
		return ledger.StatusEvent{}, faults
	}
	event.Provider, event.MessageID = e.provider, id
	return event, nil
}
