package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Verdict is an operator's decision about an entry that may have been sent.
type Verdict string

// The verdicts.
const (
	VerdictSent      Verdict = "sent"      // it was sent
	VerdictNotSent   Verdict = "not_sent"  // it was not sent; it is sent now, if it is still wanted and in time
	VerdictAbandoned Verdict = "abandoned" // it cannot be found out, and it is not sent again
)

// Verdicts lists every verdict.
func Verdicts() []Verdict { return []Verdict{VerdictSent, VerdictNotSent, VerdictAbandoned} }

// Resolution is an operator's verdict on one entry.
type Resolution struct {
	Verdict Verdict
	Receipt string     // with VerdictSent: the provider's id for the message, if the operator found one
	Version int64      // of the entry that the operator saw
	Audit   AuditEvent // actor and reason; Resolve adds the action and the states before and after
}

// ErrNotInDoubt is returned for an entry that needs no operator's decision.
var ErrNotInDoubt = errors.New("ledger: the entry does not wait for an operator's decision")

// Resolve applies an operator's verdict to an entry that is unknown, or waits in doubt. It returns [ErrStale] if the
// entry has changed since the operator saw it, and [ErrNotInDoubt] if there is nothing to decide. The operator takes
// the risk of a second send after VerdictNotSent, and the audit event records that.
func Resolve(e Entry, res Resolution, now time.Time) (Change, error) {
	switch {
	case e.Absent():
		return Change{}, ErrNotFound
	case e.Version != res.Version:
		return Change{}, ErrStale
	case !slices.Contains(Verdicts(), res.Verdict):
		return Change{}, fmt.Errorf("ledger: unknown verdict %q", res.Verdict)
	case e.State != Unknown && (e.State != Waiting || !e.InDoubt()):
		return Change{}, ErrNotInDoubt
	}
	next := applyVerdict(e, res, now)
	change := operatorChange(e, next, "resolve:"+string(res.Verdict), res.Audit)
	change.Event.Outcome.Receipt = res.Receipt
	return change, nil
}

// applyVerdict returns the entry after the verdict.
func applyVerdict(e Entry, res Resolution, now time.Time) Entry {
	switch res.Verdict {
	case VerdictSent:
		e = markAccepted(e, res.Receipt, ReasonResolved)
		if res.Receipt == "" {
			e.ReceiptMissing = MissingResolved
		}
		return e
	case VerdictNotSent:
		// Unsent by the operator's verdict, so it may go to any provider that its channel has now.
		e.DoubtSince, e.Class = time.Time{}, ""
		e.BudgetUsed, e.LeaseExpirations, e.Owner = 0, 0, OwnerLedger
		if e.CancelRequested {
			return drop(e, ReasonCancelled, Rules{})
		}
		return schedule(e, 0, ReasonResolved, Rules{}, now)
	default:
		e = clearClaim(e) // DoubtSince stays: the entry may have been sent
		e.State, e.Reason = Dropped, ReasonAbandoned
		return e
	}
}
