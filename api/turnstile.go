package api

import (
	"context"
	"net/http"
	"time"
)

// Support and operators share the ledger's connections with the pushes, and what they search for may have to be
// looked for among millions. So few of them are served at once, and none for long.
const (
	deskAtOnce   = 4
	deskPatience = 5 * time.Second  // for a place
	deskLimit    = 30 * time.Second // for one request
)

// turnstile lets so many through at once as it has places.
type turnstile chan struct{}

func newTurnstile(places int) turnstile {
	if places <= 0 {
		places = deskAtOnce
	}
	return make(turnstile, places)
}

// enter waits for a place, but not for long; leave gives it back.
func (t turnstile) enter(ctx context.Context) (leave func(), entered bool) {
	patience := time.NewTimer(deskPatience)
	defer patience.Stop()
	select {
	case t <- struct{}{}:
		return func() { <-t }, true
	case <-patience.C:
	case <-ctx.Done():
	}
	return nil, false
}

// atDesk is as, for what support and operators ask.
func (s *server) atDesk(need Role, handle func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return s.as(need, func(w http.ResponseWriter, r *http.Request, caller Caller) {
		leave, entered := s.desk.enter(r.Context())
		if !entered {
			s.fail(w, r, errBusy)
			return
		}
		defer leave()
		ctx, cancel := context.WithTimeout(r.Context(), deskLimit)
		defer cancel()
		handle(w, r.WithContext(ctx), caller)
	})
}
