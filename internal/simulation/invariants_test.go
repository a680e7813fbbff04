package simulation_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sendonce/sendonce/db/storetest"
	"github.com/sendonce/sendonce/internal/ledger"
)

// read returns an entry as stored. No faults are injected into the reads of the checks.
func (sim *simulation) read(id ledger.Identity) ledger.Entry {
	seen, _ := sim.store().Load(context.Background(), id)
	return seen.Entry
}

// checkedWrite executes a write and checks the invariants that concern it.
func (sim *simulation) checkedWrite(ctx context.Context, c ledger.Change, write func(context.Context, storetest.Store) (ledger.Entry, error)) (ledger.Entry, error) {
	sim.writeMu.Lock()
	defer sim.writeMu.Unlock()
	id := c.Entry.Identity
	before := sim.read(id)
	_, payloadErr := sim.store().Payload(context.Background(), id)
	stored, err := commit(ctx, sim, id, write)
	if err != nil {
		return stored, err
	}
	claimed := stored.State == ledger.Sending && stored.Holder != before.Holder
	switch {
	case stored.Version != before.Version+1:
		sim.violate("%v: version %d follows version %d", id, stored.Version, before.Version)
	case claimed && !before.Absent() && before.State != ledger.Waiting:
		sim.violate("%v: claimed while it is %s", id, before.State)
	case claimed && before.CancelRequested:
		sim.violate("%v: claimed after a cancel", id)
	case claimed && before.InDoubt() && stored.Fingerprint != before.Fingerprint:
		sim.violate("%v: repeated in doubt at %s, doubted at %s", id, stored.Fingerprint, before.Fingerprint)
	case c.Event != nil && c.Event.Kind == ledger.EventAttempt && c.Event.Holder != before.Holder && !sim.recentlyLost(id):
		sim.violate("%v: %s settles the attempt of %q", id, c.Event.Holder, before.Holder)
	case c.Audit != nil && c.Purge == ledger.PurgeNothing && sim.decisionOf(c.Audit.Actor).version != before.Version:
		sim.violate("%v: %s decides on a version other than %d", id, c.Audit.Actor, before.Version)
	}
	sim.checkClaim(before, stored, c, claimed)
	sim.checkRedriven(before, c, payloadErr)
	sim.checkPurge(before, stored, c)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	switch {
	case c.Event == nil:
	case c.Event.Kind != ledger.EventAttempt && before.State == ledger.Sending && stored.State == ledger.Sent:
		sim.provenInFlight[id]++
	case stored.Reason == ledger.ReasonRiskTaken, c.Event.Origin == ledger.OriginOperator && stored.State == ledger.Waiting:
		sim.risksTaken[id]++
	}
	return stored, nil
}

// wasProvenInFlight reports whether proof of acceptance arrived while a holder was sending the reminder.
func (sim *simulation) wasProvenInFlight(id ledger.Identity) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.provenInFlight[id] > 0
}

// recentJumps returns how far the ledger's clock may have jumped ahead between a read and a call.
func (sim *simulation) recentJumps() (sum time.Duration) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, l := range sim.jumps {
		if time.Since(l.at) <= lease {
			sum += l.by
		}
	}
	return sum
}

// checkCall checks the invariants at the moment of a call to a provider.
func (sim *simulation) checkCall(s ledger.Shipment, route ledger.Route) {
	e, now := sim.read(s.Identity), sim.now().Add(-sim.recentJumps())
	switch {
	case sim.recentlyLost(s.Identity): // its claim may be lost
	case s.SendKey != s.Identity.SendKey() || len(s.Content) == 0:
		sim.violate("%v: called with other content", s.Identity)
	case e.State == ledger.Sent && sim.wasProvenInFlight(s.Identity): // the proof arrived just before the call
	case e.State != ledger.Sending:
		sim.violate("%v: called without a claim; it is %s", s.Identity, e.State)
	case e.Fingerprint != route.Fingerprint:
		sim.violate("%v: called at %s, claimed for %s", s.Identity, route.Fingerprint, e.Fingerprint)
	case now.After(e.Deadline):
		sim.violate("%v: called %v past its deadline", s.Identity, now.Sub(e.Deadline))
	case now.After(e.LeaseUntil.On(now).Add(-margin)):
		sim.violate("%v: called %v before the end of its lease", s.Identity, e.LeaseUntil.On(now).Sub(now))
	case e.InDoubt() && route.Contract.Kind != ledger.ContractIdempotent:
		sim.violate("%v: repeated in doubt under a %s contract", s.Identity, route.Contract.Kind)
	case e.InDoubt() && now.After(e.DoubtSince.Add(route.Contract.Window-margin)):
		sim.violate("%v: repeated %v after the doubt began, within %v", s.Identity, now.Sub(e.DoubtSince), route.Contract.Window)
	}
	sim.mu.Lock()
	cancelledHolder, cancelled := sim.inFlightAtCancel[s.Identity]
	at, dropped := sim.droppedAt[s.Identity]
	holder, erased := sim.holderAtErasure[s.Identity]
	sim.calls[s.Identity]++
	sim.callsByHolder[e.Holder]++
	twice := sim.callsByHolder[e.Holder] > 1 && !sim.lostCommits[s.Identity]
	if e.InDoubt() {
		sim.tally.counts[callsInDoubt]++
	}
	sim.mu.Unlock()
	if twice {
		sim.violate("%v: called twice under the claim of %s", s.Identity, e.Holder)
	}
	if cancelled && cancelledHolder != e.Holder {
		sim.violate("%v: called by %s after a cancel during the claim of %q", s.Identity, e.Holder, cancelledHolder)
	}
	if erased && e.State == ledger.Sending && e.Holder != holder {
		sim.violate("%v: called by %s after an erasure during the claim of %q", s.Identity, e.Holder, holder)
	}
	if dropped {
		sim.violate("%v: called %v after a cancel dropped it", s.Identity, time.Since(at))
	}
}

// recordSend records that a provider accepted a reminder as a new message, and returns how many there are now.
func (sim *simulation) recordSend(id ledger.Identity, fingerprint string) int {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if sim.sends[id] = append(sim.sends[id], send{time.Now(), fingerprint}); sim.everRedriven[id] {
		sim.tally.counts[sendsAfterRedrive]++
	}
	return len(sim.sends[id])
}

// checkAck checks what an ack or a 202 promises, at the moment at which it is given.
func (sim *simulation) checkAck(id ledger.Identity, promise string, reply ledger.Reply) {
	e := sim.read(id)
	durable := e.Final() || e.State == ledger.Unknown || e.Owner == ledger.OwnerLedger
	if (e.Absent() || !durable || e.Version < reply.Entry.Version) && !sim.recentlyLost(id) && !sim.wasDeletedOrErased(id) {
		sim.violate("%v: %s, but it is %q at version %d, owned by %q", id, promise, e.State, e.Version, e.Owner)
	}
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.acked[id] = !sim.lostCommits[id]
	sim.tally.counts[acks]++
}

// checkConflict checks that a sender of other content is told about the conflict.
func (sim *simulation) checkConflict(id ledger.Identity, hash string, reply ledger.Reply) {
	if e := sim.read(id); e.ContentHash != "" && e.ContentHash != hash { // an entry that was cancelled before its first delivery has no hash
		sim.record(otherContent, id.ReminderID)
		if !reply.Entry.Absent() && !reply.Conflict && !sim.wasDeletedOrErased(id) {
			sim.violate("%v: other content was accepted without a conflict in the reply", id)
		}
	} else if reply.Conflict && !sim.recentlyLost(id) && !sim.wasDeletedOrErased(id) {
		sim.violate("%v: a conflict in the reply for the same content", id)
	}
}

// checkOverdue checks, once no more faults are injected, that nothing outlives its deadline.
func (sim *simulation) checkOverdue() {
	for _, id := range sim.ids {
		if e, now := sim.read(id), sim.now(); e.State == ledger.Waiting && now.After(e.Deadline.Add(lease)) {
			sim.violate("%v: waits %v past its deadline", id, now.Sub(e.Deadline))
		}
	}
}

// checkFinalStates checks the state of every entry at the end of the run.
func (sim *simulation) checkFinalStates() {
	for _, id := range sim.ids {
		detail, _ := sim.store().EntryDetail(context.Background(), id)
		e, events := detail.Entry, detail.Timeline
		sim.details = append(sim.details, describe(id, detail))
		sim.mu.Lock()
		sent, called, acked, proven, lost := sim.sends[id], sim.calls[id], sim.acked[id], sim.reportedSent[id], sim.lostCommits[id]
		risksTaken, overtaken := sim.risksTaken[id], sim.provenInFlight[id]
		sim.mu.Unlock()
		sim.checkAudit(id, detail.Audit)
		for kind, n := range map[metric]int{
			calls: called, repeatedCalls: max(called-1, 0), sends: len(sent), secondSends: max(len(sent)-1, 0), risks: risksTaken,
		} {
			sim.count(kind, n)
		}
		if e.Absent() {
			if (acked || proven || called > 0 && !lost) && !sim.wasDeletedOrErased(id) {
				sim.violate("%v: promised or called, but there is no entry", id)
			}
			if len(sent) > 1+risksTaken && !sim.sentByTwoProviders(id) {
				sim.violate("%v: sent %d times, with %d risks taken, and deleted since: %s", id, len(sent), risksTaken, sent)
			}
			continue
		}
		sim.count(entries, 1)
		recorded := sim.countCallEvents(id, events) + sim.callEventsDeleted(id)
		sim.checkErased(id, detail)
		sim.checkNotSent(id, detail)
		switch {
		case len(sent) > 1+risksTaken && !sim.sentByTwoProviders(id):
			sim.violate("%v: sent %d times, with %d risks taken: %s", id, len(sent), risksTaken, sent)
		case called > recorded+overtaken && !lost:
			sim.violate("%v: %d calls, %d call events", id, called, recorded)
		case e.State == ledger.Sent && e.ReceiptMissing != ledger.MissingAssumed && len(sent) == 0 && !decidedByOperator(events):
			sim.violate("%v: sent by the ledger, but accepted by no provider", id)
		case proven && (e.State != ledger.Sent || e.ReceiptMissing == ledger.MissingAssumed || e.ReceiptMissing == ledger.MissingResolved):
			sim.violate("%v: %s (%s, %s), although its provider reported that it accepted it", id, e.State, e.Reason, e.ReceiptMissing)
		case e.State == ledger.Unknown && sim.canLookup(e) && e.LookupsNotFound < len(lookupSchedule()):
			sim.violate("%v: unknown without further lookups after %d", id, e.LookupsNotFound)
		case e.State == ledger.Unknown:
			sim.count(endedUnknown, 1)
		case !e.Final():
			sim.violate("%v: does not come to rest: %s, %s, owner %s, due %v", id, e.State, e.Reason, e.Owner, e.Due.On(sim.now()).Sub(sim.now()))
		}
		sim.checkSecondSendAlarm(id, events)
		if !lost {
			sim.checkOutcomesRecorded(id, events)
		}
	}
}

// decidedByOperator reports whether an operator decided about the entry: operators may be wrong.
func decidedByOperator(events []ledger.TimelineEvent) bool {
	return slices.ContainsFunc(events, func(event ledger.TimelineEvent) bool {
		return event.Origin == ledger.OriginOperator && event.Reason != ledger.ReasonDiscarded && event.Reason != ledger.ReasonErased
	})
}

// countCallEvents counts the timeline events that record calls, and checks that there is one for each holder.
func (sim *simulation) countCallEvents(id ledger.Identity, events []ledger.TimelineEvent) (n int) {
	settled := map[string]bool{}
	for _, event := range events {
		switch event.Kind {
		case ledger.EventLeaseExpired:
			sim.count(leaseExpirations, 1)
			n++
			continue
		case ledger.EventLate:
			sim.count(lateOutcomes, 1)
		case ledger.EventAttempt:
		default:
			continue
		}
		if settled[event.Holder] {
			sim.violate("%v: the call of %s is recorded twice", id, event.Holder)
		}
		settled[event.Holder] = true
		n++
	}
	return n
}

// checkSecondSendAlarm checks that a timeline with two receipts has an event that reports a possible second send.
func (sim *simulation) checkSecondSendAlarm(id ledger.Identity, events []ledger.TimelineEvent) {
	receipts, alarm, reports := map[string]bool{}, false, map[string]bool{}
	for _, event := range events {
		byCall := (event.Kind == ledger.EventAttempt || event.Kind == ledger.EventLate) && event.Outcome.Result == ledger.ResultAccepted
		byReport := event.Kind == ledger.EventStatus && (event.Outcome.Cause == string(ledger.StatusAccepted) || event.Outcome.Cause == string(ledger.StatusDelivered))
		if (byCall || byReport || event.Kind == ledger.EventLookup) && event.Outcome.Receipt != "" {
			receipts[event.Outcome.Receipt] = true
		}
		alarm = alarm || event.Reason == ledger.ReasonPossibleSecondSend
	}
	for _, event := range events {
		if event.Kind == ledger.EventStatus && reports[event.MessageID] {
			sim.violate("%v: the status event %s is recorded twice", id, event.MessageID)
		}
		reports[event.MessageID] = true
	}
	if alarm {
		sim.count(secondSendAlarms, 1)
	}
	if len(receipts) > 1 && !alarm {
		sim.violate("%v: two receipts without an event for a possible second send", id)
	}
}

// checkOutcomesRecorded checks that every outcome that a replica received from a call was recorded, unless the
// replica crashed first.
func (sim *simulation) checkOutcomesRecorded(id ledger.Identity, events []ledger.TimelineEvent) {
	for _, r := range sim.allReplicas {
		sim.mu.Lock()
		received := sim.outcomes[outcomeKey{id, r}]
		sim.mu.Unlock()
		recorded := 0
		for _, event := range events {
			own := strings.HasPrefix(event.Holder, r.name+".")
			if own && (event.Kind == ledger.EventAttempt || event.Kind == ledger.EventLate) {
				recorded++
			}
		}
		if recorded < received && !r.crashed.Load() && !r.settleFailed.Load() {
			sim.violate("%v: %s received %d outcomes and recorded %d", id, r.name, received, recorded)
		}
	}
}

func timeOfDay(t time.Time) string { return t.Format("15:04:05.000") }

// describe formats everything that the ledger stores about an entry.
func describe(id ledger.Identity, detail ledger.EntryDetail) string {
	var b strings.Builder
	e := detail.Entry
	fmt.Fprintf(&b, "   %v: %q %s by %s at %s, %d spent, doubt since %s, deadline %s", id, e.State, e.Reason, e.Owner,
		e.Fingerprint, e.BudgetUsed, timeOfDay(e.DoubtSince), timeOfDay(e.Deadline))
	for _, l := range detail.Timeline {
		fmt.Fprintf(&b, "\n   %2d %s %s %s %s %s %s %s", l.Version, timeOfDay(l.At), l.Kind, l.State, l.Reason, l.Origin, l.Holder, l.Provider)
		if l.Kind != ledger.EventDecision {
			fmt.Fprintf(&b, " %s %s %s started %s", l.Outcome.Result, l.Outcome.Cause, l.Outcome.Receipt, timeOfDay(l.Started))
		}
	}
	return b.String()
}
