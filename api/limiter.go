package api

import (
	"context"
	"net/http"
	"time"
)

// Admin requests share the database connections with deliveries, and a search may have to scan millions of rows. So
// only a few are served at once, and each has a time limit.
const (
	adminConcurrency = 4
	adminWait        = 5 * time.Second  // for a slot
	adminTimeout     = 30 * time.Second // for one request
)

// limiter bounds the number of requests in progress.
type limiter chan struct{}

func newLimiter(slots int) limiter {
	if slots <= 0 {
		slots = adminConcurrency
	}
	return make(limiter, slots)
}

// acquire waits for a slot for at most adminWait; release returns it.
func (l limiter) acquire(ctx context.Context) (release func(), ok bool) {
	timeout := time.NewTimer(adminWait)
	defer timeout.Stop()
	select {
	case l <- struct{}{}:
		return func() { <-l }, true
	case <-timeout.C:
	case <-ctx.Done():
	}
	return nil, false
}

// adminRoute is requireRole for the admin API, with its limits on concurrency and time.
func (s *server) adminRoute(need Role, handle func(http.ResponseWriter, *http.Request, Caller)) http.HandlerFunc {
	return s.requireRole(need, func(w http.ResponseWriter, r *http.Request, caller Caller) {
		release, ok := s.admission.acquire(r.Context())
		if !ok {
			s.writeError(w, r, errBusy)
			return
		}
		defer release()
		ctx, cancel := context.WithTimeout(r.Context(), adminTimeout)
		defer cancel()
		handle(w, r.WithContext(ctx), caller)
	})
}
