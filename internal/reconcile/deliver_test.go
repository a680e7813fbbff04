package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sendonce/sendonce/db/dbtest"
	"github.com/sendonce/sendonce/internal/deliver"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/policy"
	"github.com/sendonce/sendonce/internal/reconcile"
)

// house is a whole replica: a desk that delivers, a worker and a sweep beside it, over one ledger.
type house struct {
	*world
	desk  *deliver.Desk
	sweep *reconcile.Desk
	send  func(ctx context.Context, provider string, s ledger.Shipment) ledger.Outcome
	calls []call
}

type call struct{ provider, key string }

// opens a house whose channel leads to a provider.
func opens(w *world, channel string) *house {
	h := &house{world: w}
	h.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
		return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
	}
	failovers := reconcile.NewFailovers(w.memory, time.Hour, nil)
	h.desk = deliver.New(deliver.Options{
		Ledger: w.ledger, Archive: w.ledger, Register: w.ledger, Slots: h, Sender: h, Routes: h, Epochs: failovers,
		Lease: lease, Margin: lease / 10, Memory: policy.Memory{Span: 400 * 24 * time.Hour},
		Types: map[string]policy.Type{
			"default": {MaxAttempts: 3, Backoff: policy.Backoff{Base: 5 * time.Second, Cap: time.Minute}, Deadline: time.Hour, OnUnknown: w.onUnknown},
		},
		Channels: map[string]string{"email": channel}, Asks: asks(),
		Sources: map[string]deliver.Source{
			"queue": {RetriesBy: ledger.OwnerBroker, TakeoverAfter: 2 * time.Minute, AnswerWithin: 9 * time.Second},
			"ours":  {RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		},
		Callers: deliver.Source{RetriesBy: ledger.OwnerLedger, AnswerWithin: 9 * time.Second},
		Clock:   time.Now, Draw: func() float64 { return 0.5 },
		Token: func() string { return fmt.Sprintf("holder-%d", w.tokens.Add(1)) },
	})
	h.sweep = w.replica(func(o *reconcile.Options) { o.Visitor, o.Rules, o.Failovers = h.desk, h.desk.Rules, failovers })
	return h
}

func (h *house) Take(_ context.Context, provider string) (ledger.Slot, func(ledger.Outcome, time.Duration) time.Duration) {
	return ledger.Slot{Provider: provider, Held: true}, func(ledger.Outcome, time.Duration) time.Duration { return 0 }
}

func (h *house) Send(ctx context.Context, provider string, s ledger.Shipment) ledger.Outcome {
	h.mu.Lock()
	h.calls = append(h.calls, call{provider, s.SendKey})
	send := h.send
	h.mu.Unlock()
	return send(ctx, provider, s)
}

func (h *house) Timeout(string) time.Duration { return 10 * time.Second }

func (h *house) Free(string) int { return 4 }

func (h *house) called() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.calls)
}

// works runs worker and sweep until the returned function is called.
func (h *house) works() (stop func()) {
	ctx, cancel := context.WithCancel(h.t.Context())
	worker := &deliver.Worker{Agenda: h.memory, Capacity: h, Visitor: h.desk, Poll: time.Second}
	var all sync.WaitGroup
	all.Go(func() { worker.Run(ctx) })
	all.Go(func() { h.sweep.Run(ctx) })
	return func() {
		cancel()
		all.Wait()
		_ = h.desk.Wait(context.Background())
	}
}

func (h *house) push(source string, n int, d ledger.Delivery) ledger.Reply {
	h.t.Helper()
	d.Source, d.MessageID = source, fmt.Sprintf("m-%d", n)
	d.Raw = fmt.Appendf(nil, `{"reminder_id": %q, "type": "t", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`, identity(n).ReminderID)
	reply, err := h.desk.Deliver(h.t.Context(), d)
	if err != nil {
		h.t.Fatalf("Deliver: %v", err)
	}
	return reply
}

func TestASilentHoldersReminderIsSentWithinTwoLeasesAndASweep(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := opens(w, "keyed")
		w.holds(1, "keyed", 0, lease) // and its process died
		stop := h.works()
		time.Sleep(2*lease + sweep)
		synctest.Wait()
		stop()
		if e := w.wants(1, ledger.Sent, ledger.ReasonAccepted); e.Lapses != 1 || h.called() != 1 {
			t.Errorf("%d lapses, %d calls", e.Lapses, h.called())
		}
	})
}

func TestAHolderThatHangsPastItsLeaseIsRepeatedUnderItsKeyAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := opens(w, "keyed")
		crashed := make(chan struct{})
		h.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
			if h.called() == 1 {
				<-crashed
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
		}
		stop := h.works()
		h.push("queue", 1, ledger.Delivery{})
		time.Sleep(lease + 2*sweep + 2*time.Minute + sweep)
		w.wants(1, ledger.Sent, ledger.ReasonAccepted)
		close(crashed)
		stop()
		if e := w.entry(1); e.Lapses != 1 || h.called() != 2 || h.calls[0] != h.calls[1] {
			t.Errorf("%d lapses, calls %v", e.Lapses, h.calls)
		}
		late := w.lines(1, ledger.EventLate)
		if len(late) != 1 || late[0].Reason != ledger.ReasonReplayed {
			t.Errorf("it comes back, and is told as %+v", late)
		}
	})
}

func TestAnEntryWhoseProviderIsGoneIsFailedOverOrKept(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := opens(w, "blind")
		inDoubt := func(e *ledger.Entry) { e.DoubtSince = time.Now() }
		w.waits(1, "gone", 0)
		e := w.base(2, "gone")
		e.State, e.Reason, e.Due, e.Wake = ledger.Waiting, ledger.ReasonRepeatable, ledger.In(0), ledger.In(0)
		e.Deadline = time.Now().Add(10 * time.Minute)
		inDoubt(&e)
		w.create(e)
		stop := h.works()
		defer stop()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if e := w.wants(1, ledger.Sent, ledger.ReasonAccepted); e.Provider != "blind" {
			t.Errorf("provider %q", e.Provider)
		}
		moved := false
		for _, line := range w.story(1).Timeline {
			moved = moved || line.Provider == "blind" && line.Reason == ledger.ReasonFailedOver
		}
		if !moved {
			t.Error("the failover is not in the timeline")
		}
		if e := w.wants(2, ledger.Waiting, ledger.ReasonProviderGone); e.Provider != "gone" || h.called() != 1 {
			t.Errorf("in doubt at %q, %d calls", e.Provider, h.called())
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		w.wants(2, ledger.Unknown, ledger.ReasonExpired)
	})
}

// P3: a silent holder is found within two leases and a sweep, whatever else the sweep has in hand. Entries
// of a provider that is gone move to one that takes its time over each.
func TestManyStrangersAtASlowProviderHoldUpNoSilentHolder(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := opens(w, "blind")
		h.send = func(ctx context.Context, provider string, _ ledger.Shipment) ledger.Outcome {
			if provider == "blind" {
				<-ctx.Done()
				return ledger.Outcome{Result: ledger.ResultUnknown, Cause: "timeout"}
			}
			return ledger.Outcome{Result: ledger.ResultAccepted, Receipt: "receipt"}
		}
		for n := range 512 {
			w.waits(n, "gone", 0)
		}
		w.holds(1000, "keyed", 0, lease)
		stop := h.works()
		time.Sleep(2*lease + sweep)
		synctest.Wait()
		if e := w.entry(1000); e.State == ledger.Sending {
			t.Error("its lease ended 35 s ago, and nobody has looked")
		}
		stop()
	})
}

// loses is a database that was changed for one which forgot everything.
func (w *world) loses() {
	_, _ = w.memory.Notice(context.Background(), "one", false)
	forgot := dbtest.NewMemory(time.Now)
	_, _ = forgot.Notice(context.Background(), "one", false)
	forgot.Move("two")
	w.memory, w.ledger.Memory = forgot, forgot
}

func TestAfterTheDatabaseForgotNothingIsSentBlindly(t *testing.T) {
	for provider, want := range map[string]struct {
		state  ledger.State
		reason ledger.Reason
		calls  int
	}{
		"keyed": {ledger.Sent, ledger.ReasonAccepted, 1}, // the same key, inside its window
		"desk":  {ledger.Unknown, ledger.ReasonLedgerChanged, 0},
		"blind": {ledger.Unknown, ledger.ReasonLedgerChanged, 0},
	} {
		bubble(t, func(t *testing.T, w *world) {
			before := time.Now()
			time.Sleep(time.Minute)
			w.loses()
			h := opens(w, provider)
			h.push("ours", 1, ledger.Delivery{Published: before, Count: 2})
			time.Sleep(time.Second)
			h.push("ours", 2, ledger.Delivery{Published: time.Now()}) // later ones flow
			stop := h.works()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			stop()
			w.wants(1, want.state, want.reason)
			w.wants(2, ledger.Sent, ledger.ReasonAccepted)
			if h.called() != want.calls+1 {
				t.Errorf("%s: %d calls, want %d", provider, h.called(), want.calls+1)
			}
			story := w.story(1)
			if story.Timeline[0].Reason != ledger.ReasonLedgerChanged || story.Payload == nil {
				t.Errorf("%s: told as %+v", provider, story.Timeline[0])
			}
		})
	}
}

// Where neither broker nor reminder says when it was published, only the broker's own counter tells that a
// delivery is not the first.
func TestARedeliveryWithoutATimeIsNotTakenForNewAfterTheDatabaseForgot(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.loses()
		h := opens(w, "blind")
		h.push("queue", 1, ledger.Delivery{})
		w.wants(1, ledger.Sent, ledger.ReasonAccepted) // the first reading notices; what comes later is new
		time.Sleep(time.Second)
		h.push("queue", 2, ledger.Delivery{Count: 3})
		if e := w.entry(2); e.State == ledger.Sent {
			t.Error("delivered for the third time, first published nobody knows when, and sent without doubt")
		}
		_ = h.desk.Wait(t.Context())
	})
}

// Versions count anew in a database that forgot: a holder from before must not take another write for its own.
func TestAHolderFromBeforeTheDatabaseForgotUndoesNoCancel(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		h := opens(w, "blind")
		h.send = func(context.Context, string, ledger.Shipment) ledger.Outcome {
			if h.called() == 1 {
				time.Sleep(time.Millisecond)
				w.loses()
				gone, err := h.desk.Cancel(context.Background(), "shop", identity(1).ReminderID, "t", "email")
				if err != nil || len(gone) != 1 || gone[0].Result != ledger.CancelDropped {
					t.Errorf("Cancel: %+v, %v", gone, err)
				}
			}
			return ledger.Outcome{Result: ledger.ResultThrottled}
		}
		h.push("queue", 1, ledger.Delivery{Published: time.Now()})
		if e := w.wants(1, ledger.Dropped, ledger.ReasonCancelled); !e.CancelAsked {
			t.Error("the mark is gone")
		}
		stop := h.works()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		if h.called() != 1 {
			t.Errorf("%d calls; the caller was told that it would not be sent", h.called())
		}
	})
}

func TestADeliveryIsNotAckedWhileTheChangeCannotBeNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		log := &notices{EpochLog: w.memory, fails: errLost}
		h := opens(w, "blind")
		h.desk.Epochs = reconcile.NewFailovers(log, time.Hour, nil)
		reply, err := h.desk.Deliver(t.Context(), ledger.Delivery{Source: "queue", MessageID: "m", Raw: []byte(
			`{"reminder_id": "r-0001", "type": "t", "channel": "email", "to": "a@b.example", "content": {"text": "x"}}`)})
		if err == nil || reply.Ack || h.called() != 0 || !w.entry(1).Absent() {
			t.Errorf("ack %t, %v, %d calls", reply.Ack, err, h.called())
		}
	})
}
