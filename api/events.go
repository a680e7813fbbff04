package api

import (
	"errors"
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
)

// eventLimit is how large a provider's event may be, in bytes.
const eventLimit = 64 << 10

// event takes what a provider says of its own accord. Its signature is over the whole body, so that is read
// first.
func (s *server) event(w http.ResponseWriter, r *http.Request) {
	name := pathParam(r, "name")
	events, known := s.Events[name]
	if !known {
		s.fail(w, r, errNoEvents)
		return
	}
	if isCoded(r.Header) {
		s.fail(w, r, errCoded)
		return
	}
	raw, err := readBody(w, r, eventLimit)
	if err != nil {
		if errors.Is(err, errTooLarge) {
			err = errEventTooLarge
		}
		s.fail(w, r, err)
		return
	}
	report, err := events.Open(r.Header, raw)
	if err != nil {
		if errors.Is(err, ErrForged) {
			s.countFailure(r, name)
		}
		s.fail(w, r, err)
		return
	}
	recorded, err := s.Hear.Hear(r.Context(), report)
	if err != nil {
		s.fail(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusOK, wire.EventTaken{Recorded: recorded})
}
