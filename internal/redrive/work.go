package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Run takes up what is laid out, one redrive at a time, until ctx ends. Several replicas may run it on one ledger.
func (d *Desk) Run(ctx context.Context) {
	for ctx.Err() == nil {
		worked, err := d.Next(ctx)
		if err != nil && ctx.Err() == nil {
			d.Failed(err)
		}
		if !worked || err != nil {
			pause(ctx, time.Duration(float64(d.Poll)*(0.8+0.4*d.Draw()))) // so that replicas do not march in step
		}
	}
}

// Next works on the oldest redrive that nobody works on, as far as it can; worked tells whether there was one.
func (d *Desk) Next(ctx context.Context) (worked bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	idle, err := d.Book.IdleRedrives(bounded, 1)
	if err != nil || len(idle) == 0 {
		return false, err
	}
	free := idle[0]
	free.Holder = "" // whose lease has lapsed
	held, err := d.hold(ctx, free)
	if errors.Is(err, ledger.ErrStale) {
		return true, nil // another replica was faster
	}
	if err != nil {
		return false, err
	}
	return true, d.work(ctx, held)
}

// hold makes this replica the one at work, or keeps it so.
func (d *Desk) hold(ctx context.Context, r ledger.Redrive) (ledger.Redrive, error) {
	r.LeaseUntil = ledger.In(d.Lease)
	if r.Holder == "" {
		r.Holder = d.Token()
	}
	return d.write(ctx, r)
}

func (d *Desk) write(ctx context.Context, r ledger.Redrive) (ledger.Redrive, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return d.Book.SwapRedrive(ctx, r, nil)
}

// work gives each item that had none its turn, at the redrive's pace. Where it stops early, the redrive is let go,
// and whoever takes it up goes on where it stopped.
func (d *Desk) work(ctx context.Context, r ledger.Redrive) error {
	items, err := d.Book.RedriveItems(ctx, r.ID)
	if err != nil {
		return errors.Join(err, d.letGo(ctx, r))
	}
	renewed := d.Clock()
	for _, item := range items {
		if item.Result != "" {
			continue
		}
		if d.Clock().Sub(renewed) >= d.Lease/3 {
			if r, err = d.hold(ctx, r); err != nil {
				return unlessStale(err)
			}
			renewed = d.Clock()
		}
		next := d.Clock().Add(r.Pace)
		if mine, err := d.mine(ctx, r); err != nil || !mine {
			return err
		}
		if err := d.give(ctx, r, item); err != nil {
			return errors.Join(err, d.letGo(ctx, r))
		}
		if held, err := d.until(ctx, &r, next); err != nil || !held {
			return err
		}
	}
	_, err = d.write(ctx, ended(r, ledger.RedriveDone))
	return unlessStale(err)
}

// mine tells whether the redrive still runs and is this replica's.
func (d *Desk) mine(ctx context.Context, r ledger.Redrive) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	stands, err := d.Book.Redrive(ctx, r.ID)
	return stands.State == ledger.RedriveRunning && stands.Holder == r.Holder, err
}

// until waits for the next item's time, and keeps hold of the redrive meanwhile; held tells whether it is still
// this replica's, and runs.
func (d *Desk) until(ctx context.Context, r *ledger.Redrive, next time.Time) (held bool, err error) {
	for {
		left := next.Sub(d.Clock())
		if ctx.Err() != nil {
			return false, d.letGo(context.WithoutCancel(ctx), *r)
		}
		if left <= 0 {
			return true, nil
		}
		pause(ctx, min(left, d.Poll))
		if left <= d.Poll {
			continue
		}
		if *r, err = d.hold(ctx, *r); err != nil {
			return false, unlessStale(err)
		}
	}
}

// give gives one item its turn, and records what became of it. While the ledger fails it tries again; an item that
// fails alone is left out, so that it holds up no other.
func (d *Desk) give(ctx context.Context, r ledger.Redrive, item ledger.RedriveItem) error {
	turned, err := d.turn(ctx, r, item)
	for tries := 1; err != nil && tries < maxFailures && ctx.Err() == nil; tries++ {
		pause(ctx, d.Poll)
		turned, err = d.turn(ctx, r, item)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		d.Failed(fmt.Errorf("redrive %s: item %d: %w", r.ID, item.Place, err))
		turned = item
		if happened, err := d.done(ctx, r, &turned); err != nil {
			return err // nobody knows: whoever goes on will
		} else if !happened {
			turned.Result = string(ledger.SkipFailed)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := d.Book.SettleItem(bounded, r.Holder, turned); err != nil {
		return unlessStale(err)
	}
	d.Turned(turned.Result)
	return nil
}

// letGo leaves the redrive to whoever comes next, at once and not when the lease has lapsed.
func (d *Desk) letGo(ctx context.Context, r ledger.Redrive) error {
	r.Holder, r.LeaseUntil = "", ledger.Moment{}
	_, err := d.write(context.WithoutCancel(ctx), r)
	return unlessStale(err)
}

func unlessStale(err error) error {
	if errors.Is(err, ledger.ErrStale) {
		return nil
	}
	return err
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
