package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reconcile"
)

// service is a whole replica: a Deliverer, a worker and a Reconciler over one ledger.
type service struct {
	*harness
	deliverer  *deliver.Deliverer
	reconciler *reconcile.Reconciler
	send       func(ctx context.Context, provider string, shipment ledger.Shipment) ledger.Outcome
	calls      []call
}

type call struct{ provider, key string }

// newService returns a service whose channel leads to a provider.
func newService(h *harness, channel string) *service {
	s := &service{harness: h}
	s.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
	}
	failovers := reconcile.NewFailoverDetector(h.memory, time.Hour, nil)
	s.deliverer = deliver.New(deliver.Options{
		Ledger: h.ledger, Details: h.ledger, Reminders: h.ledger, Slots: s, Sender: s, Routes: s, Failovers: failovers,
		Lease: lease, Margin: lease / 10, Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types: map[string]policy.Type{
			"default": {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: h.onUnknown},
		},
		Channels: map[string]string{"email": channel}, LookupSchedule: lookupSchedule(),
		Sources: map[string]deliver.Source{
			"queue": {RetriesBy: ledger.OwnerBroker, TakeoverAfter: 2 * time.Minute, AnswerWithin: 9 * time.Second},
			"ours":  {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now, Random: func() float64 { return 0.5 },
		Token: func() string { return fmt.Sprintf("holder-%d", h.tokens.Add(1)) },
	})
	s.reconciler = h.newReconciler(func(o *reconcile.Options) {
		o.Processor, o.Rules, o.Failovers = s.deliverer, s.deliverer.Rules, failovers
	})
	return s
}

func (s *service) Acquire(_ context.Context, provider string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	return ledger.Slot{Provider: provider, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { return 0 }
}

func (s *service) Send(ctx context.Context, provider string, shipment ledger.Shipment) ledger.Outcome {
	s.mu.Lock()
	s.calls = append(s.calls, call{provider, shipment.SendKey})
	send := s.send
	s.mu.Unlock()
	return send(ctx, provider, shipment)
}

func (s *service) Timeout(string) time.Duration { return 10 * time.Second }

func (s *service) Free(string) int { return 4 }

func (s *service) callCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// start runs worker and reconciler until the returned function is called.
func (s *service) start() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	worker := &deliver.Worker{Due: s.memory, Capacity: s, Processor: s.deliverer, Poll: time.Second}
	var all sync.WaitGroup
	all.Go(func() { worker.Run(ctx) })
	all.Go(func() { s.reconciler.Run(ctx) })
	return func() {
		cancel()
		all.Wait()
		_ = s.deliverer.Wait(context.Background())
	}
}

func (s *service) push(source string, n int, d ledger.Delivery) ledger.Reply {
	s.t.Helper()
	d.Source, d.MessageID = source, fmt.Sprintf("m-%d", n)
	d.Raw = fmt.Appendf(nil, `{"reminder_id": %q, "type": "t", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, identity(n).ReminderID)
	reply, err := s.deliverer.Deliver(s.t.Context(), d)
	if err != nil {
		s.t.Fatalf("Deliver: %v", err)
	}
	return reply
}

func TestSweep_ExpiredClaimIsSentWithinTwoLeasesAndASweep(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		s := newService(h, "idempotent")
		h.insertSending(1, "idempotent", 0, lease) // by a process that has died
		stop := s.start()
		time.Sleep(2*lease + sweep)
		synctest.Wait()
		stop()
		if e := h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted); e.LeaseExpirations != 1 || s.callCount() != 1 {
			t.Errorf("%d lease expirations, %d calls", e.LeaseExpirations, s.callCount())
		}
	})
}

func TestSweep_HangingHolderIsRepeatedUnderTheSameKey(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		s := newService(h, "idempotent")
		crashed := make(chan struct{})
		s.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
			if s.callCount() == 1 {
				<-crashed
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
		}
		stop := s.start()
		s.push("queue", 1, ledger.Delivery{})
		time.Sleep(lease + 2*sweep + 2*time.Minute + sweep)
		h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted)
		close(crashed)
		stop()
		if e := h.entry(1); e.LeaseExpirations != 1 || s.callCount() != 2 || s.calls[0] != s.calls[1] {
			t.Errorf("%d lease expirations, calls %v", e.LeaseExpirations, s.calls)
		}
		late := h.events(1, ledger.EventLate)
		if len(late) != 1 || late[0].Reason != ledger.ReasonReplayed {
			t.Errorf("the late outcome was recorded as %+v", late)
		}
	})
}

func TestSweep_EntryOfRemovedProviderIsFailedOverOrKept(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		s := newService(h, "blind")
		inDoubt := func(e *ledger.Entry) { e.DoubtSince = time.Now() }
		h.insertWaiting(1, "gone", 0)
		e := h.newEntry(2, "gone")
		e.State, e.Reason, e.Due, e.Wake = ledger.Waiting, ledger.ReasonRepeatable, ledger.In(0), ledger.In(0)
		e.Deadline = time.Now().Add(10 * time.Minute)
		inDoubt(&e)
		h.insert(e)
		stop := s.start()
		defer stop()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if e := h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted); e.Provider != "blind" {
			t.Errorf("provider %q", e.Provider)
		}
		failedOver := false
		for _, event := range h.detail(1).Timeline {
			failedOver = failedOver || event.Provider == "blind" && event.Reason == ledger.ReasonFailedOver
		}
		if !failedOver {
			t.Error("the failover is not in the timeline")
		}
		if e := h.wantEntry(2, ledger.Waiting, ledger.ReasonProviderGone); e.Provider != "gone" || s.callCount() != 1 {
			t.Errorf("in doubt at %q, %d calls", e.Provider, s.callCount())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		h.wantEntry(2, ledger.Unknown, ledger.ReasonExpired)
	})
}

// P3: an expired lease is found within two leases and a sweep, whatever else the sweep has to do. Here the entries of a
// removed provider move to one that is slow at each call.
func TestSweep_ManyOrphansAtASlowProviderDelayNoExpiredLease(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		s := newService(h, "blind")
		s.send = func(ctx context.Context, provider string, _ ledger.Shipment) ledger.Outcome {
			if provider == "blind" {
				<-ctx.Done()
				return ledger.Outcome{Result: ledger.ResultUnknown, Cause: "timeout"}
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
		}
		for n := range 512 {
			h.insertWaiting(n, "gone", 0)
		}
		h.insertSending(1000, "idempotent", 0, lease)
		stop := s.start()
		time.Sleep(2*lease + sweep)
		synctest.Wait()
		if e := h.entry(1000); e.State == ledger.Sending {
			t.Error("not expired 35 s after the end of its lease")
		}
		stop()
	})
}

// loseDatabase replaces the database by an empty one.
func (h *harness) loseDatabase() {
	_, _ = h.memory.RecordEpoch(context.Background(), "one", false)
	empty := storetest.NewMemory(time.Now)
	_, _ = empty.RecordEpoch(context.Background(), "one", false)
	empty.SetEpoch("two")
	h.memory, h.ledger.Memory = empty, empty
}

func TestFailover_LostEntryIsNotSentBlindly(t *testing.T) {
	for provider, want := range map[string]struct {
		state  ledger.State
		reason ledger.Reason
		calls  int
	}{
		"idempotent": {ledger.Sent, ledger.ReasonAccepted, 1}, // the same key, inside its window
		"lookup":     {ledger.Unknown, ledger.ReasonDatabaseChanged, 0},
		"blind":      {ledger.Unknown, ledger.ReasonDatabaseChanged, 0},
	} {
		bubble(t, func(t *testing.T, h *harness) {
			before := time.Now()
			time.Sleep(time.Minute)
			h.loseDatabase()
			s := newService(h, provider)
			s.push("ours", 1, ledger.Delivery{Published: before, DeliveryCount: 2})
			time.Sleep(time.Second)
			s.push("ours", 2, ledger.Delivery{Published: time.Now()}) // published later: sent
			stop := s.start()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			stop()
			h.wantEntry(1, want.state, want.reason)
			h.wantEntry(2, ledger.Sent, ledger.ReasonAccepted)
			if s.callCount() != want.calls+1 {
				t.Errorf("%s: %d calls, want %d", provider, s.callCount(), want.calls+1)
			}
			detail := h.detail(1)
			if detail.Timeline[0].Reason != ledger.ReasonDatabaseChanged || detail.Payload == nil {
				t.Errorf("%s: recorded as %+v", provider, detail.Timeline[0])
			}
		})
	}
}

// If neither broker nor reminder says when the reminder was published, only the broker's delivery count shows that a
// delivery is not the first.
func TestFailover_UndatedRedeliveryIsNotTakenForNew(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.loseDatabase()
		s := newService(h, "blind")
		s.push("queue", 1, ledger.Delivery{})
		h.wantEntry(1, ledger.Sent, ledger.ReasonAccepted) // the first load notices the failover; what comes later is new
		time.Sleep(time.Second)
		s.push("queue", 2, ledger.Delivery{DeliveryCount: 3})
		if e := h.entry(2); e.State == ledger.Sent {
			t.Error("the third delivery of an undated reminder was sent without doubt")
		}
		_ = s.deliverer.Wait(t.Context())
	})
}

// Versions start anew in a database that lost its entries: an earlier holder must not take another write for its own.
func TestFailover_EarlierHolderUndoesNoCancel(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		s := newService(h, "blind")
		s.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
			if s.callCount() == 1 {
				time.Sleep(time.Millisecond)
				h.loseDatabase()
				cancelled, err := s.deliverer.Cancel(context.Background(), "shop", identity(1).ReminderID, "t", "email")
				if err != nil || len(cancelled) != 1 || cancelled[0].Result != ledger.CancelDropped {
					t.Errorf("Cancel: %+v, %v", cancelled, err)
				}
			}
			return ledger.Outcome{Result: ledger.ResultThrottled}
		}
		s.push("queue", 1, ledger.Delivery{Published: time.Now()})
		if e := h.wantEntry(1, ledger.Dropped, ledger.ReasonCancelled); !e.CancelRequested {
			t.Error("the cancel request is lost")
		}
		stop := s.start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		if s.callCount() != 1 {
			t.Errorf("%d calls, want 1: the cancel was confirmed", s.callCount())
		}
	})
}

func TestFailover_DeliveryIsNotAckedIfItCannotBeRecorded(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		epochs := &countingEpochs{EpochStore: h.memory, err: errLost}
		s := newService(h, "blind")
		s.deliverer.Failovers = reconcile.NewFailoverDetector(epochs, time.Hour, nil)
		reply, err := s.deliverer.Deliver(t.Context(), ledger.Delivery{Source: "queue", MessageID: "m", Raw: []byte(
			`{"reminder_id": "r-0001", "type": "t", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`)})
		if err == nil || reply.Ack || s.callCount() != 0 || !h.entry(1).Absent() {
			t.Errorf("ack %t, %v, %d calls", reply.Ack, err, s.callCount())
		}
	})
}
