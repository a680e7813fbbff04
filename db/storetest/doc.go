// Package storetest specifies what every ledger store must do. [Store] is the union of the store interfaces that the
// packages of the product define, and [Run] is the test suite that each implementation must pass. [Memory] is the
// third store besides PostgreSQL and SQLite: it keeps everything in maps, on a clock that the test sets, and passes
// the same suite.
//
// Invariants: the suite needs no control over the clock of a store (moments in the past are written with negative
// spans), and it asserts nothing about constraint names or error texts.
//
// What it does not do: it knows no SQL dialect. Package pgserver starts the servers that tests need.
package storetest

import (
	"context"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
)

// Store is everything that the product needs from a ledger store. Packages define interfaces of their own with the
// few methods that they call; this one exists to test each store for all of them.
//
// Insert and Update return [ledger.ErrExists] and [ledger.ErrStale] only if nothing was written. Any other error means
// that the write may have happened.
type Store interface {
	Insert(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error)
	Update(ctx context.Context, c ledger.Change) (ledger.Entry, error)
	Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error)
	RecordConflict(ctx context.Context, c ledger.Conflict) (fresh bool, err error)

	EntryDetail(ctx context.Context, id ledger.Identity) (ledger.EntryDetail, error)
	Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error)
	ByReminder(ctx context.Context, reminderID string) ([]ledger.Entry, error)
	List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error)

	Due(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	WaitingProviders(ctx context.Context) ([]string, error)
	ExpiredLeases(ctx context.Context, within time.Duration, limit int) ([]ledger.Identity, error)
	DueLookups(ctx context.Context, provider string, limit int) ([]ledger.Identity, error)
	Unknown(ctx context.Context, after ledger.DoubtPosition, limit int) ([]ledger.Entry, error)
	Backlog(ctx context.Context) (ledger.Backlog, error)

	RecordAudit(ctx context.Context, a ledger.AuditEvent) error
	Epoch(ctx context.Context) (string, error)
	RecordEpoch(ctx context.Context, epoch string, again bool) (noticed time.Time, err error)

	Gates(ctx context.Context) ([]ledger.Gate, time.Time, error)
	UpdateGate(ctx context.Context, g ledger.Gate) (ledger.Gate, error)
	UpdateGateByOperator(ctx context.Context, g ledger.Gate, audit ledger.AuditEvent) (ledger.Gate, error)

	Audit(ctx context.Context, q ledger.AuditQuery) ([]ledger.AuditEvent, error)
	DeadLetterGroups(ctx context.Context, limit int) ([]ledger.DeadLetterGroup, error)
	RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error)
	Delete(ctx context.Context, e ledger.Entry) error

	InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error)
	Redrive(ctx context.Context, id string) (ledger.Redrive, error)
	RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error)
	Redrives(ctx context.Context, after *ledger.RedrivePosition, limit int) ([]ledger.Redrive, error)
	IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error)
	RunningRedrives(ctx context.Context) (int, error)
	UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error)
	RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error)
	SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error

	Ping(ctx context.Context) error
	Migrate(ctx context.Context) error
	Close() error
}
