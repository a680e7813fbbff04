package ledger

import (
	"errors"
	"time"
)

// Reopening puts one dead letter to work again, as one item of a redrive.
type Reopening struct {
	Redrive   string    // the redrive's id
	By        string    // the person who asked for it
	Version   int64     // of the entry as the redrive was laid out
	Deadline  time.Time // a new one that the person grants; zero leaves the entry's own
	Permanent bool      // the class permanent was asked for by name
	Most      int       // redrives that one entry may have; then it is parked
	Kept      bool      // its payload has not been purged
	Admission Admission // the policy's word on [Reopening.Granted]
}

// Skip says why a redrive leaves an item alone: a closed set; empty where it does not.
type Skip string

// Skips.
const (
	SkipGone       Skip = "gone"         // there is no such entry any more
	SkipSent       Skip = "already_sent" // never a second time
	SkipInProgress Skip = "in_progress"  // it is waiting or sending, by another redrive, say
	SkipUnknown    Skip = "unknown"      // it may have been sent: reconcile it instead
	SkipDropped    Skip = "not_wanted"   // it expired, or somebody cancelled or discarded it
	SkipMoved      Skip = "moved"        // it died anew since the redrive was laid out
	SkipPermanent  Skip = "permanent"    // the provider refused this content, and nobody asked for these by name
	SkipParked     Skip = "parked"       // it was redriven as often as is allowed
	SkipPurged     Skip = "purged"       // what it said is not kept any more
	SkipExpired    Skip = "expired"      // its deadline has passed, and no new one is granted
	SkipUnroutable Skip = "unroutable"   // its channel still has no provider
	SkipMalformed  Skip = "malformed"    // it still cannot be read
	SkipRefused    Skip = "refused"      // the configuration does not allow to send it
	SkipFailed     Skip = "failed"       // the ledger could not be written; a later redrive may take it
)

// Skips lists every one.
func Skips() []Skip {
	return []Skip{
		SkipGone, SkipSent, SkipInProgress, SkipUnknown, SkipDropped, SkipMoved, SkipPermanent, SkipParked, SkipPurged,
		SkipExpired, SkipUnroutable, SkipMalformed, SkipRefused, SkipFailed,
	}
}

// Granted is the entry under the deadline that a person grants it.
func (by Reopening) Granted(e Entry) Entry {
	if !by.Deadline.IsZero() {
		e.Deadline = by.Deadline
	}
	return e
}

// Reopen puts a dead letter to work again, with a fresh budget, for the ledger's own worker. It touches
// nothing but dead letters, and of them only what is as it was seen.
//
// What was proven unsent when it died is sent like a newcomer. But where the database changed since, an
// earlier redrive of it may be among what is forgotten, and with it a send: then it comes back in doubt.
func Reopen(e Entry, by Reopening, r Rules, now time.Time) (Change, Skip) {
	if why := by.skip(e, r); why != "" {
		return Change{}, why
	}
	next := by.Granted(e)
	next.Spent, next.Lapses, next.Owner, next.Class, next.Code = 0, 0, OwnerLedger, "", ""
	next.Redrives++
	if r.Failover.overtookDead(e, now) {
		next = forgottenDead(next, r, now)
		step := tellingOfChange(swap(next, by.line()))
		return step.Change, ""
	}
	if next.Provider != r.Channel.Provider {
		next.Provider, next.Fingerprint = r.Channel.Provider, ""
	}
	wait := next.NotBefore.Sub(now) // zero or past for what was due when it died
	if next = rest(next, wait, ReasonRedriven, r, now); next.State == Dropped {
		return Change{}, SkipExpired // a dead letter that a person may yet grant a deadline is worth more
	}
	return Change{Entry: next, Event: told(next, by.line())}, ""
}

func (by Reopening) line() *Event {
	return decision(Visit{Origin: OriginRedrive, Source: by.By, Message: by.Redrive})
}

func (by Reopening) skip(e Entry, r Rules) Skip {
	if why := by.unfit(e); why != "" {
		return why
	}
	switch {
	case by.Admission.Reason == ReasonExpired:
		return SkipExpired
	case by.Admission.Refusal != "":
		return SkipRefused
	case e.Class == ClassMalformed:
		return SkipMalformed // it is read again, not sent: see Reread
	case r.Channel.Provider == "":
		return SkipUnroutable
	}
	return ""
}

// unfit is what rules out an entry by itself.
func (by Reopening) unfit(e Entry) Skip {
	switch {
	case e.Absent():
		return SkipGone
	case e.State == Sent:
		return SkipSent
	case e.State == Waiting || e.State == Sending:
		return SkipInProgress
	case e.State == Unknown:
		return SkipUnknown
	case e.State == Dropped:
		return SkipDropped
	case e.Version != by.Version:
		return SkipMoved
	case e.Class == ClassPermanent && !by.Permanent:
		return SkipPermanent
	case e.Redrives >= by.Most:
		return SkipParked
	case !by.Kept:
		return SkipPurged
	}
	return ""
}

// Fits tells what speaks against an entry by itself, before its payload is looked for; empty for nothing.
func (by Reopening) Fits(e Entry) Skip {
	by.Kept = true
	if why := by.unfit(e); why != "" || e.Class == ClassMalformed {
		return why
	}
	if by.Admission.Reason == ReasonExpired {
		return SkipExpired
	}
	return ""
}

// Reread tells whether a malformed dead letter may be parsed once more, as a new delivery. The delivery is
// an entry of its own; [Reopening.Close] closes the dead letter over it.
func (by Reopening) Reread(e Entry) Skip { return by.unfit(e) }

// Close ends a malformed dead letter whose message could be read at last: it became the entry named.
func (by Reopening) Close(e Entry, became Identity) Change {
	next := still(e)
	next.State, next.Reason = Dropped, ReasonReread
	next.Redrives++
	event := by.line()
	event.Outcome.Code = became.EntryID()
	return Change{Entry: next, Event: told(next, event), Forget: ForgetPayload} // it is the other entry's now
}

// ErrNotDead : the entry is no dead letter.
var ErrNotDead = errors.New("ledger: the entry is no dead letter")

// Discard takes a dead letter off the lists for good, by a person who gives a reason. It is kept. It answers
// [ErrStale] where the entry is not any more what the person saw, and [ErrNotDead] where it is none.
func Discard(e Entry, version int64, act Act) (Change, error) {
	switch {
	case e.Absent():
		return Change{}, ErrNotFound
	case e.Version != version:
		return Change{}, ErrStale
	case e.State != Dead:
		return Change{}, ErrNotDead
	}
	next := still(e)
	next.State, next.Reason = Dropped, ReasonDiscarded
	return byPerson(e, next, "discard", act), nil
}
