package reconcile

import (
	"context"
	"errors"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Bounds of asking.
const (
	asksBatch = 64  // questions to one provider between two looks at the agenda
	armBatch  = 256 // unknown entries on one page
)

// ask asks one provider, one question at a time, about what is due for a question, until ctx ends.
func (d *Desk) ask(ctx context.Context, provider string) {
	for ctx.Err() == nil {
		if asked := d.Questions(ctx, provider); asked >= asksBatch {
			continue // there may be more
		}
		d.idle(ctx)
	}
}

// Questions asks one provider about what is due for a question now, and answers how many of the answers
// were recorded. It is not for use beside Run.
func (d *Desk) Questions(ctx context.Context, provider string) int {
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	unrecorded := d.unrecorded[provider]
	due, err := d.Agenda.Asks(bounded, provider, asksBatch+unrecorded.count())
	d.failed(ctx, err)
	asked, err := unrecorded.each(ctx, due, func(ctx context.Context, id ledger.Identity) error {
		_, err := d.question(ctx, id, false)
		return err
	})
	d.failed(ctx, err)
	return asked
}

// question asks an unknown entry's provider whether it took it, and records the answer. early asks also
// before the question is due. asked tells whether anybody was asked.
func (d *Desk) question(ctx context.Context, id ledger.Identity, early bool) (asked bool, _ error) {
	seen, err := d.load(ctx, id)
	if err != nil || seen.Entry.State != ledger.Unknown {
		return false, err
	}
	rules := d.Rules(seen.Entry)
	switch planned := !seen.Entry.AskAt.IsZero(); {
	case !rules.CanAsk(seen.Entry) && planned:
		_, err := d.put(ctx, ledger.Disarm(seen.Entry, bySweep()))
		return false, unlessStale(err)
	case !rules.CanAsk(seen.Entry), !early && (!planned || seen.Entry.AskAt.On(seen.Now).After(seen.Now)):
		return false, nil // another replica asked meanwhile
	}
	inquiry := ledger.Inquiry{By: bySweep(), Provider: seen.Entry.Provider}
	inquiry.Early = seen.Entry.AskAt.On(seen.Now).After(seen.Now)
	begun := d.Clock()
	inquiry.Started = seen.Now
	inquiry.Finding, inquiry.Outcome = d.Providers.Ask(ctx, seen.Entry.Provider, seen.Entry.SendKey)
	inquiry.Finished = seen.Now.Add(d.Clock().Sub(begun))
	return true, d.record(ctx, seen, inquiry)
}

// record writes an answer over the entry that was asked about. Where the entry has moved on, only proof is
// written over what it became; another "not found" would count one answer twice.
func (d *Desk) record(ctx context.Context, seen ledger.Reading, q ledger.Inquiry) error {
	var failure error
	for range maxPasses {
		change, news := ledger.Asked(seen.Entry, q, d.Rules(seen.Entry), seen.Now)
		if !news {
			return nil
		}
		_, err := d.put(ctx, change)
		switch {
		case err == nil && change.Event.Reason == ledger.ReasonPossibleSecondSend:
			d.tellLate(change.Event.Reason)
			return nil
		case err == nil || q.Finding != ledger.Found:
			return unlessStale(err)
		}
		failure = err
		if seen, err = d.load(ctx, seen.Entry.Identity); err != nil {
			return err // its question is due still, and is asked again
		}
	}
	return failure
}

// arm plans the questions about entries that nobody asks about, since their provider could not be asked when
// they became unknown and can be now.
func (d *Desk) arm(ctx context.Context) error {
	return d.eachUnknown(ctx, func(e ledger.Entry) error {
		change, news := ledger.Arm(e, d.Rules(e))
		if !news {
			return nil
		}
		_, err := d.put(ctx, change)
		return unlessStale(err)
	})
}

// eachUnknown passes over all unknown entries, the longest in doubt first. An error over one does not keep
// it from the rest.
func (d *Desk) eachUnknown(ctx context.Context, do func(ledger.Entry) error) error {
	var failures []error
	for place := (ledger.Doubt{}); ctx.Err() == nil; {
		bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
		page, err := d.Agenda.Unknown(bounded, place, armBatch)
		cancel()
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, e := range page {
			if err := do(e); err != nil && len(failures) < maxPasses {
				failures = append(failures, err)
			}
			place = ledger.Doubt{Since: e.DoubtSince, Identity: e.Identity}
		}
		if len(page) < armBatch {
			break
		}
	}
	return errors.Join(failures...)
}

func unlessStale(err error) error {
	if errors.Is(err, ledger.ErrStale) {
		return nil
	}
	return err
}
