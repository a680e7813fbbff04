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

// notices counts what is asked of the log, and may fail or hang.
type notices struct {
	reconcile.EpochLog
	mu    sync.Mutex
	asked int
	fails error
	hang  chan struct{}

	arrived chan struct{}
}

func (n *notices) Notice(ctx context.Context, epoch string, again bool) (time.Time, error) {
	n.mu.Lock()
	n.asked++
	fails, hang := n.fails, n.hang
	n.mu.Unlock()
	if hang != nil {
		n.arrived <- struct{}{}
		<-hang
	}
	if fails != nil {
		return time.Time{}, fails
	}
	return n.EpochLog.Notice(ctx, epoch, again)
}

func (n *notices) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func TestADatabaseThatChangesIsNoticedOnceByEachReplica(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := &notices{EpochLog: w.memory}
		told := 0
		f := reconcile.NewFailovers(log, time.Hour, func(ledger.Failover) { told++ })
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
				t.Fatalf("the first has always been there, and was noticed %v", last.Noticed)
			}
		}
		if log.count() != 1 || told != 0 {
			t.Errorf("the log was asked %d times, %d told", log.count(), told)
		}
		time.Sleep(time.Minute)
		changed := time.Now()
		for range 10 {
			if last := at("two"); !last.Noticed.Equal(changed.Truncate(time.Microsecond)) {
				t.Fatalf("noticed %v, want %v", last.Noticed, changed)
			}
			time.Sleep(time.Second)
		}
		if log.count() != 2 || told != 1 {
			t.Errorf("the log was asked %d times, %d told", log.count(), told)
		}
		// A replica that starts later reckons with it too.
		fresh := reconcile.NewFailovers(w.memory, time.Hour, nil)
		if last, err := fresh.Failover(t.Context(), "two"); err != nil || !last.Noticed.Equal(changed.Truncate(time.Microsecond)) {
			t.Errorf("a fresh replica: %+v, %v", last, err)
		}
		// And back: what the second one took in, the first has never seen.
		time.Sleep(time.Minute)
		back := time.Now().Truncate(time.Microsecond)
		if last := at("one"); !last.Noticed.Equal(back) {
			t.Errorf("back: noticed %v, want %v", last.Noticed, back)
		}
	})
}

func TestWithoutNoticeNothingIsDecided(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := &notices{EpochLog: w.memory}
		f := reconcile.NewFailovers(log, time.Hour, nil)
		if _, err := f.Failover(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		log.fails = errLost
		for range 3 {
			if last, err := f.Failover(t.Context(), "two"); err == nil {
				t.Errorf("it cannot be noticed, and is told as %+v", last)
			}
		}
		if last, err := f.Failover(t.Context(), "one"); err != nil || !last.Noticed.IsZero() {
			t.Errorf("a reading of the first: %+v, %v", last, err)
		}
		log.fails = nil
		if last, err := f.Failover(t.Context(), "two"); err != nil || last.Noticed.IsZero() {
			t.Errorf("once it can be noticed: %+v, %v", last, err)
		}
	})
}

func TestTheSweepNoticesAlsoWhereNobodyReads(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		f := reconcile.NewFailovers(w.memory, time.Hour, nil)
		defer w.runs(w.replica(func(o *reconcile.Options) { o.Failovers = f }))()
		time.Sleep(time.Minute)
		w.memory.Move("two")
		moved := time.Now()
		time.Sleep(2 * sweep)
		synctest.Wait()
		if at := f.Last().Noticed; at.Before(moved.Truncate(time.Microsecond)) || at.Sub(moved) > 2*sweep {
			t.Errorf("moved %v, noticed %v", moved, at)
		}
	})
}

// While the change cannot be written down, a reading whose time is over must not queue behind the others.
func TestAReadingThatEndsDoesNotQueueBehindANotice(t *testing.T) {
	w := newWorld(t)
	log := &notices{EpochLog: w.memory, hang: make(chan struct{}), arrived: make(chan struct{}, 2)}
	f := reconcile.NewFailovers(log, time.Hour, nil)
	var all sync.WaitGroup
	defer all.Wait()
	defer close(log.hang)
	all.Go(func() { _, _ = f.Failover(context.Background(), "one") })
	<-log.arrived
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
			t.Error("decided without notice")
		}
	case <-time.After(2 * time.Second):
		t.Error("it waits on after its end")
	}
}
