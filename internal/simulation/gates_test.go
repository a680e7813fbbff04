package simulation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestAProbeThatIsNotMadeOpensNoGateThatSomebodyClosedSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		closeGate(m, "a", outcome, time.Second, 2)
		q := newQuiet(t, m, nil, 2, &outlet{name: "a"})
		q.look()
		time.Sleep(2 * time.Second)
		slot, done := q.fleet.Take(context.Background(), "a")
		if !slot.Held {
			t.Fatalf("%+v", slot)
		}
		closeGate(m, "a", ops, 24*time.Hour, 2)
		q.look()
		done(ledger.Outcome{Result: ledger.ResultNotCalled}, 0)
		gates, now, _ := m.Gates(context.Background())
		if gates[0].By != ops || gates[0].View(now).Open {
			t.Errorf("closed by a person for a day, and now %+v", gates[0])
		}
	})
}

func TestAReplicaThatHasJustStartedDoesNotCallThroughAClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		closeGate(m, "a", ops, 24*time.Hour, 0)
		q := newQuiet(t, m, nil, 2, &outlet{name: "a"})
		if slot, _ := q.fleet.Take(context.Background(), "a"); slot.Held {
			t.Error("a slot at a provider that a person has closed")
		}
	})
}

// broken are gates behind a driver that panics.
type broken struct{ *dbtest.Memory }

func (broken) SwapGate(context.Context, ledger.Gate) (ledger.Gate, error) { panic("a driver's own") }

func TestAPanicAtTheGateCostsNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := dbtest.NewMemory(time.Now)
		closeGate(m, "a", outcome, time.Second, 1)
		f, err := provider.NewFleet(broken{m}, provider.Options{Rules: ledger.DefaultGateRules(lease)}, provider.Lane{Provider: &outlet{name: "a"}, Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Look(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the driver did not panic")
				}
			}()
			f.Take(context.Background(), "a")
		}()
		if n := f.Status()[0].InFlight; n != 0 {
			t.Errorf("%d places lost", n)
		}
	})
}

// counting are slots that count how often they are given back.
type counting struct{ taken, given int }

func (c *counting) Take(_ context.Context, p string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	c.taken++
	return ledger.Slot{Provider: p, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { c.given++; return 0 }
}

func TestASlotIsGivenBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuiet(t, dbtest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &outlet{name: "a"})
		c := &counting{}
		q.desk.Slots = c
		q.push("queue", aReminder)
		if c.taken != 1 || c.given != 1 {
			t.Errorf("taken %d times, given back %d times", c.taken, c.given)
		}
	})
}
