package ledger

import "time"

// Cancel makes an entry one that is not wanted any more. What is unsent is dropped, a dead letter too;
// what may be on its way gets a mark that forbids every later attempt. The bool tells whether there is
// anything to write.
func Cancel(e Entry, by Visit) (Change, CancelResult, bool) {
	switch {
	case e.State == Sent:
		return Change{}, CancelTooLate, false
	case e.State == Dropped:
		return Change{}, CancelNothing, false
	case e.State == Sending || e.State == Unknown:
		if e.CancelAsked {
			return Change{}, CancelInFlight, false
		}
		event := told(e, decision(by))
		event.Reason = ReasonCancelled
		e.CancelAsked = true
		return Change{Entry: e, Event: event}, CancelInFlight, true
	}
	e.CancelAsked = true
	next := end(e, ReasonCancelled, Rules{}) // what waits in doubt does so under a contract that nobody asks under
	change := Change{Entry: next, Event: told(next, decision(by))}
	if next.State == Unknown {
		return change, CancelInFlight, true
	}
	return change, CancelDropped, true
}

// Tombstone is an entry born dropped: a cancel that came before the first delivery. It has no content,
// so no later content conflicts with it.
func Tombstone(id Identity, by Visit, now time.Time) Change {
	e := Entry{
		Identity: id, SendKey: id.SendKey(), State: Dropped, Reason: ReasonCancelled,
		CancelAsked: true, Source: by.Source, Published: At(now).On(now),
	}
	return Change{Entry: e, Event: told(e, decision(by))}
}

// Conflicts tells whether content with this hash is other content than the entry's.
func (e Entry) Conflicts(contentHash string) bool {
	return e.ContentHash != "" && contentHash != "" && e.ContentHash != contentHash
}
