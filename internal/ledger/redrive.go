package ledger

import (
	"errors"
	"time"
)

// RedriveRules are what the redrive of one dead letter depends on, as one item of a redrive.
type RedriveRules struct {
	RedriveID   string
	Actor       string    // the operator who requested it
	Version     int64     // of the entry when the redrive was created
	Deadline    time.Time // a new one that the operator grants; zero keeps the entry's own
	Permanent   bool      // the class permanent was requested explicitly
	MaxRedrives int       // redrives allowed for one entry; after that it is parked
	HasPayload  bool      // its payload has not been purged
	Admission   Admission // the policy's decision about the entry under [RedriveRules.WithDeadline]
}

// SkipReason says why a redrive skips an item: a closed set. It is empty if the item is not skipped.
type SkipReason string

// The reasons to skip an item.
const (
	SkipGone       SkipReason = "gone"         // the entry does not exist any more
	SkipSent       SkipReason = "already_sent" // it was sent, and is never sent a second time
	SkipInProgress SkipReason = "in_progress"  // it is waiting or sending, for example by another redrive
	SkipUnknown    SkipReason = "unknown"      // it may have been sent: resolve it instead
	SkipDropped    SkipReason = "not_wanted"   // it expired, or was cancelled or discarded
	SkipMoved      SkipReason = "moved"        // it has changed since the redrive was created
	SkipPermanent  SkipReason = "permanent"    // the provider refused this content, and the class was not requested explicitly
	SkipParked     SkipReason = "parked"       // it has been redriven as often as is allowed
	SkipPurged     SkipReason = "purged"       // its payload has been purged
	SkipExpired    SkipReason = "expired"      // its deadline has passed, and no new one is granted
	SkipUnroutable SkipReason = "unroutable"   // its channel still has no provider
	SkipMalformed  SkipReason = "malformed"    // it still cannot be read
	SkipRefused    SkipReason = "refused"      // the configuration does not allow to send it
	SkipFailed     SkipReason = "failed"       // the ledger could not be written; a later redrive may include it
)

// SkipReasons lists every skip reason.
func SkipReasons() []SkipReason {
	return []SkipReason{
		SkipGone, SkipSent, SkipInProgress, SkipUnknown, SkipDropped, SkipMoved, SkipPermanent, SkipParked, SkipPurged,
		SkipExpired, SkipUnroutable, SkipMalformed, SkipRefused, SkipFailed,
	}
}

// WithDeadline returns the entry with the deadline that the operator grants, if any.
func (rr RedriveRules) WithDeadline(e Entry) Entry {
	if !rr.Deadline.IsZero() {
		e.Deadline = rr.Deadline
	}
	return e
}

// RedriveEntry makes a dead letter wait again, with a new budget, for the ledger's own worker. It changes only dead
// letters, and only those that have the version seen when the redrive was created.
//
// A dead letter is proven unsent and is sent like a new entry. But if the database changed since, an earlier redrive
// of it may be among the lost commits, and with it a send: then the entry comes back in doubt.
func RedriveEntry(e Entry, rr RedriveRules, r Rules, now time.Time) (Change, SkipReason) {
	if reason := rr.skipReason(e, r); reason != "" {
		return Change{}, reason
	}
	next := rr.WithDeadline(e)
	next.BudgetUsed, next.LeaseExpirations, next.Owner, next.Class, next.Code = 0, 0, OwnerLedger, "", ""
	next.Redrives++
	if r.Failover.mayHaveLostRedrive(e, now) {
		next = doubtDeadLetter(next, r, now)
		step := withDatabaseChanged(updateStep(next, rr.event()))
		return step.Change, ""
	}
	if next.Provider != r.ChannelRoute.Provider {
		next.Provider, next.Fingerprint = r.ChannelRoute.Provider, ""
	}
	wait := next.NotBefore.Sub(now) // not positive if it was due before it became dead
	if next = schedule(next, wait, ReasonRedriven, r, now); next.State == Dropped {
		return Change{}, SkipExpired // it stays a dead letter, so that an operator can still grant a deadline
	}
	return Change{Entry: next, Event: withResult(next, rr.event())}, ""
}

// event returns the timeline event of the redrive.
func (rr RedriveRules) event() *TimelineEvent {
	return decisionEvent(Trigger{Origin: OriginRedrive, Source: rr.Actor, MessageID: rr.RedriveID})
}

// skipReason returns why the entry is not redriven; empty if it is.
func (rr RedriveRules) skipReason(e Entry, r Rules) SkipReason {
	if reason := rr.skipByState(e); reason != "" {
		return reason
	}
	switch {
	case rr.Admission.Reason == ReasonExpired:
		return SkipExpired
	case rr.Admission.State != "":
		return SkipRefused
	case e.Class == ClassMalformed:
		return SkipMalformed // it is parsed again, not sent: see Reparse
	case r.ChannelRoute.Provider == "":
		return SkipUnroutable
	}
	return ""
}

// skipByState returns why the entry's own state excludes it from the redrive; empty if it does not.
func (rr RedriveRules) skipByState(e Entry) SkipReason {
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
	case e.Version != rr.Version:
		return SkipMoved
	case e.Class == ClassPermanent && !rr.Permanent:
		return SkipPermanent
	case e.Redrives >= rr.MaxRedrives:
		return SkipParked
	case !rr.HasPayload:
		return SkipPurged
	}
	return ""
}

// PreCheck returns why an entry would be skipped by its own state, before its payload is looked up; empty if it
// would not.
func (rr RedriveRules) PreCheck(e Entry) SkipReason {
	rr.HasPayload = true
	if reason := rr.skipByState(e); reason != "" || e.Class == ClassMalformed {
		return reason
	}
	if rr.Admission.Reason == ReasonExpired {
		return SkipExpired
	}
	return ""
}

// Reparse returns why a malformed dead letter may not be parsed again as a new delivery; empty if it may. The delivery
// gets an entry of its own; [RedriveRules.CloseReparsed] then closes the dead letter.
func (rr RedriveRules) Reparse(e Entry) SkipReason { return rr.skipByState(e) }

// CloseReparsed drops a malformed dead letter whose message could now be parsed, and names the entry that it became.
func (rr RedriveRules) CloseReparsed(e Entry, reparsed Identity) Change {
	next := clearClaim(e)
	next.State, next.Reason = Dropped, ReasonReparsed
	next.Redrives++
	event := rr.event()
	event.Outcome.Code = reparsed.EntryID()
	return Change{Entry: next, Event: withResult(next, event), Purge: PurgePayload} // the other entry has the payload now
}

// ErrNotDead is returned for an entry that is not a dead letter.
var ErrNotDead = errors.New("ledger: the entry is not a dead letter")

// Discard drops a dead letter for an operator who gives a reason. The entry is kept, but is not listed as a dead
// letter any more. It returns [ErrStale] if the entry has changed since the operator saw it, and [ErrNotDead] if it
// is not a dead letter.
func Discard(e Entry, version int64, audit AuditEvent) (Change, error) {
	switch {
	case e.Absent():
		return Change{}, ErrNotFound
	case e.Version != version:
		return Change{}, ErrStale
	case e.State != Dead:
		return Change{}, ErrNotDead
	}
	next := clearClaim(e)
	next.State, next.Reason = Dropped, ReasonDiscarded
	return operatorChange(e, next, "discard", audit), nil
}
