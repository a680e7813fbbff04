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
	Now  func() time.Time // nil is time.Now; it judges failed logins and words Retry-After and dues, nothing else
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
}

func newServer(o Options) *server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &server{
		edge:     newEdge(o.Log),
		Options:  o,
		failures: newFailures(),
		cursors:  newCursors(o.CursorKey),
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
	r.Get("/v1/admin/entries", s.as(Support, s.entries))
	r.Get("/v1/admin/entries/{id}", s.as(Support, s.story))
	r.Post("/v1/admin/entries/{id}/resolve", s.as(Operator, s.resolve))
	r.Get("/v1/admin/reconciliation", s.as(Support, s.reconciliation))
	r.Post("/v1/admin/reconciliation/runs", s.as(Operator, s.startRun))
}
