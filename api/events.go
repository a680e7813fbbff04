package api

import (
	"errors"
	"net/http"

	"github.com/sendonce/sendonce/api/internal/wire"
)

// eventLimit is the largest body of a provider's status event, in bytes.
const eventLimit = 64 << 10

// statusEvent receives a status event of a provider. The signature covers the whole body, so the body is read first.
func (s *server) statusEvent(w http.ResponseWriter, r *http.Request) {
	name := pathParam(r, "name")
	events, known := s.Events[name]
	if !known {
		s.writeError(w, r, errNoEvents)
		return
	}
	if isCoded(r.Header) {
		s.writeError(w, r, errCoded)
		return
	}
	raw, err := readBody(w, r, eventLimit)
	if err != nil {
		if errors.Is(err, errTooLarge) {
			err = errEventTooLarge
		}
		s.writeError(w, r, err)
		return
	}
	event, err := events.Open(r.Header, raw)
	if err != nil {
		if errors.Is(err, ErrNotAuthentic) {
			s.countFailure(r, name)
		}
		s.writeError(w, r, err)
		return
	}
	recorded, err := s.StatusEvents.RecordStatus(r.Context(), event)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	writeJSON(w, http.StatusOK, wire.StatusEventResult{Recorded: recorded})
}
