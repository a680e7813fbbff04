package ledger

import (
	"fmt"
	"slices"
	"time"
)

// State is the state of an entry.
type State string

// The states of an entry.
const (
	Sending State = "sending" // an attempt is in flight; it has one holder until its lease ends
	Waiting State = "waiting" // due later; unsent, or in doubt where the contract makes a repeat harmless
	Unknown State = "unknown" // may have been sent; not repeated without a decision
	Sent    State = "sent"    // the provider accepted it
	Dead    State = "dead"    // refused, exhausted or malformed: the dead letter, which has no store of its own
	Dropped State = "dropped" // not wanted any more
)

// States lists every state, roughly in the order in which an entry passes through them.
func States() []State { return []State{Sending, Waiting, Unknown, Sent, Dead, Dropped} }

// Pending reports whether the state is not final.
func (s State) Pending() bool { return s == Sending || s == Waiting || s == Unknown }

// Class groups failures for operators and for metrics: a closed set.
type Class string

// Classes of dead letters.
const (
	ClassPermanent  Class = "permanent"  // this message or content was refused
	ClassRecipient  Class = "recipient"  // this address or token does not exist any more
	ClassExhausted  Class = "exhausted"  // the attempt budget is spent
	ClassUnroutable Class = "unroutable" // the channel has no provider
	ClassMalformed  Class = "malformed"  // it could not be parsed
	ClassBroker     Class = "broker"     // the broker dead-lettered it
)

// Classes of the last failure of an entry that is not dead. After a deferral it is [ClassRecipient].
const (
	ClassCredentials Class = "credentials"
	ClassThrottled   Class = "throttled"
	ClassUnreachable Class = "unreachable"
	ClassUnknown     Class = "unknown"
)

// DeadClasses lists the classes that a dead entry may have.
func DeadClasses() []Class {
	return []Class{ClassPermanent, ClassRecipient, ClassExhausted, ClassUnroutable, ClassMalformed, ClassBroker}
}

// Reason says why an entry is in its state: a closed set of words.
type Reason string

// Reasons for sending and sent.
const (
	ReasonClaimed        Reason = "claimed"
	ReasonAccepted       Reason = "accepted"
	ReasonLateAcceptance Reason = "late_acceptance"
	ReasonAssumed        Reason = "assumed"
)

// Reasons for waiting.
const (
	ReasonScheduled           Reason = "scheduled"
	ReasonLedgerRetries       Reason = "ledger_retries"
	ReasonGateClosed          Reason = "gate_closed"
	ReasonNoCapacity          Reason = "no_capacity"
	ReasonRelevanceUnanswered Reason = "relevance_unanswered"
	ReasonThrottled           Reason = "throttled"
	ReasonUnreachable         Reason = "unreachable"
	ReasonDeferred            Reason = "deferred" // the provider takes this one later, and works for others
	ReasonCredentials         Reason = "credentials"
	ReasonRepeatable          Reason = "repeatable"    // in doubt, and the contract makes a repeat harmless
	ReasonRiskTaken           Reason = "risk_taken"    // the type's policy is to resend
	ReasonNotCalled           Reason = "not_called"    // the call's deadline had passed before dialling
	ReasonProviderGone        Reason = "provider_gone" // in doubt at a provider that is not configured now
	ReasonTakenOver           Reason = "taken_over"    // its broker stopped redelivering; the ledger retries
	ReasonRequested           Reason = "requested"     // an API caller requested it; the ledger retries
	ReasonFailedOver          Reason = "failed_over"   // proven unsent at one provider, tried at another
	ReasonResolved            Reason = "resolved"      // an operator said whether it was sent
	ReasonRedriven            Reason = "redriven"      // an operator redrove the dead letter
)

// Reasons for unknown.
const (
	ReasonUnanswered              Reason = "unanswered"                 // the call ended without a readable answer
	ReasonLeaseExpired            Reason = "lease_expired"              // the holder did not settle before its lease ended
	ReasonTooManyLeaseExpirations Reason = "too_many_lease_expirations" // several holders did not
	ReasonWindowEnded             Reason = "window_ended"               // the window in which the contract allows repeats has ended
	ReasonProviderChange          Reason = "provider_change"            // account, endpoint or contract has changed since the attempt
	ReasonNotFound                Reason = "not_found"                  // its provider answered every lookup with "not found"
	ReasonDatabaseChanged         Reason = "database_changed"           // a failover or restore may have lost the record of a send
)

// Reasons for dead, dropped and, in doubt, unknown.
const (
	ReasonRefused      Reason = "refused"
	ReasonGone         Reason = "gone"
	ReasonBudgetSpent  Reason = "budget_spent"
	ReasonUnroutable   Reason = "unroutable"
	ReasonMalformed    Reason = "malformed"
	ReasonTooFarAhead  Reason = "too_far_ahead"
	ReasonExpired      Reason = "expired"
	ReasonBeforeMemory Reason = "before_memory"  // older than the entries that the ledger still keeps: it may have been sent
	ReasonBeforeCutOff Reason = "before_cut_off" // published before the configured cut-over
	ReasonCancelled    Reason = "cancelled"
	ReasonObsolete     Reason = "obsolete"
	ReasonAbandoned    Reason = "abandoned"
	ReasonDiscarded    Reason = "discarded"
	ReasonErased       Reason = "erased"        // its personal data was erased on request, so nothing is left to send
	ReasonReparsed     Reason = "reparsed"      // malformed before, parsed by a redrive, and another entry now
	ReasonDeadLettered Reason = "dead_lettered" // the broker dead-lettered it
)

// Reasons that occur in the timeline only.
const (
	ReasonLateFailure        Reason = "late_failure"
	ReasonPossibleSecondSend Reason = "possible_second_send"
	ReasonReplayed           Reason = "replayed"   // the provider answered a repeat with the first receipt
	ReasonLookupUnanswered   Reason = "no_answer"  // its provider was asked, and gave no answer
	ReasonDelivered          Reason = "delivered"  // status event: the provider delivered a message that it had accepted
	ReasonBounced            Reason = "bounced"    // status event: the address did not take it
	ReasonFailedLater        Reason = "failed"     // status event: the provider gave up
	ReasonComplained         Reason = "complained" // status event: the recipient reported it as spam
	ReasonPurged             Reason = "purged"     // its payload reached its configured retention
)

// Owner names who retries a waiting entry.
type Owner string

// The owners of an entry.
const (
	OwnerBroker Owner = "broker" // the broker, by redelivery
	OwnerLedger Owner = "ledger" // the ledger's own worker
)

// ReceiptMissing says why a sent entry has no receipt.
type ReceiptMissing string

// The reasons for a missing receipt.
const (
	MissingAssumed    ReceiptMissing = "assumed"    // the policy assumes the send; nothing proves it
	MissingUnreadable ReceiptMissing = "unreadable" // the provider accepted, but its receipt could not be read
	MissingResolved   ReceiptMissing = "resolved"   // an operator resolved it as sent
)

// Entry is the ledger's one row for an identity.
//
// The moments of a loaded entry are fixed points in time. A decision may set one relative to the next write, and the
// store resolves it by the ledger's clock; see [Moment].
type Entry struct {
	Identity

	SendKey     string // see [Identity.SendKey]
	ContentHash string // of recipient and content; empty for a tombstone, which conflicts with nothing
	State       State
	Version     int64 // rises by one with every write; 0 if there is no such entry
	Class       Class // the dead letter's class, or the class of the last failure
	Reason      Reason
	Code        string // the provider's own machine code of the last failure; empty where it gave none

	Provider       string // that sends it; bound from the first claim on
	Fingerprint    string // of the provider's account, endpoint and contract; empty before the first claim
	Receipt        string
	ReceiptMissing ReceiptMissing // why there is no receipt

	Attempts         int // calls made and settled
	BudgetUsed       int // calls charged to the current budget; wrong credentials are not charged
	LeaseExpirations int // claims that were not settled before their lease ended
	Deliveries       int // deliveries that led to a write; the others are counted in metrics only
	Redrives         int // times that an operator redrove it

	Holder     string // the token of the claim in flight
	LeaseUntil Moment
	ClaimedAt  Moment // of the last claim; stays after it is settled
	Due        Moment // when it may be claimed again
	Wake       Moment // when the ledger's worker picks it up: at its due, or later, to take over from a silent broker
	Owner      Owner

	NotBefore       time.Time // zero for at once; fixed when the entry is created
	Deadline        time.Time // zero for none; fixed when the entry is created, and changed only by a redrive
	DoubtSince      time.Time // start of the first lease whose call may have been accepted; zero if not in doubt
	NextLookup      Moment    // while unknown: when its provider is next asked whether it accepted it; zero for never
	LookupsNotFound int       // lookups in a row that the provider answered with "not found"
	CancelRequested bool      // forbids every later attempt

	FirstSeen time.Time
	Updated   time.Time
	Published time.Time // what its age counts from: created_at, else the broker's publish time, else arrival

	Source        string // the push source or the API caller that first delivered it
	CorrelationID string
	ReservationID string
	UserID        string
}

// Absent reports whether the ledger holds no such entry.
func (e Entry) Absent() bool { return e.Version == 0 }

// InDoubt reports whether an attempt may have been accepted.
func (e Entry) InDoubt() bool { return !e.DoubtSince.IsZero() }

// Final reports whether the entry is in a final state.
func (e Entry) Final() bool { return e.State == Sent || e.State == Dead || e.State == Dropped }

// Check returns the first of the package's invariants that the entry violates, or nil.
func (e Entry) Check() error {
	waiting, sending := e.State == Waiting, e.State == Sending
	switch {
	case !slices.Contains(States(), e.State):
		return fmt.Errorf("state %q", e.State)
	case sending != (e.Holder != ""), sending != !e.LeaseUntil.IsZero():
		return fmt.Errorf("%s: holder and lease must be set exactly while sending", e.State)
	case sending && e.ClaimedAt.IsZero():
		return fmt.Errorf("%s: a claim needs its time", e.State)
	case waiting != !e.Due.IsZero():
		return fmt.Errorf("%s: due must be set exactly while waiting", e.State)
	case waiting && (e.Wake.IsZero() || e.Owner == ""):
		return fmt.Errorf("%s: a waiting entry needs a wake time and an owner", e.State)
	case (e.State == Sent) != (e.Receipt != "" || e.ReceiptMissing != ""):
		return fmt.Errorf("%s: a receipt, or the reason why it is missing, must be set exactly when sent", e.State)
	case e.Receipt != "" && e.ReceiptMissing != "":
		return fmt.Errorf("%s: both a receipt and a reason why it is missing", e.State)
	case e.InDoubt() && (e.State == Dead || e.State == Dropped && e.Reason != ReasonAbandoned):
		return fmt.Errorf("%s: must not be in doubt", e.State)
	case e.State == Unknown && !e.InDoubt():
		return fmt.Errorf("%s: must be in doubt", e.State)
	case e.State != Unknown && !e.NextLookup.IsZero():
		return fmt.Errorf("%s: a lookup is scheduled", e.State)
	case e.State == Dead && !slices.Contains(DeadClasses(), e.Class):
		return fmt.Errorf("%s: class %q", e.State, e.Class)
	case e.Reason == "":
		return fmt.Errorf("%s: needs a reason", e.State)
	case e.SendKey != e.Identity.SendKey():
		return fmt.Errorf("%s: send key does not match the identity", e.State)
	}
	return nil
}
