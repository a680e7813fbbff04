package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Waiting is a page of what waits for a person's decision or its provider's word, the longest in doubt
// first, each with the evidence.
func (d *Desk) Waiting(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Story, error) {
	entries, err := d.Agenda.Unknown(ctx, after, limit)
	if err != nil {
		return nil, fmt.Errorf("reconcile: list: %w", err)
	}
	cases := make([]ledger.Story, 0, len(entries))
	for _, e := range entries {
		timeline, err := d.Records.Timeline(ctx, e.Identity)
		if err != nil {
			return nil, fmt.Errorf("reconcile: evidence: %w", err)
		}
		cases = append(cases, ledger.Story{Entry: e, Timeline: timeline})
	}
	return cases, nil
}

// Resolve carries out a person's decision together with its line in the audit. [ledger.ErrStale] where the
// entry is not any more what the person saw, [ledger.ErrNotInDoubt] where there is nothing to decide, both
// with the entry as it stands where it could be read; [ledger.ErrNotFound] where there is none.
func (d *Desk) Resolve(ctx context.Context, id ledger.Identity, by ledger.Resolution) (ledger.Entry, error) {
	seen, err := d.load(ctx, id)
	if err != nil {
		return ledger.Entry{}, fmt.Errorf("reconcile: resolve: %w", err)
	}
	by.Act.ID = d.Token()
	change, err := ledger.Resolve(seen.Entry, by, seen.Now)
	if err != nil {
		return seen.Entry, err
	}
	stands, err := d.put(ctx, change)
	switch {
	case err == nil:
		return stands, nil
	case errors.Is(err, ledger.ErrStale):
		if seen, lookErr := d.load(ctx, id); lookErr == nil {
			return seen.Entry, err
		}
		return ledger.Entry{}, err
	}
	// It may have happened all the same: its act tells.
	story, lookErr := d.Records.Story(ctx, id)
	for _, act := range story.Acts {
		if act.ID == by.Act.ID {
			return story.Entry, nil
		}
	}
	return ledger.Entry{}, fmt.Errorf("reconcile: resolve: %w", errors.Join(err, lookErr))
}

// Hear records what a provider reports of its own accord, once however often it comes; recorded tells
// whether it was news.
func (d *Desk) Hear(ctx context.Context, report ledger.Report) (recorded bool, err error) {
	for range maxPasses {
		seen, err := d.load(ctx, report.Identity)
		if err != nil {
			return false, fmt.Errorf("reconcile: report: %w", err)
		}
		if news, err := d.credible(ctx, seen.Entry, report); err != nil || !news {
			return false, err
		}
		change, news := ledger.Heard(seen.Entry, report)
		if !news {
			return false, nil
		}
		_, err = d.put(ctx, change)
		switch {
		case err == nil:
			d.tellLate(change.Event.Reason)
			return true, nil
		case !errors.Is(err, ledger.ErrStale) && !errors.Is(err, ledger.ErrExists):
			return false, fmt.Errorf("reconcile: report: %w", err) // its sender repeats it
		}
	}
	return false, fmt.Errorf("reconcile: report: %w", ledger.ErrStale)
}

// credible tells whether a report is to be taken up: it has not been already, and it comes from the provider
// that has the entry or was called for it, or, of an entry that the ledger does not hold, that its channel
// leads to. One provider's word proves nothing about another's sends.
func (d *Desk) credible(ctx context.Context, e ledger.Entry, report ledger.Report) (bool, error) {
	timeline, err := d.Records.Timeline(ctx, report.Identity)
	if err != nil {
		return false, fmt.Errorf("reconcile: report: %w", err)
	}
	itsOwn := e.Provider == report.Provider
	if e.Absent() {
		itsOwn = d.Rules(ledger.Entry{Identity: report.Identity}).Channel.Provider == report.Provider
	}
	for _, line := range timeline {
		if line.Kind == ledger.EventReport && line.Message == report.Message && line.Provider == report.Provider {
			return false, nil
		}
		itsOwn = itsOwn || line.Kind != ledger.EventReport && line.Provider == report.Provider
	}
	return itsOwn, nil
}

func (d *Desk) tellLate(reason ledger.Reason) {
	if reason == ledger.ReasonLateAcceptance || reason == ledger.ReasonPossibleSecondSend {
		d.Late(string(reason))
	}
}

// runs holds the last one of this replica.
type runs struct {
	wanted chan struct{} // one that waits for Run to take it up
	mu     sync.Mutex
	last   ledger.Run
}

// Start begins a sweep now: every unknown entry's provider is asked that can be, due or not. It answers when
// the act is in the audit; [Desk.LastRun] tells how it goes. One runs at a time, else [ledger.ErrRunning].
func (d *Desk) Start(ctx context.Context, act ledger.Act) (ledger.Run, error) {
	d.runs.mu.Lock()
	defer d.runs.mu.Unlock()
	if !d.runs.last.Started.IsZero() && d.runs.last.Finished.IsZero() {
		return d.runs.last, ledger.ErrRunning
	}
	act.ID, act.Verb = d.Token(), "reconcile"
	recorded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if err := d.Records.Record(recorded, act); err != nil {
		return ledger.Run{}, fmt.Errorf("reconcile: run: %w", err)
	}
	d.runs.last = ledger.Run{By: act.By, Started: d.Clock()}
	d.runs.wanted <- struct{}{} // there is room: no run is under way
	return d.runs.last, nil
}

// LastRun is the last sweep that a person started on this replica; the zero value where there was none.
func (d *Desk) LastRun() ledger.Run {
	d.runs.mu.Lock()
	defer d.runs.mu.Unlock()
	return d.runs.last
}

// takeUp carries out the runs that people start, until ctx ends.
func (d *Desk) takeUp(ctx context.Context) {
	for {
		select {
		case <-d.runs.wanted:
			d.run(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (d *Desk) run(ctx context.Context) {
	err := d.eachUnknown(ctx, func(e ledger.Entry) error {
		asked, err := d.question(ctx, e.Identity, true)
		d.count(func(r *ledger.Run) {
			r.Unknown++
			if asked {
				r.Asked++
			}
			if err != nil {
				r.Failed++
			}
		})
		return err
	})
	d.failed(ctx, err)
	d.count(func(r *ledger.Run) { r.Finished = d.Clock() })
}

func (d *Desk) count(how func(*ledger.Run)) {
	d.runs.mu.Lock()
	defer d.runs.mu.Unlock()
	how(&d.runs.last)
}
