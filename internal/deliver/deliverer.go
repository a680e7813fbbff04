// Package deliver processes one delivery from arrival to reply: parse, admit, claim, send, settle, reply.
//
// Invariants:
//
//   - nothing is sent before the claim is committed, and nothing is acked before the decision is committed;
//   - the call's deadline is computed from a time taken before the claim's entry was loaded, and is checked
//     again right before the provider is dialled;
//   - settling outlives the request: the outcome is recorded even if the broker hangs up;
//   - after a failed write nothing is assumed: the entry is loaded again, and the holder's token shows
//     whether the write happened.
//
// The package decides nothing itself: package ledger decides the next step, and package policy decides what is
// allowed. It does not know brokers, providers, databases or HTTP; the interfaces below name what it needs of
// them.
package deliver

import (
	"context"
	"sync"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
)

// Ledger stores entries. Besides the errors of package ledger, any error of Insert or Update means that the write
// may have happened.
type Ledger interface {
	// Insert stores a new entry; [ledger.ErrExists] if the identity exists.
	Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	// Load returns the entry, absent if there is none, together with the ledger's now and the database's epoch.
	Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error)
	// Update writes over the version that was loaded; [ledger.ErrStale] if the entry has another version.
	Update(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// DetailStore stores what belongs to an entry and is not needed to decide about it.
type DetailStore interface {
	// Payload returns the content that was stored with the entry; [ledger.ErrNotFound] once it is purged.
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	// Timeline returns the entry's timeline, the oldest event first.
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error)
	// RecordConflict stores that other content came under an identity, once per content hash; fresh reports
	// whether this hash was new.
	RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error)
}

// ReminderIndex finds the entries of one reminder.
type ReminderIndex interface {
	// ByReminder returns every entry of the reminder, one for each type and channel.
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
}

// Slots enforces the providers' rate limits, concurrency limits and gates.
type Slots interface {
	// Acquire waits for a slot at the provider until ctx ends. If the slot is held, it comes with the function that
	// releases it; otherwise that function is nil and the slot says why, and how long to wait.
	//
	// The release function is called exactly once: after the call, with its outcome and with how long the policy
	// waits after it, or with [ledger.ResultNotCalled] if no call was made. It returns how long the gate stays
	// closed from then on; 0 if the gate is open.
	Acquire(ctx context.Context, provider string) (ledger.Slot, func(o ledger.Outcome, wait time.Duration) time.Duration)
}

// Sender calls providers.
type Sender interface {
	// Send makes at most one request on the wire. It returns an outcome in every case, never a bare error.
	Send(ctx context.Context, provider string, s ledger.Shipment) ledger.Outcome
}

// Routes returns the providers as they are configured now.
type Routes interface {
	// Route returns the provider's route; the zero Route if the provider is not configured.
	Route(provider string) ledger.Route
	// Timeout returns how long one call to the provider may take.
	Timeout(provider string) time.Duration
}

// Relevance checks whether a reminder is still wanted.
type Relevance interface {
	// Check never returns [ledger.RelevanceUnchecked].
	Check(ctx context.Context, e ledger.Entry) ledger.Relevance
}

// FailoverDetector detects that the database was replaced by one that may have lost commits.
type FailoverDetector interface {
	// Failover returns the last failover, for a snapshot that was loaded in this epoch; the zero value if there was
	// none. After an error nothing may be decided on the snapshot.
	Failover(ctx context.Context, epoch string) (ledger.Failover, error)
}

// Source is the configuration of one source of deliveries.
type Source struct {
	RetriesBy     ledger.Owner  // who retries its deliveries
	TakeoverAfter time.Duration // how long after a retry is due the ledger takes it over from a broker
	AnswerWithin  time.Duration // the broker's timeout, less a margin
	DeadLetters   bool          // it delivers what its broker dead-lettered
}

// Options configures a [Deliverer].
type Options struct {
	Ledger    Ledger
	Details   DetailStore
	Reminders ReminderIndex
	Slots     Slots
	Sender    Sender
	Routes    Routes
	Relevance Relevance
	Failovers FailoverDetector // nil for a database that is never replaced

	Lease          time.Duration
	Margin         time.Duration
	Memory         policy.Memory
	Types          map[string]policy.Type // must contain "default"
	Channels       map[string]string      // channel to provider
	LookupSchedule []time.Duration        // the wait before each lookup at a provider that has them
	Sources        map[string]Source
	Callers        Source // applies to every caller of the API

	Clock  func() time.Time // monotonic; decides nothing that the ledger's clock decides
	Random func() float64   // in [0, 1)
	Token  func() string    // never the same twice, over all replicas

	OnLate    func(kind string)                                    // called with the reason of what a late holder recorded; may be nil
	OnSettled func(ctx context.Context, r ledger.Reply, err error) // called with the result of a task that was replied to while in flight; may be nil
}

// Limits of a Deliverer.
const (
	maxLeaseExpirations = 5                // of one entry; then an operator decides
	maxIterations       = 24               // steps of one task
	maxFailures         = 3                // failed writes of one task
	slotTimeout         = 2 * time.Second  // to acquire a slot under the provider's rate and concurrency limits
	ledgerTimeout       = 5 * time.Second  // for one statement
	lastReadTimeout     = time.Second      // for one load after the caller's time to wait is over
	settleTimeout       = 90 * time.Second // to record an outcome in a ledger that is unreachable
	defaultType         = "default"
)

// Deliverer processes the deliveries of brokers, the requests of API callers and the worker's due entries.
type Deliverer struct {
	Options
	inFlight sync.WaitGroup
}

// New returns a Deliverer. Every option must be set unless its comment says otherwise.
func New(o Options) *Deliverer {
	if o.OnLate == nil {
		o.OnLate = func(string) {}
	}
	if o.Failovers == nil {
		o.Failovers = noFailover{}
	}
	if o.OnSettled == nil {
		o.OnSettled = func(context.Context, ledger.Reply, error) {}
	}
	return &Deliverer{Options: o}
}

// noFailover is the FailoverDetector of a database that is never replaced.
type noFailover struct{}

func (noFailover) Failover(context.Context, string) (ledger.Failover, error) {
	return ledger.Failover{}, nil
}

// Wait returns when no task is in flight any more, or with ctx's error when ctx ends first.
func (d *Deliverer) Wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		d.inFlight.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Deliverer) typeOf(e ledger.Entry) policy.Type {
	if typ, ok := d.Types[e.Type]; ok {
		return typ
	}
	return d.Types[defaultType]
}

// Rules returns what the configuration says about an entry that no task is processing.
func (d *Deliverer) Rules(e ledger.Entry) ledger.Rules { return d.rulesFor(e, ledger.Trigger{}) }

// rulesFor returns what the configuration says about an entry and the trigger that processes it.
func (d *Deliverer) rulesFor(e ledger.Entry, trigger ledger.Trigger) ledger.Rules {
	typ := d.typeOf(e)
	src, known := d.Sources[e.Source]
	if trigger.Origin == ledger.OriginAPI || !known {
		src = d.Callers
	}
	return ledger.Rules{
		Lease: d.Lease, Margin: d.Margin,
		ChannelRoute:        d.Routes.Route(d.Channels[e.Channel]),
		BoundRoute:          d.Routes.Route(e.Provider),
		OnUnknown:           typ.OnUnknown,
		MaxAttempts:         typ.MaxAttempts,
		MaxLeaseExpirations: maxLeaseExpirations,
		LookupSchedule:      d.LookupSchedule,
		RetriesBy:           src.RetriesBy,
		TakeoverAfter:       src.TakeoverAfter,
		CheckRelevance:      typ.CheckRelevance,
	}
}
