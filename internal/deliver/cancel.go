package deliver

import (
	"context"
	"errors"
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Cancel drops what is not yet sent under a reminder id: all of it, or one type and channel. One type and channel can
// also be cancelled before its first delivery; that leaves a tombstone. The result is empty if there is nothing under
// that id.
func (d *Deliverer) Cancel(ctx context.Context, caller, reminderID, typ, channel string) ([]ledger.Cancelled, error) {
	trigger := ledger.Trigger{Origin: ledger.OriginAPI, Source: caller}
	if typ != "" {
		id := ledger.Identity{ReminderID: reminderID, Type: typ, Channel: channel}
		one, err := d.cancelOne(ctx, id, trigger)
		if err != nil {
			return nil, err
		}
		return []ledger.Cancelled{one}, nil
	}
	entries, err := d.Reminders.ByReminder(ctx, reminderID)
	if err != nil {
		return nil, fmt.Errorf("deliver: cancel: %w", err)
	}
	var all []ledger.Cancelled
	for _, e := range entries {
		one, err := d.cancelOne(ctx, e.Identity, trigger)
		if err != nil {
			return nil, err // safe to repeat: what was cancelled stays cancelled
		}
		all = append(all, one)
	}
	return all, nil
}

func (d *Deliverer) cancelOne(ctx context.Context, id ledger.Identity, trigger ledger.Trigger) (ledger.Cancelled, error) {
	for range maxIterations {
		snap, err := d.load(ctx, id)
		if err != nil {
			return ledger.Cancelled{}, err
		}
		if snap.entry.Absent() {
			stored, err := d.insert(ctx, ledger.Tombstone(id, trigger, snap.now))
			if err == nil {
				return ledger.Cancelled{Entry: stored, Result: ledger.CancelDropped, Tombstone: true}, nil
			}
			if !errors.Is(err, ledger.ErrExists) {
				return ledger.Cancelled{}, fmt.Errorf("deliver: cancel: %w", err)
			}
			continue
		}
		change, result, write := ledger.Cancel(snap.entry, trigger)
		if !write {
			return ledger.Cancelled{Entry: snap.entry, Result: result, Tombstone: tombstone(snap.entry)}, nil
		}
		stored, err := d.update(ctx, change)
		if err == nil {
			return ledger.Cancelled{Entry: stored, Result: result}, nil
		}
		if !errors.Is(err, ledger.ErrStale) {
			return ledger.Cancelled{}, fmt.Errorf("deliver: cancel: %w", err)
		}
	}
	return ledger.Cancelled{}, fmt.Errorf("%w: %s", errKeptChanging, id.EntryID())
}

// tombstone reports whether the entry was cancelled before anything was delivered under it.
func tombstone(e ledger.Entry) bool {
	return e.State == ledger.Dropped && e.ContentHash == "" && e.CancelRequested
}
