package deliver

import (
	"context"
	"errors"
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Cancel drops what is not yet sent under a reminder id: all of it, or one type and channel. One type
// and channel can also be cancelled before its first delivery. The result is empty when there is
// nothing under that id.
func (d *Desk) Cancel(ctx context.Context, caller, reminderID, typ, channel string) ([]ledger.Cancelled, error) {
	by := ledger.Visit{Origin: ledger.OriginAPI, Source: caller}
	if typ != "" {
		id := ledger.Identity{ReminderID: reminderID, Type: typ, Channel: channel}
		one, err := d.cancelOne(ctx, id, by)
		if err != nil {
			return nil, err
		}
		return []ledger.Cancelled{one}, nil
	}
	entries, err := d.Register.ByReminder(ctx, reminderID)
	if err != nil {
		return nil, fmt.Errorf("deliver: cancel: %w", err)
	}
	var all []ledger.Cancelled
	for _, e := range entries {
		one, err := d.cancelOne(ctx, e.Identity, by)
		if err != nil {
			return nil, err // safe to repeat: what was cancelled stays so
		}
		all = append(all, one)
	}
	return all, nil
}

func (d *Desk) cancelOne(ctx context.Context, id ledger.Identity, by ledger.Visit) (ledger.Cancelled, error) {
	for range maxPasses {
		seen, err := d.read(ctx, id)
		if err != nil {
			return ledger.Cancelled{}, err
		}
		if seen.entry.Absent() {
			stands, err := d.create(ctx, ledger.Tombstone(id, by, seen.now))
			if err == nil {
				return ledger.Cancelled{Entry: stands, Result: ledger.CancelDropped, Tombstone: true}, nil
			}
			if !errors.Is(err, ledger.ErrExists) {
				return ledger.Cancelled{}, fmt.Errorf("deliver: cancel: %w", err)
			}
			continue
		}
		change, result, write := ledger.Cancel(seen.entry, by)
		if !write {
			return ledger.Cancelled{Entry: seen.entry, Result: result, Tombstone: tombstone(seen.entry)}, nil
		}
		stands, err := d.swap(ctx, change)
		if err == nil {
			return ledger.Cancelled{Entry: stands, Result: result}, nil
		}
		if !errors.Is(err, ledger.ErrStale) {
			return ledger.Cancelled{}, fmt.Errorf("deliver: cancel: %w", err)
		}
	}
	return ledger.Cancelled{}, fmt.Errorf("%w: %s", errRestless, id.EntryID())
}

// tombstone tells whether the entry was cancelled before anything was delivered under it.
func tombstone(e ledger.Entry) bool {
	return e.State == ledger.Dropped && e.ContentHash == "" && e.CancelAsked
}
