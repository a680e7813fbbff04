package webhook

import (
	"errors"
	"net/http"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/sendonce/sendonce/internal/ledger"
)

// MaxEvent is how long an event may be, in bytes.
const MaxEvent = 16 << 10

// ErrNotAuthentic is the answer to an event that is not proven to be the provider's: 401. What wraps it says
// why, for our own eyes.
var ErrNotAuthentic = errors.New("webhook: not authentic")

// Events opens what one provider tells of its own accord. It is safe for concurrent use.
type Events struct {
	provider string
	keys     []*standardwebhooks.Webhook
	now      func() time.Time
}

// NewEvents takes a provider's name and every secret that is valid now, each `whsec_` and the key in
// base64; now is time.Now where it is nil. The error never repeats a secret.
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

// Open authenticates an event over its bytes as they came, and reads it. The error is [ErrNotAuthentic], or
// [Faults] where an authentic event cannot be read. A repeat within the signature's five minutes opens like
// the first: the report's message id tells them apart from news.
func (e *Events) Open(h http.Header, raw []byte) (ledger.Report, error) {
	now := e.now()
	id, err := authentic(e.keys, h, raw, now)
	if err != nil {
		return ledger.Report{}, err
	}
	report, faults := readEvent(raw, now)
	if len(faults) > 0 {
		return ledger.Report{}, faults
	}
	report.Provider, report.Message = e.provider, id
	return report, nil
}
