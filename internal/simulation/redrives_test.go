package simulation_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// redriveRecords is what was observed of the redrives.
type redriveRecords struct {
	redrives            []string // in order of creation
	created             map[redriveKey]ledger.RedriveItem
	permanentAllowed    map[string]bool
	redrivenBy          map[redriveKey][]*replica // the replicas that redrove an entry, by redrive; at most one
	itemResults         map[itemKey]int
	cancelledRedrives   map[string]bool
	redrivenAfterCancel map[string]map[*replica]int // how many entries each replica redrove after the cancel
	everRedriven        map[ledger.Identity]bool
	redriveOfKey        map[string]string // the redrive that was returned for an idempotency key
}

// redriveKey identifies one entry in one redrive.
type redriveKey struct {
	redrive string
	ledger.Identity
}

type itemKey struct {
	redrive  string
	position int
}

func newRedriveRecords() redriveRecords {
	return redriveRecords{
		created: map[redriveKey]ledger.RedriveItem{}, permanentAllowed: map[string]bool{}, redrivenBy: map[redriveKey][]*replica{},
		itemResults: map[itemKey]int{}, cancelledRedrives: map[string]bool{}, redrivenAfterCancel: map[string]map[*replica]int{},
		everRedriven: map[ledger.Identity]bool{}, redriveOfKey: map[string]string{},
	}
}

func (sim *simulation) recordRedrive(r ledger.Redrive, items []ledger.RedriveItem) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.redrives = append(sim.redrives, r.ID)
	sim.permanentAllowed[r.ID] = r.Permanent
	sim.redrivenAfterCancel[r.ID] = map[*replica]int{}
	for _, item := range items {
		sim.created[redriveKey{r.ID, item.Identity}] = item
	}
}

// updateRedrive writes the redrive's own row, and checks the write.
func (sim *simulation) updateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error) {
	sim.writeMu.Lock()
	defer sim.writeMu.Unlock()
	before, _ := sim.store().Redrive(context.Background(), r.ID)
	items, _ := sim.store().RedriveItems(context.Background(), r.ID)
	stored, err := commit(ctx, sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (ledger.Redrive, error) {
		return s.UpdateRedrive(ctx, r, audit)
	})
	if err != nil {
		return stored, err
	}
	open := slices.ContainsFunc(items, func(item ledger.RedriveItem) bool { return item.Result == "" })
	sim.mu.Lock()
	commitsLost := !sim.commitsLostAt.IsZero()
	sim.mu.Unlock()
	switch {
	case commitsLost: // a result that its replica knows of may be lost
	case before.State != ledger.RedriveRunning:
		sim.violate("redrive %s: %s and moved to %s", r.ID, before.State, stored.State)
	case stored.State == ledger.RedriveDone && open:
		sim.violate("redrive %s: done with an unprocessed item", r.ID)
	case before.Holder != "" && stored.Holder != "" && stored.Holder != before.Holder && before.LeaseUntil.On(sim.now()).After(sim.now()):
		sim.violate("redrive %s: taken from %s before its lease expired", r.ID, before.Holder)
	}
	if stored.State == ledger.RedriveCancelled {
		sim.mu.Lock()
		sim.cancelledRedrives[r.ID] = true
		sim.mu.Unlock()
	}
	return stored, nil
}

// checkRedriven checks a write by which a redrive makes a dead letter wait again, or closes one that was reparsed.
func (sim *simulation) checkRedriven(before ledger.Entry, c ledger.Change, payloadErr error) {
	event := c.Event
	if event == nil || event.Origin != ledger.OriginRedrive || before.Absent() {
		return
	}
	id, key := c.Entry.Identity, redriveKey{event.MessageID, c.Entry.Identity}
	sim.mu.Lock()
	item, found := sim.created[key]
	sim.redrivenBy[key] = append(sim.redrivenBy[key], nil)
	times, permanent, sent, risksTaken := len(sim.redrivenBy[key]), sim.permanentAllowed[event.MessageID], len(sim.sends[id]), sim.risksTaken[id]
	sim.everRedriven[id] = true
	sim.tally.counts[redrivenEntries]++
	if event.Reason == ledger.ReasonReparsed {
		sim.tally.counts[reparsedMessages]++
	}
	commitsLost := !sim.commitsLostAt.IsZero()
	sim.mu.Unlock()
	switch {
	case commitsLost: // the records and the entry may disagree
	case before.State != ledger.Dead:
		sim.violate("%v: redriven while it is %s", id, before.State)
	case before.InDoubt():
		sim.violate("%v: redriven in doubt", id)
	case !found:
		sim.violate("%v: redriven by %s without being one of its items", id, event.MessageID)
	case item.Version != before.Version:
		sim.violate("%v: redriven at version %d, created at version %d", id, before.Version, item.Version)
	case times > 1:
		sim.violate("%v: redriven %d times by one redrive", id, times)
	case payloadErr != nil:
		sim.violate("%v: redriven without a payload: %v", id, payloadErr)
	case before.Redrives >= maxRedrives:
		sim.violate("%v: redriven for the %dth time", id, before.Redrives+1)
	case before.Class == ledger.ClassPermanent && !permanent:
		sim.violate("%v: redriven although permanently refused and not requested explicitly", id)
	case sent > risksTaken && event.Reason != ledger.ReasonReparsed:
		sim.violate("%v: redriven after %d sends, with %d risks taken", id, sent, risksTaken)
	}
}

// checkAfterCancel checks that, after a redrive was cancelled, no replica redrives more than the one item in hand.
func (sim *simulation) checkAfterCancel(redrive string, r *replica) {
	sim.mu.Lock()
	more := false
	for key, replicas := range sim.redrivenBy {
		if key.redrive == redrive && replicas[len(replicas)-1] == nil {
			replicas[len(replicas)-1] = r
		}
	}
	if sim.cancelledRedrives[redrive] {
		sim.redrivenAfterCancel[redrive][r]++
		more = sim.redrivenAfterCancel[redrive][r] > 1 && sim.commitsLostAt.IsZero()
	}
	sim.mu.Unlock()
	if more {
		sim.violate("redrive %s: %s continues after the cancel", redrive, r.name)
	}
}

// setItemResult records the result of an item, and checks it against what was written to the entry.
func (sim *simulation) setItemResult(ctx context.Context, holder string, item ledger.RedriveItem, r *replica) error {
	sim.writeMu.Lock()
	defer sim.writeMu.Unlock()
	_, err := commit(ctx, sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (struct{}, error) {
		return struct{}{}, s.SetItemResult(ctx, holder, item)
	})
	if err != nil {
		return err
	}
	key, at := redriveKey{item.RedriveID, item.Identity}, itemKey{item.RedriveID, item.Position}
	sim.mu.Lock()
	sim.itemResults[at]++
	redriven, times, commitsLost := sim.redrivenBy[key], sim.itemResults[at], !sim.commitsLostAt.IsZero()
	_, wasDeleted := sim.deletedAt[item.Identity]
	done := item.Result == ledger.ItemRedriven || item.Result == ledger.ItemReparsed
	switch {
	case done && len(redriven) > 0 && redriven[0] != nil && redriven[0] != r:
		sim.tally.counts[resumedItems]++
	case !done:
		sim.tally.counts[skippedItems]++
	}
	sim.mu.Unlock()
	switch {
	case commitsLost:
	case times > 1:
		sim.violate("redrive %s: item %d has %d results", item.RedriveID, item.Position, times)
	case done && len(redriven) != 1:
		sim.violate("%v: %s in redrive %s, but redriven %d times", item.Identity, item.Result, item.RedriveID, len(redriven))
	case !done && len(redriven) > 0 && !wasDeleted: // whichever replica redrove it, and whichever reply was lost
		sim.violate("%v: %s in redrive %s, but redriven", item.Identity, item.Result, item.RedriveID)
	}
	return nil
}

// checkClaim checks that nothing is claimed that was erased or has no payload, and that a delivery which arrives
// after its entry was deleted is refused for its age.
func (sim *simulation) checkClaim(before, stored ledger.Entry, c ledger.Change, claimed bool) {
	id := stored.Identity
	sim.mu.Lock()
	_, erased := sim.holderAtErasure[id]
	last, buried := sim.deletedAt[id]
	refused := stored.State == ledger.Dropped && stored.Reason == ledger.ReasonBeforeMemory
	if before.Absent() && buried && refused {
		sim.tally.counts[refusedTooOld]++
	}
	sim.mu.Unlock()
	tombstone := stored.State == ledger.Dropped && stored.CancelRequested
	switch {
	case claimed && erased:
		sim.violate("%v: claimed after an erasure", id)
	case before.Absent() && buried && !refused && !tombstone && stored.Type != ledger.MalformedType && !stored.Published.After(last):
		sim.violate("%v: delivered again after its entry was deleted, and is %s (%s); published %s, last written %s", id,
			stored.State, stored.Reason, timeOfDay(stored.Published), timeOfDay(last))
	}
	if claimed {
		if _, err := sim.store().Payload(context.Background(), id); err != nil {
			sim.violate("%v: claimed without a payload", id)
		}
	}
}

// checkPurge checks what a purge, an erasure or a discard removes, and records what may not be sent any more.
func (sim *simulation) checkPurge(before, stored ledger.Entry, c ledger.Change) {
	id, now := stored.Identity, sim.laterNow()
	span := map[ledger.State]time.Duration{ledger.Sent: sim.retention.Sent, ledger.Dead: sim.retention.Dead, ledger.Dropped: sim.retention.Dropped}[before.State]
	if c.Purge != ledger.PurgeNothing {
		_, err := sim.store().Payload(context.Background(), id)
		switch {
		case err == nil:
			sim.violate("%v: purged, but its payload is stored", id)
		case c.Purge == ledger.PurgePersonalData:
			if stored.UserID != "" || sim.read(id).ContentHash != "" {
				sim.violate("%v: erased, but its user or content hash is stored", id)
			}
		case c.Event == nil || c.Event.Origin != ledger.OriginPurge: // a reparsed dead letter, whose payload another entry has now
		case !before.Final():
			sim.violate("%v: purged while it is %s", id, before.State)
		case stored.State != before.State || stored.Reason != before.Reason:
			sim.violate("%v: %s after a purge of an entry that was %s", id, stored.State, before.State)
		case span == 0 || now.Before(before.Updated.Add(span)):
			sim.violate("%v: purged %v after its last write; its retention is %v", id, now.Sub(before.Updated), span)
		}
	}
	ends := stored.State == ledger.Dropped && (stored.Reason == ledger.ReasonDiscarded || stored.Reason == ledger.ReasonErased)
	if ends && before.State != ledger.Dead && before.State != ledger.Waiting && before.Reason != stored.Reason {
		sim.violate("%v: %s while it was %s", id, stored.Reason, before.State)
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	switch {
	case c.Purge == ledger.PurgePayload && c.Event != nil && c.Event.Origin == ledger.OriginPurge:
		sim.tally.counts[payloadsPurged]++
	case c.Purge == ledger.PurgePersonalData:
		sim.tally.counts[entriesErased]++
		sim.holderAtErasure[id] = before.Holder
	}
	if _, known := sim.droppedAt[id]; ends && !known {
		sim.droppedAt[id] = time.Now()
	}
}

// deleteEntry deletes an entry, and keeps count of the calls in its timeline. Its promises no longer hold, but what
// was sent stays sent.
func (sim *simulation) deleteEntry(ctx context.Context, e ledger.Entry) error {
	sim.writeMu.Lock()
	defer sim.writeMu.Unlock()
	id := e.Identity
	detail, _ := sim.store().EntryDetail(context.Background(), id)
	_, err := commit(ctx, sim, id, func(ctx context.Context, s storetest.Store) (struct{}, error) { return struct{}{}, s.Delete(ctx, e) })
	if err != nil {
		return err
	}
	switch before, now := detail.Entry, sim.laterNow(); {
	case !before.Final():
		sim.violate("%v: deleted while it is %s", id, before.State)
	case now.Before(before.Updated.Add(sim.retention.Entry)):
		sim.violate("%v: deleted %v after its last write, within the memory of %v", id, now.Sub(before.Updated), sim.retention.Entry)
	}
	callEvents := sim.countCallEvents(id, detail.Timeline)
	sim.checkAudit(id, detail.Audit)
	sim.checkNotSent(id, detail)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.deletedSends[id] = len(sim.sends[id])
	sim.deletedAt[id] = detail.Entry.Updated
	sim.deletedEvents[id] += callEvents
	sim.tally.counts[entriesDeleted]++
	for _, r := range sim.allReplicas {
		for _, event := range detail.Timeline {
			if strings.HasPrefix(event.Holder, r.name+".") && (event.Kind == ledger.EventAttempt || event.Kind == ledger.EventLate) {
				sim.outcomes[outcomeKey{id, r}]--
			}
		}
	}
	delete(sim.acked, id)
	delete(sim.inFlightAtCancel, id)
	delete(sim.droppedAt, id)
	delete(sim.reportedSent, id)
	delete(sim.holderAtErasure, id)
	return nil
}

// laterNow returns the later of the two clocks: a purge run uses its replica's, and the entries that it judges were
// dated by the ledger's.
func (sim *simulation) laterNow() time.Time {
	if now := time.Now(); now.After(sim.now()) {
		return now
	}
	return sim.now()
}

// wasDeletedOrErased reports whether a reminder's entry was ever deleted or erased.
func (sim *simulation) wasDeletedOrErased(id ledger.Identity) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	_, buried := sim.deletedAt[id]
	_, erased := sim.holderAtErasure[id]
	return buried || erased
}

// checkNotSent checks that an entry that is dead or dropped was not sent.
func (sim *simulation) checkNotSent(id ledger.Identity, detail ledger.EntryDetail) {
	e := detail.Entry
	sim.mu.Lock()
	sent, risksTaken, lost := len(sim.sends[id])-sim.deletedSends[id], sim.risksTaken[id], sim.lostCommits[id]
	sim.mu.Unlock()
	if (e.State == ledger.Dead || e.State == ledger.Dropped) && sent > 0 && risksTaken == 0 && !decidedByOperator(detail.Timeline) && !lost {
		sim.violate("%v: %s (%s), but sent", id, e.State, e.Reason)
	}
}

func (sim *simulation) callEventsDeleted(id ledger.Identity) int {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.deletedEvents[id]
}

// checkErased checks that no personal data came back after an erasure.
func (sim *simulation) checkErased(id ledger.Identity, detail ledger.EntryDetail) {
	sim.mu.Lock()
	_, erased := sim.holderAtErasure[id]
	sim.mu.Unlock()
	switch {
	case !erased:
	case detail.Payload != nil || detail.Entry.UserID != "" || detail.Entry.ContentHash != "":
		sim.violate("%v: erased, but personal data is stored", id)
	case len(detail.Conflicts) > 0:
		sim.violate("%v: erased, but a hash of other content is stored", id)
	}
}

// checkRedrivesEnded checks that every redrive ended, and that its items have the results that were written.
func (sim *simulation) checkRedrivesEnded() {
	sim.mu.Lock()
	all, cancelled, results, commitsLost := slices.Clone(sim.redrives), maps.Clone(sim.cancelledRedrives), maps.Clone(sim.itemResults), !sim.commitsLostAt.IsZero()
	sim.mu.Unlock()
	for _, id := range all {
		r, err := sim.store().Redrive(context.Background(), id)
		list, _ := sim.store().RedriveItems(context.Background(), id)
		sim.count(redriveItems, len(list))
		if err != nil || commitsLost {
			continue
		}
		if r.State == ledger.RedriveRunning || (r.State == ledger.RedriveCancelled) != cancelled[id] || r.Size != len(list) {
			sim.violate("redrive %s: does not come to rest: %s, %d items", id, r.State, len(list))
		}
		for _, item := range list {
			callEvents := results[itemKey{id, item.Position}]
			switch {
			case item.Result == "" && r.State == ledger.RedriveCancelled:
				sim.count(unprocessedItems, 1)
			case (item.Result != "") != (callEvents == 1):
				sim.violate("redrive %s: item %d has the result %q, but was set %d times", id, item.Position, item.Result, callEvents)
			}
		}
	}
}
