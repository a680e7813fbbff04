package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// Deliverer takes one delivery of a broker. An error means that nothing is durable: it is to be
// delivered again.
type Deliverer interface {
	Deliver(ctx context.Context, d ledger.Delivery) (ledger.Reply, error)
}

// Requester takes one reminder that a caller asks for. An error means that nothing is durable: the
// request is to be repeated.
type Requester interface {
	Request(ctx context.Context, caller string, r reminder.Reminder, t ledger.Trace) (ledger.Reply, error)
}

// Canceller cancels what stands under a reminder id: one type and channel, or, where both are empty,
// all of them. It gives nothing where nothing stands there.
type Canceller interface {
	Cancel(ctx context.Context, caller, reminderID, typ, channel string) ([]ledger.Cancelled, error)
}

// ReminderReader finds the entries under a reminder id; none where there are none.
type ReminderReader interface {
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
}

// Lister lists entries as the query says, newest first.
type Lister interface {
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)
}

// Teller tells all that is known of one entry, or [ledger.ErrNotFound].
type Teller interface {
	Story(ctx context.Context, id ledger.Identity) (ledger.Story, error)
}

// CaseLister lists what may have been sent and waits for a decision, the longest in doubt first, each with
// its timeline.
type CaseLister interface {
	Waiting(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Story, error)
}

// Starter starts a sweep of reconciliation for the person of the act, or answers [ledger.ErrRunning].
type Starter interface {
	Start(ctx context.Context, act ledger.Act) (ledger.Run, error)
}

// Resolver carries out a person's decision about one entry. With [ledger.ErrStale] and
// [ledger.ErrNotInDoubt] it answers the entry as it stands, where it could be read; else
// [ledger.ErrNotFound], where there is none.
type Resolver interface {
	Resolve(ctx context.Context, id ledger.Identity, by ledger.Resolution) (ledger.Entry, error)
}

// EventReader opens what one provider sends of its own accord. The error is [ErrForged] where it is not
// signed as that provider signs, else [reminder.Faults]: what of it cannot be read.
type EventReader interface {
	Open(h http.Header, raw []byte) (ledger.Report, error)
}

// Hearer records what a provider reports, once however often it comes; recorded tells whether it was news.
// An error means that nothing is durable.
type Hearer interface {
	Hear(ctx context.Context, r ledger.Report) (recorded bool, err error)
}

// GroupLister groups dead letters by what they died of, the largest group first.
type GroupLister interface {
	Groups(ctx context.Context, limit int) ([]ledger.Group, error)
}

// Discarder takes a dead letter off the lists. With [ledger.ErrStale] and [ledger.ErrNotDead] it answers the
// entry as it stands, where it could be read; else [ledger.ErrNotFound], where there is none.
type Discarder interface {
	Discard(ctx context.Context, id ledger.Identity, version int64, act ledger.Act) (ledger.Entry, error)
}

// Redriver lays redrives out. Preview tells what would become of each item, and writes nothing. Start answers
// [ledger.ErrOtherRequest], [ledger.ErrNothingToRedrive] and [ledger.ErrTooManyRedrives]; known tells that the
// redrive stood already, for the same request under its key.
type Redriver interface {
	Preview(ctx context.Context, ask ledger.RedriveRequest) (ledger.RedriveReport, error)
	Start(ctx context.Context, ask ledger.RedriveRequest) (r ledger.Redrive, known bool, err error)
}

// RedriveLister lists redrives, the newest first; nil starts at the newest.
type RedriveLister interface {
	Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error)
}

// RedriveReader reports on one redrive, or answers [ledger.ErrNotFound].
type RedriveReader interface {
	Show(ctx context.Context, id string) (ledger.RedriveReport, error)
}

// RedriveStopper stops a redrive before its next item. With [ledger.ErrRedriveEnded] it answers the redrive as
// it stands; else [ledger.ErrNotFound], where there is none.
type RedriveStopper interface {
	Cancel(ctx context.Context, id string, act ledger.Act) (ledger.Redrive, error)
}

// Auditor lists what people did, the newest first.
type Auditor interface {
	Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.Act, error)
}

// ProviderLister tells how every provider stands, by name.
type ProviderLister interface {
	Providers(ctx context.Context) ([]ledger.ProviderView, error)
}

// Steerer stops all calls to a provider, and lets them go on; [ledger.ErrNotFound] where none has the name.
type Steerer interface {
	Pause(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error)
	Resume(ctx context.Context, provider string, act ledger.Act) (ledger.Gate, error)
}

// Eraser takes what is known of a person out of every entry that names them, and answers of how many. After an
// error some may be left: it is to be repeated.
type Eraser interface {
	Erase(ctx context.Context, userID string, act ledger.Act) (int, error)
}

// Source is one configured push source.
type Source struct {
	Format broker.Format
	Limit  int64 // on the opened message, in bytes; 0 for 256 KiB. The format holds to it; here it bounds the body
}

// Options are what the surface stands on. The collaborators are required; the rest has the zero value
// that its comment names.
type Options struct {
	Sources map[string]Source // by the name in the path
	Callers []Caller

	Deliver  Deliverer
	Request  Requester
	Cancel   Canceller
	Reminder ReminderReader
	List     Lister
	Story    Teller

	Cases   CaseLister
	Start   Starter
	LastRun func() ledger.Run // the last run that was started here; nil knows of none
	Resolve Resolver
	Events  map[string]EventReader // by the provider's name in the path
	Hear    Hearer

	Groups    GroupLister
	Discard   Discarder
	Redrive   Redriver
	Redrives  RedriveLister
	Report    RedriveReader
	Stop      RedriveStopper
	Audit     Auditor
	Providers ProviderLister
	Steer     Steerer
	Erase     Eraser

	// DeskAtOnce is how many requests of support and operators are served at once; 0 for 4.
	DeskAtOnce int
	// MaxItems is how many items a redrive may have; 0 for 1000.
	MaxItems int
	// CursorKey signs the cursors of lists. Replicas must share it; empty draws one for this process.
	CursorKey []byte
	// AllowedHosts are the host names, without ports, that a Host header may name; empty allows all. It
	// keeps web pages from reaching an open listener on loopback by DNS rebinding.
	AllowedHosts []string
	// Wrap goes around everything, for telemetry. After the wrapped handler has returned,
	// chi.RouteContext of the request's context has the route's pattern, which is empty for requests that
	// met no route.
	Wrap func(http.Handler) http.Handler
	Log  *slog.Logger     // nil discards
	Now  func() time.Time // nil is time.Now; it judges failed logins and new deadlines, and words Retry-After and dues, nothing else
}

// New is the whole surface: what [NewPublic] and [NewAdmin] serve, on one listener.
func New(o Options) http.Handler { return newServer(o).whole() }

// NewPublic is the surface of brokers, providers and internal services, where the admin API has a listener
// of its own.
func NewPublic(o Options) http.Handler { return newServer(o).routes((*server).public) }

// NewAdmin is the surface of support and operators alone.
func NewAdmin(o Options) http.Handler { return newServer(o).routes((*server).admin) }

type server struct {
	edge
	Options
	failures *failures
	cursors  cursors
	desk     turnstile
}

func newServer(o Options) *server {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxItems <= 0 {
		o.MaxItems = 1000
	}
	return &server{
		edge:     newEdge(o.Log),
		Options:  o,
		failures: newFailures(),
		cursors:  newCursors(o.CursorKey),
		desk:     newTurnstile(o.DeskAtOnce),
	}
}

func (s *server) whole() chi.Router { return s.routes((*server).public, (*server).admin) }

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
	r.Post("/v1/providers/{name}/events", s.event)
	r.Post("/v1/reminders", s.as(Producer, s.request))
	r.Get("/v1/reminders/{reminder_id}", s.as(anyRole, s.reminder))
	r.Post("/v1/reminders/{reminder_id}/cancel", s.as(Producer, s.cancel))
}

func (s *server) admin(r chi.Router) {
	r.Get("/v1/admin/entries", s.atDesk(Support, s.entries))
	r.Get("/v1/admin/entries/{id}", s.atDesk(Support, s.story))
	r.Post("/v1/admin/entries/{id}/resolve", s.atDesk(Operator, s.resolve))
	r.Get("/v1/admin/reconciliation", s.atDesk(Support, s.reconciliation))
	r.Post("/v1/admin/reconciliation/runs", s.atDesk(Operator, s.startRun))
	r.Get("/v1/admin/dead-letters", s.atDesk(Support, s.deadLetters))
	r.Get("/v1/admin/dead-letters/groups", s.atDesk(Support, s.groups))
	r.Get("/v1/admin/dead-letters/{id}", s.atDesk(Support, s.deadLetter))
	r.Post("/v1/admin/dead-letters/{id}/discard", s.atDesk(Operator, s.discard))
	r.Post("/v1/admin/redrives", s.atDesk(Operator, s.redrive))
	r.Get("/v1/admin/redrives", s.atDesk(Support, s.redrives))
	r.Get("/v1/admin/redrives/{id}", s.atDesk(Support, s.report))
	r.Post("/v1/admin/redrives/{id}/cancel", s.atDesk(Operator, s.stop))
	r.Get("/v1/admin/audit", s.atDesk(Operator, s.audit))
	r.Get("/v1/admin/providers", s.atDesk(Support, s.providers))
	r.Post("/v1/admin/providers/{name}/pause", s.atDesk(Operator, s.pause))
	r.Post("/v1/admin/providers/{name}/resume", s.atDesk(Operator, s.resume))
	r.Delete("/v1/admin/users/{user_id}/data", s.atDesk(Admin, s.erase))
}
