package simulation_test

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
)

// maxRedrives is how often one entry may be redriven.
const maxRedrives = 3

// component is a replica's store as one of its components uses it, so that faults there are counted apart.
type component struct {
	*replica
	name string
}

const (
	redriveComponent   = "redrive: "
	retentionComponent = "retention: "
)

// newRedriver returns the replica's redriver.
func (r *replica) newRedriver(failovers *reconcile.FailoverDetector) *redrive.Redriver {
	at := component{r, redriveComponent}
	return redrive.New(redrive.Options{
		Ledger: at, DeadLetters: at, Redrives: at, Reparser: at, Failovers: failovers, Rules: r.deliverer.Rules,
		Admit: func(e ledger.Entry, now time.Time) ledger.Admission {
			return policy.Admit(e, time.Time{}, r.deliverer.Memory, now)
		},
		MaxRedrives: maxRedrives, MaxRunning: 4, Lease: lease, Poll: 3 * time.Second,
		Clock: r.deliverer.Clock, Random: r.rnd.float, Token: r.deliverer.Token,
	})
}

// newPurger returns the replica's purger.
func (r *replica) newPurger() *retention.Purger {
	at := component{r, retentionComponent}
	keep := r.sim.retention
	keep.Entry = r.memory
	return retention.New(retention.Options{
		Ledger: at, Store: at, Keep: keep, Every: 30 * time.Second, PagePause: time.Second,
		Now: r.deliverer.Clock, Token: r.deliverer.Token, Random: r.rnd.float,
	})
}

// recordComponentFault counts a fault that was injected into the redriver or the purger.
func (sim *simulation) recordComponentFault(kind fault, statement string) {
	switch inRedrive, inRetention := strings.HasPrefix(statement, redriveComponent), strings.HasPrefix(statement, retentionComponent); {
	case kind == replicaCrashed && inRedrive:
		sim.record(crashedInRedrive, statement)
	case kind == replicaCrashed && inRetention:
		sim.record(crashedInRetention, statement)
	case kind == replyLost && inRedrive:
		sim.record(replyLostInRedrive, statement)
	case kind == replyLost && inRetention:
		sim.record(replyLostInRetention, statement)
	}
}

// drawRetention draws the retention of a run, and the number of operators who handle dead letters.
func (sim *simulation) drawRetention() {
	rnd := sim.rand(retentionActor)
	draw := func(minutes ...float64) time.Duration {
		return time.Duration(minutes[rnd.intN(len(minutes))] * float64(time.Minute))
	}
	sim.retention = ledger.Retention{
		Sent: draw(0, 0.5, 2), Dead: draw(0, 0, 1, 4), Dropped: draw(0, 0.5, 2), Entry: draw(4, 5, longestMemory.Minutes(), longestMemory.Minutes()),
	}
	sim.operators = []int{0, 1, 2, 2}[rnd.intN(4)]
}

func (comp component) Update(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return statement(ctx, comp.replica, comp.name+"update "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		stored, err := comp.sim.checkedWrite(ctx, c, func(ctx context.Context, s storetest.Store) (ledger.Entry, error) { return s.Update(ctx, c) })
		if err == nil && c.Event != nil && c.Event.Origin == ledger.OriginRedrive {
			comp.sim.checkAfterCancel(c.Event.MessageID, comp.replica)
		}
		return stored, err
	})
}

func (comp component) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	return statement(ctx, comp.replica, comp.name+"load "+id.ReminderID, func() (ledger.Snapshot, error) { return comp.sim.store().Load(ctx, id) })
}

func (comp component) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	return statement(ctx, comp.replica, comp.name+"payload "+id.ReminderID, func() (ledger.Payload, error) { return comp.sim.store().Payload(ctx, id) })
}

func (comp component) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.TimelineEvent, error) {
	return statement(ctx, comp.replica, comp.name+"timeline "+id.ReminderID, func() ([]ledger.TimelineEvent, error) { return comp.sim.store().Timeline(ctx, id) })
}

func (comp component) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	return statement(ctx, comp.replica, comp.name+"list", func() ([]ledger.Entry, error) { return comp.sim.store().List(ctx, q) })
}

func (comp component) RecordAudit(ctx context.Context, a ledger.AuditEvent) error {
	_, err := statement(ctx, comp.replica, comp.name+"recordaudit "+a.Action, func() (struct{}, error) {
		return commit(ctx, comp.sim, a.Identity, func(ctx context.Context, s storetest.Store) (struct{}, error) {
			return struct{}{}, s.RecordAudit(ctx, a)
		})
	})
	return err
}

func (comp component) RetentionCandidates(ctx context.Context, after ledger.EntryPosition, limit int) ([]ledger.RetentionCandidate, error) {
	return statement(ctx, comp.replica, comp.name+"retentioncandidates", func() ([]ledger.RetentionCandidate, error) {
		return comp.sim.store().RetentionCandidates(ctx, after, limit)
	})
}

func (comp component) Delete(ctx context.Context, e ledger.Entry) error {
	_, err := statement(ctx, comp.replica, comp.name+"delete "+e.ReminderID, func() (struct{}, error) { return struct{}{}, comp.sim.deleteEntry(ctx, e) })
	return err
}

func (comp component) InsertRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, audit ledger.AuditEvent) (ledger.Redrive, error) {
	return statement(ctx, comp.replica, comp.name+"insert", func() (ledger.Redrive, error) {
		stored, err := commit(ctx, comp.sim, ledger.Identity{}, func(ctx context.Context, s storetest.Store) (ledger.Redrive, error) {
			return s.InsertRedrive(ctx, r, items, audit)
		})
		if err == nil {
			comp.sim.recordRedrive(stored, items)
		}
		return stored, err
	})
}

func (comp component) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return statement(ctx, comp.replica, comp.name+"load", func() (ledger.Redrive, error) { return comp.sim.store().Redrive(ctx, id) })
}

func (comp component) RedriveByKey(ctx context.Context, actor, key string) (ledger.Redrive, error) {
	return statement(ctx, comp.replica, comp.name+"by key", func() (ledger.Redrive, error) { return comp.sim.store().RedriveByKey(ctx, actor, key) })
}

func (comp component) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	return poll(ctx, comp.replica, comp.name+"idle", func() ([]ledger.Redrive, error) { return comp.sim.store().IdleRedrives(ctx, limit) })
}

func (comp component) RunningRedrives(ctx context.Context) (int, error) {
	return statement(ctx, comp.replica, comp.name+"running", func() (int, error) { return comp.sim.store().RunningRedrives(ctx) })
}

func (comp component) UpdateRedrive(ctx context.Context, r ledger.Redrive, audit *ledger.AuditEvent) (ledger.Redrive, error) {
	return statement(ctx, comp.replica, comp.name+"update to "+string(r.State), func() (ledger.Redrive, error) { return comp.sim.updateRedrive(ctx, r, audit) })
}

func (comp component) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	return statement(ctx, comp.replica, comp.name+"items", func() ([]ledger.RedriveItem, error) { return comp.sim.store().RedriveItems(ctx, id) })
}

func (comp component) SetItemResult(ctx context.Context, holder string, item ledger.RedriveItem) error {
	_, err := statement(ctx, comp.replica, comp.name+"setitemresult "+item.ReminderID+" "+item.Result, func() (struct{}, error) {
		return struct{}{}, comp.sim.setItemResult(ctx, holder, item, comp.replica)
	})
	return err
}

// Reparse stands for a newer parser, which can usually read what could not be parsed before.
func (comp component) Reparse(ctx context.Context, dead ledger.Entry, raw []byte, actor, redriveID string) (ledger.Entry, []string, error) {
	_ = comp.alive()
	if comp.rnd.intN(3) > 0 {
		raw = bytes.Replace(raw, []byte(`"contents"`), []byte(`"content"`), 1)
	}
	e, faults, err := comp.deliverer.Reparse(ctx, dead, raw, actor, redriveID)
	_ = comp.mayCrash(comp.sim.permille.crashes, comp.name+"reparsed")
	return e, faults, err
}

var (
	_ redrive.Ledger           = component{}
	_ redrive.DeadLetterReader = component{}
	_ redrive.RedriveStore     = component{}
	_ redrive.Reparser         = component{}
	_ retention.Ledger         = component{}
	_ retention.Store          = component{}
)
