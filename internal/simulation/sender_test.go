package simulation_test

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// cast sets everybody up who sends or cancels.
func (w *world) cast(begun time.Time) {
	for n := range w.people {
		p := person{w: w, luck: w.dice(aPerson + n), number: n + 1}
		w.background.Go(p.works)
	}
	senders, poison := 0, []ledger.Identity(nil)
	for _, id := range w.ids {
		created := w.luck.upTo(3 * time.Minute)
		for range 1 + w.luck.roll(3) {
			senders++
			s := sender{w: w, luck: w.dice(aSender + senders), id: id, created: created}
			if s.prepares(begun); s.scribbles(w.dice(aScribbler + senders)) {
				poison = append(poison, s.id)
			}
			w.background.Go(s.play)
		}
		if luck := w.dice(aStraggler + senders); luck.roll(3) == 0 {
			s := sender{w: w, luck: luck, id: id, created: created}
			s.prepares(begun)
			s.start += 4*time.Minute + luck.upTo(90*time.Second)
			w.background.Go(s.play)
		}
		if w.luck.roll(4) == 0 {
			at, luck := w.luck.upTo(5*time.Minute), w.dice(aSender-1-senders)
			w.background.Go(func() {
				time.Sleep(at)
				w.cancel(id, w.pick(luck))
			})
		}
	}
	w.ids = append(w.ids, poison...)
	for n := range w.operators {
		o := operator{w: w, luck: w.dice(anOperator + n), number: n + 1}
		w.background.Go(o.works)
	}
}

func (w *world) pick(luck *dice) *replica {
	n := luck.roll(2)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas[n]
}

// message is a reminder as it comes in; more is further fields.
func message(id ledger.Identity, to, more string) []byte {
	return fmt.Appendf(nil, `{"reminder_id": %q, "type": %q, "channel": %q, "to": %q, "content": {"text": "hello"}%s}`,
		id.ReminderID, id.Type, id.Channel, to, more)
}

func parsed(raw []byte) reminder.Reminder {
	r, err := reminder.Parse(raw)
	if err != nil {
		panic(err)
	}
	return r
}

// sender is a broker with one message, or a caller with one request.
type sender struct {
	w       *world
	luck    *dice
	id      ledger.Identity
	created time.Duration // after the beginning
	start   time.Duration // after the beginning
	raw     []byte
	source  string // empty for a caller
	tries   int
	poison  bool // nobody can read it
}

func (s *sender) prepares(begun time.Time) {
	s.start = s.created + s.luck.upTo(time.Minute)
	to, more := "ada@example.org", ""
	if s.luck.roll(3) == 0 {
		to = "eve@example.org"
	}
	switch s.luck.roll(6) {
	case 0:
		more = fmt.Sprintf(`, "not_before": %q`, begun.Add(time.Duration(s.luck.roll(600))*time.Second).UTC().Format(time.RFC3339))
	case 1, 2:
		more = fmt.Sprintf(`, "deadline": %q`, begun.Add(s.start+time.Duration(20+s.luck.roll(200))*time.Second).UTC().Format(time.RFC3339))
	}
	more += fmt.Sprintf(`, "created_at": %q`, begun.Add(s.created).UTC().Truncate(time.Second).Format(time.RFC3339))
	more += fmt.Sprintf(`, "user_id": %q`, userOf(s.id))
	s.raw = message(s.id, to, more)
	if s.luck.roll(4) > 0 {
		s.source, s.tries = []string{"queue", "queue", "ordered"}[s.luck.roll(3)], 1+s.luck.roll(6)
	}
}

// scribbles makes the message, now and then, one that only a later version of the reader understands.
func (s *sender) scribbles(luck *dice) bool {
	if s.source == "" || luck.roll(12) > 0 {
		return false
	}
	s.raw, s.poison = bytes.Replace(s.raw, []byte(`"content"`), []byte(`"contents"`), 1), true
	s.id = ledger.MalformedIdentity(s.source, "m", s.raw)
	return true
}

func (s *sender) play() {
	time.Sleep(s.start)
	if s.source == "" {
		s.ask()
		return
	}
	if s.bring(s.source, s.tries) || s.source != "queue" || s.poison || s.luck.roll(2) == 0 {
		return
	}
	s.w.fire(gaveUp, s.id.ReminderID)
	time.Sleep(s.luck.upTo(30 * time.Second))
	s.bring("buried", 4)
}

// bring redelivers until it is acked or the broker loses patience, and tells which.
func (s *sender) bring(source string, tries int) (acked bool) {
	for n := range tries {
		r := s.w.pick(s.luck)
		answered := make(chan ledger.Reply, 1)
		s.w.background.Go(func() {
			reply, err := r.desk.Deliver(context.Background(), ledger.Delivery{
				Source: source, MessageID: "m", Count: n + 1, Raw: s.raw, GaveUpBy: map[string]string{"buried": "queue"}[source],
			})
			r.gives(err)
			if err != nil || r.crashed.Load() {
				return
			}
			if reply.Ack {
				s.w.promised(s.id, "acked", reply)
			}
			if !s.poison {
				s.w.contested(s.id, parsed(s.raw).ContentHash(), reply)
			}
			answered <- reply
		})
		wait := time.Second + s.luck.upTo(20*time.Second)
		select {
		case reply := <-answered:
			if reply.Ack {
				if acked = true; s.luck.roll(4) > 0 || n+1 == tries {
					return acked
				}
				s.w.fire(redelivered, s.id.ReminderID)
			}
			if s.luck.roll(2) == 0 {
				wait = min(reply.RetryAfter, time.Minute)
			}
		case <-time.After(12 * time.Second):
			s.w.fire(impatient, s.id.ReminderID)
		}
		time.Sleep(wait)
	}
	return acked
}

func (s *sender) ask() {
	r := s.w.pick(s.luck)
	wanted := parsed(s.raw)
	reply, err := r.desk.Request(context.Background(), "caller", wanted, ledger.Trace{})
	r.gives(err)
	if err != nil || r.crashed.Load() || reply.Entry.Absent() {
		return
	}
	s.w.contested(s.id, wanted.ContentHash(), reply)
	if !reply.Conflict {
		s.w.promised(s.id, "answered 200 or 202", reply)
	}
}

func (w *world) cancel(id ledger.Identity, r *replica) {
	done, err := r.desk.Cancel(context.Background(), "caller", id.ReminderID, id.Type, id.Channel)
	if err != nil || r.crashed.Load() {
		return
	}
	w.fire(cancelled, id.ReminderID)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.counted[cancels]++
	switch result := done[0].Result; {
	case w.forgotten[id]: // and maybe this with it
	case result == ledger.CancelInFlight:
		w.barred[id] = done[0].Entry.Holder // who may still be at it
	case result == ledger.CancelDropped, result == ledger.CancelNothing && done[0].Entry.CancelAsked:
		w.dropped[id] = time.Now()
	}
}
