package simulation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestOfTwoContentsThatRaceToBeFirstTheLoserIsToldOfTheConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		winner := newQuiet(t, m, map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		loser := newQuiet(t, m, map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		loser.beforeCreate = func() error {
			winner.push("queue", aReminder)
			return nil
		}
		reply, err := loser.request(aReminder, "eve@example.org")
		story, _ := m.Story(context.Background(), aReminder)
		if err != nil || !reply.Conflict || len(story.Conflicts) != 1 {
			t.Errorf("told of %s, conflict %t, %d conflict rows, %v", reply.Entry.State, reply.Conflict, len(story.Conflicts), err)
		}
	})
}

func TestAnImpatientAnswerPromisesOnlyWhatIsOursAndTellsOfOtherContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		closeGate(m, "a", outcome, 5*time.Second, 0)
		q := newQuiet(t, m, map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		q.look()
		if reply := q.push("queue", anAskedOne); reply.Ack || reply.Entry.Owner != ledger.OwnerBroker {
			t.Fatalf("%+v", reply)
		}
		time.Sleep(10 * time.Second)
		q.thinks = 15 * time.Second
		reply, err := q.request(anAskedOne, "eve@example.org")
		if err != nil || !reply.InFlight || reply.Entry.Owner != ledger.OwnerLedger {
			t.Errorf("202 for %s, owned by %q, in flight %t, %v", reply.Entry.State, reply.Entry.Owner, reply.InFlight, err)
		}
		if !reply.Conflict {
			t.Error("other content, and no conflict is told")
		}
		_ = q.desk.Wait(context.Background())
	})
}

func TestALedgerThatRefusesEveryWriteIsNotAskedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		writes := 0
		q.beforeCreate = func() error { writes++; return errors.New("read-only transaction") }
		_, err := q.deliver("queue", aReminder)
		if err == nil || writes > 5 || q.loads.Load() > 6 {
			t.Errorf("%d writes and %d reads in one visit, which ends with %v", writes, q.loads.Load(), err)
		}
	})
}

func TestEachArrivalThatIsWrittenIsCountedOnce(t *testing.T) {
	t.Run("over a take-over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := dbtest.NewMemory(time.Now)
			closeGate(m, "a", outcome, 5*time.Second, 0)
			q := newQuiet(t, m, map[string]string{"email": "a"}, 2, &outlet{name: "a"})
			q.look()
			q.push("queue", aReminder)
			closeGate(m, "a", outcome, time.Minute, 0)
			q.look()
			time.Sleep(10 * time.Second)
			if _, err := q.request(aReminder, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			if e := q.entry(aReminder); e.Deliveries != 2 || e.Owner != ledger.OwnerLedger {
				t.Errorf("2 arrivals, %d counted, owner %s", e.Deliveries, e.Owner)
			}
		})
	})
	t.Run("over a lapse and a claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			contract := ledger.Contract{Kind: ledger.Idempotent, Window: time.Hour}
			q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &outlet{name: "a", contract: contract})
			q.abandon(aReminder, errors.New("away"))
			q.push("queue", aReminder)
			if e := q.entry(aReminder); e.Deliveries != 2 || e.State != ledger.Sent || e.Lapses != 1 {
				t.Errorf("2 arrivals, %d counted; %s after %d lapses", e.Deliveries, e.State, e.Lapses)
			}
		})
	})
}

// unread is an archive without payloads.
type unread struct{ *dbtest.Memory }

func (unread) Payload(context.Context, ledger.Identity) (ledger.Payload, error) {
	return ledger.Payload{}, ledger.ErrNotFound
}

func TestWhatCannotBeCalledIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &outlet{name: "a"}
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		q.desk.Archive = unread{q.Memory}
		defer q.works()()
		q.push("ordered", aReminder)
		time.Sleep(30 * time.Minute)
		if n := q.lines(aReminder); n < 5 || n > 60 || a.calls.Load() != 0 {
			t.Errorf("%d lines in 30 min, %d calls", n, a.calls.Load())
		}
	})
}

func TestAQuestionThatNobodyAnswersIsAskedWithPausesAndToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &outlet{name: "a"}
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		q.answer = ledger.NoAnswer
		defer q.works()()
		q.push("ordered", anAskedOne)
		time.Sleep(30 * time.Minute)
		if e := q.entry(anAskedOne); q.lines(anAskedOne) > 5 || e.Version > 60 || e.State != ledger.Waiting || a.calls.Load() != 0 {
			t.Errorf("%s after 30 min, %d lines, %d writes, %d calls", e.State, q.lines(anAskedOne), e.Version, a.calls.Load())
		}
	})
}

// cutOff is a ledger that takes a claim, loses its reply, and does not answer the next reading.
type cutOff struct {
	*quiet
	cut bool
}

func (c *cutOff) Create(ctx context.Context, change ledger.Change) (ledger.Entry, error) {
	_, err := c.quiet.Create(ctx, change)
	c.cut = true
	return ledger.Entry{}, errors.Join(err, errLost)
}

func (c *cutOff) Load(ctx context.Context, id ledger.Identity) (ledger.Reading, error) {
	if c.cut {
		c.cut = false
		return ledger.Reading{}, errAway
	}
	return c.quiet.Load(ctx, id)
}

func TestAClaimWhoseReplyWasLostIsLookedForUntilItIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &outlet{name: "a"}
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		q.desk.Ledger = &cutOff{quiet: q}
		_, err := q.deliver("queue", aReminder)
		if e := q.entry(aReminder); e.State != ledger.Sent || a.calls.Load() != 1 {
			t.Errorf("its claim stands and it is %s, %s, after %d calls; %v", e.State, e.Reason, a.calls.Load(), err)
		}
	})
}

func TestAHolderThatComesBackLateSettlesNothingOfTheNextHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		contract := ledger.Contract{Kind: ledger.Idempotent, Window: time.Hour}
		refuses := &outlet{name: "a", contract: contract, send: always(ledger.ResultRefused)}
		slow := &outlet{name: "a", contract: contract, send: func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(8 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}}
		late := newQuiet(t, m, map[string]string{"email": "a"}, 2, refuses)
		next := newQuiet(t, m, map[string]string{"email": "a"}, 2, slow)
		called := time.Now().Add(lease + 2*time.Second) // when the next holder is at work
		late.beforeSwap = func() error {
			if time.Now().Before(called) {
				return errAway
			}
			return nil
		}
		late.push("queue", aReminder)
		time.Sleep(time.Until(called.Add(-time.Second)))
		reply := next.push("queue", aReminder)
		_ = late.desk.Wait(context.Background())
		e := next.entry(aReminder)
		if !reply.Ack || e.State != ledger.Sent || e.Reason != ledger.ReasonAccepted || e.Attempts != 1 || e.Lapses != 1 {
			t.Errorf("it is %s, %s, after %d attempts and %d lapses", e.State, e.Reason, e.Attempts, e.Lapses)
		}
		if n := next.lines(aReminder); n != 3 {
			t.Errorf("%d lines; want the lapse, the late failure and the attempt", n)
		}
	})
}
