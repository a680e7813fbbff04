package simulation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/provider"
)

func TestPool_ProbeNotMadeLeavesALaterClosedGateClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		closeGate(m, "a", outcome, time.Second, 2)
		h := newHarness(t, m, nil, 2, &fakeProvider{name: "a"})
		h.refreshGates()
		time.Sleep(2 * time.Second)
		slot, done := h.pool.Acquire(context.Background(), "a")
		if !slot.Held {
			t.Fatalf("%+v", slot)
		}
		closeGate(m, "a", ops, 24*time.Hour, 2)
		h.refreshGates()
		done(ledger.Outcome{Result: ledger.ResultNotCalled}, 0)
		gates, now, _ := m.Gates(context.Background())
		if gates[0].Actor != ops || gates[0].Status(now).Open {
			t.Errorf("closed by an operator for a day, but now %+v", gates[0])
		}
	})
}

func TestPool_NewReplicaDoesNotCallThroughAClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		closeGate(m, "a", ops, 24*time.Hour, 0)
		h := newHarness(t, m, nil, 2, &fakeProvider{name: "a"})
		if slot, _ := h.pool.Acquire(context.Background(), "a"); slot.Held {
			t.Error("a slot at a gate that an operator has closed")
		}
	})
}

// panickingGates is a store whose driver panics when a gate is updated.
type panickingGates struct{ *storetest.Memory }

func (panickingGates) UpdateGate(context.Context, ledger.Gate) (ledger.Gate, error) {
	panic("driver")
}

func TestPool_PanicWhileUpdatingAGateLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		closeGate(m, "a", outcome, time.Second, 1)
		f, err := provider.NewPool(panickingGates{m}, provider.Options{Rules: ledger.DefaultGateRules(lease)}, provider.LimitedProvider{Provider: &fakeProvider{name: "a"}, Concurrency: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Refresh(context.Background()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the driver did not panic")
				}
			}()
			f.Acquire(context.Background(), "a")
		}()
		if n := f.Status()[0].InFlight; n != 0 {
			t.Errorf("%d slots lost", n)
		}
	})
}

// countingSlots counts how often its slots are released.
type countingSlots struct{ acquired, released int }

func (c *countingSlots) Acquire(_ context.Context, p string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	c.acquired++
	return ledger.Slot{Provider: p, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { c.released++; return 0 }
}

func TestDeliver_ReleasesItsSlotOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		c := &countingSlots{}
		h.deliverer.Slots = c
		h.push("queue", reminder1)
		if c.acquired != 1 || c.released != 1 {
			t.Errorf("acquired %d times, released %d times", c.acquired, c.released)
		}
	})
}
