package ledger

import (
	"fmt"
	"slices"
	"time"
)

// State is where an entry stands.
type State string

const (
	// Sending : one holder, until its lease ends; an attempt is in flight.
	Sending State = "sending"
	// Waiting : due later; unsent, or in doubt where the contract makes a repeat harmless.
	Waiting State = "waiting"
	// Unknown : may have been sent, and nobody may repeat it without a decision.
	Unknown State = "unknown"
	// Sent : the provider accepted.
	Sent State = "sent"
	// Dead : refused, exhausted or malformed. This is the dead letter; there is no second store.
	Dead State = "dead"
	// Dropped : not wanted any more.
	Dropped State = "dropped"
)

// States lists every state, in the order in which a story tends to pass them.
func States() []State { return []State{Sending, Waiting, Unknown, Sent, Dead, Dropped} }

// Pending tells whether the entry still has a way to go.
func (s State) Pending() bool { return s == Sending || s == Waiting || s == Unknown }

// Class groups what went wrong, for people and for metrics: a closed set.
type Class string

// Classes of dead letters.
const (
	ClassPermanent  Class = "permanent"  // this message or content is refused
	ClassRecipient  Class = "recipient"  // this address or token is no more
	ClassExhausted  Class = "exhausted"  // the attempt budget is spent
	ClassUnroutable Class = "unroutable" // the channel has no provider
	ClassMalformed  Class = "malformed"  // nobody could read it
	ClassBroker     Class = "broker"     // the broker itself gave up on it
)

// Classes of the last failure of an entry that is not dead.
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

// Reason says why an entry stands where it stands: a closed set of words.
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
	ReasonCredentials         Reason = "credentials"
	ReasonRepeatable          Reason = "repeatable"    // in doubt, and the contract makes a repeat harmless
	ReasonRiskTaken           Reason = "risk_taken"    // the type's policy chose to resend
	ReasonNotCalled           Reason = "not_called"    // the call's deadline had passed before dialling
	ReasonProviderGone        Reason = "provider_gone" // in doubt at a provider that is not configured now
	ReasonTakenOver           Reason = "taken_over"    // the ledger retries what its broker dropped
	ReasonRequested           Reason = "requested"     // a caller asked for it; the ledger retries
	ReasonFailedOver          Reason = "failed_over"   // proven unsent at one provider, tried at another
	ReasonResolved            Reason = "resolved"      // a person said what became of it
	ReasonRedriven            Reason = "redriven"      // an operator put the dead letter to work again
)

// Reasons for unknown.
const (
	ReasonUnanswered     Reason = "unanswered"      // the call ended without a readable answer
	ReasonLapsed         Reason = "lapsed"          // the holder went silent past its lease
	ReasonTooManyLapses  Reason = "too_many_lapses" // several holders went silent
	ReasonWindowEnded    Reason = "window_ended"    // the contract's promise for repeats has run out
	ReasonProviderChange Reason = "provider_change" // account, endpoint or contract is not what it was
	ReasonNotFound       Reason = "not_found"       // its provider was asked to the end, and does not know it
	ReasonLedgerChanged  Reason = "ledger_changed"  // the database changed under us, and may have forgotten a send
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
	ReasonBeforeMemory Reason = "before_memory"  // older than the ledger remembers: it may have been sent
	ReasonBeforeCutOff Reason = "before_cut_off" // published before the configured cut-over
	ReasonCancelled    Reason = "cancelled"
	ReasonObsolete     Reason = "obsolete"
	ReasonAbandoned    Reason = "abandoned"
	ReasonDiscarded    Reason = "discarded"
	ReasonErased       Reason = "erased"   // its person asked for it: nobody knows any more what to send
	ReasonReread       Reason = "reread"   // what could not be read was read at last, and is another entry now
	ReasonGivenUp      Reason = "given_up" // the broker gave up on it
)

// Reasons that stand in the timeline only.
const (
	ReasonLateFailure        Reason = "late_failure"
	ReasonPossibleSecondSend Reason = "possible_second_send"
	ReasonReplayed           Reason = "replayed"   // the provider answered a repeat with the first receipt
	ReasonUnansweredYet      Reason = "no_answer"  // its provider was asked, and did not say
	ReasonDelivered          Reason = "delivered"  // a provider's later word on a message that it had accepted:
	ReasonBounced            Reason = "bounced"    // the address did not take it
	ReasonFailedLater        Reason = "failed"     // it gave up
	ReasonComplained         Reason = "complained" // the person called it spam
	ReasonPurged             Reason = "purged"     // its payload was kept as long as the configuration says
)

// Owner is who brings a waiting entry back.
type Owner string

const (
	// OwnerBroker : the broker, by redelivery.
	OwnerBroker Owner = "broker"
	// OwnerLedger : our worker.
	OwnerLedger Owner = "ledger"
)

// Missing says why a sent entry has no receipt.
type Missing string

const (
	// MissingAssumed : the policy assumes the send; nothing proves it.
	MissingAssumed Missing = "assumed"
	// MissingUnread : the provider accepted, but its receipt could not be read.
	MissingUnread Missing = "unread"
	// MissingResolved : a person said so.
	MissingResolved Missing = "resolved"
)

// Entry is the ledger's one row for an identity.
//
// A loaded entry holds fixed moments; a transition leaves spans in those that the next write has to fix.
type Entry struct {
	Identity

	SendKey     string // see [Identity.SendKey]
	ContentHash string // of recipient and content; empty for a tombstone, which conflicts with nothing
	State       State
	Version     int64 // rises by one with every write; 0 means that there is no such entry
	Class       Class // the dead letter's class, or the class of the last failure
	Reason      Reason
	Code        string // the provider's own machine code of the last failure; empty where it gave none

	Provider    string // where it goes; bound from the first claim on
	Fingerprint string // of the provider's account, endpoint and contract; empty before the first claim
	Receipt     string
	Missing     Missing // why there is no receipt

	Attempts   int // calls made and settled
	Spent      int // calls charged to the present budget; wrong credentials cost nothing
	Lapses     int // holders that went silent past their lease
	Deliveries int // arrivals that led to a write; the rest is counted in metrics alone
	Redrives   int // times that an operator put it to work again

	Holder     string // the token of the claim in flight
	LeaseUntil Moment
	ClaimedAt  Moment // of the last claim; stays after it is settled
	Due        Moment // when it may be claimed again
	Wake       Moment // when the ledger itself looks at it: its due, or the takeover from a silent broker
	Owner      Owner

	NotBefore   time.Time // zero for at once; fixed when the entry is born
	Deadline    time.Time // zero for none; fixed when the entry is born, and moved only by a person who redrives it
	DoubtSince  time.Time // start of the first lease whose call may have been accepted; zero for no doubt
	AskAt       Moment    // while unknown: when its provider is asked next whether it took it; zero for never
	Asked       int       // questions in a row that the provider answered with "not found"
	CancelAsked bool      // forbids every later attempt

	FirstSeen time.Time
	Updated   time.Time
	Published time.Time // what its age counts from: created_at, else the broker's publish time, else arrival

	Source        string // the push source or the caller that brought it first
	CorrelationID string
	ReservationID string
	UserID        string
}

// Absent tells whether the ledger holds no such entry.
func (e Entry) Absent() bool { return e.Version == 0 }

// InDoubt tells whether some attempt may have been accepted.
func (e Entry) InDoubt() bool { return !e.DoubtSince.IsZero() }

// Final tells whether the entry has come to rest.
func (e Entry) Final() bool { return e.State == Sent || e.State == Dead || e.State == Dropped }

// Check says what is wrong with the entry by the package's invariants; nil when nothing is.
func (e Entry) Check() error {
	waiting, sending := e.State == Waiting, e.State == Sending
	switch {
	case !slices.Contains(States(), e.State):
		return fmt.Errorf("state %q", e.State)
	case sending != (e.Holder != ""), sending != !e.LeaseUntil.IsZero():
		return fmt.Errorf("%s: holder and lease stand exactly while sending", e.State)
	case sending && e.ClaimedAt.IsZero():
		return fmt.Errorf("%s: a claim without its time", e.State)
	case waiting != !e.Due.IsZero():
		return fmt.Errorf("%s: due stands exactly while waiting", e.State)
	case waiting && (e.Wake.IsZero() || e.Owner == ""):
		return fmt.Errorf("%s: nobody would bring it back", e.State)
	case (e.State == Sent) != (e.Receipt != "" || e.Missing != ""):
		return fmt.Errorf("%s: a receipt, or why there is none, stands exactly when sent", e.State)
	case e.Receipt != "" && e.Missing != "":
		return fmt.Errorf("%s: a receipt and a reason for its absence", e.State)
	case e.InDoubt() && (e.State == Dead || e.State == Dropped && e.Reason != ReasonAbandoned):
		return fmt.Errorf("%s: in doubt", e.State)
	case e.State == Unknown && !e.InDoubt():
		return fmt.Errorf("%s: without doubt", e.State)
	case e.State != Unknown && !e.AskAt.IsZero():
		return fmt.Errorf("%s: a question to its provider is planned", e.State)
	case e.State == Dead && !slices.Contains(DeadClasses(), e.Class):
		return fmt.Errorf("%s: class %q", e.State, e.Class)
	case e.Reason == "":
		return fmt.Errorf("%s: without a reason", e.State)
	case e.SendKey != e.Identity.SendKey():
		return fmt.Errorf("%s: send key is not the identity's", e.State)
	}
	return nil
}
