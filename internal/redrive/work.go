package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Run works on redrives, one at a time, until ctx ends. Several replicas may run it over one ledger.
func (rd *Redriver) Run(ctx context.Context) {
	for ctx.Err() == nil {
		worked, err := rd.Next(ctx)
		if err != nil && ctx.Err() == nil {
			rd.OnError(err)
		}
		if !worked || err != nil {
			sleep(ctx, time.Duration(float64(rd.Poll)*(0.8+0.4*rd.Random()))) // with jitter, so that replicas do not poll in step
		}
	}
}

// Next works on the oldest redrive that no replica holds, as far as it can; worked reports whether there was one.
func (rd *Redriver) Next(ctx context.Context) (worked bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	idle, err := rd.Redrives.IdleRedrives(bounded, 1)
	if err != nil || len(idle) == 0 {
		return false, err
	}
	free := idle[0]
	free.Holder = "" // its lease has expired
	held, err := rd.claim(ctx, free)
	if errors.Is(err, ledger.ErrStale) {
		return true, nil // another replica was faster
	}
	if err != nil {
		return false, err
	}
	return true, rd.work(ctx, held)
}

// claim makes this replica the holder of the redrive, or renews its lease.
func (rd *Redriver) claim(ctx context.Context, r ledger.Redrive) (ledger.Redrive, error) {
	r.LeaseUntil = ledger.In(rd.Lease)
	if r.Holder == "" {
		r.Holder = rd.Token()
	}
	return rd.save(ctx, r)
}

func (rd *Redriver) save(ctx context.Context, r ledger.Redrive) (ledger.Redrive, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return rd.Redrives.UpdateRedrive(ctx, r, nil)
}

// work processes each item that has no result yet, at the redrive's pace. If it stops early it releases the redrive, and
// the replica that claims it next continues where it stopped.
func (rd *Redriver) work(ctx context.Context, r ledger.Redrive) error {
	items, err := rd.Redrives.RedriveItems(ctx, r.ID)
	if err != nil {
		return errors.Join(err, rd.release(ctx, r))
	}
	renewed := rd.Clock()
	for _, item := range items {
		if item.Result != "" {
			continue
		}
		if rd.Clock().Sub(renewed) >= rd.Lease/3 {
			if r, err = rd.claim(ctx, r); err != nil {
				return unlessStale(err)
			}
			renewed = rd.Clock()
		}
		next := rd.Clock().Add(r.Interval)
		if holding, err := rd.stillHolding(ctx, r); err != nil || !holding {
			return err
		}
		if err := rd.processItem(ctx, r, item); err != nil {
			return errors.Join(err, rd.release(ctx, r))
		}
		if holding, err := rd.waitForNext(ctx, &r, next); err != nil || !holding {
			return err
		}
	}
	_, err = rd.save(ctx, ended(r, ledger.RedriveDone))
	return unlessStale(err)
}

// stillHolding reports whether the redrive is still running and held by this replica.
func (rd *Redriver) stillHolding(ctx context.Context, r ledger.Redrive) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	stored, err := rd.Redrives.Redrive(ctx, r.ID)
	return stored.State == ledger.RedriveRunning && stored.Holder == r.Holder, err
}

// waitForNext waits until the next item is due, and renews the lease meanwhile. holding reports whether this replica
// still holds the redrive, and is to continue.
func (rd *Redriver) waitForNext(ctx context.Context, r *ledger.Redrive, next time.Time) (holding bool, err error) {
	for {
		left := next.Sub(rd.Clock())
		if ctx.Err() != nil {
			return false, rd.release(context.WithoutCancel(ctx), *r)
		}
		if left <= 0 {
			return true, nil
		}
		sleep(ctx, min(left, rd.Poll))
		if left <= rd.Poll {
			continue
		}
		if *r, err = rd.claim(ctx, *r); err != nil {
			return false, unlessStale(err)
		}
	}
}

// processItem processes one item and stores its result. While the ledger fails it tries again; an item that fails alone
// is skipped, so that it does not block the others.
func (rd *Redriver) processItem(ctx context.Context, r ledger.Redrive, item ledger.RedriveItem) error {
	done, err := rd.redriveItem(ctx, r, item)
	for tries := 1; err != nil && tries < maxFailures && ctx.Err() == nil; tries++ {
		sleep(ctx, rd.Poll)
		done, err = rd.redriveItem(ctx, r, item)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		rd.OnError(fmt.Errorf("redrive %s: item %d: %w", r.ID, item.Position, err))
		done = item
		if happened, err := rd.alreadyDone(ctx, r, &done); err != nil {
			return err // unknown: the replica that continues finds out
		} else if !happened {
			done.Result = string(ledger.SkipFailed)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := rd.Redrives.SetItemResult(bounded, r.Holder, done); err != nil {
		return unlessStale(err)
	}
	rd.OnItemDone(done.Result)
	return nil
}

// release gives the redrive up at once, so that another replica need not wait until the lease expires.
func (rd *Redriver) release(ctx context.Context, r ledger.Redrive) error {
	r.Holder, r.LeaseUntil = "", ledger.Moment{}
	_, err := rd.save(context.WithoutCancel(ctx), r)
	return unlessStale(err)
}

// unlessStale drops [ledger.ErrStale]: another replica or a cancel was faster, and this replica has nothing left to do.
func unlessStale(err error) error {
	if errors.Is(err, ledger.ErrStale) {
		return nil
	}
	return err
}

// sleep waits for a duration, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
