package blackbox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// stopCases returns the cases of a gateway that stops itself at a point, past its lease, while another one on
// the same ledger gets the redelivery.
func stopCases() []crashCase {
	points := slices.Concat(pointsOfNothing, pointsOfClaim, pointsOfCall, pointsOfSettle, pointsOfWait, pointsOfSweep, pointsOfLookup)
	var all []crashCase
	for _, c := range crashCases() {
		if slices.Contains(points, c.at) && c.store == "postgres" && c.redelivered {
			all = append(all, c)
		}
	}
	return all
}

// stopSelection returns the cases that an ordinary run takes: what a stale holder could do with a call of its
// own.
func stopSelection(all []crashCase) []crashCase {
	var selection []crashCase
	for _, c := range all {
		held := slices.Contains(pointsOfClaim, c.at) || slices.Contains(pointsOfCall, c.at)
		usual := c.contract == "idempotent" || slices.Contains(pointsOfLookup, c.at)
		if (c.outcome == "accepted" || c.outcome == scheduled) && (usual || held && c.contract == "blind") {
			selection = append(selection, c)
		}
	}
	return selection
}

// TestCrash_StoppedAnywhereSendsNothingAfterResuming checks that a gateway whose claim was taken over does
// not send, except what was already on the wire; and that a late result changes nothing unless it proves
// acceptance.
func TestCrash_StoppedAnywhereSendsNothingAfterResuming(t *testing.T) {
	t.Parallel()
	cases := stopCases()
	if !*wholeMatrix {
		cases = stopSelection(cases)
	}
	w := newCrashSuite(t, cases)
	w.runAll(t, cases, func(t *testing.T, c crashCase) {
		p, open := w.providers.forCase(t, c)
		cfg, d := c.config(newLedger(t, c.store), p), c.reminder()
		at, second, sweeps := strings.Cut(c.at, "+")
		if sweeps { // they find the entry by themselves, and nothing is delivered
			serveWithOrders(t, cfg, at+":kill").waitKilled(at, d)
			at = second
		}
		stopped := spawnWithOrders(t, cfg, at+":stop")
		var answered <-chan answer
		if sweeps {
			stopped.waitStopped(at, nil)
		} else {
			stopped.waitServing()
			d = c.reminder()
			answered = stopped.waitStopped(at, d)
		}
		open()
		g := serve(t, cfg)
		c.checkFinalState(t, g, p, d)
		before := g.detail(d)

		stopped.resume()
		if !sweeps {
			<-answered
		}
		// Resumed at claim_unseen it finds that its clock reading is too old, and makes no call.
		holder := at != "claim_unseen" && slices.Contains(slices.Concat(pointsOfClaim, pointsOfCall), at)
		if holder && !eventually(10*time.Second, func() bool { return len(g.detail(d).lateReasons()) > 0 }) {
			t.Errorf("it records no late result:\n%s", g.detail(d).text())
		}
		stopped.waitServing()
		if g.detail(d).Entry.State == "sent" {
			stopped.redeliver(d, 1)
		}
		c.checkUnchanged(t, before, g.detail(d))
		want, seen, more := c.expected(), p.countsFor(d), 0
		if at == "connected" { // suspended between its last check of the clock and the first byte
			more = 1
		}
		if seen.Accepts > 1 || seen.Calls > want.calls+more || c.contract != "idempotent" && seen.Calls > max(want.calls, 1) {
			t.Errorf("resumed at %s it called: the provider saw %+v, want %d calls", at, seen, want.calls)
		}
	})
}

// lateReasons returns the reasons of the events that a holder recorded after its entry had moved on.
func (d entryDetail) lateReasons() []string {
	var reasons []string
	for _, l := range d.Timeline {
		if l.Kind == "late" {
			reasons = append(reasons, l.Reason)
		}
	}
	return reasons
}

// checkUnchanged checks that the late result changed nothing, except that proof of acceptance makes any entry
// sent.
func (c crashCase) checkUnchanged(t *testing.T, before, now entryDetail) {
	t.Helper()
	late := now.lateReasons()
	if len(late) > 1 || slices.Contains(late, "possible_second_send") {
		t.Errorf("late results: %q", late)
	}
	want := before.Entry
	if now.Entry.Reason == "late_acceptance" { // by the holder's late result, or by a lookup since
		want.State, want.Class = "sent", ""
	}
	got := now.Entry
	if got.State != want.State || got.Class != want.Class || got.Attempts != want.Attempts || got.LeaseExpirations != want.LeaseExpirations {
		t.Errorf("it changed what was settled:\n%+v\nto\n%+v\n%s", before.Entry, got, now.text())
	}
	if want.State != "" {
		now.checkTimeline(t)
	}
}
