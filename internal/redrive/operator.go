package redrive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Preview returns what a redrive of this request would do with each item now. It writes nothing.
func (rd *Redriver) Preview(ctx context.Context, req ledger.RedriveRequest) (ledger.RedriveReport, error) {
	r := rd.newRedrive(req)
	items, err := rd.selectItems(ctx, req)
	if err != nil {
		return ledger.RedriveReport{}, err
	}
	for i := range items {
		loaded, err := rd.load(ctx, items[i].Identity)
		if err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: preview: %w", err)
		}
		if err := rd.previewItem(ctx, r, &items[i], loaded); err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: preview: %w", err)
		}
	}
	r.Size = len(items)
	return ledger.RedriveReport{Redrive: r, Items: items, Counts: ledger.CountItems(items)}, nil
}

// previewItem sets the result that an item would have now. A malformed dead letter is not reparsed, since that would
// deliver it; its preview is that of a message that can be parsed.
func (rd *Redriver) previewItem(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem, loaded loadedEntry) error {
	_, hasPayload, err := rd.payload(ctx, item.Identity)
	if err != nil {
		return err
	}
	rules := rd.redriveRules(r, *item, loaded, hasPayload)
	item.Current = ledger.StateSummary{State: loaded.entry.State, Class: loaded.entry.Class, Reason: loaded.entry.Reason}
	if loaded.entry.State == ledger.Dead && loaded.entry.Type == ledger.MalformedType {
		if item.Result = string(rules.Reparse(loaded.entry)); item.Result == "" {
			item.Result = ledger.ItemReparsed
			item.Current = ledger.StateSummary{State: ledger.Waiting, Reason: ledger.ReasonRedriven} // if it can be parsed
		}
		return nil
	}
	change, skip := ledger.RedriveEntry(loaded.entry, rules, loaded.rules, loaded.now)
	if item.Result = string(skip); skip == "" {
		item.Result = ledger.ItemRedriven
		next := change.Entry
		item.Current = ledger.StateSummary{State: next.State, Class: next.Class, Reason: next.Reason}
	}
	return nil
}

// Start creates a redrive; a replica starts to work on it within its poll interval. If the actor has used the
// idempotency key before, Start returns that redrive if the request is the same, else [ledger.ErrKeyReused]. It returns
// [ledger.ErrNothingToRedrive] if no dead letter matches, and [ledger.ErrTooManyRedrives] if MaxRunning are running.
func (rd *Redriver) Start(ctx context.Context, req ledger.RedriveRequest) (ledger.Redrive, error) {
	if req.IdempotencyKey != "" {
		if known, err := rd.byKey(ctx, req); !errors.Is(err, ledger.ErrNotFound) {
			return known, err
		}
	}
	select {
	case rd.starting <- struct{}{}:
		defer func() { <-rd.starting }()
	case <-ctx.Done():
		return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", ctx.Err())
	}
	running, err := rd.Redrives.RunningRedrives(ctx)
	switch {
	case err != nil:
		return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", err)
	case running >= rd.MaxRunning:
		return ledger.Redrive{}, ledger.ErrTooManyRedrives
	}
	items, err := rd.selectItems(ctx, req)
	switch {
	case err != nil:
		return ledger.Redrive{}, err
	case len(items) == 0:
		return ledger.Redrive{}, ledger.ErrNothingToRedrive
	}
	r := rd.newRedrive(req)
	r.Size = len(items)
	if req.IdempotencyKey == "" {
		req.IdempotencyKey, r.IdempotencyKey = r.ID, r.ID
	}
	audit := req.Audit
	audit.ID, audit.Action, audit.After = r.ID, "redrive", fmt.Sprintf(`{"redrive":%q,"size":%d}`, r.ID, r.Size)
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	stored, err := rd.Redrives.InsertRedrive(bounded, r, items, audit)
	if err == nil {
		return stored, nil
	}
	// A duplicate request was faster, or the insert happened and its reply was lost: the key shows which.
	known, loadErr := rd.byKey(ctx, req)
	if loadErr == nil || errors.Is(loadErr, ledger.ErrKeyReused) {
		return known, loadErr
	}
	return ledger.Redrive{}, fmt.Errorf("redrive: start: %w", err)
}

// byKey returns the actor's redrive under the request's idempotency key, if it was created by the same request.
func (rd *Redriver) byKey(ctx context.Context, req ledger.RedriveRequest) (ledger.Redrive, error) {
	known, err := rd.Redrives.RedriveByKey(ctx, req.Audit.Actor, req.IdempotencyKey)
	if err == nil && known.RequestHash != req.RequestHash {
		return ledger.Redrive{}, ledger.ErrKeyReused
	}
	return known, err
}

func (rd *Redriver) newRedrive(req ledger.RedriveRequest) ledger.Redrive {
	return ledger.Redrive{
		ID: rd.Token(), Actor: req.Audit.Actor, Role: req.Audit.Role, Reason: req.Audit.Reason, IdempotencyKey: req.IdempotencyKey, RequestHash: req.RequestHash,
		Request: req.Request, State: ledger.RedriveRunning, Interval: time.Duration(float64(time.Second) / req.Rate),
		Deadline: req.Deadline, Permanent: req.Permanent,
	}
}

// selectItems returns the items of a request: the named entries in their order, or the dead letters that match the
// filter, the newest first.
func (rd *Redriver) selectItems(ctx context.Context, req ledger.RedriveRequest) ([]ledger.RedriveItem, error) {
	var items []ledger.RedriveItem
	add := func(id ledger.Identity, version int64) {
		items = append(items, ledger.RedriveItem{Identity: id, Position: len(items) + 1, Version: version})
	}
	for _, id := range req.IDs {
		loaded, err := rd.load(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("redrive: select: %w", err)
		}
		add(id, loaded.entry.Version)
	}
	if len(req.IDs) > 0 {
		return items, nil
	}
	eligible, skipped, err := rd.matching(ctx, req)
	for _, e := range append(eligible, skipped...)[:min(len(eligible)+len(skipped), req.Limit)] {
		add(e.Identity, e.Version)
	}
	return items, err
}

// maxPages limits how many pages of dead letters, each as large as the request's limit, are read for a redrive.
const maxPages = 10

// matching returns the dead letters that match the request's filter. Those that would be skipped come separately, to be
// selected last, so that parked dead letters do not fill one redrive after another.
func (rd *Redriver) matching(ctx context.Context, req ledger.RedriveRequest) (eligible, skipped []ledger.Entry, err error) {
	query := req.Filter
	query.State, query.Limit = ledger.Dead, req.Limit
	now := rd.Clock()
	for range maxPages {
		page, err := rd.DeadLetters.List(ctx, query)
		if err != nil {
			return nil, nil, fmt.Errorf("redrive: select: %w", err)
		}
		for _, e := range page {
			rules := ledger.RedriveRules{Version: e.Version, Deadline: req.Deadline, Permanent: req.Permanent, MaxRedrives: rd.MaxRedrives}
			rules.Admission = rd.Admit(rules.WithDeadline(e), now)
			if rules.PreCheck(e) == "" {
				eligible = append(eligible, e)
			} else {
				skipped = append(skipped, e)
			}
		}
		if len(eligible) >= req.Limit || len(page) < req.Limit {
			break
		}
		last := page[len(page)-1]
		query.After = &ledger.EntryPosition{FirstSeen: last.FirstSeen, Identity: last.Identity}
	}
	return eligible, skipped, nil
}

// Show returns a redrive with its items, each with the current state of its entry, or of the entry that it was reparsed
// as; [ledger.ErrNotFound] if there is no such redrive.
func (rd *Redriver) Show(ctx context.Context, id string) (ledger.RedriveReport, error) {
	r, err := rd.Redrives.Redrive(ctx, id)
	if err != nil {
		return ledger.RedriveReport{}, err
	}
	items, err := rd.Redrives.RedriveItems(ctx, id)
	if err != nil {
		return ledger.RedriveReport{}, fmt.Errorf("redrive: show: %w", err)
	}
	for i, item := range items {
		reparsedAs, ok := ledger.ParseEntryID(item.ReparsedAs)
		if !ok {
			continue
		}
		loaded, err := rd.load(ctx, reparsedAs)
		if err != nil {
			return ledger.RedriveReport{}, fmt.Errorf("redrive: show: %w", err)
		}
		items[i].Current = ledger.StateSummary{State: loaded.entry.State, Class: loaded.entry.Class, Reason: loaded.entry.Reason}
	}
	return ledger.RedriveReport{Redrive: r, Items: items, Counts: ledger.CountItems(items)}, nil
}

// Cancel stops a redrive before its next item; entries that were redriven already are still sent. It returns
// [ledger.ErrRedriveEnded] with the redrive as stored if it has ended, and [ledger.ErrNotFound] if there is none.
func (rd *Redriver) Cancel(ctx context.Context, id string, audit ledger.AuditEvent) (ledger.Redrive, error) {
	audit.ID, audit.Action, audit.After = rd.Token(), "redrive:cancel", fmt.Sprintf(`{"redrive":%q}`, id)
	for range maxIterations {
		r, err := rd.Redrives.Redrive(ctx, id)
		switch {
		case err != nil:
			return ledger.Redrive{}, err
		case r.State != ledger.RedriveRunning:
			return r, ledger.ErrRedriveEnded
		}
		stored, err := rd.Redrives.UpdateRedrive(ctx, ended(r, ledger.RedriveCancelled), &audit)
		if !errors.Is(err, ledger.ErrStale) {
			return stored, err
		}
	}
	return ledger.Redrive{}, ledger.ErrStale
}

// Discard drops a dead letter for good, together with its audit event. It returns [ledger.ErrStale] if the entry has
// changed since the operator saw it, and [ledger.ErrNotDead] if it is no dead letter, both with the entry as stored if
// it could be loaded; [ledger.ErrNotFound] if there is no entry.
func (rd *Redriver) Discard(ctx context.Context, id ledger.Identity, version int64, audit ledger.AuditEvent) (ledger.Entry, error) {
	loaded, err := rd.load(ctx, id)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("redrive: discard: %w", err)
	}
	audit.ID = rd.Token()
	change, err := ledger.Discard(loaded.entry, version, audit)
	if err != nil {
		return loaded.entry, err
	}
	stored, err := rd.update(ctx, change)
	switch {
	case err == nil:
		return stored, nil
	case errors.Is(err, ledger.ErrStale):
		if loaded, loadErr := rd.load(ctx, id); loadErr == nil {
			return loaded.entry, err
		}
		return ledger.Entry{}, err
	}
	// The write may have happened nevertheless: its audit event shows whether it did.
	detail, loadErr := rd.DeadLetters.EntryDetail(ctx, id)
	for _, past := range detail.Audit {
		if past.ID == audit.ID {
			return detail.Entry, nil
		}
	}
	return ledger.Entry{}, fmt.Errorf("redrive: discard: %w", errors.Join(err, loadErr))
}

// ended returns the redrive as ended in this state, without a holder.
func ended(r ledger.Redrive, state ledger.RedriveState) ledger.Redrive {
	r.State, r.Holder, r.LeaseUntil, r.Finished = state, "", ledger.Moment{}, ledger.In(0)
	return r
}
