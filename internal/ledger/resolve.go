package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Verdict is what a person says of an entry that may have been sent.
type Verdict string

const (
	// VerdictSent : it was sent.
	VerdictSent Verdict = "sent"
	// VerdictNotSent : it was not; it is sent now, if it is still wanted and in time.
	VerdictNotSent Verdict = "not_sent"
	// VerdictAbandoned : nobody will ever know, and it is not sent again.
	VerdictAbandoned Verdict = "abandoned"
)

// Verdicts lists every verdict.
func Verdicts() []Verdict { return []Verdict{VerdictSent, VerdictNotSent, VerdictAbandoned} }

// Resolution is a person's decision about one entry.
type Resolution struct {
	Verdict Verdict
	Receipt string // with VerdictSent: the provider's id for it, if the person found one
	Version int64  // of the entry as the person saw it
	Act     Act    // who and why; Resolve adds what, before and after
}

// ErrNotInDoubt : nothing about the entry waits for a person.
var ErrNotInDoubt = errors.New("ledger: the entry does not wait for a person's decision")

// Resolve carries out a person's decision about an entry that is unknown, or waits in doubt. It answers
// [ErrStale] where the entry is not any more what the person saw, and [ErrNotInDoubt] where there is
// nothing to decide. The risk of a second send after VerdictNotSent is the person's, and the audit says so.
func Resolve(e Entry, by Resolution, now time.Time) (Change, error) {
	switch {
	case e.Absent():
		return Change{}, ErrNotFound
	case e.Version != by.Version:
		return Change{}, ErrStale
	case !slices.Contains(Verdicts(), by.Verdict):
		return Change{}, fmt.Errorf("ledger: no verdict %q", by.Verdict)
	case e.State != Unknown && (e.State != Waiting || !e.InDoubt()):
		return Change{}, ErrNotInDoubt
	}
	next := resolved(e, by, now)
	change := byPerson(e, next, "resolve:"+string(by.Verdict), by.Act)
	change.Event.Outcome.Receipt = by.Receipt
	return change, nil
}

func resolved(e Entry, by Resolution, now time.Time) Entry {
	switch by.Verdict {
	case VerdictSent:
		e = accepted(e, by.Receipt, ReasonResolved)
		if by.Receipt == "" {
			e.Missing = MissingResolved
		}
		return e
	case VerdictNotSent:
		// Unsent by a person's word, it may go wherever its channel leads now.
		e.DoubtSince, e.Class = time.Time{}, ""
		e.Spent, e.Lapses, e.Owner = 0, 0, OwnerLedger
		if e.CancelAsked {
			return end(e, ReasonCancelled, Rules{})
		}
		return rest(e, 0, ReasonResolved, Rules{}, now)
	default:
		e = still(e) // the doubt stays: it says that it may have been sent
		e.State, e.Reason = Dropped, ReasonAbandoned
		return e
	}
}
