// Package reconcile processes what nothing else does: claims whose lease has expired, entries that wait at a provider
// no worker serves, entries that may have been sent and that only the provider or an operator can resolve, and a
// database that was replaced by a failover.
//
// Invariants:
//
//   - it sends nothing: it puts entries where package deliver processes them, or leaves them to an operator;
//   - each write repeats the version that was loaded, so that any number of replicas may sweep one ledger;
//   - a sweep is bounded, and an entry that keeps failing does not delay the others;
//   - an operator's decision is committed together with its audit event, or not at all.
//
// The package decides nothing itself: package ledger decides what a lookup result, a status event or an operator's
// verdict means.
package reconcile

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Ledger stores entries. Besides the errors of package ledger, any error of Insert or Update means that the write
// may have happened.
type Ledger interface {
	// Load returns the entry, absent if there is none, together with the ledger's now.
	Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error)
	// Insert stores a new entry; [ledger.ErrExists] if the identity exists.
	Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	// Update writes over the version that was loaded; [ledger.ErrStale] if the entry has another version.
	Update(ctx context.Context, c ledger.Change) (ledger.Entry, error)
}

// RecordStore stores what belongs to entries, and the audit of what operators did.
type RecordStore interface {
	// Timeline returns the entry's timeline, the oldest event first.
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error)
	// EntryDetail returns all that is stored about an entry, in one snapshot; [ledger.ErrNotFound] if there is none.
	EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error)
	// RecordAudit stores an audit event that changes no entry.
	RecordAudit(ctx context.Context, a ledger.AuditEvent) error
}

// WorkLister lists the entries that a sweep has to process.
type WorkLister interface {
	// ExpiredLeases lists at most limit entries that were claimed within the last span of time and whose lease has
	// expired, the longest expired first.
	ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
	// WaitingProviders lists the providers at which any entry waits, whether or not they are configured.
	WaitingProviders(ctx context.Context) ([]string, error)
	// Due lists at most limit entries of one provider that the ledger has to process now, the longest due first.
	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	// DueLookups lists at most limit entries of one provider whose next lookup is due, the longest due first.
	DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	// Unknown lists at most limit unknown entries after a position, the longest in doubt first.
	Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error)
}

// Processor processes one waiting entry.
type Processor interface {
	Process(ctx context.Context, id ledger.Identity) (ledger.Reply, error)
}

// Providers are the providers as they are configured now.
type Providers interface {
	// Names returns the configured providers.
	Names() []string
	// Closed reports whether the provider's gate is closed.
	Closed(provider string) bool
	// Lookup asks the provider whether it accepted what was sent under a send key.
	Lookup(ctx context.Context, provider, sendKey string) (ledger.LookupResult, ledger.Outcome)
	// Route returns the provider's route; the zero Route if the provider is not configured.
	Route(provider string) ledger.Route
}

// Options configures a [Reconciler].
type Options struct {
	Ledger    Ledger
	Records   RecordStore
	Work      WorkLister
	Processor Processor
	Providers Providers
	Rules     func(e ledger.Entry) ledger.Rules // what the configuration says about one entry
	Failovers *FailoverDetector

	Interval time.Duration // between two sweeps
	Clock    func() time.Time
	Random   func() float64    // in [0, 1), for the pauses; nil for math/rand
	Token    func() string     // never the same twice, over all replicas
	OnLate   func(kind string) // called with the reason of proof that came late; may be nil
	OnSweep  func()            // called when expired leases were listed successfully; may be nil
	OnError  func(error)       // called when a sweep could not do everything; may be nil
}

// Reconciler runs the sweeps and lookups, and carries out operators' decisions and providers' status events.
type Reconciler struct {
	Options
	sweep      sweep
	unrecorded map[string]*skipList // by provider: entries whose lookup result could not be recorded
	runs       runs
}

// New returns a Reconciler. Every option must be set unless its comment says otherwise.
func New(o Options) *Reconciler {
	if o.OnLate == nil {
		o.OnLate = func(string) {}
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.OnSweep == nil {
		o.OnSweep = func() {}
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	rc := &Reconciler{Options: o, unrecorded: map[string]*skipList{}, runs: runs{requested: make(chan struct{}, 1)}}
	for _, name := range o.Providers.Names() {
		rc.unrecorded[name] = &skipList{}
	}
	return rc
}

// Limits of a Reconciler.
const (
	ledgerTimeout = 5 * time.Second // for one statement
	maxIterations = 8               // loads of one entry that others keep changing; also errors kept of one pass
)

func (rc *Reconciler) load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	return rc.Ledger.Load(ctx, id)
}

// write inserts or updates, depending on the version of the change's entry.
func (rc *Reconciler) write(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	if c.Entry.Absent() {
		return rc.Ledger.Insert(ctx, c)
	}
	return rc.Ledger.Update(ctx, c)
}

// report passes an error to OnError, unless there is none or ctx has ended.
func (rc *Reconciler) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		rc.OnError(err)
	}
}
