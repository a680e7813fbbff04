package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/sendonce/sendonce/api/internal/wire"
	"github.com/sendonce/sendonce/internal/ledger"
)

// entries lists entries, newest first.
func (s *server) entries(w http.ResponseWriter, r *http.Request, _ Caller) {
	query, page, err := s.readEntries(r.URL.RawQuery, "entries", filters)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.listEntries(w, r, query, page)
}

func (s *server) listEntries(w http.ResponseWriter, r *http.Request, query ledger.Query, page page) {
	entries, err := s.List.List(r.Context(), query)
	if err != nil {
		s.writeError(w, r, unavailable(err))
		return
	}
	list := wire.EntryList{}
	if len(entries) > page.limit {
		entries = entries[:page.limit]
		last := entries[page.limit-1]
		list.Next = s.cursors.seal(listPosition{last.FirstSeen, last.EntryID()}, page.list)
	}
	list.Items = entriesOf(entries, s.Now())
	writeJSON(w, http.StatusOK, list)
}

// entryDetail returns everything that is known about one entry.
func (s *server) entryDetail(w http.ResponseWriter, r *http.Request, caller Caller) {
	detail, err := s.readEntryDetail(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	writeJSON(w, http.StatusOK, entryDetailOf(detail, caller.Role, s.Now()))
}

func (s *server) readEntryDetail(r *http.Request) (ledger.EntryDetail, error) {
	id, ok := ledger.ParseEntryID(pathParam(r, "id"))
	if !ok {
		return ledger.EntryDetail{}, errNoEntry
	}
	detail, err := s.EntryDetail.EntryDetail(r.Context(), id)
	if err != nil {
		return ledger.EntryDetail{}, unavailable(err)
	}
	return detail, nil
}

func entryDetailOf(detail ledger.EntryDetail, role Role, now time.Time) wire.EntryDetail {
	entry, conflicts := entryOf(detail.Entry, now), len(detail.Conflicts)
	entry.Conflicts = &conflicts
	faults := faultsOf(detail)
	return wire.EntryDetail{
		Entry: entry, SendKey: detail.Entry.SendKey, Faults: faults, Payload: payloadOf(detail.Payload, role), PayloadPurged: purged(detail),
		Timeline: timelineOf(detail, faults, now), Conflicts: conflictsOf(detail.Conflicts), Audit: entryAuditOf(detail.Audit),
	}
}

// faultsOf returns what was wrong with a message that could not be parsed, as its dead letter stores it; none once
// its payload is purged.
func faultsOf(detail ledger.EntryDetail) []string {
	if detail.Entry.Type != ledger.MalformedType || detail.Payload == nil {
		return nil
	}
	var stored struct {
		Faults []string `json:"faults"`
	}
	if err := json.Unmarshal(detail.Payload.Metadata, &stored); err != nil {
		return nil
	}
	return stored.Faults
}

func timelineOf(detail ledger.EntryDetail, faults []string, now time.Time) []wire.TimelineEvent {
	events := make([]wire.TimelineEvent, len(detail.Timeline))
	for i, e := range detail.Timeline {
		c := eventContext{faults: faults, now: now}
		if i == len(events)-1 {
			c.due, c.nextLookup = detail.Entry.Due.On(now), detail.Entry.NextLookup.On(now)
		}
		events[i] = timelineEventOf(e, eventText(e, c))
	}
	return events
}

func timelineEventOf(e ledger.TimelineEvent, text string) wire.TimelineEvent {
	event := wire.TimelineEvent{
		Version: e.Version, At: e.At.UTC(), Kind: wire.TimelineEventKind(e.Kind), Text: text,
		State: wire.State(e.State), Reason: string(e.Reason),
		Origin: string(e.Origin), Source: e.Source, MessageID: e.MessageID, DeliveryCount: e.DeliveryCount,
		Attempt: e.AttemptNumber, Provider: e.Provider, Started: e.Started.UTC(), Finished: e.Finished.UTC(),
		Receipt: e.Outcome.Receipt, Status: e.Outcome.Status, Code: e.Outcome.Code,
		RequestID: e.Outcome.RequestID, Cause: e.Outcome.Cause, RetryAfterSeconds: wholeSeconds(e.Outcome.RetryAfter),
	}
	switch e.Kind {
	case ledger.EventDecision, ledger.EventLookup, ledger.EventStatus:
		if e.Outcome.Result != ledger.ResultNotCalled {
			return event // no call, so no outcome: its zero value would read as doubt
		}
	}
	event.Outcome = wire.TimelineEventOutcome(e.Outcome.Result.String())
	return event
}

func entryAuditOf(audit []ledger.AuditEvent) []wire.EntryAuditEvent {
	items := make([]wire.EntryAuditEvent, len(audit))
	for i, a := range audit {
		items[i] = wire.EntryAuditEvent{
			At: a.At.UTC(), Actor: a.Actor, Role: a.Role, Action: a.Action, Reason: a.Reason,
			Before: membersOf(a.Before), After: membersOf(a.After),
		}
	}
	return items
}

// membersOf decodes a JSON object from the audit log; nil where there is none.
func membersOf(object string) (members map[string]any) {
	if err := json.Unmarshal([]byte(object), &members); err != nil {
		return nil
	}
	return members
}

func conflictsOf(conflicts []ledger.Conflict) []wire.Conflict {
	items := make([]wire.Conflict, len(conflicts))
	for i, c := range conflicts {
		items[i] = wire.Conflict{
			ContentHash: c.ContentHash, Source: c.Source, MessageID: c.MessageID, FirstSeen: c.FirstSeen.UTC(),
		}
	}
	return items
}
