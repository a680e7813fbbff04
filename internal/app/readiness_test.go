package app

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// scripted is a store whose writes and checks return what a test sets.
type scripted struct {
	store
	write  error
	check  func(context.Context) error
	checks int
}

func (s *scripted) Ping(context.Context) error { return nil }

func (s *scripted) CheckWrite(ctx context.Context) error {
	s.checks++
	return s.check(ctx)
}

func (s *scripted) Insert(context.Context, ledger.Change) (ledger.Entry, error) {
	return ledger.Entry{}, s.write
}

func (s *scripted) Update(context.Context, ledger.Change) (ledger.Entry, error) {
	return ledger.Entry{}, s.write
}

// A database that is read-only or full answers every read, and records nothing.
func TestReadiness_TellsWhetherAWriteIsPossibleAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		readOnly := errors.New("cannot execute INSERT in a read-only transaction")
		s := &scripted{check: func(context.Context) error { return readOnly }}
		r := &readiness{store: s}
		for range 10 {
			if err := r.Ready(t.Context()); !errors.Is(err, readOnly) {
				t.Fatalf("read-only: %v", err)
			}
		}
		if s.checks != 1 {
			t.Errorf("%d checks for ten questions at once", s.checks)
		}
		s.check = func(context.Context) error { return nil }
		time.Sleep(writeProof)
		if err := r.Ready(t.Context()); err != nil {
			t.Errorf("it did not recover: %v", err)
		}
	})
}

func TestReadiness_LastWritesProveItWithoutACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := errors.New("disk full")
		s := &scripted{check: func(context.Context) error { return full }}
		r := &readiness{store: s}
		o := observed{s, r}
		_, _ = o.Insert(t.Context(), ledger.Change{})
		s.write = ledger.ErrStale
		_, _ = o.Update(t.Context(), ledger.Change{})
		if err := r.Ready(t.Context()); err != nil || s.checks != 0 {
			t.Errorf("after a write: %v, %d checks", err, s.checks)
		}
		s.write = full
		_, _ = o.Update(t.Context(), ledger.Change{})
		if err := r.Ready(t.Context()); !errors.Is(err, full) {
			t.Errorf("after a write that failed: %v", err)
		}
		s.write = nil
		_, _ = o.Update(t.Context(), ledger.Change{})
		if err := r.Ready(t.Context()); err != nil {
			t.Errorf("after a write that succeeded again: %v", err)
		}
	})
}

// A store may wait for a lock without looking at the context; the question is answered within its own time, and no
// second check is begun.
func TestReadiness_AWriteThatWaitsForALockIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := &scripted{check: func(context.Context) error { <-release; return nil }}
		r := &readiness{store: s}
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := r.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "lock") {
				t.Errorf("while it waits: %v", err)
			}
			cancel()
		}
		if s.checks != 1 {
			t.Errorf("%d checks", s.checks)
		}
		close(release)
		synctest.Wait()
		if err := r.Ready(t.Context()); err != nil {
			t.Errorf("after the lock: %v", err)
		}
	})
}
