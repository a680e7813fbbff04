package blackbox

import (
	"fmt"
	"testing"
	"time"

	"github.com/sendonce/sendonce/internal/provider/providertest"
)

// The configuration of these cases, in short: a lease, a sweep, and how long the ledger waits for a broker.
const (
	lease    = 3 * time.Second
	sweeps   = 200 * time.Millisecond
	takeover = time.Second
)

// leased is that configuration.
func (f flavour) leased(database string, p *provider) config {
	return hasty(database, p).with(f.contract(), "providers", "mail", "contract")
}

// The row stood, its process died, and every redelivery was taken for a duplicate: nothing was ever sent.
func TestB09WhatADeadProcessRecordedIsFinishedOrTold(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		t.Parallel()
		onFlavours(t, func(t *testing.T, f flavour) {
			// On one ledger, one after the other: with a redelivery, and without one.
			p := startProvider(t)
			f.plays(p, nil)
			for _, brought := range []bool{true, false} {
				d := remind(fmt.Sprintf("rem-b09-%v-%v", f.honours, brought))
				c := f.leased(database, p)
				g := serveRigged(t, c, "claim_unseen:kill")
				g.killed("claim_unseen", d)
				g = serve(t, c)
				if brought {
					g.push(d.String())
				}
				state, calls := "sent", 1
				if !f.honours { // it may have been sent, and nobody may find out by doing it
					state, calls = "unknown", 0
				}
				s := g.comesTo(d, state, 20*time.Second)
				lapse, last := s.Timeline[0], s.Timeline[len(s.Timeline)-1]
				if s.Entry.Lapses != 1 || lapse.Kind != "lapse" {
					t.Errorf("%+v\n%s", s.Entry, s.told())
				}
				if took := last.At.Sub(lapse.Started); took > 3*lease+sweeps+takeover {
					t.Errorf("it came to rest %v after its claim", took)
				}
				g.repeated(d, 2)
				p.saw(d, calls, calls)
				g.kill()
			}
		})
	})
}

// A reaper had read that a worker was silent, the worker finished, and the reaper put the job back.
func TestB10ASweepThatReadBeforeTheSettleDoesNotUndoIt(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p, d := startProvider(t), remind("rem-b10")
		f.plays(p, nil)
		c := f.leased(shared(t), p)
		holder := serveRigged(t, c.with("10m", "sweep"), "before_settle:stop")
		holder.swept() // so that it does not, when it wakes
		pushed := holder.stopped("before_settle", d)
		sweeper := spawnRigged(t, c, "before_lapse:stop")
		sweeper.stopped("before_lapse", nil) // its lease is over, and the sweeper has read so

		holder.continues()
		<-pushed
		settled := holder.comesTo(d, "sent", 10*time.Second)
		sweeper.continues()
		sweeper.awake()
		throughout(t, 4*sweeps, "it is as the holder left it", func() bool {
			return holder.of(d).Entry.Version == settled.Entry.Version
		})
		s := holder.stands(d, standing{"sent", "", "accepted", 1})
		s.tells(t, "accepted")
		if s.Entry.Lapses != 0 || len(s.Timeline) != 1 {
			t.Errorf("%+v\n%s", s.Entry, s.told())
		}
		p.saw(d, 1, 1)
	})
}

// The same, where another one has claimed the row meanwhile: the reaper takes nothing from it.
func TestB10ASweepThatReadBeforeANewClaimDoesNotEndIt(t *testing.T) {
	t.Parallel()
	p, d := startProvider(t), remind("rem-b10")
	p.told(providertest.Control{Idempotent: true, LatencyMin: 1500 * time.Millisecond, LatencyMax: 1500 * time.Millisecond})
	c := flavour{honours: true}.leased(shared(t), p).with("5s", "lease").with("3900ms", "providers", "mail", "timeout")
	dead := serveRigged(t, c, "claimed:kill")
	dead.killed("claimed", d)
	sweeper := spawnRigged(t, c, "before_lapse:stop")
	sweeper.stopped("before_lapse", nil)

	g := serve(t, c)
	until(t, 15*time.Second, "the new holder calls", func() bool {
		g.pushes(d)
		return p.tally(d).Calls == 1
	})
	if s := g.of(d); s.Entry.State != "sending" {
		t.Fatalf("%+v", s.Entry)
	}
	sweeper.continues()
	sweeper.awake()
	s := g.comesTo(d, "sent", 10*time.Second)
	g.stands(d, standing{"sent", "", "accepted", 1}).tells(t, "accepted")
	if s.Entry.Lapses != 1 || len(s.late()) > 0 {
		t.Errorf("%+v\n%s", s.Entry, s.told())
	}
	p.saw(d, 1, 1)
}

// A worker stood still for longer than its lease, another one took the job, and then the first finished too.
func TestB12AWorkerThatWakesUpAfterItsLeaseDoesNotSend(t *testing.T) {
	t.Parallel()
	p, d := startProvider(t), remind("rem-b12")
	p.told(providertest.Control{}) // it would take a second one
	c := flavour{honours: true}.leased(shared(t), p).with("6s", "lease")
	b := serve(t, c)
	b.ready()
	a := serveRigged(t, c, "claim_unseen:stop")
	pushed := a.stopped("claim_unseen", d)
	b.nacked(d) // the claim is alive
	b.acked(d, 25*time.Second)
	settled := b.stands(d, standing{"sent", "", "accepted", 1})
	p.saw(d, 1, 1)
	a.continues()
	<-pushed
	a.ready()
	a.repeated(d, 2)
	throughout(t, 4*sweeps, "it is as the other one left it", func() bool {
		return b.of(d).Entry.Version == settled.Entry.Version
	})
	if s := b.of(d); s.Entry.Lapses != 1 {
		t.Errorf("%+v\n%s", s.Entry, s.told())
	}
	p.saw(d, 1, 1)
}

// The same, when its request had gone out already: the other may repeat it only where that is harmless.
func TestB12WhatASleepingWorkerHadSentIsRepeatedOnlyUnderItsKey(t *testing.T) {
	t.Parallel()
	onFlavours(t, func(t *testing.T, f flavour) {
		t.Parallel()
		p, d := startProvider(t), remind("rem-b12")
		f.plays(p, nil)
		c := f.leased(shared(t), p)
		a := serveRigged(t, c, "written:stop")
		pushed := a.stopped("written", d)
		b := serve(t, c)
		b.acked(d, 15*time.Second)
		if !f.honours {
			b.stands(d, standing{"unknown", "unknown", "lapsed", 0})
			p.saw(d, 1, 1)
			b.repeated(d, 3)
		}
		a.continues()
		<-pushed
		until(t, 10*time.Second, "it tells what became of its claim", func() bool { return len(b.of(d).late()) == 1 })
		heard := b.of(d).late()[0]
		a.shows(`sendonce_late_total{kind="`+heard+`"}`, "1")
		switch {
		case f.honours:
			b.stands(d, standing{"sent", "", "accepted", 1})
			p.saw(d, 2, 1)
			if heard != "replayed" && heard != "late_failure" {
				t.Errorf("it told late: %s", heard)
			}
		case heard == "late_acceptance": // it read the answer before it looked at the clock
			b.stands(d, standing{"sent", "", "late_acceptance", 0})
			p.saw(d, 1, 1)
		default:
			b.stands(d, standing{"unknown", "unknown", "lapsed", 0})
			p.saw(d, 1, 1)
		}
	})
}

// An expiry was written by one machine's clock and judged by another's.
func TestB13NoReplicasClockEndsALiveClaim(t *testing.T) {
	t.Parallel()
	for name, clocks := range map[string]struct {
		orders string // of the holder
		a, b   string // offsets
	}{
		"the other is ahead":      {"none", "0s", "10m"},
		"the other is a day off":  {"none", "0s", "24h"},
		"the holder is behind":    {"none", "-10m", "0s"},
		"the holder is a day off": {"none", "-24h", "0s"},
		"it jumps back meanwhile": {"written:jump=-1h", "0s", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, d := startProvider(t), remind("rem-b13")
			p.told(providertest.Control{LatencyMin: 1200 * time.Millisecond, LatencyMax: 1200 * time.Millisecond})
			c := flavour{}.leased(shared(t), p).with("10s", "lease").with("8s", "providers", "mail", "timeout").
				with("9s", "sources", "queue", "answer_within")
			b := serveRigged(t, c, "none", "SENDONCE_CLOCK_OFFSET="+clocks.b)
			a := serveRigged(t, c, clocks.orders, "SENDONCE_CLOCK_OFFSET="+clocks.a)
			pushed := a.pushes(d)
			until(t, 10*time.Second, "it is called", func() bool { return p.tally(d).Calls == 1 })
			b.nacked(d)
			if got := <-pushed; !isAck(got) {
				t.Errorf("the holder answers %s", got)
			}
			s := b.stands(d, standing{"sent", "", "accepted", 1})
			s.tells(t, "accepted")
			if s.Entry.Lapses != 0 {
				t.Errorf("%+v", s.Entry)
			}
			b.repeated(d, 1)
			p.saw(d, 1, 1)
		})
	}
}

// And a dead claim is recovered when its lease is over, whatever a replica takes the time for.
func TestB13ADeadClaimIsRecoveredInTimeByEveryClock(t *testing.T) {
	t.Parallel()
	for _, offsets := range [][2]string{{"0s", "10m"}, {"0s", "-10m"}, {"10m", "-10m"}, {"24h", "0s"}, {"0s", "-24h"}} {
		t.Run(fmt.Sprint(offsets), func(t *testing.T) {
			t.Parallel()
			p, d := startProvider(t), remind("rem-b13")
			p.told(providertest.Control{Idempotent: true})
			c := flavour{honours: true}.leased(shared(t), p)
			b := serveRigged(t, c, "none", "SENDONCE_CLOCK_OFFSET="+offsets[1])
			a := serveRigged(t, c, "claimed:kill", "SENDONCE_CLOCK_OFFSET="+offsets[0])
			a.killed("claimed", d)
			s := b.comesTo(d, "sent", 20*time.Second)
			lapse := s.Timeline[0]
			if lapse.Kind != "lapse" {
				t.Fatalf("%s", s.told())
			}
			if held := lapse.Finished.Sub(lapse.Started).Round(time.Millisecond); held != lease {
				t.Errorf("its lease was of %v", held)
			}
			if late := lapse.At.Sub(lapse.Finished); late < 0 || late > 2*sweeps+time.Second {
				t.Errorf("its end was seen after %v", late)
			}
			p.saw(d, 1, 1)
		})
	}
}
