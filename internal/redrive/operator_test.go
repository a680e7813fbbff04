package redrive_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/redrive"
)

func TestDiscard_IsStoredWithItsAuditEvent(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		e := h.insertDead(identity(0))
		rd := h.newRedriver()
		audit := ledger.AuditEvent{Actor: "ada", Role: "operator", Reason: "the course was called off"}
		if stored, err := rd.Discard(t.Context(), e.Identity, e.Version+1, audit); !errors.Is(err, ledger.ErrStale) || stored != e {
			t.Errorf("another version: %+v, %v", stored, err)
		}
		h.ledger.after = once("update " + e.ReminderID) // the write happens, and its reply is lost
		stored, err := rd.Discard(t.Context(), e.Identity, e.Version, audit)
		if err != nil || stored.State != ledger.Dropped || stored.Reason != ledger.ReasonDiscarded {
			t.Fatalf("%+v, %v", stored, err)
		}
		if _, err := rd.Discard(t.Context(), e.Identity, stored.Version, audit); !errors.Is(err, ledger.ErrNotDead) {
			t.Errorf("twice: %v", err)
		}
		if _, err := rd.Discard(t.Context(), identity(9), 1, audit); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("no such entry: %v", err)
		}
		detail, err := h.memory.EntryDetail(t.Context(), e.Identity)
		if err != nil || len(detail.Audit) != 1 || detail.Audit[0].Reason != audit.Reason || detail.Payload == nil {
			t.Errorf("%+v, %v", detail, err)
		}
	})
}

func TestStart_LimitsRunningRedrives(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(1)
		rd := h.newRedriver(func(o *redrive.Options) { o.MaxRunning = 2 })
		h.start(rd, request("a"))
		h.start(rd, request("b"))
		if _, err := rd.Start(t.Context(), request("c")); !errors.Is(err, ledger.ErrTooManyRedrives) {
			t.Errorf("a third: %v", err)
		}
		h.start(rd, request("a")) // the key is known
		h.finish(rd)
		if _, err := rd.Show(t.Context(), "unknown"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("no such redrive: %v", err)
		}
	})
}

func TestStart_LimitHoldsForConcurrentStarts(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(3)
		rd := h.newRedriver(func(o *redrive.Options) { o.MaxRunning = 3 })
		rejected := make([]bool, 50)
		var all sync.WaitGroup
		for i := range rejected {
			all.Go(func() {
				_, err := rd.Start(t.Context(), request(fmt.Sprint("key-", i)))
				if rejected[i] = errors.Is(err, ledger.ErrTooManyRedrives); err != nil && !rejected[i] {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if running, err := h.memory.RunningRedrives(t.Context()); err != nil || running != 3 {
			t.Errorf("%d running, %v", running, err)
		}
	})
}

func TestStart_RepeatedKeyIsOneRedrive(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(3)
		rd := h.newRedriver()
		ids := make([]string, 50)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() { ids[i] = h.start(rd, request("key")).ID })
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatalf("%s and %s", id, ids[0])
			}
		}
		other := request("key")
		other.RequestHash = "other"
		if _, err := rd.Start(t.Context(), other); !errors.Is(err, ledger.ErrKeyReused) {
			t.Errorf("another request: %v", err)
		}
		another := request("key")
		another.Audit.Actor = "ben"
		if r := h.start(rd, another); r.ID == ids[0] {
			t.Error("the key of another actor was taken for the first one's")
		}
		h.finish(rd)
		if again := h.start(rd, request("key")); again.ID != ids[0] || again.State != ledger.RedriveDone {
			t.Errorf("afterwards: %+v", again)
		}
	})
}

func TestStart_LostReplyCreatesOneRedrive(t *testing.T) {
	bubble(t, func(t *testing.T, h *harness) {
		h.insertDeadLetters(1)
		h.ledger.after = once("insert")
		h.start(h.newRedriver(), request(""))
		if n, err := h.memory.RunningRedrives(t.Context()); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}
