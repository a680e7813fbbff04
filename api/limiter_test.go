package api

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// slowLister takes a given time to list entries, and counts its calls.
type slowLister struct {
	takes    time.Duration
	at, most atomic.Int64
	cut      atomic.Int64
}

func (s *slowLister) List(ctx context.Context, _ ledger.Query) ([]ledger.Entry, error) {
	now := s.at.Add(1)
	defer s.at.Add(-1)
	s.most.Store(max(s.most.Load(), now))
	select {
	case <-time.After(s.takes):
		return nil, nil
	case <-ctx.Done():
		s.cut.Add(1)
		return nil, ctx.Err()
	}
}

func TestLimiter_BoundsConcurrencyAndWait(t *testing.T) {
	for name, row := range map[string]struct {
		takes  time.Duration
		served int // of 50 at once
		cut    int64
	}{
		"quick":   {100 * time.Millisecond, 50, 0},
		"slow":    {2 * time.Second, 12, 0}, // 4 at once, for as long as the others wait
		"endless": {time.Hour, 0, 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			lister := &slowLister{takes: row.takes}
			h := New(Options{List: lister, Callers: []Caller{{Name: "helpdesk", Role: Support, TokenHashes: [][sha256.Size]byte{sha256.Sum256([]byte("token"))}}}})
			var served, busy atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					r := httptest.NewRequest(http.MethodGet, "/v1/admin/entries", nil)
					r.Header.Set("Authorization", "Bearer token")
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					switch {
					case w.Code == http.StatusOK:
						served.Add(1)
					case w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "":
						busy.Add(1)
					default:
						t.Errorf("%s: %d %s", name, w.Code, w.Body)
					}
				})
			}
			all.Wait()
			if int(served.Load()) != row.served || served.Load()+busy.Load() != 50 || lister.most.Load() > adminConcurrency || lister.cut.Load() != row.cut {
				t.Errorf("%s: %d served, %d busy, %d at once, %d cut off", name, served.Load(), busy.Load(), lister.most.Load(), lister.cut.Load())
			}
		})
	}
}
