package telemetry

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sendonce/sendonce/internal/ledger"
)

type failingBacklog struct{ err error }

func (f failingBacklog) Backlog(context.Context) (ledger.Backlog, error) {
	return ledger.Backlog{}, f.err
}

// backlogFunc is a [BacklogCounter] made of a function.
type backlogFunc func(ctx context.Context) (ledger.Backlog, error)

func (f backlogFunc) Backlog(ctx context.Context) (ledger.Backlog, error) { return f(ctx) }

func gaugesOf(h *harness) map[string]float64 {
	only := map[string]float64{}
	for name, v := range h.scraped() {
		for _, gauge := range []string{"sendonce_pending", "sendonce_ready", "sendonce_dead{", "sendonce_capacity", "sendonce_gate"} {
			if strings.HasPrefix(name, gauge) {
				only[name] = v
			}
		}
	}
	return only
}

func TestWatchBacklog_ShowsEveryGauge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		now := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go h.WatchBacklog(ctx, backlogFunc(func(context.Context) (ledger.Backlog, error) {
			return ledger.Backlog{
				Now: now,
				Pending: []ledger.PendingCount{
					{State: ledger.Waiting, Count: 12, Since: now.Add(-90 * time.Second)},
					{State: ledger.Sending, Count: 2, Since: now.Add(time.Second)},
					{State: ledger.Sent, Count: 99},
				},
				Dead:  map[ledger.Class]int64{ledger.ClassExhausted: 7},
				Ready: map[string]int64{"mail": 5},
			}, nil
		}), 15*time.Second)
		synctest.Wait()

		want := map[string]float64{
			`sendonce_pending{state="sending"}`: 2, `sendonce_pending{state="waiting"}`: 12, `sendonce_pending{state="unknown"}`: 0,
			`sendonce_pending_oldest_seconds{state="sending"}`: 0, `sendonce_pending_oldest_seconds{state="waiting"}`: 90,
			`sendonce_pending_oldest_seconds{state="unknown"}`: 0,
			`sendonce_ready{provider="mail"}`:                  5, `sendonce_ready{provider="sms"}`: 0,
			`sendonce_dead{class="permanent"}`: 0, `sendonce_dead{class="recipient"}`: 0, `sendonce_dead{class="exhausted"}`: 7,
			`sendonce_dead{class="unroutable"}`: 0, `sendonce_dead{class="malformed"}`: 0, `sendonce_dead{class="broker"}`: 0,
		}
		if diff := cmp.Diff(want, gaugesOf(h)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWatchBacklog_FailureRemovesStaleGauges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, failure := range map[string]backlogFunc{
			"it fails": func(context.Context) (ledger.Backlog, error) { return ledger.Backlog{}, errors.New("no connection") },
			"it hangs": func(ctx context.Context) (ledger.Backlog, error) { <-ctx.Done(); return ledger.Backlog{}, ctx.Err() },
		} {
			h := newHarness(t)
			var down atomic.Bool
			ctx, cancel := context.WithCancel(t.Context())
			go h.WatchBacklog(ctx, backlogFunc(func(ctx context.Context) (ledger.Backlog, error) {
				if down.Load() {
					return failure(ctx)
				}
				return ledger.Backlog{Now: time.Now()}, nil
			}), 15*time.Second)
			synctest.Wait()
			if age := h.scraped()["sendonce_backlog_age_seconds"]; age != 0 || len(gaugesOf(h)) == 0 {
				t.Errorf("%s: age %v, gauges %v", name, age, gaugesOf(h))
			}
			down.Store(true)
			time.Sleep(45*time.Second + time.Millisecond) // the synctest bubble's clock, not the real one
			synctest.Wait()
			if age := h.scraped()["sendonce_backlog_age_seconds"]; age < 45 {
				t.Errorf("%s: age %v after 45 s", name, age)
			}
			if got := gaugesOf(h); len(got) != 0 {
				t.Errorf("%s: still shown: %v", name, got)
			}
			if got := h.scraped()["sendonce_backlog_failures_total"]; got < 2 {
				t.Errorf("%s: %v failures counted", name, got)
			}
			if line := h.lines()[0]; line["msg"] != "counting the backlog failed" || line["level"] != "ERROR" {
				t.Errorf("%s: line %v", name, line)
			}
			down.Store(false)
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if len(gaugesOf(h)) == 0 || h.scraped()["sendonce_backlog_age_seconds"] > 15 {
				t.Errorf("%s: the gauges did not come back", name)
			}
			cancel()
			synctest.Wait()
		}
	})
}

func TestClosedGates_ClosedUntilACallSucceeds(t *testing.T) {
	now := time.Date(2031, 3, 4, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		gate ledger.Gate
		want int64
	}{
		"never closed":     {ledger.Gate{}, 0},
		"closed":           {ledger.Gate{ClosedUntil: ledger.At(now.Add(time.Second))}, 1},
		"open for a probe": {ledger.Gate{ClosedUntil: ledger.At(now.Add(-time.Second)), Failures: 2}, 1},
		"open again":       {ledger.Gate{ClosedUntil: ledger.At(now.Add(-time.Second))}, 0},
	} {
		if got := closedGates([]ledger.Gate{c.gate}, now)[""]; got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestGauges_GatesUseTheLedgersClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t)
		ledgerNow := time.Now().Add(-time.Hour) // the local clock is an hour fast
		h.gauges.set(ledger.Backlog{Now: ledgerNow}, time.Now(), time.Minute)
		h.Providers(func() []ledger.Gate {
			return []ledger.Gate{{Provider: "mail", ClosedUntil: ledger.At(ledgerNow.Add(10 * time.Second))}}
		}, func() map[string]int { return map[string]int{"mail": 20, "sms": 3} })

		want := map[string]float64{
			`sendonce_gate_closed{provider="mail"}`: 1, `sendonce_gate_closed{provider="sms"}`: 0,
			`sendonce_capacity{provider="mail"}`: 20, `sendonce_capacity{provider="sms"}`: 3,
		}
		got := h.scraped()
		for name, v := range want {
			if had, ok := got[name]; !ok || had != v {
				t.Errorf("%s = %v, %v, want %v", name, had, ok, v)
			}
		}
		time.Sleep(11 * time.Second)
		if got := h.scraped()[`sendonce_gate_closed{provider="mail"}`]; got != 0 {
			t.Error("the gate is still closed 11 s later")
		}
	})
}
