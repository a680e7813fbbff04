package api

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
)

// envelopeSlack is what an envelope may add to a message besides base64, in bytes: attributes, ids.
const envelopeSlack = 16 << 10

func (s Source) limit() int64 {
	if s.Limit <= 0 {
		return bodyLimit
	}
	return s.Limit
}

// push takes one delivery. From the source's name on, every answer is the format's: some brokers take a
// 4xx for good news.
func (s *server) push(w http.ResponseWriter, r *http.Request) {
	name := pathParam(r, "source")
	source, known := s.Sources[name]
	if !known {
		s.fail(w, r, errNoSource)
		return
	}
	if isCoded(r.Header) {
		source.Format.Refuse(w, broker.ErrEncoding)
		return
	}
	raw, err := readBody(w, r, source.limit()*3/2+envelopeSlack)
	if err != nil {
		w.Header().Set("Connection", "close")
		source.Format.Refuse(w, refusalOf(err))
		return
	}
	if err := source.Format.Authenticate(r.Context(), r.Header, raw); err != nil {
		if errors.Is(err, broker.ErrUnavailable) {
			s.log.ErrorContext(r.Context(), "a push cannot be authenticated now", "source", name, "error", err)
		} else {
			s.countFailure(r, name)
		}
		source.Format.Refuse(w, err)
		return
	}
	reply, err := s.Deliver.Deliver(r.Context(), source.Format.Open(r.Header, raw))
	if err != nil {
		s.log.ErrorContext(r.Context(), "a delivery is not recorded", "source", name, "error", err)
		reply = ledger.Reply{RetryAfter: comeBack}
	}
	source.Format.Answer(w, reply)
}

// refusalOf is a body's fault in the words of package broker. What did not arrive whole may come again.
func refusalOf(err error) error {
	if errors.Is(err, errTooLarge) {
		return fmt.Errorf("%w: %w", broker.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", broker.ErrUnavailable, err)
}
