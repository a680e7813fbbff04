package reconcile_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reconcile"
)

// countingEpochs counts the calls of RecordEpoch, which may fail or hang.
type countingEpochs struct {
	reconcile.EpochStore
	mu    sync.Mutex
	calls int
	err   error
	hang  chan struct{}

	arrived chan struct{}
}

func (c *countingEpochs) RecordEpoch(ctx context.Context, epoch string, again bool) (time.Time, error) {
	c.mu.Lock()
	c.calls++
	err, hang := c.err, c.hang
	c.mu.Unlock()
	if hang != nil {
		c.arrived <- struct{}{}
		<-hang
	}
	if err != nil {
		return time.Time{}, err
	}
	return c.EpochStore.RecordEpoch(ctx, epoch, again)
}

func (c *countingEpochs) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

func TestFailoverDetector_EachReplicaNoticesAChangeOnce(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		epochs := &countingEpochs{EpochStore: h.memory}
		reported := 0
		f := reconcile.NewFailoverDetector(epochs, time.Hour, func(ledger.Failover) { reported++ })
		at := func(epoch string) ledger.Failover {
			t.Helper()
			last, err := f.Failover(t.Context(), epoch)
			if err != nil || last != f.Last() || last.Window != time.Hour && !last.Noticed.IsZero() {
				t.Errorf("%s: %+v, %v; last %+v", epoch, last, err, f.Last())
			}
			return last
		}
		for range 10 {
			if last := at("one"); !last.Noticed.IsZero() {
				t.Fatalf("the first epoch was noticed %v, want never", last.Noticed)
			}
		}
		if epochs.count() != 1 || reported != 0 {
			t.Errorf("%d calls of RecordEpoch, %d failovers reported", epochs.count(), reported)
		}
		time.Sleep(time.Minute)
		changed := time.Now()
		for range 10 {
			if last := at("two"); !last.Noticed.Equal(changed.Truncate(time.Microsecond)) {
				t.Fatalf("noticed %v, want %v", last.Noticed, changed)
			}
			time.Sleep(time.Second)
		}
		if epochs.count() != 2 || reported != 1 {
			t.Errorf("%d calls of RecordEpoch, %d failovers reported", epochs.count(), reported)
		}
		// A replica that starts later knows of it too.
		fresh := reconcile.NewFailoverDetector(h.memory, time.Hour, nil)
		if last, err := fresh.Failover(t.Context(), "two"); err != nil || !last.Noticed.Equal(changed.Truncate(time.Microsecond)) {
			t.Errorf("a fresh replica: %+v, %v", last, err)
		}
		// Back to the first epoch: it lacks what was committed in the second.
		time.Sleep(time.Minute)
		back := time.Now().Truncate(time.Microsecond)
		if last := at("one"); !last.Noticed.Equal(back) {
			t.Errorf("back: noticed %v, want %v", last.Noticed, back)
		}
	})
}

func TestFailoverDetector_FailedRecordIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		epochs := &countingEpochs{EpochStore: h.memory}
		f := reconcile.NewFailoverDetector(epochs, time.Hour, nil)
		if _, err := f.Failover(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		epochs.err = errLost
		for range 3 {
			if last, err := f.Failover(t.Context(), "two"); err == nil {
				t.Errorf("no error although the epoch could not be recorded: %+v", last)
			}
		}
		if last, err := f.Failover(t.Context(), "one"); err != nil || !last.Noticed.IsZero() {
			t.Errorf("a snapshot of the first epoch: %+v, %v", last, err)
		}
		epochs.err = nil
		if last, err := f.Failover(t.Context(), "two"); err != nil || last.Noticed.IsZero() {
			t.Errorf("once it can be recorded: %+v, %v", last, err)
		}
	})
}

func TestFailoverDetector_SweepNoticesWithoutLoads(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		f := reconcile.NewFailoverDetector(h.memory, time.Hour, nil)
		defer h.start(h.newReconciler(func(o *reconcile.Options) { o.Failovers = f }))()
		time.Sleep(time.Minute)
		h.memory.SetEpoch("two")
		moved := time.Now()
		time.Sleep(2 * sweep)
		synctest.Wait()
		if at := f.Last().Noticed; at.Before(moved.Truncate(time.Microsecond)) || at.Sub(moved) > 2*sweep {
			t.Errorf("moved %v, noticed %v", moved, at)
		}
	})
}

// While one call of RecordEpoch hangs, a call whose context has ended must not wait for it.
func TestFailoverDetector_EndedContextDoesNotWaitForRecord(t *testing.T) {
	h := newHarness(t)
	epochs := &countingEpochs{EpochStore: h.memory, hang: make(chan struct{}), arrived: make(chan struct{}, 2)}
	f := reconcile.NewFailoverDetector(epochs, time.Hour, nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(epochs.hang)
	all.Go(func() { _, _ = f.Failover(context.Background(), "one") })
	<-epochs.arrived
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	done := make(chan error, 1)
	all.Go(func() {
		_, err := f.Failover(ended, "one")
		done <- err
	})
	select {
	case err := <-done:
		if err == nil {
			t.Error("no error although the epoch was not recorded")
		}
	case <-time.After(2 * time.Second):
		t.Error("still waiting after its context has ended")
	}
}
