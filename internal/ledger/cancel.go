package ledger

import "time"

// Cancel cancels an entry. An unsent entry, or a dead letter, is dropped; one that may be on its way is marked so that
// no later attempt is made. The bool reports whether there is anything to write.
func Cancel(e Entry, t Trigger) (Change, CancelResult, bool) {
	switch {
	case e.State == Sent:
		return Change{}, CancelTooLate, false
	case e.State == Dropped:
		return Change{}, CancelNothing, false
	case e.State == Sending || e.State == Unknown:
		if e.CancelRequested {
			return Change{}, CancelInFlight, false
		}
		event := withResult(e, decisionEvent(t))
		event.Reason = ReasonCancelled
		e.CancelRequested = true
		return Change{Entry: e, Event: event}, CancelInFlight, true
	}
	e.CancelRequested = true
	next := drop(e, ReasonCancelled, Rules{}) // no rules: an entry that waits in doubt has a contract without lookups
	change := Change{Entry: next, Event: withResult(next, decisionEvent(t))}
	if next.State == Unknown {
		return change, CancelInFlight, true
	}
	return change, CancelDropped, true
}

// Tombstone creates a dropped entry, for a cancel that arrived before the first delivery. It has no content, so no
// later content conflicts with it.
func Tombstone(id Identity, t Trigger, now time.Time) Change {
	e := Entry{
		Identity: id, SendKey: id.SendKey(), State: Dropped, Reason: ReasonCancelled,
		CancelRequested: true, Source: t.Source, Published: At(now).On(now),
	}
	return Change{Entry: e, Event: withResult(e, decisionEvent(t))}
}

// Conflicts reports whether content with this hash differs from the entry's.
func (e Entry) Conflicts(contentHash string) bool {
	return e.ContentHash != "" && contentHash != "" && e.ContentHash != contentHash
}
