package redrive_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/redrive"
)

func TestADiscardIsAPersonsAndStands(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		e := w.die(identity(0))
		d := w.replica()
		act := ledger.Act{By: "ada", Role: "operator", Why: "the course was called off"}
		if stands, err := d.Discard(t.Context(), e.Identity, e.Version+1, act); !errors.Is(err, ledger.ErrStale) || stands != e {
			t.Errorf("another version: %+v, %v", stands, err)
		}
		w.ledger.after = once("swap " + e.ReminderID) // its reply is lost, and it stands
		stands, err := d.Discard(t.Context(), e.Identity, e.Version, act)
		if err != nil || stands.State != ledger.Dropped || stands.Reason != ledger.ReasonDiscarded {
			t.Fatalf("%+v, %v", stands, err)
		}
		if _, err := d.Discard(t.Context(), e.Identity, stands.Version, act); !errors.Is(err, ledger.ErrNotDead) {
			t.Errorf("twice: %v", err)
		}
		if _, err := d.Discard(t.Context(), identity(9), 1, act); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("nothing: %v", err)
		}
		story, err := w.memory.Story(t.Context(), e.Identity)
		if err != nil || len(story.Acts) != 1 || story.Acts[0].Why != act.Why || story.Payload == nil {
			t.Errorf("%+v, %v", story, err)
		}
	})
}

func TestNoMoreRedrivesThanMayBeUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(1)
		d := w.replica(func(o *redrive.Options) { o.Running = 2 })
		w.start(d, ask("a"))
		w.start(d, ask("b"))
		if _, err := d.Start(t.Context(), ask("c")); !errors.Is(err, ledger.ErrTooManyRedrives) {
			t.Errorf("a third: %v", err)
		}
		w.start(d, ask("a")) // known
		w.finish(d)
		if _, err := d.Show(t.Context(), "nobody's"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("nothing: %v", err)
		}
	})
}

func TestOfManyWhoStartAtOnceAsManyMayAsAreAllowed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(3)
		d := w.replica(func(o *redrive.Options) { o.Running = 3 })
		refused := make([]bool, 50)
		var all sync.WaitGroup
		for i := range refused {
			all.Go(func() {
				_, err := d.Start(t.Context(), ask(fmt.Sprint("key-", i)))
				if refused[i] = errors.Is(err, ledger.ErrTooManyRedrives); err != nil && !refused[i] {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if running, err := w.memory.RunningRedrives(t.Context()); err != nil || running != 3 {
			t.Errorf("%d under way, %v", running, err)
		}
	})
}

func TestARequestUnderItsKeyIsOneRedriveHoweverOftenItComes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(3)
		d := w.replica()
		ids := make([]string, 50)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = w.start(d, ask("key")).ID })
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("%s and %s", id, ids[0])
			}
		}
		other := ask("key")
		other.Hash = "other"
		if _, err := d.Start(t.Context(), other); !errors.Is(err, ledger.ErrOtherRequest) {
			t.Errorf("another request: %v", err)
		}
		another := ask("key")
		another.Act.By = "ben"
		if r := w.start(d, another); r.ID == ids[0] {
			t.Error("another person's key")
		}
		w.finish(d)
		if again := w.start(d, ask("key")); again.ID != ids[0] || again.State != ledger.RedriveDone {
			t.Errorf("afterwards: %+v", again)
		}
	})
}

func TestALostReplyLaysOutOneRedrive(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.dead(1)
		w.ledger.after = once("create")
		w.start(w.replica(), ask(""))
		if n, err := w.memory.RunningRedrives(t.Context()); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}
