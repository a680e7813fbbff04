package blackbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// The settings of these cases: the lease, the sweep interval, and the source's takeover_after.
const (
	lease    = 3 * time.Second
	sweeps   = 200 * time.Millisecond
	takeover = time.Second
)

// fastConfig returns a configuration with these settings and the flavour's contract.
func (f flavour) fastConfig(database string, p *provider) config {
	return fastConfig(database, p).with(f.contract(), "providers", "mail", "contract")
}

// Bug: the row existed, its process died, and every redelivery was taken for a duplicate: nothing was ever
// sent.
func TestB09_ClaimOfADeadProcessIsFinishedOrReported(t *testing.T) {
	t.Parallel()
	forEachStore(t, func(t *testing.T, database string) {
		t.Parallel()
		forEachFlavour(t, func(t *testing.T, f flavour) {
			// On one ledger, one after the other: with a redelivery, and without one.
			p := startProvider(t)
			f.setModes(p, nil)
			for _, redelivered := range []bool{true, false} {
				d := newReminder(fmt.Sprintf("rem-b09-%v-%v", f.honours, redelivered))
				c := f.fastConfig(database, p)
				g := serveWithOrders(t, c, "claim_unseen:kill")
				g.waitKilled("claim_unseen", d)
				g = serve(t, c)
				if redelivered {
					g.push(d.String())
				}
				state, calls := "sent", 1
				if !f.honours { // it may have been sent, and sending again is not allowed
					state, calls = "unknown", 0
				}
				s := g.waitForState(d, state, 20*time.Second)
				expired, last := s.Timeline[0], s.Timeline[len(s.Timeline)-1]
				if s.Entry.LeaseExpirations != 1 || expired.Kind != "lease_expired" {
					t.Errorf("%+v\n%s", s.Entry, s.text())
				}
				if took := last.At.Sub(expired.Started); took > 3*lease+sweeps+takeover {
					t.Errorf("it was settled %v after its claim", took)
				}
				g.redeliver(d, 2)
				p.checkCalls(d, calls, calls)
				g.kill()
			}
		})
	})
}

// Bug: a reaper had read that a worker was silent, the worker finished, and the reaper put the job back.
func TestB10_SweepThatReadBeforeTheSettleDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p, d := startProvider(t), newReminder("rem-b10")
		f.setModes(p, nil)
		c := f.fastConfig(newPostgres(t), p)
		holder := serveWithOrders(t, c.with("10m", "sweep"), "before_settle:stop")
		holder.waitForSweep() // so that it does not sweep when it resumes
		pushed := holder.waitStopped("before_settle", d)
		sweeper := spawnWithOrders(t, c, "before_expire:stop")
		sweeper.waitStopped("before_expire", nil) // the lease has expired, and the sweeper has read that it has

		holder.resume()
		<-pushed
		settled := holder.waitForState(d, "sent", 10*time.Second)
		sweeper.resume()
		sweeper.waitServing()
		checkThroughout(t, 4*sweeps, "it is as the holder settled it", func() bool {
			return holder.detail(d).Entry.Version == settled.Entry.Version
		})
		s := holder.checkState(d, entryState{"sent", "", "accepted", 1})
		s.checkOutcomes(t, "accepted")
		if s.Entry.LeaseExpirations != 0 || len(s.Timeline) != 1 {
			t.Errorf("%+v\n%s", s.Entry, s.text())
		}
		p.checkCalls(d, 1, 1)
	})
}

// The same when another holder has claimed the row meanwhile: the sweep takes nothing from it.
func TestB10_SweepThatReadBeforeANewClaimDoesNotEndIt(t *testing.T) {
	t.Parallel()
	p, d := startProvider(t), newReminder("rem-b10")
	p.setControl(providertest.Control{Idempotent: true, LatencyMin: 1500 * time.Millisecond, LatencyMax: 1500 * time.Millisecond})
	c := flavour{honours: true}.fastConfig(newPostgres(t), p).with("5s", "lease").with("3900ms", "providers", "mail", "timeout")
	dead := serveWithOrders(t, c, "claimed:kill")
	dead.waitKilled("claimed", d)
	sweeper := spawnWithOrders(t, c, "before_expire:stop")
	sweeper.waitStopped("before_expire", nil)

	g := serve(t, c)
	waitUntil(t, 15*time.Second, "the new holder calls", func() bool {
		g.pushAsync(d)
		return p.countsFor(d).Calls == 1
	})
	if s := g.detail(d); s.Entry.State != "sending" {
		t.Fatalf("%+v", s.Entry)
	}
	sweeper.resume()
	sweeper.waitServing()
	s := g.waitForState(d, "sent", 10*time.Second)
	g.checkState(d, entryState{"sent", "", "accepted", 1}).checkOutcomes(t, "accepted")
	if s.Entry.LeaseExpirations != 1 || len(s.lateReasons()) > 0 {
		t.Errorf("%+v\n%s", s.Entry, s.text())
	}
	p.checkCalls(d, 1, 1)
}

// Bug: a worker was suspended for longer than its lease, another one took the job, and then the first
// finished too.
func TestB12_HolderThatWakesUpAfterItsLeaseDoesNotSend(t *testing.T) {
	t.Parallel()
	p, d := startProvider(t), newReminder("rem-b12")
	p.setControl(providertest.Control{}) // it would accept a second request
	c := flavour{honours: true}.fastConfig(newPostgres(t), p).with("6s", "lease")
	b := serve(t, c)
	b.waitReady()
	a := serveWithOrders(t, c, "claim_unseen:stop")
	pushed := a.waitStopped("claim_unseen", d)
	b.pushExpectNack(d) // the claim is still valid
	b.pushUntilAcked(d, 25*time.Second)
	settled := b.checkState(d, entryState{"sent", "", "accepted", 1})
	p.checkCalls(d, 1, 1)
	a.resume()
	<-pushed
	a.waitReady()
	a.redeliver(d, 2)
	checkThroughout(t, 4*sweeps, "it is as the other gateway settled it", func() bool {
		return b.detail(d).Entry.Version == settled.Entry.Version
	})
	if s := b.detail(d); s.Entry.LeaseExpirations != 1 {
		t.Errorf("%+v\n%s", s.Entry, s.text())
	}
	p.checkCalls(d, 1, 1)
}

// The same when its request had been written already: the new holder may repeat it only where that is
// harmless.
func TestB12_RequestOfASleepingHolderIsRepeatedOnlyUnderItsKey(t *testing.T) {
	t.Parallel()
	forEachFlavour(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p, d := startProvider(t), newReminder("rem-b12")
		f.setModes(p, nil)
		c := f.fastConfig(newPostgres(t), p)
		a := serveWithOrders(t, c, "written:stop")
		pushed := a.waitStopped("written", d)
		b := serve(t, c)
		b.pushUntilAcked(d, 15*time.Second)
		if !f.honours {
			b.checkState(d, entryState{"unknown", "unknown", "lease_expired", 0})
			p.checkCalls(d, 1, 1)
			b.redeliver(d, 3)
		}
		a.resume()
		<-pushed
		waitUntil(t, 10*time.Second, "it records a late result", func() bool { return len(b.detail(d).lateReasons()) == 1 })
		reported := b.detail(d).lateReasons()[0]
		a.waitForMetric(`sendonce_late_total{kind="`+reported+`"}`, "1")
		switch {
		case f.honours:
			b.checkState(d, entryState{"sent", "", "accepted", 1})
			p.checkCalls(d, 2, 1)
			if reported != "replayed" && reported != "late_failure" {
				t.Errorf("late result: %s", reported)
			}
		case reported == "late_acceptance": // it read the response before it checked the clock
			b.checkState(d, entryState{"sent", "", "late_acceptance", 0})
			p.checkCalls(d, 1, 1)
		default:
			b.checkState(d, entryState{"unknown", "unknown", "lease_expired", 0})
			p.checkCalls(d, 1, 1)
		}
	})
}

// Bug: an expiry was written by one machine's clock and compared with another's.
func TestB13_NoReplicaClockEndsALiveClaim(t *testing.T) {
	t.Parallel()
	for name, clocks := range map[string]struct {
		orders string // of the holder
		a, b   string // clock offsets of the two replicas
	}{
		"the other is ahead":      {"none", "0s", "10m"},
		"the other is a day off":  {"none", "0s", "24h"},
		"the holder is behind":    {"none", "-10m", "0s"},
		"the holder is a day off": {"none", "-24h", "0s"},
		"it jumps back meanwhile": {"written:jump=-1h", "0s", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := startProvider(t), newReminder("rem-b13")
			p.setControl(providertest.Control{LatencyMin: 1200 * time.Millisecond, LatencyMax: 1200 * time.Millisecond})
			c := flavour{}.fastConfig(newPostgres(t), p).with("10s", "lease").with("8s", "providers", "mail", "timeout").
				with("9s", "sources", "queue", "answer_within")
			b := serveWithOrders(t, c, "none", "SENDONCE_CLOCK_OFFSET="+clocks.b)
			a := serveWithOrders(t, c, clocks.orders, "SENDONCE_CLOCK_OFFSET="+clocks.a)
			pushed := a.pushAsync(d)
			waitUntil(t, 10*time.Second, "it is called", func() bool { return p.countsFor(d).Calls == 1 })
			b.pushExpectNack(d)
			if got := <-pushed; !isAck(got) {
				t.Errorf("the holder's response: %s", got)
			}
			s := b.checkState(d, entryState{"sent", "", "accepted", 1})
			s.checkOutcomes(t, "accepted")
			if s.Entry.LeaseExpirations != 0 {
				t.Errorf("%+v", s.Entry)
			}
			b.redeliver(d, 1)
			p.checkCalls(d, 1, 1)
		})
	}
}

// The counterpart: a dead claim is recovered when its lease is over, whatever time a replica's clock shows.
func TestB13_DeadClaimIsRecoveredInTimeUnderAnyClock(t *testing.T) {
	t.Parallel()
	for _, offsets := range [][2]string{{"0s", "10m"}, {"0s", "-10m"}, {"10m", "-10m"}, {"24h", "0s"}, {"0s", "-24h"}} {
		t.Run(fmt.Sprint(offsets), func(t *testing.T) {
			t.Parallel()
			p, d := startProvider(t), newReminder("rem-b13")
			p.setControl(providertest.Control{Idempotent: true})
			c := flavour{honours: true}.fastConfig(newPostgres(t), p)
			b := serveWithOrders(t, c, "none", "SENDONCE_CLOCK_OFFSET="+offsets[1])
			a := serveWithOrders(t, c, "claimed:kill", "SENDONCE_CLOCK_OFFSET="+offsets[0])
			a.waitKilled("claimed", d)
			s := b.waitForState(d, "sent", 20*time.Second)
			expired := s.Timeline[0]
			if expired.Kind != "lease_expired" {
				t.Fatalf("%s", s.text())
			}
			if held := expired.Finished.Sub(expired.Started).Round(time.Millisecond); held != lease {
				t.Errorf("its lease was %v long", held)
			}
			if late := expired.At.Sub(expired.Finished); late < 0 || late > 2*sweeps+time.Second {
				t.Errorf("its expiry was recorded after %v", late)
			}
			p.checkCalls(d, 1, 1)
		})
	}
}
