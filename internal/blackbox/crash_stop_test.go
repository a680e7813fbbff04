package blackbox

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// stopCases are those of a gateway that stops itself at a point, past its lease, while another one on the
// same ledger gets the redelivery.
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

// worthwhile are those that an ordinary run takes: what a stale holder could do with a call of its own.
func worthwhile(all []crashCase) []crashCase {
	var some []crashCase
	for _, c := range all {
		held := slices.Contains(pointsOfClaim, c.at) || slices.Contains(pointsOfCall, c.at)
		usual := c.contract == "idempotent" || slices.Contains(pointsOfLookup, c.at)
		if (c.outcome == "accepted" || c.outcome == scheduled) && (usual || held && c.contract == "blind") {
			some = append(some, c)
		}
	}
	return some
}

// TestAGatewayThatIsStoppedAnywhereWakesUpToNothing : what it claimed was given to another one, so it does not
// send, save for what was on the wire before; and what it learns late changes nothing but proof.
func TestAGatewayThatIsStoppedAnywhereWakesUpToNothing(t *testing.T) {
	t.Parallel()
	cases := stopCases()
	if !*wholeMatrix {
		cases = worthwhile(cases)
	}
	w := newCrashWorld(t, cases)
	w.together(t, cases, func(t *testing.T, c crashCase) {
		p, open := w.providers.of(t, c)
		cfg, d := c.config(on(t, c.store), p), c.reminder()
		at, second, sweeps := strings.Cut(c.at, "+")
		if sweeps { // they come by, and nothing is brought
			serveRigged(t, cfg, at+":kill").killed(at, d)
			at = second
		}
		sleeper := spawnRigged(t, cfg, at+":stop")
		var answered <-chan answer
		if sweeps {
			sleeper.stopped(at, nil)
		} else {
			sleeper.awake()
			d = c.reminder()
			answered = sleeper.stopped(at, d)
		}
		open()
		g := serve(t, cfg)
		c.comesToRest(t, g, p, d)
		before := g.of(d)

		sleeper.continues()
		if !sweeps {
			<-answered
		}
		// Woken at claim_unseen it finds that its reading is too old to go by, and calls nobody.
		holder := at != "claim_unseen" && slices.Contains(slices.Concat(pointsOfClaim, pointsOfCall), at)
		if holder && !awaited(10*time.Second, func() bool { return len(g.of(d).late()) > 0 }) {
			t.Errorf("it does not tell what became of its claim:\n%s", g.of(d).told())
		}
		sleeper.awake()
		if g.of(d).Entry.State == "sent" {
			sleeper.repeated(d, 1)
		}
		c.changesNothing(t, before, g.of(d))
		want, seen, more := c.expected(), p.tally(d), 0
		if at == "connected" { // suspended between its last look at the clock and the first byte
			more = 1
		}
		if seen.Accepts > 1 || seen.Calls > want.calls+more || c.contract != "idempotent" && seen.Calls > max(want.calls, 1) {
			t.Errorf("woken at %s it called: the provider saw %+v, and had to see %d calls", at, seen, want.calls)
		}
	})
}

// late are the reasons of the lines that a holder wrote after its entry had moved on.
func (s story) late() []string {
	var reasons []string
	for _, l := range s.Timeline {
		if l.Kind == "late" {
			reasons = append(reasons, l.Reason)
		}
	}
	return reasons
}

// changesNothing : but proof of acceptance makes any entry sent.
func (c crashCase) changesNothing(t *testing.T, before, now story) {
	t.Helper()
	late := now.late()
	if len(late) > 1 || slices.Contains(late, "possible_second_send") {
		t.Errorf("it told late: %q", late)
	}
	want := before.Entry
	if now.Entry.Reason == "late_acceptance" { // by the holder's own word, or by a question asked since
		want.State, want.Class = "sent", ""
	}
	got := now.Entry
	if got.State != want.State || got.Class != want.Class || got.Attempts != want.Attempts || got.Lapses != want.Lapses {
		t.Errorf("it changed what had been decided:\n%+v\nto\n%+v\n%s", before.Entry, got, now.told())
	}
	if want.State != "" {
		now.explains(t)
	}
}
