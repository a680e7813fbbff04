package simulation_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// startActors starts everybody who sends, cancels or operates.
func (sim *simulation) startActors(started time.Time) {
	for n := range sim.resolvers {
		p := resolver{sim: sim, rnd: sim.rand(resolverActor + n), number: n + 1}
		sim.background.Go(p.run)
	}
	senders, malformed := 0, []ledger.Identity(nil)
	for _, id := range sim.ids {
		created := sim.rnd.upTo(3 * time.Minute)
		for range 1 + sim.rnd.intN(3) {
			senders++
			s := sender{sim: sim, rnd: sim.rand(senderActor + senders), id: id, created: created}
			if s.prepare(started); s.malform(sim.rand(malformedActor + senders)) {
				malformed = append(malformed, s.id)
			}
			sim.background.Go(s.run)
		}
		if rnd := sim.rand(lateSenderActor + senders); rnd.intN(3) == 0 {
			s := sender{sim: sim, rnd: rnd, id: id, created: created}
			s.prepare(started)
			s.start += 4*time.Minute + rnd.upTo(90*time.Second)
			sim.background.Go(s.run)
		}
		if sim.rnd.intN(4) == 0 {
			at, rnd := sim.rnd.upTo(5*time.Minute), sim.rand(senderActor-1-senders)
			sim.background.Go(func() {
				time.Sleep(at)
				sim.cancel(id, sim.pickReplica(rnd))
			})
		}
	}
	sim.ids = append(sim.ids, malformed...)
	for n := range sim.operators {
		o := operator{sim: sim, rnd: sim.rand(operatorActor + n), number: n + 1}
		sim.background.Go(o.run)
	}
}

func (sim *simulation) pickReplica(rnd *randSource) *replica {
	n := rnd.intN(2)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.replicas[n]
}

// message returns a reminder as JSON; more holds further fields.
func message(id ledger.Identity, to, more string) []byte {
	return fmt.Appendf(nil, `{"reminder_id": %q, "type": %q, "channel": %q, "to": %q, "content": {"text": "hello"}%s}`,
		id.ReminderID, id.Type, id.Channel, to, more)
}

func mustParse(raw []byte) reminder.Reminder {
	r, err := reminder.Parse(raw)
	if err != nil {
		panic(err)
	}
	return r
}

// sender is a broker with one message, or an API caller with one request.
type sender struct {
	sim       *simulation
	rnd       *randSource
	id        ledger.Identity
	created   time.Duration // from the start of the run
	start     time.Duration // from the start of the run
	raw       []byte
	source    string // empty for an API caller
	tries     int
	malformed bool // the message cannot be parsed
}

func (s *sender) prepare(started time.Time) {
	s.start = s.created + s.rnd.upTo(time.Minute)
	to, more := "ada@example.org", ""
	if s.rnd.intN(3) == 0 {
		to = "eve@example.org"
	}
	switch s.rnd.intN(6) {
	case 0:
		more = fmt.Sprintf(`, "not_before": %q`, started.Add(time.Duration(s.rnd.intN(600))*time.Second).UTC().Format(time.RFC3339))
	case 1, 2:
		more = fmt.Sprintf(`, "deadline": %q`, started.Add(s.start+time.Duration(20+s.rnd.intN(200))*time.Second).UTC().Format(time.RFC3339))
	}
	more += fmt.Sprintf(`, "created_at": %q`, started.Add(s.created).UTC().Truncate(time.Second).Format(time.RFC3339))
	more += fmt.Sprintf(`, "user_id": %q`, userOf(s.id))
	s.raw = message(s.id, to, more)
	if s.rnd.intN(4) > 0 {
		s.source, s.tries = []string{"queue", "queue", "ordered"}[s.rnd.intN(3)], 1+s.rnd.intN(6)
	}
}

// malform sometimes makes the message one that only a later parser can read. It reports whether it did.
func (s *sender) malform(rnd *randSource) bool {
	if s.source == "" || rnd.intN(12) > 0 {
		return false
	}
	s.raw, s.malformed = bytes.Replace(s.raw, []byte(`"content"`), []byte(`"contents"`), 1), true
	s.id = ledger.MalformedIdentity(s.source, "m", s.raw)
	return true
}

func (s *sender) run() {
	time.Sleep(s.start)
	if s.source == "" {
		s.request()
		return
	}
	if s.deliver(s.source, s.tries) || s.source != "queue" || s.malformed || s.rnd.intN(2) == 0 {
		return
	}
	s.sim.record(brokerGaveUp, s.id.ReminderID)
	time.Sleep(s.rnd.upTo(30 * time.Second))
	s.deliver("buried", 4)
}

// deliver redelivers the message until it is acked or the broker gives up. It reports whether it was acked.
func (s *sender) deliver(source string, tries int) (acked bool) {
	for n := range tries {
		r := s.sim.pickReplica(s.rnd)
		answered := make(chan ledger.Reply, 1)
		s.sim.background.Go(func() {
			reply, err := r.deliverer.Deliver(context.Background(), ledger.Delivery{
				Source: source, MessageID: "m", DeliveryCount: n + 1, Raw: s.raw, DeadLetteredBy: map[string]string{"buried": "queue"}[source],
			})
			r.taskDone(err)
			if err != nil || r.crashed.Load() {
				return
			}
			if reply.Ack {
				s.sim.checkAck(s.id, "acked", reply)
			}
			if !s.malformed {
				s.sim.checkConflict(s.id, mustParse(s.raw).ContentHash(), reply)
			}
			answered <- reply
		})
		wait := time.Second + s.rnd.upTo(20*time.Second)
		select {
		case reply := <-answered:
			if reply.Ack {
				if acked = true; s.rnd.intN(4) > 0 || n+1 == tries {
					return acked
				}
				s.sim.record(redelivered, s.id.ReminderID)
			}
			if s.rnd.intN(2) == 0 {
				wait = min(reply.RetryAfter, time.Minute)
			}
		case <-time.After(12 * time.Second):
			s.sim.record(brokerTimeout, s.id.ReminderID)
		}
		time.Sleep(wait)
	}
	return acked
}

func (s *sender) request() {
	r := s.sim.pickReplica(s.rnd)
	wanted := mustParse(s.raw)
	reply, err := r.deliverer.Request(context.Background(), "caller", wanted, ledger.Trace{})
	r.taskDone(err)
	if err != nil || r.crashed.Load() || reply.Entry.Absent() {
		return
	}
	s.sim.checkConflict(s.id, wanted.ContentHash(), reply)
	if !reply.Conflict {
		s.sim.checkAck(s.id, "answered 200 or 202", reply)
	}
}

func (sim *simulation) cancel(id ledger.Identity, r *replica) {
	done, err := r.deliverer.Cancel(context.Background(), "caller", id.ReminderID, id.Type, id.Channel)
	if err != nil || r.crashed.Load() {
		return
	}
	sim.record(reminderCancelled, id.ReminderID)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.tally.counts[cancels]++
	switch result := done[0].Result; {
	case sim.lostCommits[id]: // this cancel may be among the lost commits
	case result == ledger.CancelInFlight:
		sim.inFlightAtCancel[id] = done[0].Entry.Holder // this holder may still call
	case result == ledger.CancelDropped, result == ledger.CancelNothing && done[0].Entry.CancelRequested:
		sim.droppedAt[id] = time.Now()
	}
}
