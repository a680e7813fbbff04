// Package dbtest says what every store of the ledger must do: [Store] is what the rooms of the product
// ask for, taken together, and [Run] is the suite that holds a store to it. [Memory] is the third store
// beside PostgreSQL and SQLite: it keeps the same promises in a map, on a clock that a test sets, and
// passes the same suite.
//
// Invariants: the suite needs no control over a store's clock (what must lie in the past is written
// with a negative span), and it asserts nothing about constraint names or error texts.
//
// What it does not do: it knows no dialect; the servers that a test needs are started by pgserver.
package dbtest

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Store is everything that the product asks of a ledger store. Rooms name the few methods that they
// call by interfaces of their own; this one exists to hold each store to all of them.
//
// Create and Swap answer with [ledger.ErrExists] and [ledger.ErrStale] only when nothing was written.
// Any other error means that the write may have happened.
type Store interface {
	Create(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error)
	Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error)

	Story(ctx context.Context, id ledger.Identity) (ledger.Story, error)
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error)
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)

	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	Lanes(ctx context.Context) ([]string, error)
	Lapsed(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
	Asks(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	Unknown(ctx context.Context, after ledger.Doubt, limit int) ([]ledger.Entry, error)
	Census(ctx context.Context) (ledger.Census, error)

	Record(ctx context.Context, a ledger.Act) error
	Epoch(ctx context.Context) (string, error)
	Notice(ctx context.Context, epoch string, again bool) (noticed time.Time, err error)

	Gates(ctx context.Context) ([]ledger.Gate, time.Time, error)
	SwapGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error)
	SteerGate(ctx context.Context, g ledger.Gate, act ledger.Act) (ledger.Gate, error)

	Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.Act, error)
	Groups(ctx context.Context, limit int) ([]ledger.Group, error)
	Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error)
	Delete(ctx context.Context, e ledger.Entry) error

	CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error)
	Redrive(ctx context.Context, id string) (ledger.Redrive, error)
	RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error)
	Redrives(ctx context.Context, after *ledger.RedrivePlace, limit int) ([]ledger.Redrive, error)
	IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error)
	RunningRedrives(ctx context.Context) (int, error)
	SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error)
	RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error)
	SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error

	Ping(ctx context.Context) error
	Migrate(ctx context.Context) error
	Close() error
}
