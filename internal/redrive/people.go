package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Preview tells of each item that a request selects what would become of it now, and writes nothing.
func (d *Desk) Preview(ctx context.Context, ask ledger.RedriveRequest) (ledger.RedriveReport, error) {
	r := d.draft(ask)
	items, err := d.selected(ctx, ask)
	if err != nil {
		return ledger.RedriveReport{}, err
	}
	for i := range items {
		at, err := d.look(ctx, items[i].Identity)
		if err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: preview: %w", err)
		}
		if err := d.foresee(ctx, r, &items[i], at); err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: preview: %w", err)
		}
	}
	r.Size = len(items)
	return ledger.RedriveReport{Redrive: r, Items: items, Tally: ledger.Tally(items)}, nil
}

// foresee is what the turn of an item would come to now. Nothing is parsed again for it: that would deliver.
func (d *Desk) foresee(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem, at seen) error {
	_, kept, err := d.payload(ctx, item.Identity)
	if err != nil {
		return err
	}
	by := d.reopening(r, *item, at, kept)
	item.Standing = ledger.Standing{State: at.entry.State, Class: at.entry.Class, Reason: at.entry.Reason}
	if at.entry.State == ledger.Dead && at.entry.Type == ledger.MalformedType {
		if item.Result = string(by.Reread(at.entry)); item.Result == "" {
			item.Result = ledger.ItemReread
			item.Standing = ledger.Standing{State: ledger.Waiting, Reason: ledger.ReasonRedriven} // if it can be read
		}
		return nil
	}
	change, skip := ledger.Reopen(at.entry, by, at.rules, at.now)
	if item.Result = string(skip); skip == "" {
		item.Result = ledger.ItemReopened
		next := change.Entry
		item.Standing = ledger.Standing{State: next.State, Class: next.Class, Reason: next.Reason}
	}
	return nil
}

// Start lays a redrive out; a replica takes it up within its poll. A request under a key that its person has used
// before is answered with that redrive, if it is the same request, else with [ledger.ErrOtherRequest]. It answers
// [ledger.ErrNothingToRedrive] where no dead letter fits, and [ledger.ErrTooManyRedrives].
func (d *Desk) Start(ctx context.Context, ask ledger.RedriveRequest) (ledger.Redrive, error) {
	if ask.Key != "" {
		if known, err := d.known(ctx, ask); !errors.Is(err, ledger.ErrNotFound) {
			return known, err
		}
	}
	select {
	case d.starting <- struct{}{}:
		defer func() { <-d.starting }()
	case <-ctx.Done():
		return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", ctx.Err())
	}
	running, err := d.Book.RunningRedrives(ctx)
	switch {
	case err != nil:
		return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", err)
	case running >= d.Running:
		return ledger.Redrive{}, ledger.ErrTooManyRedrives
	}
	items, err := d.selected(ctx, ask)
	switch {
	case err != nil:
		return ledger.Redrive{}, err
	case len(items) == 0:
		return ledger.Redrive{}, ledger.ErrNothingToRedrive
	}
	r := d.draft(ask)
	r.Size = len(items)
	if ask.Key == "" {
		ask.Key, r.Key = r.ID, r.ID
	}
	act := ask.Act
	act.ID, act.Verb, act.After = r.ID, "redrive", fmt.Sprintf(`{"redrive":%q,"size":%d}`, r.ID, r.Size)
	written, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	stands, err := d.Book.CreateRedrive(written, r, items, act)
	if err == nil {
		return stands, nil
	}
	// A twin was faster, or it happened and the reply was lost: the key tells.
	known, lookErr := d.known(ctx, ask)
	if lookErr == nil || errors.Is(lookErr, ledger.ErrOtherRequest) {
		return known, lookErr
	}
	return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", err)
}

func (d *Desk) known(ctx context.Context, ask ledger.RedriveRequest) (ledger.Redrive, error) {
	known, err := d.Book.RedriveByKey(ctx, ask.Act.By, ask.Key)
	if err == nil && known.RequestHash != ask.Hash {
		return ledger.Redrive{}, ledger.ErrOtherRequest
	}
	return known, err
}

func (d *Desk) draft(ask ledger.RedriveRequest) ledger.Redrive {
	return ledger.Redrive{
		ID: d.Token(), By: ask.Act.By, Role: ask.Act.Role, Why: ask.Act.Why, Key: ask.Key, RequestHash: ask.Hash,
		Asked: ask.Asked, State: ledger.RedriveRunning, Pace: time.Duration(float64(time.Second) / ask.Rate),
		Deadline: ask.Deadline, Permanent: ask.Permanent,
	}
}

// selected lays out the items of a request: the named entries in their order, or the dead letters that fit, the
// newest first.
func (d *Desk) selected(ctx context.Context, ask ledger.RedriveRequest) ([]ledger.RedriveItem, error) {
	var items []ledger.RedriveItem
	add := func(id ledger.Identity, version int64) {
		items = append(items, ledger.RedriveItem{Identity: id, Place: len(items) + 1, Version: version})
	}
	for _, id := range ask.IDs {
		at, err := d.look(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("redrive: select: %w", err)
		}
		add(id, at.entry.Version)
	}
	if len(ask.IDs) > 0 {
		return items, nil
	}
	fit, unfit, err := d.letters(ctx, ask)
	for _, e := range append(fit, unfit...)[:min(len(fit)+len(unfit), ask.Limit)] {
		add(e.Identity, e.Version)
	}
	return items, err
}

// maxLook bounds how many dead letters are looked through for a redrive, in batches of its limit.
const maxLook = 10

// letters are the dead letters that a filter finds: what fits first, then what would be skipped anyhow, so that
// parked ones do not fill one redrive after the other.
func (d *Desk) letters(ctx context.Context, ask ledger.RedriveRequest) (fit, unfit []ledger.Entry, err error) {
	query := ask.Filter
	query.State, query.Limit = ledger.Dead, ask.Limit
	now := d.Clock()
	for range maxLook {
		page, err := d.Letters.List(ctx, query)
		if err != nil {
			return nil, nil, fmt.Errorf("redrive: select: %w", err)
		}
		for _, e := range page {
			by := ledger.Reopening{Version: e.Version, Deadline: ask.Deadline, Permanent: ask.Permanent, Most: d.Most}
			by.Admission = d.Admit(by.Granted(e), now)
			if by.Fits(e) == "" {
				fit = append(fit, e)
			} else {
				unfit = append(unfit, e)
			}
		}
		if len(fit) >= ask.Limit || len(page) < ask.Limit {
			break
		}
		last := page[len(page)-1]
		query.After = &ledger.Position{FirstSeen: last.FirstSeen, Identity: last.Identity}
	}
	return fit, unfit, nil
}

// Show is a redrive with its items, compared with the ledger as it is now; [ledger.ErrNotFound] where there is none.
func (d *Desk) Show(ctx context.Context, id string) (ledger.RedriveReport, error) {
	r, err := d.Book.Redrive(ctx, id)
	if err != nil {
		return ledger.RedriveReport{}, err
	}
	items, err := d.Book.RedriveItems(ctx, id)
	if err != nil {
		return ledger.RedriveReport{}, fmt.Errorf("redrive: show: %w", err)
	}
	for i, item := range items {
		became, ok := ledger.ParseEntryID(item.Became)
		if !ok {
			continue
		}
		at, err := d.look(ctx, became)
		if err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: show: %w", err)
		}
		items[i].Standing = ledger.Standing{State: at.entry.State, Class: at.entry.Class, Reason: at.entry.Reason}
	}
	return ledger.RedriveReport{Redrive: r, Items: items, Tally: ledger.Tally(items)}, nil
}

// Cancel stops a redrive before its next item; what was put to work goes on. [ledger.ErrRedriveEnded] where it
// has ended, with the redrive as it stands; [ledger.ErrNotFound] where there is none.
func (d *Desk) Cancel(ctx context.Context, id string, act ledger.Act) (ledger.Redrive, error) {
	act.ID, act.Verb, act.After = d.Token(), "redrive:cancel", fmt.Sprintf(`{"redrive":%q}`, id)
	for range maxPasses {
		r, err := d.Book.Redrive(ctx, id)
		switch {
		case err != nil:
			return ledger.Redrive{}, err
		case r.State != ledger.RedriveRunning:
			return r, ledger.ErrRedriveEnded
		}
		stands, err := d.Book.SwapRedrive(ctx, ended(r, ledger.RedriveCancelled), &act)
		if !errors.Is(err, ledger.ErrStale) {
			return stands, err
		}
	}
	return ledger.Redrive{}, ledger.ErrStale
}

// Discard takes a dead letter off the lists for good, together with its line in the audit. [ledger.ErrStale] where
// the entry is not any more what the person saw, [ledger.ErrNotDead] where it is no dead letter, both with the
// entry as it stands where it could be read; [ledger.ErrNotFound] where there is none.
func (d *Desk) Discard(ctx context.Context, id ledger.Identity, version int64, act ledger.Act) (ledger.Entry, error) {
	at, err := d.look(ctx, id)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("redrive: discard: %w", err)
	}
	act.ID = d.Token()
	change, err := ledger.Discard(at.entry, version, act)
	if err != nil {
		return at.entry, err
	}
	stands, err := d.swap(ctx, change)
	switch {
	case err == nil:
		return stands, nil
	case errors.Is(err, ledger.ErrStale):
		if at, lookErr := d.look(ctx, id); lookErr == nil {
			return at.entry, err
		}
		return ledger.Entry{}, err
	}
	// It may have happened all the same: its act tells.
	story, lookErr := d.Letters.Story(ctx, id)
	for _, done := range story.Acts {
		if done.ID == act.ID {
			return story.Entry, nil
		}
	}
	return ledger.Entry{}, fmt.Errorf("redrive: discard: %w", errors.Join(err, lookErr))
}

func ended(r ledger.Redrive, how ledger.RedriveState) ledger.Redrive {
	r.State, r.Holder, r.LeaseUntil, r.Finished = how, "", ledger.Moment{}, ledger.In(0)
	return r
}
