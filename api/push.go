package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// envelopeSlack is what an envelope may add to a message in addition to base64, in bytes: attributes, ids.
const envelopeSlack = 16 << 10

func (s Source) limit() int64 {
	if s.Limit <= 0 {
		return bodyLimit
	}
	return s.Limit
}

// push receives one delivery. Once the source is known, its format writes every answer: some brokers treat a 4xx as
// an acknowledgement.
func (s *server) push(w http.ResponseWriter, r *http.Request) {
	name := pathParam(r, "source")
	source, known := s.Sources[name]
	if !known {
		s.writeError(w, r, errNoSource)
		return
	}
	if isCoded(r.Header) {
		source.Format.Reject(w, ingest.ErrEncoding)
		return
	}
	raw, err := readBody(w, r, source.limit()*3/2+envelopeSlack)
	if err != nil {
		w.Header().Set("Connection", "close")
		source.Format.Reject(w, rejectionOf(err))
		return
	}
	if err := source.Format.Authenticate(r.Context(), r.Header, raw); err != nil {
		if errors.Is(err, ingest.ErrUnavailable) {
			s.log.ErrorContext(r.Context(), "api: push authentication unavailable", "source", name, "error", err)
		} else {
			s.countFailure(r, name)
		}
		source.Format.Reject(w, err)
		return
	}
	reply, err := s.Deliver.Deliver(r.Context(), source.Format.Open(r.Header, raw))
	if err != nil {
		s.log.ErrorContext(r.Context(), "api: recording the delivery failed", "source", name, "error", err)
		reply = ledger.Reply{RetryAfter: retryAfterDefault}
	}
	source.Format.Answer(w, reply)
}

// rejectionOf translates an error from reading the body to one of package ingest. A body that was cut off may be sent
// again.
func rejectionOf(err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%w: %w", ingest.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", ingest.ErrUnavailable, err)
}
