package api

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/broker"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// What package reminder takes as an id and as a type or channel; a test holds the two together.
var (
	idGrammar   = regexp.MustCompile(`^[!-~]{1,255}$`)
	wordGrammar = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
)

// request asks for one reminder.
func (s *server) request(w http.ResponseWriter, r *http.Request, caller Caller) {
	raw, err := readJSON(w, r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	wanted, err := reminder.Parse(raw)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	reply, err := s.Request.Request(r.Context(), caller.Name, wanted, broker.TraceOf(r.Header))
	switch {
	case err != nil:
		s.fail(w, r, unavailable(err))
	case reply.Entry.Absent():
		s.fail(w, r, errUnrecorded) // be it that a send is under way: nothing durable is no promise
	case reply.Conflict:
		s.clash(w, errConflict, reply.Entry)
	case reply.Entry.Final():
		writeJSON(w, http.StatusOK, entryOf(reply.Entry, s.Now()))
	default:
		s.accepted(w, reply)
	}
}

// clash refuses for what stands, and shows it where it is known.
func (s *server) clash(w http.ResponseWriter, err error, stands ledger.Entry) {
	p := problemOf(err)
	if !stands.Absent() {
		p.Entry = entryOf(stands, s.Now())
	}
	writeProblem(w, p)
}

// accepted answers for an entry that still has a way to go.
func (s *server) accepted(w http.ResponseWriter, reply ledger.Reply) {
	now := s.Now()
	wait := comeBack
	switch {
	case reply.RetryAfter > 0:
		wait = reply.RetryAfter
	case !reply.Entry.Due.IsZero():
		wait = reply.Entry.Due.On(now).Sub(now)
	}
	w.Header().Set("Location", "/v1/reminders/"+url.PathEscape(reply.Entry.ReminderID))
	setRetryAfter(w.Header(), wait)
	writeJSON(w, http.StatusAccepted, entryOf(reply.Entry, now))
}

// reminder tells what became of a reminder.
func (s *server) reminder(w http.ResponseWriter, r *http.Request, _ Caller) {
	id := pathParam(r, "reminder_id")
	if !idGrammar.MatchString(id) {
		s.fail(w, r, errNoReminder)
		return
	}
	entries, err := s.Reminder.ByReminder(r.Context(), id)
	switch {
	case err != nil:
		s.fail(w, r, unavailable(err))
	case len(entries) == 0:
		s.fail(w, r, errNoReminder)
	default:
		writeJSON(w, http.StatusOK, wire.EntryList{Items: entriesOf(entries, s.Now())})
	}
}

// cancel cancels a reminder.
func (s *server) cancel(w http.ResponseWriter, r *http.Request, caller Caller) {
	id := pathParam(r, "reminder_id")
	which, err := readCancel(w, r, id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	cancelled, err := s.Cancel.Cancel(r.Context(), caller.Name, id, which.Type, which.Channel)
	switch {
	case err != nil:
		s.fail(w, r, unavailable(err))
	case len(cancelled) == 0:
		s.fail(w, r, errNoReminder)
	default:
		writeJSON(w, http.StatusOK, cancelledOf(cancelled))
	}
}

// readCancel reads which of a reminder's entries a cancel is for: neither type nor channel is all.
func readCancel(w http.ResponseWriter, r *http.Request, id string) (wire.CancelRequest, error) {
	var which wire.CancelRequest
	if !idGrammar.MatchString(id) {
		return which, reminder.Faults{{Field: "reminder_id", Problem: "is not the id of a reminder"}}
	}
	if r.ContentLength == 0 {
		return which, nil
	}
	raw, err := readJSON(w, r)
	if err != nil {
		return which, err
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return which, nil // chunked, and empty all the same
	}
	// As a map, so that a member that is null is not taken for one that is absent: a producer that lost
	// the type must not cancel everything.
	var named map[string]string
	if err := json.Unmarshal(raw, &named); err != nil || raw[0] != '{' {
		return which, reminder.Faults{{Problem: "must be one JSON object with the texts type and channel, or nothing"}}
	}
	if len(named) == 0 {
		return which, nil
	}
	return cancelOf(named)
}

func cancelOf(named map[string]string) (wire.CancelRequest, error) {
	which := wire.CancelRequest{Type: named["type"], Channel: named["channel"]}
	var faults reminder.Faults
	for _, name := range []string{"channel", "type"} {
		word, given := named[name]
		delete(named, name)
		switch {
		case !given:
			faults = append(faults, reminder.Fault{Field: name, Problem: "is required: type and channel go together"})
		case !wordGrammar.MatchString(word):
			faults = append(faults, reminder.Fault{Field: name, Problem: "is not a word that a reminder can carry"})
		}
	}
	if len(named) > 0 {
		faults = append(faults, reminder.Fault{Problem: "has other members than type and channel; names match to the letter"})
	}
	if len(faults) > 0 {
		return wire.CancelRequest{}, faults
	}
	return which, nil
}

func cancelledOf(cancelled []ledger.Cancelled) wire.CancelledList {
	list := wire.CancelledList{Items: make([]wire.Cancelled, len(cancelled))}
	for i, c := range cancelled {
		list.Items[i] = wire.Cancelled{
			Type: c.Entry.Type, Channel: c.Entry.Channel,
			Result: wire.CancelledResult(c.Result), Tombstone: c.Tombstone, State: wire.State(c.Entry.State),
		}
	}
	return list
}

func entriesOf(entries []ledger.Entry, now time.Time) []wire.Entry {
	items := make([]wire.Entry, len(entries))
	for i, e := range entries {
		items[i] = entryOf(e, now)
	}
	return items
}

// entryOf is an entry as callers see it: no recipient, no content, and nothing of its holder.
func entryOf(e ledger.Entry, now time.Time) wire.Entry {
	return wire.Entry{
		ID:         e.EntryID(),
		ReminderID: e.ReminderID, ReservationID: e.ReservationID, Type: e.Type, Channel: e.Channel, UserID: e.UserID,
		State: wire.State(e.State), Class: wire.Class(e.Class), Reason: string(e.Reason), Code: e.Code,
		Provider: e.Provider, Receipt: e.Receipt, ReceiptMissing: wire.EntryReceiptMissing(e.Missing),
		Attempts: e.Attempts, Lapses: e.Lapses, Deliveries: e.Deliveries, Redrives: e.Redrives,
		Due: e.Due.On(now).UTC(), Deadline: e.Deadline.UTC(), Owner: wire.EntryOwner(e.Owner), Doubt: e.DoubtSince.UTC(),
		FirstSeen: e.FirstSeen.UTC(), Updated: e.Updated.UTC(),
		CorrelationID: e.CorrelationID, Version: e.Version,
	}
}
