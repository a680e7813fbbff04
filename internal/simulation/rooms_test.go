package simulation_test

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reconcile"
	"github.com/sendonce/sendonce/internal/redrive"
	"github.com/sendonce/sendonce/internal/retention"
)

// most is how often one entry may be redriven.
const most = 3

// room is a replica's way to the ledger for one of its rooms, so that trouble there is told apart.
type room struct {
	*replica
	name string
}

const (
	letterRoom = "redrive: "
	cellarRoom = "forget: "
)

// letterDesk is the replica's desk for dead letters.
func (r *replica) letterDesk(failovers *reconcile.Failovers) *redrive.Desk {
	at := room{r, letterRoom}
	return redrive.New(redrive.Options{
		Ledger: at, Letters: at, Book: at, Reader: at, Epochs: failovers, Rules: r.desk.Rules,
		Admit: func(e ledger.Entry, now time.Time) ledger.Admission {
			return policy.Admit(e, time.Time{}, r.desk.Memory, now)
		},
		Most: most, Running: 4, Lease: lease, Poll: 3 * time.Second,
		Clock: r.desk.Clock, Draw: r.luck.float, Token: r.desk.Token,
	})
}

// cellar is the replica's desk that forgets.
func (r *replica) cellar() *retention.Desk {
	at := room{r, cellarRoom}
	return retention.New(retention.Options{
		Ledger: at, Shelves: at, Keep: r.w.keep, Every: 30 * time.Second, Breath: time.Second,
		Now: r.desk.Clock, Token: r.desk.Token, Draw: r.luck.float,
	})
}

// befell tells of the trouble that met one of the new rooms.
func (w *world) befell(kind fault, statement string) {
	switch letters, cellar := strings.HasPrefix(statement, letterRoom), strings.HasPrefix(statement, cellarRoom); {
	case kind == crashed && letters:
		w.fire(overRedrive, statement)
	case kind == crashed && cellar:
		w.fire(overForget, statement)
	case kind == lost && letters:
		w.fire(lostRedrive, statement)
	case kind == lost && cellar:
		w.fire(lostForget, statement)
	}
}

// keeps draws how long a world keeps what.
func (w *world) keeps() {
	luck := w.dice(aKeeper)
	draw := func(minutes ...float64) time.Duration {
		return time.Duration(minutes[luck.roll(len(minutes))] * float64(time.Minute))
	}
	w.keep = ledger.Retention{
		Sent: draw(0, 0.5, 2), Dead: draw(0, 0, 1, 4), Dropped: draw(0, 0.5, 2), Entry: draw(4, 5, 400*24*60, 400*24*60),
	}
	w.operators = []int{0, 1, 2, 2}[luck.roll(4)]
}

func (o room) Swap(ctx context.Context, c ledger.Change) (ledger.Entry, error) {
	return through(ctx, o.replica, o.name+"swap "+c.Entry.ReminderID, func() (ledger.Entry, error) {
		stands, err := o.w.witness(ctx, c, func(ctx context.Context, s dbtest.Store) (ledger.Entry, error) { return s.Swap(ctx, c) })
		if err == nil && c.Event != nil && c.Event.Origin == ledger.OriginRedrive {
			o.w.afterCancel(c.Event.Message, o.replica)
		}
		return stands, err
	})
}

func (o room) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	return through(ctx, o.replica, o.name+"load "+id.ReminderID, func() (ledger.Reading, error) { return o.w.store().Load(ctx, id) })
}

func (o room) Payload(ctx context.Context, id ledger.Identity) (ledger.Payload, error) {
	return through(ctx, o.replica, o.name+"payload "+id.ReminderID, func() (ledger.Payload, error) { return o.w.store().Payload(ctx, id) })
}

func (o room) Timeline(ctx context.Context, id ledger.Identity) ([]ledger.Event, error) {
	return through(ctx, o.replica, o.name+"timeline "+id.ReminderID, func() ([]ledger.Event, error) { return o.w.store().Timeline(ctx, id) })
}

func (o room) List(ctx context.Context, q ledger.Query) ([]ledger.Entry, error) {
	return through(ctx, o.replica, o.name+"list", func() ([]ledger.Entry, error) { return o.w.store().List(ctx, q) })
}

func (o room) Record(ctx context.Context, a ledger.Act) error {
	_, err := through(ctx, o.replica, o.name+"record "+a.Verb, func() (struct{}, error) {
		return commit(ctx, o.w, a.Identity, func(ctx context.Context, s dbtest.Store) (struct{}, error) { return struct{}{}, s.Record(ctx, a) })
	})
	return err
}

func (o room) Kept(ctx context.Context, after ledger.Position, limit int) ([]ledger.Kept, error) {
	return through(ctx, o.replica, o.name+"kept", func() ([]ledger.Kept, error) { return o.w.store().Kept(ctx, after, limit) })
}

func (o room) Delete(ctx context.Context, e ledger.Entry) error {
	_, err := through(ctx, o.replica, o.name+"delete "+e.ReminderID, func() (struct{}, error) { return struct{}{}, o.w.buries(ctx, e) })
	return err
}

func (o room) CreateRedrive(ctx context.Context, r ledger.Redrive, items []ledger.RedriveItem, act ledger.Act) (ledger.Redrive, error) {
	return through(ctx, o.replica, o.name+"create", func() (ledger.Redrive, error) {
		stands, err := commit(ctx, o.w, ledger.Identity{}, func(ctx context.Context, s dbtest.Store) (ledger.Redrive, error) {
			return s.CreateRedrive(ctx, r, items, act)
		})
		if err == nil {
			o.w.laysOut(stands, items)
		}
		return stands, err
	})
}

func (o room) Redrive(ctx context.Context, id string) (ledger.Redrive, error) {
	return through(ctx, o.replica, o.name+"read", func() (ledger.Redrive, error) { return o.w.store().Redrive(ctx, id) })
}

func (o room) RedriveByKey(ctx context.Context, by, key string) (ledger.Redrive, error) {
	return through(ctx, o.replica, o.name+"by key", func() (ledger.Redrive, error) { return o.w.store().RedriveByKey(ctx, by, key) })
}

func (o room) IdleRedrives(ctx context.Context, limit int) ([]ledger.Redrive, error) {
	return glance(ctx, o.replica, o.name+"idle", func() ([]ledger.Redrive, error) { return o.w.store().IdleRedrives(ctx, limit) })
}

func (o room) RunningRedrives(ctx context.Context) (int, error) {
	return through(ctx, o.replica, o.name+"running", func() (int, error) { return o.w.store().RunningRedrives(ctx) })
}

func (o room) SwapRedrive(ctx context.Context, r ledger.Redrive, act *ledger.Act) (ledger.Redrive, error) {
	return through(ctx, o.replica, o.name+"move to "+string(r.State), func() (ledger.Redrive, error) { return o.w.moves(ctx, r, act) })
}

func (o room) RedriveItems(ctx context.Context, id string) ([]ledger.RedriveItem, error) {
	return through(ctx, o.replica, o.name+"items", func() ([]ledger.RedriveItem, error) { return o.w.store().RedriveItems(ctx, id) })
}

func (o room) SettleItem(ctx context.Context, holder string, item ledger.RedriveItem) error {
	_, err := through(ctx, o.replica, o.name+"settle "+item.ReminderID+" "+item.Result, func() (struct{}, error) {
		return struct{}{}, o.w.settles(ctx, holder, item, o.replica)
	})
	return err
}

// Reread is a reader that has learnt, mostly, what it could not read before.
func (o room) Reread(ctx context.Context, dead ledger.Entry, raw []byte, by, job string) (ledger.Entry, []string, error) {
	_ = o.alive()
	if o.luck.roll(3) > 0 {
		raw = bytes.Replace(raw, []byte(`"contents"`), []byte(`"content"`), 1)
	}
	e, faults, err := o.desk.Reread(ctx, dead, raw, by, job)
	_ = o.mortal(o.w.perMille.crashes, o.name+"reread")
	return e, faults, err
}

var (
	_ redrive.Ledger    = room{}
	_ redrive.Letters   = room{}
	_ redrive.Book      = room{}
	_ redrive.Reader    = room{}
	_ retention.Ledger  = room{}
	_ retention.Shelves = room{}
)
