package api

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ingest"
	"github.com/sendonce/sendonce/internal/ledger"
	"github.com/sendonce/sendonce/internal/reminder"
)

// The grammars of package reminder for an id, and for a type or channel; a test compares them.
var (
	idGrammar   = regexp.MustCompile(`^[!-~]{1,255}$`)
	wordGrammar = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)
)

// request processes a request for one reminder.
func (s *server) request(w http.ResponseWriter, r *http.Request, caller Caller) {
	raw, err := readJSON(w, r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	parsed, err := reminder.Parse(raw)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	reply, err := s.Request.Request(r.Context(), caller.Name, parsed, ingest.TraceFrom(r.Header))
	switch {
	case err != nil:
		s.writeError(w, r, unavailable(err))
	case reply.Entry.Absent():
		s.writeError(w, r, errUnrecorded) // even if a send is in flight: nothing durable means no promise
	case reply.Conflict:
		s.conflict(w, errConflict, reply.Entry)
	case reply.Entry.Final():
		writeJSON(w, http.StatusOK, entryOf(reply.Entry, s.Now()))
	default:
		s.accepted(w, reply)
	}
}

// conflict refuses a request because of the stored entry, and shows the entry where it is known.
func (s *server) conflict(w http.ResponseWriter, err error, stored ledger.Entry) {
	p := problemOf(err)
	if !stored.Absent() {
		p.Entry = entryOf(stored, s.Now())
	}
	writeProblem(w, p)
}

// accepted answers with a pending entry.
func (s *server) accepted(w http.ResponseWriter, reply ledger.Reply) {
	now := s.Now()
	wait := retryAfterDefault
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

// reminder returns the entries of a reminder.
func (s *server) reminder(w http.ResponseWriter, r *http.Request, _ Caller) {
	id := pathParam(r, "reminder_id")
	if !idGrammar.MatchString(id) {
		s.writeError(w, r, errNoReminder)
		return
	}
	entries, err := s.Reminder.ByReminder(r.Context(), id)
	switch {
	case err != nil:
		s.writeError(w, r, unavailable(err))
	case len(entries) == 0:
		s.writeError(w, r, errNoReminder)
	default:
		writeJSON(w, http.StatusOK, wire.EntryList{Items: entriesOf(entries, s.Now())})
	}
}

// cancel cancels a reminder.
func (s *server) cancel(w http.ResponseWriter, r *http.Request, caller Caller) {
	id := pathParam(r, "reminder_id")
	which, err := readCancel(w, r, id)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	cancelled, err := s.Cancel.Cancel(r.Context(), caller.Name, id, which.Type, which.Channel)
	switch {
	case err != nil:
		s.writeError(w, r, unavailable(err))
	case len(cancelled) == 0:
		s.writeError(w, r, errNoReminder)
	default:
		writeJSON(w, http.StatusOK, cancelledOf(cancelled))
	}
}

// readCancel reads which of a reminder's entries to cancel: without type and channel, all of them.
func readCancel(w http.ResponseWriter, r *http.Request, id string) (wire.CancelRequest, error) {
	var which wire.CancelRequest
	if !idGrammar.MatchString(id) {
		return which, reminder.Faults{{Field: "reminder_id", Problem: "is not a valid reminder id"}}
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
		return which, nil // chunked, but empty
	}
	// A map, so that a member that is null is not mistaken for one that is absent: a producer that lost the type must
	// not cancel everything.
	var members map[string]string
	if err := json.Unmarshal(raw, &members); err != nil || raw[0] != '{' {
		return which, reminder.Faults{{Problem: "must be one JSON object with the strings type and channel, or empty"}}
	}
	if len(members) == 0 {
		return which, nil
	}
	return cancelOf(members)
}

func cancelOf(members map[string]string) (wire.CancelRequest, error) {
	which := wire.CancelRequest{Type: members["type"], Channel: members["channel"]}
	var faults reminder.Faults
	for _, name := range []string{"channel", "type"} {
		value, given := members[name]
		delete(members, name)
		switch {
		case !given:
			faults = append(faults, reminder.Fault{Field: name, Problem: "is required: type and channel must be given together"})
		case !wordGrammar.MatchString(value):
			faults = append(faults, reminder.Fault{Field: name, Problem: "is not a valid " + name})
		}
	}
	if len(members) > 0 {
		faults = append(faults, reminder.Fault{Problem: "has members other than type and channel; names are case-sensitive"})
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

// entryOf returns an entry as callers see it: without recipient, content and holder.
func entryOf(e ledger.Entry, now time.Time) wire.Entry {
	return wire.Entry{
		ID:         e.EntryID(),
		ReminderID: e.ReminderID, ReservationID: e.ReservationID, Type: e.Type, Channel: e.Channel, UserID: e.UserID,
		State: wire.State(e.State), Class: wire.Class(e.Class), Reason: string(e.Reason), Code: e.Code,
		Provider: e.Provider, Receipt: e.Receipt, ReceiptMissing: wire.EntryReceiptMissing(e.ReceiptMissing),
		Attempts: e.Attempts, LeaseExpirations: e.LeaseExpirations, Deliveries: e.Deliveries, Redrives: e.Redrives,
		Due: e.Due.On(now).UTC(), Deadline: e.Deadline.UTC(), Owner: wire.EntryOwner(e.Owner), DoubtSince: e.DoubtSince.UTC(),
		FirstSeen: e.FirstSeen.UTC(), Updated: e.Updated.UTC(),
		CorrelationID: e.CorrelationID, Version: e.Version,
	}
}
