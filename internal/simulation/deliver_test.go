package simulation_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

func TestRequest_LoserOfAnInsertRaceGetsTheConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		winner := newHarness(t, m, map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		loser := newHarness(t, m, map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		loser.beforeInsert = func() error {
			winner.push("queue", reminder1)
			return nil
		}
		reply, err := loser.request(reminder1, "eve@example.org")
		detail, _ := m.EntryDetail(context.Background(), reminder1)
		if err != nil || !reply.Conflict || len(detail.Conflicts) != 1 {
			t.Errorf("reply %s, conflict %t, %d conflict rows, %v", reply.Entry.State, reply.Conflict, len(detail.Conflicts), err)
		}
	})
}

func TestRequest_ReplyInFlightPromisesOnlyWhatTheLedgerOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		closeGate(m, "a", outcome, 5*time.Second, 0)
		h := newHarness(t, m, map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		h.refreshGates()
		if reply := h.push("queue", checkedReminder); reply.Ack || reply.Entry.Owner != ledger.OwnerBroker {
			t.Fatalf("%+v", reply)
		}
		time.Sleep(10 * time.Second)
		h.relevanceDelay = 15 * time.Second
		reply, err := h.request(checkedReminder, "eve@example.org")
		if err != nil || !reply.InFlight || reply.Entry.Owner != ledger.OwnerLedger {
			t.Errorf("202 for %s, owned by %q, in flight %t, %v", reply.Entry.State, reply.Entry.Owner, reply.InFlight, err)
		}
		if !reply.Conflict {
			t.Error("other content without a conflict in the reply")
		}
		_ = h.deliverer.Wait(context.Background())
	})
}

func TestDeliver_StopsAfterRepeatedWriteErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
		writes := 0
		h.beforeInsert = func() error { writes++; return errors.New("read-only transaction") }
		_, err := h.deliver("queue", reminder1)
		if err == nil || writes > 5 || h.loads.Load() > 6 {
			t.Errorf("%d writes and %d reads in one task, which ends with %v", writes, h.loads.Load(), err)
		}
	})
}

func TestDeliver_CountsEachWrittenDeliveryOnce(t *testing.T) {
	t.Run("with a take-over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory(time.Now)
			closeGate(m, "a", outcome, 5*time.Second, 0)
			h := newHarness(t, m, map[string]string{"email": "a"}, 2, &fakeProvider{name: "a"})
			h.refreshGates()
			h.push("queue", reminder1)
			closeGate(m, "a", outcome, time.Minute, 0)
			h.refreshGates()
			time.Sleep(10 * time.Second)
			if _, err := h.request(reminder1, "ada@example.org"); err != nil {
				t.Fatal(err)
			}
			if e := h.entry(reminder1); e.Deliveries != 2 || e.Owner != ledger.OwnerLedger {
				t.Errorf("2 deliveries, %d counted, owner %s", e.Deliveries, e.Owner)
			}
		})
	})
	t.Run("with an expired lease and a claim", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			contract := ledger.Contract{Kind: ledger.ContractIdempotent, Window: time.Hour}
			h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, &fakeProvider{name: "a", contract: contract})
			h.abandon(reminder1, errors.New("unavailable"))
			h.push("queue", reminder1)
			if e := h.entry(reminder1); e.Deliveries != 2 || e.State != ledger.Sent || e.LeaseExpirations != 1 {
				t.Errorf("2 deliveries, %d counted; %s after %d expired leases", e.Deliveries, e.State, e.LeaseExpirations)
			}
		})
	})
}

// noPayloads is a store without payloads.
type noPayloads struct{ *storetest.Memory }

func (noPayloads) Payload(context.Context, ledger.Identity) (ledger.Payload, error) {
	return ledger.Payload{}, ledger.ErrNotFound
}

func TestWorker_BacksOffWhileThePayloadCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeProvider{name: "a"}
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		h.deliverer.Details = noPayloads{h.Memory}
		defer h.start()()
		h.push("ordered", reminder1)
		time.Sleep(30 * time.Minute)
		if n := h.events(reminder1); n < 5 || n > 60 || a.calls.Load() != 0 {
			t.Errorf("%d events in 30 min, %d calls", n, a.calls.Load())
		}
	})
}

func TestWorker_UnansweredRelevanceCheckBacksOffAndIsRecordedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeProvider{name: "a"}
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		h.relevance = ledger.RelevanceUnanswered
		defer h.start()()
		h.push("ordered", checkedReminder)
		time.Sleep(30 * time.Minute)
		if e := h.entry(checkedReminder); h.events(checkedReminder) > 5 || e.Version > 60 || e.State != ledger.Waiting || a.calls.Load() != 0 {
			t.Errorf("%s after 30 min, %d events, %d writes, %d calls", e.State, h.events(checkedReminder), e.Version, a.calls.Load())
		}
	})
}

// lossyLedger writes a claim, loses the reply, and fails the next read.
type lossyLedger struct {
	*harness
	failNextLoad bool
}

func (l *lossyLedger) Insert(ctx context.Context, change ledger.Change) (ledger.Entry, error) {
	_, err := l.harness.Insert(ctx, change)
	l.failNextLoad = true
	return ledger.Entry{}, errors.Join(err, errReplyLost)
}

func (l *lossyLedger) Load(ctx context.Context, id ledger.Identity) (ledger.Snapshot, error) {
	if l.failNextLoad {
		l.failNextLoad = false
		return ledger.Snapshot{}, errUnavailable
	}
	return l.harness.Load(ctx, id)
}

func TestDeliver_FindsItsClaimAfterALostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeProvider{name: "a"}
		h := newHarness(t, storetest.NewMemory(time.Now), map[string]string{"email": "a"}, 2, a)
		h.deliverer.Ledger = &lossyLedger{harness: h}
		_, err := h.deliver("queue", reminder1)
		if e := h.entry(reminder1); e.State != ledger.Sent || a.calls.Load() != 1 {
			t.Errorf("its claim is stored but it is %s, %s, after %d calls; %v", e.State, e.Reason, a.calls.Load(), err)
		}
	})
}

func TestSettle_LateHolderDoesNotSettleTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory(time.Now)
		contract := ledger.Contract{Kind: ledger.ContractIdempotent, Window: time.Hour}
		refuses := &fakeProvider{name: "a", contract: contract, send: alwaysReturn(ledger.ResultRefused)}
		slow := &fakeProvider{name: "a", contract: contract, send: func(context.Context, ledger.Shipment) ledger.Outcome {
			time.Sleep(8 * time.Second)
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "r"}
		}}
		late := newHarness(t, m, map[string]string{"email": "a"}, 2, refuses)
		next := newHarness(t, m, map[string]string{"email": "a"}, 2, slow)
		called := time.Now().Add(lease + 2*time.Second) // when the next holder is sending
		late.beforeUpdate = func() error {
			if time.Now().Before(called) {
				return errUnavailable
			}
			return nil
		}
		late.push("queue", reminder1)
		time.Sleep(time.Until(called.Add(-time.Second)))
		reply := next.push("queue", reminder1)
		_ = late.deliverer.Wait(context.Background())
		e := next.entry(reminder1)
		if !reply.Ack || e.State != ledger.Sent || e.Reason != ledger.ReasonAccepted || e.Attempts != 1 || e.LeaseExpirations != 1 {
			t.Errorf("it is %s, %s, after %d attempts and %d expired leases", e.State, e.Reason, e.Attempts, e.LeaseExpirations)
		}
		if n := next.events(reminder1); n != 3 {
			t.Errorf("%d events; want the expired lease, the late failure and the attempt", n)
		}
	})
}
