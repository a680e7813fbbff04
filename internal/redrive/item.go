package redrive

import (
	"context"
	"errors"
	"fmt"

	"github.com/sendonce/sendonce/internal/ledger"
)

// redriveItem writes the change that package ledger decides on for an item, and returns the item with its result. It
// may be repeated after any error: the entry's timeline shows whether the write had happened.
func (rd *Redriver) redriveItem(ctx context.Context, r ledger.Redrive, item ledger.RedriveItem) (ledger.RedriveItem, error) {
	for range maxIterations {
		loaded, err := rd.load(ctx, item.Identity)
		if err != nil {
			return item, err
		}
		change, err := rd.decide(ctx, r, &item, loaded)
		if err != nil || item.Result != "" && change == nil {
			return item, err
		}
		if _, err = rd.update(ctx, *change); err == nil {
			return item, nil
		}
		item.Result, item.ReparsedAs = "", ""
		if !errors.Is(err, ledger.ErrStale) {
			return item, err
		}
	}
	return item, ledger.ErrStale
}

// decide sets the item's result, and returns the change that brings it about; nil if there is nothing to write.
func (rd *Redriver) decide(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem, loaded loadedEntry) (*ledger.Change, error) {
	if loaded.entry.Version != item.Version && item.Version != 0 { // version 0: named in the request, and did not exist
		if done, err := rd.alreadyDone(ctx, r, item); done || err != nil {
			return nil, err
		}
	}
	payload, hasPayload, err := rd.payload(ctx, item.Identity)
	if err != nil {
		return nil, err
	}
	rules := rd.redriveRules(r, *item, loaded, hasPayload)
	if loaded.entry.State == ledger.Dead && loaded.entry.Type == ledger.MalformedType {
		return rd.reparse(ctx, rules, item, loaded, payload)
	}
	change, skip := ledger.RedriveEntry(loaded.entry, rules, loaded.rules, loaded.now)
	if skip != "" {
		item.Result = string(skip)
		return nil, nil
	}
	item.Result = ledger.ItemRedriven
	return &change, nil
}

func (rd *Redriver) redriveRules(r ledger.Redrive, item ledger.RedriveItem, loaded loadedEntry, hasPayload bool) ledger.RedriveRules {
	rules := ledger.RedriveRules{
		RedriveID: r.ID, Actor: r.Actor, Version: item.Version, Deadline: r.Deadline, Permanent: r.Permanent,
		MaxRedrives: rd.MaxRedrives, HasPayload: hasPayload,
	}
	rules.Admission = rd.Admit(rules.WithDeadline(loaded.entry), loaded.now)
	return rules
}

// reparse has a malformed dead letter parsed again. If that succeeds, the message has an entry of its own, and the dead
// letter is closed with a reference to it.
func (rd *Redriver) reparse(ctx context.Context, rules ledger.RedriveRules, item *ledger.RedriveItem, loaded loadedEntry, p ledger.Payload) (*ledger.Change, error) {
	if skip := rules.Reparse(loaded.entry); skip != "" {
		item.Result = string(skip)
		return nil, nil
	}
	reparsed, faults, err := rd.Reparser.Reparse(ctx, loaded.entry, p.Raw, rules.Actor, rules.RedriveID)
	switch {
	case err != nil:
		return nil, err
	case len(faults) > 0:
		item.Result = string(ledger.SkipMalformed)
		return nil, nil
	}
	item.Result, item.ReparsedAs = ledger.ItemReparsed, reparsed.EntryID()
	change := rules.CloseReparsed(loaded.entry, reparsed.Identity)
	return &change, nil
}

// alreadyDone reports whether this redrive has processed the item before, by its event in the entry's timeline, and sets
// the result accordingly: a process may have died between the entry's write and the item's.
func (rd *Redriver) alreadyDone(ctx context.Context, r ledger.Redrive, item *ledger.RedriveItem) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	timeline, err := rd.DeadLetters.Timeline(ctx, item.Identity)
	if err != nil {
		return false, fmt.Errorf("redrive: timeline of an item: %w", err)
	}
	for _, event := range timeline {
		if event.Origin != ledger.OriginRedrive || event.MessageID != r.ID {
			continue
		}
		item.Result = ledger.ItemRedriven
		if event.Reason == ledger.ReasonReparsed {
			item.Result, item.ReparsedAs = ledger.ItemReparsed, event.Outcome.Code
		}
		return true, nil
	}
	return false, nil
}
