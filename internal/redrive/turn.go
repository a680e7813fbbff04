package redrive

import (
	"context"
	"errors"
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// turn is what becomes of one item: the change that the heart decides on is written, unless something speaks
// against it. It may be repeated after any error: the line of the timeline tells whether it had happened.
func (d *Desk) turn(ctx context.Context, r ledger.Redrive, item ledger.RedriveItem) (ledger.RedriveItem, error) {
	for range maxPasses {
		at, err := d.look(ctx, item.Identity)
		if err != nil {
			return item, err
		}
		change, err := d.decide(ctx, r, &item, at)
		if err != nil || item.Result != "" && change == nil {
			return item, err
		}
		if _, err = d.swap(ctx, *change); err == nil {
			return item, nil
		}
		item.Result, item.Became = "", ""
		if !errors.Is(err, ledger.ErrStale) {
			return item, err
		}
	}
	return item, ledger.ErrStale
}

// decide settles what the item's turn comes to, with the change that brings it about; nil where there is
// nothing to write.
func (d *Desk) decide(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem, at seen) (*ledger.Change, error) {
	if at.entry.Version != item.Version && item.Version != 0 { // 0 was named and not there: it has no turn to have had
		if done, err := d.done(ctx, r, item); done || err != nil {
			return nil, err
		}
	}
	payload, kept, err := d.payload(ctx, item.Identity)
	if err != nil {
		return nil, err
	}
	by := d.reopening(r, *item, at, kept)
	if at.entry.State == ledger.Dead && at.entry.Type == ledger.MalformedType {
		return d.reread(ctx, by, item, at, payload)
	}
	change, skip := ledger.Reopen(at.entry, by, at.rules, at.now)
	if skip != "" {
		item.Result = string(skip)
		return nil, nil
	}
	item.Result = ledger.ItemReopened
	return &change, nil
}

func (d *Desk) reopening(r ledger.Redrive, item ledger.RedriveItem, at seen, kept bool) ledger.Reopening {
	by := ledger.Reopening{
		Redrive: r.ID, By: r.By, Version: item.Version, Deadline: r.Deadline, Permanent: r.Permanent,
		Most: d.Most, Kept: kept,
	}
	by.Admission = d.Admit(by.Granted(at.entry), at.now)
	return by
}

// reread has a malformed dead letter parsed once more. Where that succeeds it is a delivery of its own, and the
// dead letter is closed over it.
func (d *Desk) reread(ctx context.Context, by ledger.Reopening, item *ledger.RedriveItem, at seen, p ledger.Payload) (*ledger.Change, error) {
	if skip := by.Reread(at.entry); skip != "" {
		item.Result = string(skip)
		return nil, nil
	}
	became, faults, err := d.Reader.Reread(ctx, at.entry, p.Raw, by.By, by.Redrive)
	switch {
	case err != nil:
		return nil, err
	case len(faults) > 0:
		item.Result = string(ledger.SkipMalformed)
		return nil, nil
	}
	item.Result, item.Became = ledger.ItemReread, became.EntryID()
	change := by.Close(at.entry, became.Identity)
	return &change, nil
}

// done tells whether the item had its turn before, by this redrive's own line in the entry's timeline: a
// process may have ended between the entry's write and the item's.
func (d *Desk) done(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	timeline, err := d.Letters.Timeline(ctx, item.Identity)
	if err != nil {
		return false, fmt.Errorf("redrive: what was done: %w", err)
	}
	for _, line := range timeline {
		if line.Origin != ledger.OriginRedrive || line.Message != r.ID {
			continue
		}
		item.Result = ledger.ItemReopened
		if line.Reason == ledger.ReasonReread {
			item.Result, item.Became = ledger.ItemReread, line.Outcome.Code
		}
		return true, nil
	}
	return false, nil
}
