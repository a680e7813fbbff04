package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Deliverer processes one delivery from a broker. An error means that nothing was recorded durably, and that the
// broker has to deliver again.
type Deliverer interface {
	Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error)
}

// Requester processes one reminder that a caller requests. An error means that nothing was recorded durably, and
// that the caller has to repeat the request.
type Requester interface {
	Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error)
}

// Canceller cancels the entries of a reminder id: those of one type and channel or, where both are empty, all of
// them. It returns no results where the id has no entry.
type Canceller interface {
	Cancel(ctx context.Context, caller, reminderID, typ, channel string) ([]ledger.Cancelled, error)
}

// ReminderReader returns the entries of a reminder id; none where it has none.
type ReminderReader interface {
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
}

// Lister returns the entries that match a query, newest first.
type Lister interface {
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
}

// EntryReader returns everything that is known about one entry, or [ledger.ErrNotFound].
type EntryReader interface {
	EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error)
}

// UnresolvedLister returns the entries that may have been sent and wait for a decision, the longest in doubt first,
// each with its timeline.
type UnresolvedLister interface {
	Unresolved(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.EntryDetail, error)
}

// SweepStarter starts a reconciliation sweep for the actor of the audit event, or returns [ledger.ErrSweepRunning].
type SweepStarter interface {
	StartSweep(ctx context.Context, audit ledger.AuditEvent) (ledger.SweepRun, error)
}

// Resolver applies an operator's resolution to one entry. With [ledger.ErrStale] and [ledger.ErrNotInDoubt] it also
// returns the entry as it is stored, where it could be read. It returns [ledger.ErrNotFound] where there is none.
type Resolver interface {
	Resolve(ctx context.Context, id ledger.Identity, resolution ledger.Resolution) (ledger.Entry, error)
}

// StatusEventReader authenticates and parses the status events of one provider. The error is [ErrNotAuthentic]
// where the provider's signature is missing or wrong, else [reminder.Faults] with what could not be parsed.
type StatusEventReader interface {
	Open(h http.Header, raw []byte) (ledger.StatusEvent, error)
}

// StatusRecorder records a provider's status event once, however often it arrives; recorded is false for a repeat.
// An error means that nothing was recorded durably.
type StatusRecorder interface {
	RecordStatus(ctx context.Context, event ledger.StatusEvent) (recorded bool, err error)
}

// GroupLister groups dead letters by their cause, the largest group first.
type GroupLister interface {
	DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error)
}

// Discarder drops a dead letter for good. With [ledger.ErrStale] and [ledger.ErrNotDead] it also returns the entry
// as it is stored, where it could be read. It returns [ledger.ErrNotFound] where there is none.
type Discarder interface {
	Discard(ctx context.Context, id ledger.Identity, version int64, audit ledger.AuditEvent) (ledger.Entry, error)
}

// Redriver creates redrives. Preview reports the result that each item would have now, and writes nothing. Start
// returns [ledger.ErrKeyReused], [ledger.ErrNothingToRedrive] or [ledger.ErrTooManyRedrives]; known is true where
// the same request with the same idempotency key has already created the redrive.
type Redriver interface {
	Preview(ctx context.Context, request ledger.RedriveRequest) (ledger.RedriveReport, error)
	Start(ctx context.Context, request ledger.RedriveRequest) (r ledger.Redrive, known bool, err error)
}

// RedriveLister returns redrives, newest first; after nil it starts at the newest.
type RedriveLister interface {
	Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error)
}

// RedriveReader returns the report of one redrive, or [ledger.ErrNotFound].
type RedriveReader interface {
	Show(ctx context.Context, id string) (ledger.RedriveReport, error)
}

// RedriveCanceller stops a redrive before its next item. With [ledger.ErrRedriveEnded] it also returns the redrive
// as it is stored. It returns [ledger.ErrNotFound] where there is none.
type RedriveCanceller interface {
	Cancel(ctx context.Context, id string, audit ledger.AuditEvent) (ledger.Redrive, error)
}

// Auditor returns the audit events that match a query, newest first.
type Auditor interface {
	Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error)
}

// ProviderLister returns the status of every provider, ordered by name.
type ProviderLister interface {
	Providers(ctx context.Context) ([]ledger.ProviderStatus, error)
}

// ProviderPauser stops all calls to a provider, and allows them again; [ledger.ErrNotFound] where no provider has the
// name.
type ProviderPauser interface {
	Pause(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error)
	Resume(ctx context.Context, provider string, audit ledger.AuditEvent) (ledger.Gate, error)
}

// Eraser erases the personal data of a user from every entry that names them, and returns the number of those
// entries. After an error some entries may be left, and the call has to be repeated.
type Eraser interface {
	Erase(ctx context.Context, userID string, audit ledger.AuditEvent) (int, error)
}

// Source is one configured push source.
type Source struct {
	Format ingest.Format
	Limit  int64 // on the unwrapped message, in bytes; 0 for 256 KiB. The format enforces it; here it bounds the body
}

// Options configure the API. The interfaces are required; for every other field the comment says what its zero
// value means.
type Options struct {
	Sources map[string]Source // by the name in the path
	Callers []Caller

	Deliver     Deliverer
	Request     Requester
	Cancel      Canceller
	Reminder    ReminderReader
	List        Lister
	EntryDetail EntryReader

	Unresolved   UnresolvedLister
	StartSweep   SweepStarter
	LastRun      func() ledger.SweepRun // the last run that was started on this replica; nil for none
	Resolve      Resolver
	Events       map[string]StatusEventReader // by the provider's name in the path
	StatusEvents StatusRecorder

	Groups        GroupLister
	Discard       Discarder
	Redrive       Redriver
	Redrives      RedriveLister
	RedriveReport RedriveReader
	CancelRedrive RedriveCanceller
	Audit         Auditor
	Providers     ProviderLister
	Pauser        ProviderPauser
	Erase         Eraser

	// AdminConcurrency is the number of admin requests that are served at once; 0 for 4.
	AdminConcurrency int
	// MaxItems is the largest number of items in a redrive; 0 for 1000.
	MaxItems int
	// CursorKey signs the cursors of lists. Replicas must share it; if it is empty, this process generates one.
	CursorKey []byte
	// AllowedHosts are the host names, without ports, that a Host header may name; empty allows all. It keeps web
	// pages from reaching an unprotected loopback listener by DNS rebinding.
	AllowedHosts []string
	// Wrap is the outermost middleware, for telemetry. After the wrapped handler has returned, chi.RouteContext of
	// the request's context has the pattern of the route, which is empty for requests that matched none.
	Wrap func(http.Handler) http.Handler
	Log  *slog.Logger     // nil discards
	Now  func() time.Time // nil is time.Now; used for failed logins, new deadlines, Retry-After and displayed due times only
}

// New returns the whole API: what [NewPublic] and [NewAdmin] serve, for one listener.
func New(o Options) http.Handler { return newServer(o).all() }

// NewPublic returns the API for brokers, providers and internal services, for deployments where the admin API has a
// listener of its own.
func NewPublic(o Options) http.Handler { return newServer(o).routes((*server).public) }

// NewAdmin returns the admin API only, for support and operators.
func NewAdmin(o Options) http.Handler { return newServer(o).routes((*server).admin) }

type server struct {
	errorWriter
	Options
	failures  *authLimit
	cursors   cursors
	admission limiter
}

func newServer(o Options) *server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxItems <= 0 {
		o.MaxItems = 1000
	}
	return &server{
		errorWriter: newErrorWriter(o.Log),
		Options:     o,
		failures:    newAuthLimit(),
		cursors:     newCursors(o.CursorKey),
		admission:   newLimiter(o.AdminConcurrency),
	}
}

func (s *server) all() chi.Router { return s.routes((*server).public, (*server).admin) }

func (s *server) routes(parts ...func(*server, chi.Router)) chi.Router {
	r := chi.NewRouter()
	if s.Wrap != nil {
		r.Use(s.Wrap)
	}
	s.guard(r, s.AllowedHosts)
	for _, part := range parts {
		part(s, r)
	}
	return r
}

func (s *server) public(r chi.Router) {
	r.Post("/v1/push/{source}", s.push)
	r.Post("/v1/providers/{name}/events", s.statusEvent)
	r.Post("/v1/reminders", s.requireRole(Producer, s.request))
	r.Get("/v1/reminders/{reminder_id}", s.requireRole(anyRole, s.reminder))
	r.Post("/v1/reminders/{reminder_id}/cancel", s.requireRole(Producer, s.cancel))
}

func (s *server) admin(r chi.Router) {
	r.Get("/v1/admin/entries", s.adminRoute(Support, s.entries))
	r.Get("/v1/admin/entries/{id}", s.adminRoute(Support, s.entryDetail))
	r.Post("/v1/admin/entries/{id}/resolve", s.adminRoute(Operator, s.resolve))
	r.Get("/v1/admin/reconciliation", s.adminRoute(Support, s.reconciliation))
	r.Post("/v1/admin/reconciliation/runs", s.adminRoute(Operator, s.startRun))
	r.Get("/v1/admin/dead-letters", s.adminRoute(Support, s.deadLetters))
	r.Get("/v1/admin/dead-letters/groups", s.adminRoute(Support, s.groups))
	r.Get("/v1/admin/dead-letters/{id}", s.adminRoute(Support, s.deadLetter))
	r.Post("/v1/admin/dead-letters/{id}/discard", s.adminRoute(Operator, s.discard))
	r.Post("/v1/admin/redrives", s.adminRoute(Operator, s.redrive))
	r.Get("/v1/admin/redrives", s.adminRoute(Support, s.redrives))
	r.Get("/v1/admin/redrives/{id}", s.adminRoute(Support, s.report))
	r.Post("/v1/admin/redrives/{id}/cancel", s.adminRoute(Operator, s.cancelRedrive))
	r.Get("/v1/admin/audit", s.adminRoute(Operator, s.audit))
	r.Get("/v1/admin/providers", s.adminRoute(Support, s.providers))
	r.Post("/v1/admin/providers/{name}/pause", s.adminRoute(Operator, s.pause))
	r.Post("/v1/admin/providers/{name}/resume", s.adminRoute(Operator, s.resume))
	r.Delete("/v1/admin/users/{user_id}/data", s.adminRoute(Admin, s.erase))
}
